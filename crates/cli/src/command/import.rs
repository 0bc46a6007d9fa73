//! `benchmesh import`: logs of other tools become runs. All logs are parsed before the first is stored.

use super::annotate;
use super::source::Asked;
use crate::args::ListFormat;
use crate::args::import::ImportArguments;
use crate::client::{CallError, Client};
use crate::failure::{Outcome, wrong_usage};
use crate::input_file::{self, Accept};
use crate::output;
use anyhow::Context;
use benchmesh_results::import::{self, Hints, MAX_LOG_BYTES, Tool};
use benchmesh_store::import::{ImportedRun, StoreImportError};
use std::path::Path;
use std::time::SystemTime;

pub async fn import(arguments: ImportArguments) -> anyhow::Result<Outcome> {
    let mut runs: Vec<ImportedRun> = Vec::new();
    for file in &arguments.files {
        let log = read(file, &arguments)
            .map_err(|error| wrong_usage(format!("{}: {error:#}", file.display())))?;
        if runs
            .iter()
            .any(|run| run.logs.iter().any(|(_, text)| *text == log.1))
        {
            return Err(wrong_usage(format!(
                "{} has the same content as an earlier file of this import",
                file.display()
            )));
        }
        match runs.last_mut() {
            Some(run) if arguments.repeats => run.logs.push(log),
            _ => runs.push(ImportedRun {
                name: name(file, &arguments),
                target: arguments.target.clone().unwrap_or_default(),
                system: arguments
                    .system
                    .clone()
                    .or_else(|| arguments.target.clone())
                    .unwrap_or_default(),
                logs: vec![log],
            }),
        }
    }
    let names: Vec<String> = runs.iter().map(|run| run.name.clone()).collect();
    let mut stored = Vec::with_capacity(runs.len());
    match arguments.source.asked()? {
        Asked::Collector(address) => {
            let mut client = Client::connect(&address)
                .await
                .map_err(CallError::into_error)?;
            for run in &runs {
                let run = client.import_run(run).await.map_err(CallError::into_error);
                stored.push(run.map_err(|error| with_stored_runs(error, &names, &stored))?);
            }
        }
        Asked::Database(path) => {
            let store = annotate::open_or_create(&path).await?;
            let mut failed = None;
            for run in runs {
                match store.import_run(run).await {
                    Ok(run) => stored.push(run.0),
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
            store.close().await;
            match failed {
                None => {}
                Some(StoreImportError::Store(error)) => {
                    return Err(with_stored_runs(anyhow::Error::new(error), &names, &stored));
                }
                Some(error) => {
                    return Err(with_stored_runs(
                        wrong_usage(error.to_string()),
                        &names,
                        &stored,
                    ));
                }
            }
        }
    }
    match arguments.format {
        ListFormat::Json => output::document(&serde_json::json!({ "runs": stored }))?,
        ListFormat::Table => {
            for (run, name) in stored.iter().zip(names) {
                output::print_notice(&format!(
                    "{name} is imported as run {run}: benchmesh report {run}"
                ));
            }
        }
    }
    Ok(Outcome::Done)
}

/// Adds to the error which runs were stored before the failing one.
fn with_stored_runs(error: anyhow::Error, names: &[String], stored: &[i64]) -> anyhow::Error {
    let Some(name) = names.get(stored.len()) else {
        return error;
    };
    let before: Vec<String> = stored.iter().map(i64::to_string).collect();
    match before.is_empty() {
        true => error.context(format!("{name} is not stored")),
        false => error.context(format!(
            "{name} is not stored; the files before it are, as run {}",
            before.join(", ")
        )),
    }
}

fn name(file: &Path, arguments: &ImportArguments) -> String {
    let stem = file
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    arguments
        .name
        .clone()
        .or(stem)
        .unwrap_or_else(|| String::from("imported"))
}

fn read(file: &Path, arguments: &ImportArguments) -> anyhow::Result<(import::ImportedLog, String)> {
    let facts = std::fs::metadata(file).context("it cannot be read")?;
    let text =
        input_file::read_text(file, MAX_LOG_BYTES, Accept::AnyFile).context("it cannot be read")?;
    let tool = match arguments.tool {
        Some(tool) => tool.into(),
        None => Tool::of(&text).ok_or_else(|| {
            anyhow::anyhow!("the tool cannot be detected from this output (fio's and iperf3's JSON, bonnie++'s and \
                elbencho's CSV, iozone, rados bench, dd, time); name one with --tool")
        })?,
    };
    let written = facts
        .modified()
        .ok()
        .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
        .and_then(|since| i64::try_from(since.as_micros()).ok());
    let hints = Hints {
        mode: arguments.mode.as_str().to_owned(),
        written_us: written.unwrap_or(0),
    };
    let log = import::parse(tool, &text, &hints)?;
    Ok((log, text))
}

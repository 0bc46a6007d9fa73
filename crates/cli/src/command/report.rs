//! `benchmesh report`, and how a report is written wherever one is.

use super::source::Asked;
use crate::args::{ReportArguments, ReportFormat};
use crate::client::{CallError, Client};
use crate::failure::{Outcome, wrong_usage};
use crate::{output, terminal};
use anyhow::Context;
use benchmesh_collector::query::QueryError;
use benchmesh_collector::report::{self, Report, ReportError};
use std::path::Path;

pub async fn report(arguments: ReportArguments) -> anyhow::Result<Outcome> {
    let report = match arguments.source.asked()? {
        Asked::Database(path) => from_file(&path, &arguments.run).await?,
        Asked::Collector(address) => {
            let mut client = Client::connect(&address)
                .await
                .map_err(CallError::into_error)?;
            client.report(&arguments.run).await?
        }
    };
    output::result_to(
        arguments.out.as_deref(),
        &written(&report, arguments.format)?,
    )?;
    Ok(Outcome::Done)
}

/// The report of a run in a database file.
pub async fn from_file(path: &Path, run: &str) -> anyhow::Result<Report> {
    match report::load_file(path, run).await {
        Ok(report) => Ok(report),
        Err(ReportError::Open(
            error @ (QueryError::NoFile { .. } | QueryError::IsDirectory { .. }),
        )) => Err(wrong_usage(error.to_string())),
        Err(error @ (ReportError::NoRun { .. } | ReportError::NoRuns)) => {
            Err(wrong_usage(format!("{}: {error}", path.display())))
        }
        Err(error) => Err(error)
            .with_context(|| format!("read the report of {run:?} from {}", path.display())),
    }
}

/// The report as text in one of the formats.
pub fn written(report: &Report, format: ReportFormat) -> anyhow::Result<String> {
    Ok(match format {
        ReportFormat::Table => table(report),
        ReportFormat::Markdown => report::markdown(report),
        ReportFormat::Csv => report::csv(report),
        ReportFormat::Json => {
            let mut text =
                serde_json::to_string_pretty(report).context("write the report as JSON")?;
            text.push('\n');
            text
        }
    })
}

fn table(report: &Report) -> String {
    let mut out = String::new();
    for line in report::heading(report) {
        out.push_str(&terminal::clean(&line));
        out.push('\n');
    }
    for sheet in report::sheets(report) {
        out.push('\n');
        out.push_str(&terminal::sheet(&sheet));
    }
    out
}

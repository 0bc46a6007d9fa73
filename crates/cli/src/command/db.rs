//! `benchmesh db`: check, backup, merge, delete, prune and export.

mod parquet;
mod prune;

use crate::args::db::{DbCommand, ExportArguments, ExportFormat};
use crate::failure::{Outcome, wrong_usage};
use crate::output;
use benchmesh_answers::export::{self, ExportError, Format, Request};
use benchmesh_store::maintain::{self, MaintainError, RetentionState};
use benchmesh_workloads::figures;
use indicatif::ProgressBar;
use std::io::{self, BufWriter};

pub async fn db(command: DbCommand) -> anyhow::Result<Outcome> {
    match command {
        DbCommand::Check(file) => {
            let found = maintain::check(&file.db).map_err(into_error)?;
            for line in &found {
                output::result(&format!("{line}\n"))?;
            }
            match found.is_empty() {
                true => {
                    output::print_notice(&format!("{} is sound", file.db.display()));
                    let retention = maintain::retention_settings(&file.db).map_err(into_error)?;
                    output::print_notice(&retention_in_words(&retention));
                }
                false => anyhow::bail!(
                    "{} is damaged; restore a backup, or recover readable rows with: sqlite3 {} .recover",
                    file.db.display(),
                    file.db.display()
                ),
            }
        }
        DbCommand::Backup(backup) => {
            maintain::backup(&backup.file.db, &backup.copy).map_err(into_error)?;
            output::print_notice(&format!("copied to {}", backup.copy.display()));
        }
        DbCommand::Merge(merge) => {
            // Drawn on a terminal only.
            let bar = ProgressBar::new(0).with_message("samples");
            let mut progress = |done, total| {
                bar.set_length(total);
                bar.set_position(done);
            };
            let merged = maintain::merge(&merge.file.db, &merge.other, &mut progress);
            let merged = merged.await.map_err(into_error)?;
            bar.finish_and_clear();
            output::print_notice(&format!(
                "merged {} runs of {} into {} ({} rows)",
                merged.runs,
                merge.other.display(),
                merge.file.db.display(),
                merged.rows
            ));
        }
        DbCommand::Delete(delete) => {
            let (run, name) = maintain::delete(&delete.file.db, &delete.run)
                .await
                .map_err(into_error)?;
            output::print_notice(&format!("deleted run {run} ({name})"));
        }
        DbCommand::Prune(arguments) => return prune::prune(arguments).await,
        DbCommand::Export(arguments) => export(arguments)?,
    }
    Ok(Outcome::Done)
}

/// The retention settings and the size.
fn retention_in_words(retention: &RetentionState) -> String {
    let bytes = |bytes: i64| figures::bytes(u64::try_from(bytes).unwrap_or(0));
    let span = |us: Option<i64>| {
        let span = us.and_then(|us| figures::between(0, us));
        span.map_or_else(|| "forever".to_owned(), figures::span)
    };
    let RetentionState {
        settings,
        size,
        pruned,
    } = retention;
    let tags: Vec<String> = settings
        .keep_tags
        .iter()
        .map(|(key, value)| format!(", all rows of runs with {key}={value}"))
        .collect();
    let pruned = pruned.map_or_else(String::new, |(at_us, rows)| {
        let (rows, at) = (figures::count(rows), figures::instant(at_us));
        format!("; {rows} rows pruned on {at}")
    });
    format!(
        "size {}, of which {} are in use; it keeps rows of seconds {}, rows of 10 s {} after their run, {}{}{pruned}",
        bytes(size.file_bytes),
        bytes(size.used_bytes()),
        span(settings.keep_seconds_us),
        span(settings.keep_10s_us),
        match settings.max_size_bytes {
            Some(limit) => format!("at most {}", bytes(limit)),
            None => "no size limit".to_owned(),
        },
        tags.concat()
    )
}

fn export(arguments: ExportArguments) -> anyhow::Result<()> {
    let format = match arguments.format {
        ExportFormat::Csv => Format::Csv,
        ExportFormat::Jsonl => Format::JsonLines,
        ExportFormat::Parquet => return parquet::export(arguments),
    };
    if arguments.site.is_some() {
        return Err(wrong_usage(
            "--site names the runs in Parquet files: add --format parquet, or leave it out",
        ));
    }
    let request = Request {
        path: arguments.file.db,
        run: arguments.run,
        tables: arguments.table,
        format,
    };
    let Some(directory) = arguments.out else {
        let mut out = BufWriter::new(io::stdout().lock());
        return match export::to_writer(&request, &mut out) {
            Err(ExportError::Write { source, .. }) => {
                Err(anyhow::Error::new(source).context(output::StdoutClosed))
            }
            done => done.map(drop).map_err(export_error),
        };
    };
    let exported = export::to_directory(&request, &directory).map_err(export_error)?;
    let rows: u64 = exported.iter().map(|one| one.rows).sum();
    output::print_notice(&format!(
        "{} has {} tables and views, {rows} rows",
        directory.display(),
        exported.len()
    ));
    Ok(())
}

fn export_error(error: ExportError) -> anyhow::Error {
    match error.is_request() {
        true => wrong_usage(error.to_string()),
        false => anyhow::Error::new(error),
    }
}

fn into_error(error: MaintainError) -> anyhow::Error {
    match error.is_request() {
        true => wrong_usage(error.to_string()),
        false => anyhow::Error::new(error),
    }
}

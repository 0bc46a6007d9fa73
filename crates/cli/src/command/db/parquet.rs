//! `benchmesh db export --format parquet`.

use crate::args::db::ExportArguments;
use crate::failure::wrong_usage;
use crate::output;
use benchmesh_archive::parquet::{self, Exported, Progress, Request};
use benchmesh_workloads::figures;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;

pub(super) fn export(arguments: ExportArguments) -> anyhow::Result<()> {
    let Some(directory) = arguments.out else {
        return Err(wrong_usage(
            "Parquet files need a directory: add --out DIRECTORY",
        ));
    };
    let request = Request {
        db: arguments.file.db,
        run: arguments.run,
        tables: arguments.table,
        site: arguments.site,
        directory,
    };
    let shown = Shown::default();
    let exported = parquet::export(&request, &mut |progress| shown.update(progress));
    shown.bar.finish_and_clear();
    let exported = exported.map_err(|error| match error.is_request() {
        true => wrong_usage(error.to_string()),
        false => anyhow::Error::new(error),
    })?;
    for line in in_words(&exported, &request.directory) {
        output::print_notice(&line);
    }
    Ok(())
}

/// A bar on a terminal, otherwise a line for each run that was written.
struct Shown {
    bar: ProgressBar,
}

impl Default for Shown {
    fn default() -> Self {
        let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} runs, {eta} left  {msg}");
        let bar = ProgressBar::new(0);
        Self {
            bar: match style {
                Ok(style) => bar.with_style(style),
                Err(_) => bar,
            },
        }
    }
}

impl Shown {
    fn update(&self, progress: Progress<'_>) {
        match progress {
            Progress::Begin(runs) => self.bar.set_length(u64::try_from(runs).unwrap_or(u64::MAX)),
            Progress::Rows(run, rows) => {
                self.bar
                    .set_message(format!("run {}: {}", run.id, row_count(rows)))
            }
            Progress::Written(run, rows, bytes) => {
                self.bar.inc(1);
                if self.bar.is_hidden() {
                    output::print_notice(&format!(
                        "run {} ({}): {}, {}",
                        run.id,
                        run.name,
                        row_count(rows),
                        figures::bytes(bytes)
                    ));
                }
            }
            Progress::Unchanged(_) => self.bar.inc(1),
        }
    }
}

fn row_count(rows: u64) -> String {
    figures::plural(usize::try_from(rows).unwrap_or(usize::MAX), "row")
}

/// The result, and what was left out.
fn in_words(exported: &Exported, directory: &Path) -> Vec<String> {
    let runs = |count| figures::plural(count, "run");
    let mut lines: Vec<String> = exported
        .unended
        .iter()
        .map(|run| {
            format!(
                "run {} ({}) is {}: not exported before it has ended",
                run.id, run.name, run.state
            )
        })
        .collect();
    if exported.runs_kept_finer > 0 {
        lines.push(format!(
            "of {} the database has merged or deleted rows of seconds since: their files keep them",
            runs(exported.runs_kept_finer)
        ));
    }
    lines.push(format!(
        "{}, site {}: {} written ({}, {}), {} unchanged",
        directory.display(),
        exported.site,
        runs(exported.runs_written),
        row_count(exported.rows),
        figures::bytes(exported.bytes),
        exported.runs_unchanged
    ));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_archive::source::UnendedRun;

    #[test]
    fn the_result_names_what_was_left_out() {
        let exported = Exported {
            site: String::from("lab1"),
            runs_written: 1,
            runs_unchanged: 12,
            runs_kept_finer: 2,
            rows: 120_000,
            bytes: 3 << 20,
            unended: vec![UnendedRun {
                id: 14,
                name: String::from("nightly"),
                state: String::from("running"),
            }],
        };
        insta::assert_snapshot!(in_words(&exported, Path::new("/data/mesh")).join("\n"));
    }
}

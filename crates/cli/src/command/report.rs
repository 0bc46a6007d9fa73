//! `benchmesh report`, and the report formats for every command that prints one.

use super::source::{Asked, refused_in};
use crate::args::{ReportArguments, ReportFormat};
use crate::client::{CallError, Client};
use crate::failure::{Outcome, wrong_usage};
use crate::{junit, output, terminal};
use anyhow::Context;
use benchmesh_answers::pictures;
use benchmesh_answers::query::QueryError;
use benchmesh_answers::report::pivot::{self, Axes};
use benchmesh_answers::report::{self, Detail, Report, ReportError, SectionName};
use benchmesh_model::text::{did_you_mean, nearest};
use std::path::Path;
use std::sync::Arc;

pub async fn report(arguments: ReportArguments) -> anyhow::Result<Outcome> {
    if arguments.format == ReportFormat::Html {
        if arguments.junit.is_some() {
            return Err(wrong_usage("--junit needs another --format than html"));
        }
        let html = match arguments.source.asked()? {
            Asked::Database(path) => html_from_file(&path, &arguments.run).await?,
            Asked::Collector(address) => {
                let mut client = Client::connect(&address)
                    .await
                    .map_err(CallError::into_error)?;
                client.report_file(&arguments.run).await?
            }
        };
        output::result_to(arguments.out.as_deref(), &html)?;
        return Ok(Outcome::Done);
    }
    // Named in the commands of the answer, if it was named here.
    let database = arguments.source.db.clone();
    let mut report = match arguments.source.asked()? {
        Asked::Database(path) => from_file(&path, &arguments.run).await?,
        Asked::Collector(address) => {
            let mut client = Client::connect(&address)
                .await
                .map_err(CallError::into_error)?;
            client.report(&arguments.run).await?
        }
    };
    if let Some(path) = &arguments.junit {
        output::result_to(Some(path), &junit::of_run(&report).xml())?;
    }
    let axes = Axes {
        rows: arguments.rows,
        columns: arguments.cols,
    };
    if axes != Axes::default() {
        for wanted in [&axes.rows, &axes.columns] {
            if let Some(key) = pivot::unknown_key(&report, wanted) {
                let known: Vec<String> = pivot::known_keys(&report).into_iter().collect();
                return Err(wrong_usage(format!(
                    "the results of run {} have no key {key:?}; they have {}",
                    report.run.id,
                    known.join(", ")
                )));
            }
        }
        report.phases = pivot::phases(&report, &axes);
    }
    let detail = detail(arguments.section.as_deref())?;
    if let Some(path) = &database {
        report.card = report.card.with_option(&terminal::database_option(path));
    }
    output::result_to(
        arguments.out.as_deref(),
        &written(&report, arguments.format, detail)?,
    )?;
    Ok(Outcome::Done)
}

/// The part of a report that an argument names; the summary without one.
fn detail(section: Option<&str>) -> anyhow::Result<Detail> {
    let Some(name) = section else {
        return Ok(Detail::Summary);
    };
    if name == "all" {
        return Ok(Detail::All);
    }
    let section = SectionName::parse(name).ok_or_else(|| {
        let remedy = match nearest(name, SectionName::all()) {
            Some(alike) => did_you_mean(alike),
            None => format!(
                "it has all, {}",
                SectionName::all().collect::<Vec<_>>().join(", ")
            ),
        };
        wrong_usage(format!("a report has no section {name:?}; {remedy}"))
    })?;
    Ok(Detail::Section(section))
}

/// The report of a run in a database file.
pub async fn from_file(path: &Path, run: &str) -> anyhow::Result<Report> {
    match report::load_file(path, run).await {
        Ok(report) => Ok(report),
        Err(ReportError::Open(
            error @ (QueryError::NoFile { .. } | QueryError::IsDirectory { .. }),
        )) => Err(wrong_usage(error.to_string())),
        Err(error @ (ReportError::NoRun { .. } | ReportError::NoRuns)) => {
            Err(refused_in(path, error))
        }
        Err(error) => {
            Err(error).with_context(|| format!("read run {run:?} from {}", path.display()))
        }
    }
}

/// The report as one HTML file, from a database file.
async fn html_from_file(path: &Path, run: &str) -> anyhow::Result<String> {
    let report = Arc::new(from_file(path, run).await?);
    let pictures = pictures::load(path, Arc::clone(&report))
        .await
        .with_context(|| format!("read the series of {run:?} from {}", path.display()))?;
    Ok(pictures::html(&report, &pictures))
}

/// The report as text in the given format.
pub fn written(report: &Report, format: ReportFormat, detail: Detail) -> anyhow::Result<String> {
    Ok(match format {
        ReportFormat::Table => table(report, detail, terminal::width()),
        ReportFormat::Markdown => report::markdown(report, detail),
        ReportFormat::Csv => report::csv(report),
        ReportFormat::Html => anyhow::bail!("only `benchmesh report` and `run` write HTML"),
        ReportFormat::Json => {
            let mut text =
                serde_json::to_string_pretty(report).context("write the report as JSON")?;
            text.push('\n');
            text
        }
    })
}

fn table(report: &Report, detail: Detail, width: usize) -> String {
    let mut out = String::new();
    out.push_str(&terminal::card(&report.card, width));
    for table in report::tables_within(report, detail, Some(width)) {
        out.push('\n');
        out.push_str(&terminal::fitting(&table, width, "markdown"));
    }
    if detail == Detail::All && !report.run.plan.is_empty() {
        out.push_str("\nPlan\n\n");
        for line in report.run.plan.lines() {
            out.push_str(format!("  {}", terminal::clean(line)).trim_end());
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::command::history::{History, WIDTH, wait};

    #[test]
    fn the_report_of_one_target() {
        let history = History::of_targets(1);
        let report = wait(from_file(&history.path(), "last")).unwrap();
        insta::assert_snapshot!("summary", table(&report, Detail::Summary, WIDTH));
        insta::assert_snapshot!("all", table(&report, Detail::All, WIDTH));
        insta::assert_snapshot!("markdown", report::markdown(&report, Detail::Summary));
        insta::assert_snapshot!("junit", junit::of_run(&report).xml());
    }

    #[test]
    fn the_report_of_three_targets() {
        let history = History::of_targets(3);
        let report = wait(from_file(&history.path(), "1")).unwrap();
        insta::assert_snapshot!(table(&report, Detail::Summary, WIDTH));
    }

    #[test]
    fn an_unknown_section() {
        insta::assert_snapshot!(detail(Some("daemon")).unwrap_err());
    }
}

//! A report as titled tables of formatted text with notes beneath, the same for every medium for people.
//!
//! Pure. A column with the same value in each row, or none, is left out, so that the table fits and every column is
//! informative. The notes explain the figures and their flags.

use super::figures::{self, plural};
use super::sections::steps::{clients, traffic};
use super::sections::{
    agents, cluster, costs, curves, daemons, events, findings, hosts, links, loops, marks, pivot,
    queried, steps, validity,
};
use super::{Report, Table, comparison};
use std::collections::BTreeSet;

/// Maximum number of sentences of a comparison in a summary.
const SENTENCES_SHOWN: usize = 12;

/// A summary of the run in a few lines.
pub fn heading(report: &Report) -> Vec<String> {
    let run = &report.run;
    let mut first = format!("run {} {:?}: {}", run.id, run.name, run.state);
    if run.partial {
        first.push_str(" (partial)");
    }
    let took = run
        .started_us
        .zip(run.ended_us)
        .and_then(|(from, until)| figures::between(from, until));
    if let Some(took) = took {
        first.push_str(&format!(" in {}", figures::span(took)));
    }
    if let Some(paused) = figures::between(0, run.paused_us).filter(|paused| !paused.is_zero()) {
        first.push_str(&format!(" (paused for {} of it)", figures::span(paused)));
    }
    if let Some(started) = run.started_us {
        first.push_str(&format!(", started {}", figures::instant(started)));
    }
    let hosts: BTreeSet<&str> = report
        .agents
        .iter()
        .map(|agent| agent.host.as_str())
        .collect();
    if !report.agents.is_empty() {
        first.push_str(&format!(
            ", {} on {}",
            plural(report.agents.len(), "agent"),
            plural(hosts.len(), "host")
        ));
    }
    if let Some(seed) = run.order_seed {
        first.push_str(&format!(", cells in random order (seed {seed})"));
    }
    let mut lines = vec![first];
    lines.extend(run.reason.clone().filter(|reason| !reason.is_empty()));
    lines
}

/// The amount of detail of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Fits on one or two screens: the results first; links, daemons and hosts in summary form last.
    Summary,
    /// Each step, client, host and daemon; the results first.
    All,
}

/// All non-empty tables of the report, of any width.
pub fn tables(report: &Report, detail: Detail) -> Vec<Table> {
    tables_within(report, detail, None)
}

/// Like [`tables`], with the results split into as many tables as lines of `width` characters require.
pub fn tables_within(report: &Report, detail: Detail, width: Option<usize>) -> Vec<Table> {
    let mut tables = Vec::new();
    tables.extend(findings::table(report));
    tables.extend(validity::table(&report.validity));
    tables.extend(pivot::tables(report, width));
    tables.extend(loops::tables(report, width));
    tables.extend(steps::troubles(report));
    match detail {
        Detail::All => {
            tables.extend(compared(report));
            tables.extend(marks::table(report));
            tables.extend(curves::table(report));
            tables.extend(links::tables(&report.links));
            tables.push(steps::table(report));
            tables.extend(clients::seconds(report));
            tables.extend(clients::each(report));
            tables.extend(costs::by_mode(report, width));
            tables.extend(costs::by_step(report));
            tables.extend(daemons::each(&report.daemons));
            tables.extend(hosts::by_phase(report));
            tables.extend(hosts::each(report));
            tables.extend(traffic::by_mode(report));
            tables.extend(events::table(report));
        }
        Detail::Summary => {
            tables.extend(marks::table(report));
            tables.extend(curves::table(report));
            tables.extend(events::table(report));
            tables.extend(costs::by_mode(report, width));
            tables.extend(links::tables(&report.links));
            tables.extend(daemons::summary(&report.daemons));
            tables.extend(hosts::by_phase(report));
        }
    }
    tables.extend(agents::table(&report.agents));
    tables.extend(cluster::table(report));
    tables.extend(
        queried::SECTIONS
            .iter()
            .filter(|section| section.in_summary || detail == Detail::All)
            .filter_map(|section| section.table(report.rows(section.key))),
    );
    if let Some(last) = tables.last_mut()
        && !report.steps.is_empty()
    {
        last.notes.push(questions(report));
    }
    tables
}

/// The comparison of the targets in sentences, with which every report of a plan with several targets begins.
pub fn sentences(report: &Report, detail: Detail) -> Vec<String> {
    let all = report.comparisons.iter().flat_map(|one| &one.sentences);
    let mut lines: Vec<String> = all.cloned().collect();
    if detail == Detail::Summary && lines.len() > SENTENCES_SHOWN {
        let more = lines.len() - SENTENCES_SHOWN;
        lines.truncate(SENTENCES_SHOWN);
        lines.push(format!(
            "{more} more: benchmesh compare --by target {}",
            report.run.id
        ));
    }
    lines
}

/// All figures of the targets, with intervals and verdicts.
fn compared(report: &Report) -> Vec<Table> {
    let tables = report.comparisons.iter().flat_map(comparison::tables);
    tables.collect()
}

/// The documented questions that query the same figures from the database.
fn questions(report: &Report) -> String {
    let targets = report.steps.iter().map(|step| step.target.as_str());
    let targets: BTreeSet<&str> = targets.filter(|target| !target.is_empty()).collect();
    let names = crate::query::questions::of_report(targets.len() > 1, !report.links.is_empty());
    format!(
        "Ask further: benchmesh query --example NAME --run {}, with {}.",
        report.run.id,
        names.join(", ")
    )
}

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

/// The part of a report to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The results, with what else the figures need.
    Summary,
    /// Each step, client, host and daemon; the results first.
    All,
    /// One section.
    Section(SectionName),
}

/// A group of tables of a report, as `benchmesh report RUN SECTION` names it.
struct Section {
    name: &'static str,
    /// Whether the summary contains it.
    in_summary: bool,
    tables: fn(&Report, Option<usize>) -> Vec<Table>,
}

/// All sections, in the order of a report. Those that consist of a query only follow, by their keys.
const SECTIONS: &[Section] = &[
    section("results", true, |report, width| {
        let mut tables = pivot::tables(report, width);
        tables.extend(loops::tables(report, width));
        tables
    }),
    section("failures", true, |report, _| {
        steps::troubles(report).into_iter().collect()
    }),
    section("curves", true, |report, _| {
        curves::table(report).into_iter().collect()
    }),
    section("links", true, |report, _| links::tables(&report.links)),
    section("findings", false, |report, _| {
        findings::table(report).into_iter().collect()
    }),
    section("validity", false, |report, _| {
        validity::table(&report.validity).into_iter().collect()
    }),
    section("compared", false, |report, _| compared(report)),
    section("costs", false, |report, width| {
        let mut tables: Vec<Table> = costs::by_mode(report, width).into_iter().collect();
        tables.extend(costs::by_step(report));
        tables
    }),
    section("daemons", false, |report, _| {
        let mut tables = daemons::summary(&report.daemons);
        tables.extend(daemons::each(&report.daemons));
        tables
    }),
    section("hosts", false, |report, _| {
        let mut tables: Vec<Table> = hosts::by_phase(report).into_iter().collect();
        tables.extend(hosts::each(report));
        tables.extend(traffic::by_mode(report));
        tables
    }),
    section("steps", false, |report, _| vec![steps::table(report)]),
    section("clients", false, |report, _| {
        let mut tables: Vec<Table> = clients::seconds(report).into_iter().collect();
        tables.extend(clients::each(report));
        tables
    }),
    section("marks", false, |report, _| {
        marks::table(report).into_iter().collect()
    }),
    section("events", false, |report, _| {
        events::table(report).into_iter().collect()
    }),
    section("agents", false, |report, _| {
        agents::table(&report.agents).into_iter().collect()
    }),
    section("cluster", false, |report, _| {
        cluster::table(report).into_iter().collect()
    }),
];

const fn section(
    name: &'static str,
    in_summary: bool,
    tables: fn(&Report, Option<usize>) -> Vec<Table>,
) -> Section {
    Section {
        name,
        in_summary,
        tables,
    }
}

/// The name of a section that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionName(&'static str);

impl SectionName {
    /// The names of all sections, in the order of a report.
    pub fn all() -> impl Iterator<Item = &'static str> {
        let own = SECTIONS.iter().map(|section| section.name);
        own.chain(queried::SECTIONS.iter().map(|section| section.key))
    }

    /// `None` if there is no section of this name.
    pub fn parse(text: &str) -> Option<Self> {
        Self::all().find(|name| *name == text).map(Self)
    }
}

/// All non-empty tables of the report, of any width.
pub fn tables(report: &Report, detail: Detail) -> Vec<Table> {
    tables_within(report, detail, None)
}

/// Like [`tables`], with the results split into as many tables as lines of `width` characters require.
pub fn tables_within(report: &Report, detail: Detail, width: Option<usize>) -> Vec<Table> {
    let is_shown = |name: &str, in_summary: bool| match detail {
        Detail::Summary => in_summary,
        Detail::All => true,
        Detail::Section(wanted) => wanted.0 == name,
    };
    let mut tables: Vec<Table> = SECTIONS
        .iter()
        .filter(|section| is_shown(section.name, section.in_summary))
        .flat_map(|section| (section.tables)(report, width))
        .collect();
    tables.extend(
        queried::SECTIONS
            .iter()
            .filter(|section| is_shown(section.key, section.in_summary))
            .filter_map(|section| section.table(report.rows(section.key))),
    );
    if let Some(last) = tables.last_mut()
        && detail == Detail::All
        && !report.steps.is_empty()
    {
        last.notes.push(questions(report));
    }
    tables
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

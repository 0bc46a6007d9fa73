//! A report as titled tables of ready text with notes beneath, the same for every medium that people read.
//!
//! Pure. A column that would say the same in each row, or nothing, is left out, so that the table fits and every column
//! that is there is worth reading. The notes say what a figure is and what its flags mean.

mod bands;
mod clients;
mod curve;
mod daemons;
mod environment;
mod hosts;
mod marks;
mod phases;
mod results;
mod summary;
mod traffic;
mod validity;

use super::figures::{self, NONE, plural};
use super::{Align, Column, EventReport, LinkReport, Report, Table, comparison};
use std::collections::BTreeSet;

/// What a figure of a link is, of which there is one per phase, cell and repeat.
const BEST_OF_ALL: &str =
    "The best of all phases, cells and repeats; SELECT * FROM v_links has each.";

/// Agents up to which links are shown as a matrix; beyond, as a list.
const MATRIX_AGENTS: usize = 10;

/// Sentences of a comparison shown in a summary.
const SENTENCES_SHOWN: usize = 12;

/// Events shown; the rest are counted.
const EVENTS_SHOWN: usize = 20;

/// Below this, in either unit, a daemon had no part in a step.
const LEAST_COST: f64 = 0.0005;

/// What the run is, in a line or a few.
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

/// How much of a report is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// What fits a screen or two: the results first; links, daemons and hosts, summed up, last.
    Summary,
    /// Each step, client, host and daemon; the results first.
    All,
}

/// Every table of the report that has something to say, however wide.
pub fn tables(report: &Report, detail: Detail) -> Vec<Table> {
    tables_within(report, detail, None)
}

/// As [`tables`], with the results on as many tables as lines of `width` characters need.
pub fn tables_within(report: &Report, detail: Detail, width: Option<usize>) -> Vec<Table> {
    let mut tables = Vec::new();
    let results = |tables: &mut Vec<Table>| {
        tables.extend(validity::table(&report.validity));
        tables.extend(phases::tables(report, width));
        tables.extend(results::troubles(report));
    };
    match detail {
        Detail::All => {
            results(&mut tables);
            tables.extend(compared(report));
            tables.extend(marks::table(report));
            tables.extend(curve::table(report));
            tables.extend(links(&report.links));
            tables.push(results::table(report));
            tables.extend(clients::seconds(report));
            tables.extend(clients::each(report));
            tables.extend(daemons::by_mode(report, width));
            tables.extend(daemons::by_step(report));
            tables.extend(daemons::each(&report.daemons));
            tables.extend(hosts::by_phase(report));
            tables.extend(hosts::each(report));
            tables.extend(traffic::by_mode(report));
            tables.extend(events(report));
            tables.extend(environment::hosts(report));
            tables.extend(environment::targets(&report.targets));
        }
        Detail::Summary => {
            results(&mut tables);
            tables.extend(marks::table(report));
            tables.extend(curve::table(report));
            tables.extend(events(report));
            tables.extend(daemons::by_mode(report, width));
            tables.extend(links(&report.links));
            tables.extend(summary::daemons(&report.daemons));
            tables.extend(hosts::by_phase(report));
            tables.extend(environment::hosts(report));
            tables.extend(environment::targets(&report.targets));
        }
    }
    if let Some(last) = tables.last_mut()
        && !report.steps.is_empty()
    {
        last.notes.push(questions(report));
    }
    tables
}

/// The targets held against each other, in words: what every report of a plan with several targets begins with.
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

/// Every figure of the targets, with its interval and its verdict.
fn compared(report: &Report) -> Vec<Table> {
    let tables = report.comparisons.iter().flat_map(comparison::tables);
    tables.collect()
}

/// The documented questions that ask the database for the same figures.
fn questions(report: &Report) -> String {
    let targets: BTreeSet<&str> = report
        .targets
        .iter()
        .map(|one| one.target.as_str())
        .collect();
    let names = crate::query::questions::of_report(targets.len() > 1, !report.links.is_empty());
    format!(
        "Ask further: benchmesh query --example NAME --run {}, with {}.",
        report.run.id,
        names.join(", ")
    )
}

fn links(links: &[LinkReport]) -> Vec<Table> {
    // A link of which only requests were measured stands with the results.
    let measured = |link: &&LinkReport| {
        let figures = [link.mib_per_s, link.rtt_p50_us, link.rtt_busy_p50_us];
        figures.iter().any(Option::is_some)
    };
    let links: Vec<&LinkReport> = links.iter().filter(measured).collect();
    let agents: BTreeSet<&str> = links
        .iter()
        .flat_map(|link| [link.from_agent.as_str(), link.to_agent.as_str()])
        .collect();
    if agents.len() > MATRIX_AGENTS {
        let cells = |cell: fn(&LinkReport) -> String| -> Vec<String> {
            links.iter().map(|link| cell(link)).collect()
        };
        return vec![
            Table::titled("Links")
                .text("from", cells(|link| link.from_agent.clone()))
                .text("to", cells(|link| link.to_agent.clone()))
                .figures("MiB/s", cells(|link| figures::maybe_rate(link.mib_per_s)))
                .figures(
                    "round trip us",
                    cells(|link| figures::maybe_rate(link.rtt_p50_us)),
                )
                .figures(
                    "busy polling us",
                    cells(|link| figures::maybe_rate(link.rtt_busy_p50_us)),
                )
                .note(BEST_OF_ALL),
        ];
    }
    let matrix = |title: &str, figure: fn(&LinkReport) -> Option<f64>| {
        if !links.iter().any(|link| figure(link).is_some()) {
            return None;
        }
        let mut table =
            Table::titled(title).text("from \\ to", agents.iter().map(|name| (*name).to_owned()));
        for to in &agents {
            let cells = agents.iter().map(|from| {
                links
                    .iter()
                    .find(|link| link.from_agent == *from && link.to_agent == *to)
                    .and_then(|link| figure(link))
                    .map_or_else(|| NONE.to_owned(), figures::rate)
            });
            table = table.figures(to, cells);
        }
        Some(table.note(BEST_OF_ALL))
    };
    [
        matrix("Links, throughput in MiB/s", |link| link.mib_per_s),
        matrix("Links, round trip in us (median, blocking)", |link| {
            link.rtt_p50_us
        }),
        matrix("Links, round trip in us (median, busy polling)", |link| {
            link.rtt_busy_p50_us
        }),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn events(report: &Report) -> Option<Table> {
    // How the run ended stands above everything.
    let is_the_reason = |event: &&EventReport| {
        event.kind.starts_with("run-") && report.run.reason.as_ref() == Some(&event.message)
    };
    let events: Vec<&EventReport> = report
        .events
        .iter()
        .filter(|one| !is_the_reason(one))
        .collect();
    if events.is_empty() {
        return None;
    }
    let shown = events.get(..EVENTS_SHOWN).unwrap_or(&events);
    let cells = |cell: fn(&EventReport) -> String| {
        let cells = shown.iter().map(|one| cell(one));
        cells.collect::<Vec<_>>()
    };
    let mut table = Table::titled("Warnings and errors")
        .text("when", cells(|event| figures::instant(event.at_us)))
        .text("severity", cells(|event| event.severity.clone()))
        .text_if_any(
            "agent",
            cells(|event| event.agent.clone().unwrap_or_default()),
        )
        .text("event", cells(|event| event.kind.clone()))
        .text("message", cells(|event| event.message.clone()));
    let all = usize::try_from(report.events_total)
        .unwrap_or(0)
        .max(events.len());
    if all > shown.len() {
        table = table.note(format!(
            "{} more: benchmesh query --example what-went-wrong --run {}",
            all - shown.len(),
            report.run.id
        ));
    }
    Some(table)
}

/// How a skew and its bound are written.
fn skew(skew_us: i64, error_us: Option<i64>) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let shown = |us: i64| {
        if us.abs() < 1000 {
            format!("{us} us")
        } else {
            format!("{} ms", figures::rate(us as f64 / 1000.0))
        }
    };
    match error_us {
        Some(error) => format!("{} (error {})", shown(skew_us), shown(error)),
        None => shown(skew_us),
    }
}

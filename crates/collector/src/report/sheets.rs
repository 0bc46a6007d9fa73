//! A report as sheets: titled tables of ready text with notes beneath, the same for every medium that people read.
//!
//! Pure. A column that would say the same in each row, or nothing, is left out, so that the table fits and every column
//! that is there is worth reading. The notes say what a figure is and what its flags mean.

mod curve;
mod results;

use super::figures::{self, NONE, plural};
use super::{CostReport, DaemonReport, EventReport, LinkReport, Report};
use crate::model::StepId;
use std::collections::{BTreeSet, HashMap};

/// What a figure of a link is, of which there is one per phase, cell and repeat.
const BEST_OF_ALL: &str =
    "The best of all phases, cells and repeats; SELECT * FROM v_links has each.";

/// Agents up to which links are shown as a matrix; beyond, as a list.
const MATRIX_AGENTS: usize = 10;

/// Events shown; the rest are counted.
const EVENTS_SHOWN: usize = 20;

/// Our own processes: what they cost stands with the daemons; an operation's cost is the storage's.
const OWN: &str = "benchmesh";

/// Below this, in either unit, a daemon had no part in a step.
const LEAST_COST: f64 = 0.0005;

/// On which side the text of a column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// The head of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub title: String,
    pub align: Align,
}

/// One table with its notes. Every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sheet {
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
    pub notes: Vec<String>,
}

impl Sheet {
    /// An empty sheet with a title.
    pub fn titled(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            ..Self::default()
        }
    }

    /// Adds a column with one cell per row; all columns of a sheet have equally many.
    pub fn column(
        mut self,
        title: &str,
        align: Align,
        cells: impl IntoIterator<Item = String>,
    ) -> Self {
        let first = self.columns.is_empty();
        self.columns.push(Column {
            title: title.to_owned(),
            align,
        });
        for (at, cell) in cells.into_iter().enumerate() {
            match self.rows.get_mut(at) {
                Some(row) => row.push(cell),
                None if first => self.rows.push(vec![cell]),
                None => {}
            }
        }
        self
    }

    /// A column of text.
    pub fn text(self, title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        self.column(title, Align::Left, cells)
    }

    /// A column of figures.
    pub fn figures(self, title: &str, cells: impl IntoIterator<Item = String>) -> Self {
        self.column(title, Align::Right, cells)
    }

    /// A column of text that is left out when no cell says anything.
    pub fn text_if_any(self, title: &str, cells: Vec<String>) -> Self {
        if cells.iter().any(|cell| !cell.is_empty()) {
            self.text(title, cells)
        } else {
            self
        }
    }

    /// Adds a line beneath the table where it holds.
    fn note_where(self, holds: bool, note: &str) -> Self {
        match holds {
            true => self.note(note),
            false => self,
        }
    }

    /// Adds a line beneath the table.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }
}

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

/// Every sheet of the report that has something to say.
pub fn sheets(report: &Report) -> Vec<Sheet> {
    let mut sheets = vec![results::sheet(report)];
    sheets.extend(curve::sheet(report));
    sheets.extend(daemons(&report.daemons));
    sheets.extend(costs(report));
    sheets.extend(links(&report.links));
    sheets.extend(events(report));
    sheets
}

fn daemons(daemons: &[DaemonReport]) -> Option<Sheet> {
    if daemons.is_empty() {
        return None;
    }
    let cells = |cell: fn(&DaemonReport) -> String| daemons.iter().map(cell).collect::<Vec<_>>();
    Some(
        Sheet::titled("Daemons during the steps")
            .text("host", cells(|one| one.host.clone()))
            .text("daemon", cells(|one| one.name.clone()))
            .text_if_any("instance", cells(|one| one.instance.clone()))
            .figures("pid", cells(|one| one.pid.to_string()))
            .figures("CPU s", cells(|one| figures::maybe_rate(one.cpu_s)))
            .figures("CPU %", cells(|one| figures::maybe_rate(one.cpu_percent)))
            .figures("CPU % max", cells(|one| figures::maybe_rate(one.cpu_percent_max)))
            .figures("RSS first MiB", cells(|one| figures::maybe_rate(one.rss_first_mib)))
            .figures("max MiB", cells(|one| figures::maybe_rate(one.rss_max_mib)))
            .figures("last MiB", cells(|one| figures::maybe_rate(one.rss_last_mib)))
            .figures("read MiB", cells(|one| figures::maybe_rate(one.read_mib)))
            .figures("written MiB", cells(|one| figures::maybe_rate(one.written_mib)))
            .note("CPU %: 100 is one CPU; mean over the steps, and of the step in which it was highest."),
    )
}

fn costs(report: &Report) -> Option<Sheet> {
    let places: HashMap<StepId, usize> = report
        .steps
        .iter()
        .enumerate()
        .map(|(at, step)| (step.id, at))
        .collect();
    let costs: Vec<(&CostReport, usize)> = report
        .costs
        .iter()
        .filter(|cost| cost.name != OWN && !cost.target.is_empty())
        .filter(|cost| {
            let shown = |figure: Option<f64>| figure.is_some_and(|figure| figure >= LEAST_COST);
            shown(cost.cpu_us_per_op) || shown(cost.cpu_s_per_gib)
        })
        .filter_map(|cost| {
            let at = *places.get(&cost.step_id)?;
            Some((cost, at))
        })
        .collect();
    if costs.is_empty() {
        return None;
    }
    let varying = results::varying(&report.steps);
    let step = |text: &dyn Fn(&super::StepReport) -> String| -> Vec<String> {
        costs
            .iter()
            .map(|(_, at)| report.steps.get(*at).map(text).unwrap_or_default())
            .collect()
    };
    Some(
        Sheet::titled("Cost of an operation to the daemons")
            .figures("step", step(&|step| step.ordinal.to_string()))
            .text("phase", step(&|step| step.phase.clone()))
            .text_if_any("target", costs.iter().map(|(cost, _)| cost.target.clone()).collect())
            .text("mode", step(&|step| step.mode.clone()))
            .text_if_any("params", step(&|step| results::params(step, &varying)))
            .text("daemon", costs.iter().map(|(cost, _)| cost.name.clone()))
            .figures("CPU us/op", costs.iter().map(|(cost, _)| figures::maybe_rate(cost.cpu_us_per_op)))
            .figures("CPU s/GiB", costs.iter().map(|(cost, _)| figures::maybe_rate(cost.cpu_s_per_gib)))
            .text_if_any("flags", step(&|step| step.flags.join(" ")))
            .note("CPU time of all daemons of one name during the step, over its operations and its bytes.")
            .note_where(
                report.steps.iter().any(|step| step.groups.len() > 1),
                "A step of several groups has no such cost: nothing tells the CPU time of daemons apart that serve all of them; \
                 v_cost has its sums.",
            ),
    )
}

fn links(links: &[LinkReport]) -> Vec<Sheet> {
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
            Sheet::titled("Links")
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
        let mut sheet =
            Sheet::titled(title).text("from \\ to", agents.iter().map(|name| (*name).to_owned()));
        for to in &agents {
            let cells = agents.iter().map(|from| {
                links
                    .iter()
                    .find(|link| link.from_agent == *from && link.to_agent == *to)
                    .and_then(|link| figure(link))
                    .map_or_else(|| NONE.to_owned(), figures::rate)
            });
            sheet = sheet.figures(to, cells);
        }
        Some(sheet.note(BEST_OF_ALL))
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

fn events(report: &Report) -> Option<Sheet> {
    // How the run ended stands above everything.
    let told = |event: &&EventReport| {
        event.kind.starts_with("run-") && report.run.reason.as_ref() == Some(&event.message)
    };
    let events: Vec<&EventReport> = report.events.iter().filter(|one| !told(one)).collect();
    if events.is_empty() {
        return None;
    }
    let shown = events.get(..EVENTS_SHOWN).unwrap_or(&events);
    let cells = |cell: fn(&EventReport) -> String| {
        let cells = shown.iter().map(|one| cell(one));
        cells.collect::<Vec<_>>()
    };
    let mut sheet = Sheet::titled("Warnings and errors")
        .text("when", cells(|event| figures::instant(event.at_us)))
        .text("severity", cells(|event| event.severity.clone()))
        .text_if_any(
            "agent",
            cells(|event| event.agent.clone().unwrap_or_default()),
        )
        .text("event", cells(|event| event.kind.clone()))
        .text("message", cells(|event| event.message.clone()));
    if events.len() > shown.len() {
        sheet = sheet.note(format!(
            "{} more: SELECT * FROM events ORDER BY at_us",
            events.len() - shown.len()
        ));
    }
    Some(sheet)
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

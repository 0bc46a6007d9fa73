//! The monitored processes over the run, individually or combined by name.

use crate::report::row::{Row, Statement};
use crate::report::{RunReport, Table};
use benchmesh_model::figures::{DaemonFigures, Figure, InStep, ShownIn, shown_in};
use benchmesh_model::mesh::StepId;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Minimum CPU usage of a daemon without a target that gets a row, in percent of a CPU.
const MIN_PERCENT: f64 = 1.0;
/// Maximum number of rows for such daemons.
const OTHERS_SHOWN: usize = 8;

/// One monitored process over the steps of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonReport {
    #[serde(default)]
    pub daemon_id: i64,
    pub host: String,
    pub name: String,
    pub instance: String,
    pub pid: i64,
    /// CPU time during the steps.
    pub cpu_s: Option<f64>,
    /// Time of all steps in which a daemon of its name was sampled: the CPU usage of several daemons is the sum of
    /// their CPU times divided by this.
    #[serde(default)]
    pub span_s: Option<f64>,
    /// CPU time divided by the time for which it was sampled in the steps; 100 is one CPU.
    pub cpu_percent: Option<f64>,
    /// The maximum over the steps.
    pub cpu_percent_max: Option<f64>,
    pub rss_first_mib: Option<f64>,
    pub rss_max_mib: Option<f64>,
    /// Includes peaks between two samples, if the kernel's own high-water mark rose in a step.
    #[serde(default)]
    pub rss_peak_mib: Option<f64>,
    pub rss_last_mib: Option<f64>,
    pub read_mib: Option<f64>,
    pub written_mib: Option<f64>,
    /// Further figures shown in reports, by their columns of `v_daemon_usage`; unknown ones are left out.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// Whether it serves a target of the run; `None` if no rule covers it.
    #[serde(default)]
    pub serves: Option<bool>,
    /// Times of the process's start and observed end, if they were during the run.
    #[serde(default)]
    pub born_us: Option<i64>,
    #[serde(default)]
    pub ended_us: Option<i64>,
}

/// One daemon in one step.
#[derive(Debug)]
pub(super) struct DaemonInStep {
    pub(super) daemon: DaemonReport,
    pub(super) sampled_s: f64,
    /// Length of the step, also without this daemon.
    pub(super) step_s: f64,
    pub(super) step: StepId,
    pub(super) idle_percent: Option<f64>,
}

/// A row per step and daemon; the rows of a daemon are in the order of the steps.
pub(in crate::report) const USAGE: Statement = Statement {
    what: "v_daemon_usage",
    sql: "SELECT u.*, u.serves_target AS serves, u.cpu_percent AS cpu_percent_max, u.idle_cpu_percent AS idle_percent,
                 d.born_us, d.ended_us, NULL AS span_s,
                 coalesce((s.last_done_us - coalesce(s.measured_from_us, s.start_us)) / 1e6, u.sampled_s) AS step_s
          FROM v_daemon_usage AS u CROSS JOIN daemons AS d ON d.id = u.daemon_id CROSS JOIN steps AS s ON s.id = u.step_id
          WHERE u.run_id = ? ORDER BY u.host, u.name, u.instance, u.pid, u.daemon_id, u.step_id",
};

/// The figures shown in reports, with their columns.
fn shown() -> impl Iterator<Item = (&'static Figure, InStep, String)> {
    shown_in::<DaemonFigures>(ShownIn::Reports).filter_map(|(_, figure)| {
        let (column, _) = figure.column_of_step()?;
        Some((figure, figure.in_step?, column))
    })
}

/// The columns of [`USAGE`] with figures.
pub(super) fn figure_columns() -> Vec<String> {
    shown().map(|(_, _, column)| column).collect()
}

/// The figures of a row of [`USAGE`].
pub(super) fn figures_of(
    row: &Row<'_>,
    columns: &[String],
) -> rusqlite::Result<BTreeMap<String, f64>> {
    let mut figures = BTreeMap::new();
    for column in columns {
        // A count is an integer, and becomes a real number.
        if let Some(value) = row.get::<_, Option<f64>>(column.as_str())? {
            figures.insert(column.clone(), value);
        }
    }
    Ok(figures)
}

/// Combines the figures with those of a later step.
fn add_figures(known: &mut BTreeMap<String, f64>, later: &BTreeMap<String, f64>) {
    for (_, in_step, column) in shown() {
        if let Some(&value) = later.get(&column) {
            let before = known.get(&column).copied();
            let value = match (in_step, before) {
                (InStep::Amount, Some(before)) => before + value,
                (InStep::Most, Some(before)) => before.max(value),
                (InStep::AtEnd, _) | (_, None) => value,
            };
            known.insert(column, value);
        }
    }
}

/// Each daemon over the steps in which it was seen.
pub(super) fn over_the_run(run: &RunReport, usage: Vec<DaemonInStep>) -> Vec<DaemonReport> {
    let mut daemons: Vec<DaemonReport> = Vec::new();
    let mut sampled: BTreeMap<i64, f64> = BTreeMap::new();
    let mut steps: BTreeMap<String, BTreeMap<StepId, f64>> = BTreeMap::new();
    let during = |at: Option<i64>| {
        at.filter(|at| run.started_us.is_some_and(|from| from <= *at))
            .filter(|at| run.ended_us.is_none_or(|until| *at <= until))
    };
    for DaemonInStep {
        daemon,
        sampled_s,
        step_s,
        step,
        ..
    } in usage
    {
        let of_name = steps.entry(daemon.name.clone()).or_default();
        of_name.insert(step, step_s);
        *sampled.entry(daemon.daemon_id).or_default() += sampled_s;
        match daemons.last_mut() {
            Some(known) if known.daemon_id == daemon.daemon_id => {
                add(&mut known.cpu_s, daemon.cpu_s);
                add(&mut known.read_mib, daemon.read_mib);
                add(&mut known.written_mib, daemon.written_mib);
                known.cpu_percent_max = most(known.cpu_percent_max, daemon.cpu_percent);
                known.rss_max_mib = most(known.rss_max_mib, daemon.rss_max_mib);
                known.rss_peak_mib = most(known.rss_peak_mib, daemon.rss_peak_mib);
                known.rss_last_mib = daemon.rss_last_mib;
                add_figures(&mut known.figures, &daemon.figures);
                known.serves = known.serves.max(daemon.serves);
            }
            _ => daemons.push(DaemonReport {
                born_us: during(daemon.born_us),
                ended_us: during(daemon.ended_us),
                ..daemon
            }),
        }
    }
    for daemon in &mut daemons {
        let seconds = sampled.get(&daemon.daemon_id).copied().unwrap_or(0.0);
        daemon.cpu_percent = daemon
            .cpu_s
            .filter(|_| seconds > 0.0)
            .map(|cpu_s| 100.0 * cpu_s / seconds);
        daemon.span_s = steps
            .get(&daemon.name)
            .map(|of_name| of_name.values().sum());
    }
    daemons
}

pub(super) fn add(sum: &mut Option<f64>, value: Option<f64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0.0) + value);
    }
}

pub(super) fn most(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

/// Each monitored process over the steps.
pub(in crate::report) fn each(daemons: &[DaemonReport]) -> Option<Table> {
    let mut table = Table::of("Daemons during the steps", daemons)
        .text("host", |one| &one.host)
        .text("daemon", |one| &one.name)
        .text("instance", |one| &one.instance)
        .if_any()
        .figure("pid", |one| one.pid)
        .rate("CPU s", |one| one.cpu_s)
        .rate("CPU %", |one| one.cpu_percent)
        .rate("CPU % max", |one| one.cpu_percent_max)
        .rate("RSS first MiB", |one| one.rss_first_mib)
        .rate("max MiB", |one| one.rss_max_mib)
        .rate("peak MiB", |one| one.rss_peak_mib)
        .if_any()
        .rate("last MiB", |one| one.rss_last_mib)
        .rate("read MiB", |one| one.read_mib)
        .rate("written MiB", |one| one.written_mib);
    for (figure, _, column) in shown() {
        table = table
            .rate(&figure.title_of_step(), |one| {
                one.figures.get(&column).copied()
            })
            .if_any();
    }
    table
        .instant("started", |one| one.born_us)
        .if_any()
        .instant("ended", |one| one.ended_us)
        .if_any()
        .note(
            "CPU %: 100 is one CPU; while the daemon ran, over the steps, and the highest of a step.",
        )
        .note_if(daemons.iter().any(|one| one.rss_peak_mib.is_some()), || {
            "Peak: also memory that was resident only between two samples, from the kernel's high-water mark at both ends \
             of each step."
                .to_owned()
        })
        .spare(&[
            "started",
            "pid",
            "RSS first MiB",
            "read MiB",
            "written MiB",
            "CPU % max",
            "ended",
        ])
        .done()
}

/// All daemons of one name.
#[derive(Debug, Default)]
struct DaemonsOfName<'r> {
    daemons: usize,
    hosts: BTreeSet<&'r str>,
    cpu_s: f64,
    span_s: Option<f64>,
    rss_max_mib: Option<f64>,
    read_mib: Option<f64>,
    written_mib: Option<f64>,
}

impl DaemonsOfName<'_> {
    fn cpu_percent(&self) -> Option<f64> {
        percent(self.cpu_s, self.span_s?)
    }
}

/// CPU time in a span, in percent of one CPU. Shares of different spans have no sum: that of several daemons is their
/// CPU time together in one span.
pub(super) fn percent(cpu_s: f64, span_s: f64) -> Option<f64> {
    (span_s > 0.0).then(|| 100.0 * cpu_s / span_s)
}

fn by_name<'r>(
    daemons: impl Iterator<Item = &'r DaemonReport>,
) -> BTreeMap<&'r str, DaemonsOfName<'r>> {
    let mut names: BTreeMap<&str, DaemonsOfName<'_>> = BTreeMap::new();
    for one in daemons {
        let all = names.entry(one.name.as_str()).or_default();
        all.daemons += 1;
        all.hosts.insert(one.host.as_str());
        all.cpu_s += one.cpu_s.unwrap_or(0.0);
        all.span_s = most(all.span_s, one.span_s);
        all.rss_max_mib = most(all.rss_max_mib, one.rss_max_mib);
        add(&mut all.read_mib, one.read_mib);
        add(&mut all.written_mib, one.written_mib);
    }
    names
}

/// The daemons that serve the targets, and other busy daemons.
pub(in crate::report) fn summary(daemons: &[DaemonReport]) -> Vec<Table> {
    let serving = by_name(daemons.iter().filter(|one| one.serves != Some(false)));
    let others = by_name(daemons.iter().filter(|one| one.serves == Some(false)));
    let mut others: Vec<(&str, DaemonsOfName<'_>)> = others
        .into_iter()
        .filter(|(_, all)| all.cpu_percent() >= Some(MIN_PERCENT))
        .collect();
    others.sort_by(|(_, a), (_, b)| b.cpu_s.total_cmp(&a.cpu_s));
    others.truncate(OTHERS_SHOWN);
    let serving: Vec<(&str, DaemonsOfName<'_>)> = serving.into_iter().collect();
    let tables = [
        (
            "Daemons by name",
            serving,
            "CPU %: CPU time of all daemons of the name, divided by the time of the steps; 100 % is one CPU.",
        ),
        (
            "Also busy on these hosts",
            others,
            "They serve no target of this run, and no cost includes them.",
        ),
    ];
    let tables = tables.iter().filter_map(|(title, names, note)| {
        Table::of(title, names)
            .text("daemon", |(name, _)| name)
            .figure("daemons", |(_, all)| all.daemons)
            .figure("hosts", |(_, all)| all.hosts.len())
            .rate("CPU s", |(_, all)| all.cpu_s)
            .rate("CPU %", |(_, all)| all.cpu_percent())
            .rate("RSS max MiB", |(_, all)| all.rss_max_mib)
            .rate("read MiB", |(_, all)| all.read_mib)
            .rate("written MiB", |(_, all)| all.written_mib)
            .note(*note)
            .done()
    });
    tables.collect()
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;

    pub(in crate::report) fn daemon(
        name: &str,
        host: &str,
        serves: Option<bool>,
        cpu_percent: f64,
    ) -> DaemonReport {
        DaemonReport {
            daemon_id: 1,
            host: host.to_owned(),
            name: name.to_owned(),
            instance: String::new(),
            pid: 1,
            cpu_s: Some(cpu_percent / 10.0),
            span_s: Some(10.0),
            cpu_percent: Some(cpu_percent),
            cpu_percent_max: None,
            rss_first_mib: None,
            rss_max_mib: Some(cpu_percent),
            rss_peak_mib: None,
            rss_last_mib: None,
            read_mib: None,
            written_mib: Some(1.0),
            figures: BTreeMap::new(),
            serves,
            born_us: None,
            ended_us: None,
        }
    }

    #[test]
    fn a_figure_at_the_end_is_that_of_the_last_step_that_has_it() {
        let swapped = |mib: f64| BTreeMap::from([("swap_mib".to_owned(), mib)]);
        let mut known = swapped(12.0);
        add_figures(&mut known, &swapped(5.0));
        add_figures(&mut known, &BTreeMap::new());
        assert_eq!(known, swapped(5.0));
    }

    /// One OSD is killed after 12 s of a step of 40 s, and started again 3 s later.
    #[test]
    fn a_restarted_daemon_uses_what_both_lives_used_in_the_time_of_the_step() {
        let life = |daemon_id: i64, cpu_s: f64, sampled_s: f64| DaemonInStep {
            daemon: DaemonReport {
                daemon_id,
                cpu_s: Some(cpu_s),
                cpu_percent: Some(100.0 * cpu_s / sampled_s),
                ..daemon("ceph-osd", "a", Some(true), 0.0)
            },
            sampled_s,
            step_s: 40.0,
            step: StepId(7),
            idle_percent: None,
        };
        let run = crate::report::tests::report(Vec::new()).run;
        let daemons = over_the_run(&run, vec![life(1, 6.0, 12.0), life(2, 8.0, 25.0)]);
        let tables = summary(&daemons);
        let row = tables[0].rows[0].as_slice();
        assert_eq!(row[..5], ["ceph-osd", "2", "1", "14.0", "35.0"]);
        // Each alone, while it ran.
        let alone: Vec<f64> = daemons.iter().filter_map(|one| one.cpu_percent).collect();
        assert_eq!(alone, [50.0, 32.0]);
    }

    #[test]
    fn daemons_are_summed_by_name_and_those_that_serve_nothing_stand_apart() {
        let all = [
            daemon("ceph-osd", "a", Some(true), 10.0),
            daemon("ceph-osd", "b", Some(true), 30.0),
            daemon("shardd", "b", None, 5.0),
            daemon("glusterfsd", "b", Some(false), 50.0),
            daemon("mfsmaster", "b", Some(false), 0.2),
        ];
        let tables = summary(&all);
        let rows: Vec<Vec<Vec<String>>> = tables.iter().map(|table| table.rows.clone()).collect();
        let row = |cells: &[&str]| {
            cells
                .iter()
                .map(|cell| (*cell).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            rows,
            [
                vec![
                    row(&["ceph-osd", "2", "2", "4.00", "40.0", "30.0", "-", "2.00"]),
                    row(&["shardd", "1", "1", "0.500", "5.00", "5.00", "-", "1.00"]),
                ],
                vec![row(&[
                    "glusterfsd",
                    "1",
                    "1",
                    "5.00",
                    "50.0",
                    "50.0",
                    "-",
                    "1.00"
                ])],
            ]
        );
    }
}

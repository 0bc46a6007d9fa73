//! Usage of the daemons of one name in each step and mode, and their cost per operation.

use super::daemons::{
    DaemonInStep, DaemonReport, USAGE, add, figure_columns, figures_of, most, over_the_run, percent,
};
use super::steps;
use crate::report::bands::{Band, packed};
use crate::report::row::{ReportError, Statement, rows, rows_with, value};
use crate::report::{Report, RunReport, StepReport, Table};
use benchmesh_model::mesh::StepId;
use benchmesh_model::systems::{OWN, Place};
use benchmesh_results::real;
use benchmesh_workloads::figures::{self, NONE};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Below this, in either unit, a daemon counts as not involved in a step.
const MIN_COST: f64 = 0.0005;
/// Names whose usage of a CPU was lower in every mode have no column of their own.
const MIN_PERCENT: f64 = 0.5;
/// Maximum number of names with a column of their own; the others share one, and `report RUN daemons` has all.
const NAMES_ACROSS: usize = 5;
/// Maximum number of names that a note lists.
const MAX_LISTED: usize = 12;

/// Cost of one step for all daemons of one name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    pub step_id: StepId,
    pub target: String,
    pub name: String,
    pub cpu_us_per_op: Option<f64>,
    /// Includes their work after the step until they were idle; `None` unless it is known for each of them.
    #[serde(default)]
    pub cpu_us_per_op_until_idle: Option<f64>,
    pub cpu_s_per_gib: Option<f64>,
    /// Usage of all of them together before the run, in percent of one CPU; `None` if it was not sampled.
    #[serde(default)]
    pub idle_percent: Option<f64>,
    /// CPU time after the step, the longest duration, and whether all of them were idle then.
    #[serde(default)]
    pub after_cpu_s: Option<f64>,
    #[serde(default)]
    pub after_s: Option<f64>,
    #[serde(default)]
    pub after_idle: Option<bool>,
    /// For all daemons of the name in the step.
    #[serde(default)]
    pub cpu_s: Option<f64>,
    #[serde(default)]
    pub ops: i64,
    #[serde(default)]
    pub bytes: i64,
    #[serde(default)]
    pub daemons: i64,
    /// CPU time of all of them divided by the length of the step, in percent of one CPU.
    #[serde(default)]
    pub cpu_percent: Option<f64>,
    /// Length of the step.
    #[serde(default)]
    pub span_s: Option<f64>,
    /// The maximum of any of them.
    #[serde(default)]
    pub rss_max_mib: Option<f64>,
    #[serde(default)]
    pub read_mib: Option<f64>,
    #[serde(default)]
    pub written_mib: Option<f64>,
    /// The daemon with the most CPU time: host and instance or pid.
    #[serde(default)]
    pub busiest: String,
    /// Its CPU time divided by the length of the step.
    #[serde(default)]
    pub busiest_percent: Option<f64>,
}

pub(in crate::report) const COSTS: Statement = Statement {
    what: "v_cost",
    sql: "SELECT step_id, coalesce(target, '') AS target, name, daemons, cpu_us_per_op, cpu_us_per_op_until_idle,
                 cpu_s_per_gib, cpu_s, after_cpu_s, after_s, after_idle, ops, bytes FROM v_cost
          WHERE run_id = ? ORDER BY step_id, name",
};

/// Work of all daemons of one name in one step.
#[derive(Debug, Default)]
struct DaemonsOfName {
    cpu_s: Option<f64>,
    span_s: f64,
    daemons: usize,
    /// Idle usage of the daemons for which it is known.
    idle: Vec<f64>,
    rss_max_mib: Option<f64>,
    read_mib: Option<f64>,
    written_mib: Option<f64>,
    busiest: String,
    busiest_percent: Option<f64>,
}

/// Each daemon over the run, and the costs of each step.
pub(in crate::report) fn load(
    connection: &Connection,
    run: &RunReport,
) -> Result<(Vec<DaemonReport>, Vec<CostReport>), ReportError> {
    let columns = figure_columns();
    let usage: Vec<DaemonInStep> = rows_with(connection, USAGE, run.id, |row| {
        Ok(DaemonInStep {
            daemon: DaemonReport {
                figures: figures_of(row, &columns)?,
                ..value(row)?
            },
            sampled_s: row.get("sampled_s")?,
            step_s: row.get("step_s")?,
            step: StepId(row.get("step_id")?),
            idle_percent: row.get("idle_percent")?,
        })
    })?;
    let mut costs: Vec<CostReport> = rows(connection, COSTS, run.id)?;
    let names = by_name(&usage);
    for cost in &mut costs {
        if let Some(all) = names.get(&(cost.step_id, cost.name.as_str())) {
            cost.cpu_percent = all.cpu_s.and_then(|cpu_s| percent(cpu_s, all.span_s));
            cost.span_s = Some(all.span_s);
            cost.idle_percent = (all.idle.len() == all.daemons).then(|| all.idle.iter().sum());
            cost.rss_max_mib = all.rss_max_mib;
            cost.read_mib = all.read_mib;
            cost.written_mib = all.written_mib;
            cost.busiest.clone_from(&all.busiest);
            cost.busiest_percent = all.busiest_percent;
        }
    }
    Ok((over_the_run(run, usage), costs))
}

/// The daemons that serve the step's target, and those that no rule covers.
fn by_name(usage: &[DaemonInStep]) -> HashMap<(StepId, &str), DaemonsOfName> {
    let mut names: HashMap<(StepId, &str), DaemonsOfName> = HashMap::new();
    for one in usage.iter().filter(|one| one.daemon.serves != Some(false)) {
        let daemon = &one.daemon;
        let all = names.entry((one.step, daemon.name.as_str())).or_default();
        add(&mut all.cpu_s, daemon.cpu_s);
        all.span_s = all.span_s.max(one.step_s);
        all.daemons += 1;
        all.idle.extend(one.idle_percent);
        add(&mut all.read_mib, daemon.read_mib);
        add(&mut all.written_mib, daemon.written_mib);
        let peak = most(daemon.rss_max_mib, daemon.rss_peak_mib);
        all.rss_max_mib = most(all.rss_max_mib, peak);
        let in_step = daemon.cpu_s.and_then(|cpu_s| percent(cpu_s, one.step_s));
        if in_step > all.busiest_percent {
            all.busiest_percent = in_step;
            all.busiest = match daemon.instance.as_str() {
                "" => format!("{} pid {}", daemon.host, daemon.pid),
                instance => format!("{} {instance}", daemon.host),
            };
        }
    }
    names
}

/// A row per phase, target and mode.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
struct ModeOnTarget<'r> {
    phase: &'r str,
    target: &'r str,
    mode: &'r str,
}

#[derive(Default)]
struct CostSum {
    /// CPU time and length of the steps.
    used_s: f64,
    span_s: f64,
    /// CPU time of steps that have a cost per operation.
    cpu_s: f64,
    ops: f64,
    /// Includes the work after the steps, and counts only operations of steps for which that is known.
    until_idle_s: f64,
    until_idle_ops: f64,
    busiest: Option<(f64, String)>,
}

impl CostSum {
    fn percent(&self) -> Option<f64> {
        percent(self.used_s, self.span_s)
    }
}

/// CPU of the daemons of each name in each mode, and CPU time per operation.
pub(in crate::report) fn by_mode(report: &Report, width: Option<usize>) -> Vec<Table> {
    let steps: HashMap<StepId, &StepReport> =
        report.steps.iter().map(|step| (step.id, step)).collect();
    let mut order: Vec<ModeOnTarget<'_>> = Vec::new();
    let mut sums: BTreeMap<(ModeOnTarget<'_>, &str), CostSum> = BTreeMap::new();
    for cost in report.costs.iter().filter(|cost| is_shown(cost)) {
        let Some(step) = steps.get(&cost.step_id) else {
            continue;
        };
        let place = ModeOnTarget {
            phase: &step.phase,
            target: &step.target,
            mode: &step.mode,
        };
        if !order.contains(&place) {
            order.push(place);
        }
        let sum = sums.entry((place, cost.name.as_str())).or_default();
        if let (Some(percent), Some(span_s)) = (cost.cpu_percent, cost.span_s) {
            sum.used_s += percent / 100.0 * span_s;
            sum.span_s += span_s;
        }
        if let (Some(cpu_s), Some(_)) = (cost.cpu_s, cost.cpu_us_per_op) {
            sum.cpu_s += cpu_s;
            sum.ops += real(cost.ops);
            if let Some(after) = cost.after_cpu_s {
                sum.until_idle_s += cpu_s + after;
                sum.until_idle_ops += real(cost.ops);
            }
        }
        let is_told = |percent: &f64| cost.daemons > 1 && *percent > 0.0;
        if let Some(percent) = cost.busiest_percent.filter(is_told)
            && sum.busiest.as_ref().is_none_or(|(most, _)| percent > *most)
        {
            sum.busiest = Some((percent, cost.busiest.clone()));
        }
    }
    let unserved = unserved(report);
    let Names { shown: names, rest } = names(&sums);
    if names.is_empty() {
        let listed = (!unserved.is_empty()).then(|| Table {
            notes: unserved,
            ..Table::titled("Daemons by mode")
        });
        return listed.into_iter().collect();
    }
    let several = |of: fn(&ModeOnTarget<'_>) -> String| {
        let values: BTreeSet<String> = order.iter().map(of).collect();
        values.len() > 1
    };
    let column = |head: &str, of: fn(&ModeOnTarget<'_>) -> String| {
        (
            head.to_owned(),
            order.iter().map(of).collect::<Vec<String>>(),
        )
    };
    let phase = |place: &ModeOnTarget<'_>| place.phase.to_owned();
    let target = |place: &ModeOnTarget<'_>| place.target.to_owned();
    let mut labels = Vec::new();
    if several(phase) {
        labels.push(column("phase", phase));
    }
    if several(target) {
        labels.push(column("target", target));
    }
    labels.push(column("mode", |place| place.mode.to_owned()));
    type CostCell = fn(&CostSum) -> Option<f64>;
    let shown: [(&str, CostCell); 3] = [
        ("CPU %", CostSum::percent),
        ("CPU us per operation", |sum| {
            (sum.ops > 0.0).then(|| sum.cpu_s * 1e6 / sum.ops)
        }),
        ("CPU us per operation until idle", |sum| {
            (sum.until_idle_ops > 0.0).then(|| sum.until_idle_s * 1e6 / sum.until_idle_ops)
        }),
    ];
    let bands: Vec<Band> = shown
        .into_iter()
        .map(|(band, cell)| {
            let columns = names.iter().map(|name| {
                let cells = order.iter().map(|place| {
                    let sum = sums.get(&(*place, *name));
                    sum.and_then(cell)
                        .map_or_else(|| NONE.to_owned(), figures::rate)
                });
                ((*name).to_owned(), cells.collect())
            });
            let of_rest = |place: &ModeOnTarget<'_>| {
                let cells = rest
                    .iter()
                    .filter_map(|name| cell(sums.get(&(*place, *name))?));
                cells
                    .reduce(|a, b| a + b)
                    .map_or_else(|| NONE.to_owned(), figures::rate)
            };
            let of_all_rest = || order.iter().map(of_rest).collect();
            let title = match rest.as_slice() {
                [] => None,
                [one] => Some((*one).to_owned()),
                several => Some(format!("{} others", several.len())),
            };
            let of_rest = title.map(|title| (title, of_all_rest()));
            let columns = columns.chain(of_rest);
            (
                band.to_owned(),
                columns.collect::<Vec<(String, Vec<String>)>>(),
            )
        })
        .filter(|(_, columns)| {
            columns
                .iter()
                .flat_map(|(_, cells)| cells)
                .any(|cell| cell != NONE)
        })
        .collect();
    let mut tables = packed("Daemons by mode", &labels, bands, width);
    let busiest = sums
        .iter()
        .filter_map(|((_, name), sum)| Some((name, sum.busiest.as_ref()?)))
        .max_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
    if let Some(last) = tables.last_mut() {
        last.notes.push(
            "CPU %: CPU time of all daemons of one name that serve the target, divided by the time of the steps of a mode; \
             100 % is one CPU."
                .to_owned(),
        );
        if sums.values().any(|sum| sum.until_idle_ops > 0.0) {
            last.notes.push(
                "Until idle: includes the daemons' work after a step, for at most 5 s and until the mesh continued."
                    .to_owned(),
            );
        }
        if rest.len() > 1 {
            last.notes.push(format!(
                "Others: {}; `report RUN daemons` shows each.",
                listed(&rest)
            ));
        }
        last.notes.push(idle(report, &names));
        last.notes.extend(busiest.map(|(name, (percent, who))| {
            format!(
                "Busiest single daemon: {name} on {who}, {} %.",
                figures::rate(*percent)
            )
        }));
        last.notes.extend(unserved);
    }
    tables
}

/// Why targets have no cost: a sentence for each that no daemon serves, as far as the rules of daemons know.
fn unserved(report: &Report) -> Vec<String> {
    let served: BTreeSet<&str> = report
        .costs
        .iter()
        .map(|cost| cost.target.as_str())
        .collect();
    let is_measured = |step: &&StepReport| !step.target.is_empty() && !step.ops.is_empty();
    let is_local = |step: &StepReport| {
        let place = Place {
            system: &step.system,
            ..Place::default()
        };
        place.is_local()
    };
    let targets: BTreeSet<&str> = report
        .steps
        .iter()
        .filter(is_measured)
        .filter(|step| !is_local(step))
        .map(|step| step.target.as_str())
        .filter(|target| !served.contains(target))
        .collect();
    let sampled = |serves: fn(Option<bool>) -> bool| -> Vec<&str> {
        let daemons = report.daemons.iter();
        let names: BTreeSet<&str> = daemons
            .filter(|one| one.name != OWN && serves(one.serves))
            .map(|one| one.name.as_str())
            .collect();
        names.into_iter().collect()
    };
    let (all, unclear) = (sampled(|_| true), sampled(|serves| serves.is_none()));
    let why = |target: &str| match (all.as_slice(), unclear.as_slice()) {
        ([], _) => format!(
            "No cost of operations on {target}: no agent has found a daemon of a storage system on its host. Run an agent on \
             each of its hosts."
        ),
        (_, [_, ..]) => format!(
            "No cost of operations on {target}: no rule tells whether these daemons serve it: {}. The label \
             serves={target} of their agents does.",
            listed(&unclear)
        ),
        _ => format!(
            "No cost of operations on {target}: none of the sampled daemons serves it ({}).",
            listed(&all)
        ),
    };
    targets.into_iter().map(why).collect()
}

/// Usage of the daemons before the run.
fn idle(report: &Report, names: &[&str]) -> String {
    let known: Vec<String> = names
        .iter()
        .filter_map(|name| {
            let mut costs = report.costs.iter().filter(|cost| cost.name == **name);
            let percent = costs.find_map(|cost| cost.idle_percent)?;
            Some(format!("{name} {} %", figures::rate(percent)))
        })
        .collect();
    match known.is_empty() {
        true => "Their usage when idle is unknown: no agent sampled them in the minute before the run, or another run \
                 had just ended."
            .to_owned(),
        false => format!("Idle, in the minute before the run: {} of a CPU.", known.join(", ")),
    }
}

/// The names of daemons, in alphabetical order.
struct Names<'r> {
    /// Those with the highest CPU usage.
    shown: Vec<&'r str>,
    rest: Vec<&'r str>,
}

fn names<'r>(sums: &BTreeMap<(ModeOnTarget<'r>, &'r str), CostSum>) -> Names<'r> {
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for ((_, name), sum) in sums {
        let known = most.entry(*name).or_default();
        *known = known.max(sum.percent().unwrap_or(0.0));
    }
    let mut names: Vec<(&str, f64)> = most.into_iter().collect();
    names.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let busy = names.partition_point(|(_, percent)| *percent >= MIN_PERCENT);
    let rest = names.split_off(busy.min(NAMES_ACROSS));
    let sorted = |names: Vec<(&'r str, f64)>| {
        let names: BTreeSet<&str> = names.into_iter().map(|(name, _)| name).collect();
        Vec::from_iter(names)
    };
    Names {
        shown: sorted(names),
        rest: sorted(rest),
    }
}

fn listed(names: &[&str]) -> String {
    let listed = names.get(..MAX_LISTED).unwrap_or(names);
    match names.len() - listed.len() {
        0 => listed.join(", "),
        more => format!("{} and {more} more", listed.join(", ")),
    }
}

fn is_shown(cost: &CostReport) -> bool {
    !cost.target.is_empty()
}

/// Usage of the daemons of each name in each step.
pub(in crate::report) fn by_step(report: &Report) -> Option<Table> {
    let of_id: HashMap<StepId, &StepReport> =
        report.steps.iter().map(|step| (step.id, step)).collect();
    let costs: Vec<(&CostReport, &StepReport)> = report
        .costs
        .iter()
        .filter(|cost| is_shown(cost))
        .filter(|cost| {
            let shown = |figure: Option<f64>| figure.is_some_and(|figure| figure >= MIN_COST);
            shown(cost.cpu_us_per_op) || shown(cost.cpu_s_per_gib) || shown(cost.cpu_percent)
        })
        .filter_map(|cost| Some((cost, *of_id.get(&cost.step_id)?)))
        .collect();
    let varying = steps::varying(&report.steps);
    Table::of("Daemons in each step", &costs)
        .figure("step", |(_, step)| step.ordinal)
        .text("phase", |(_, step)| &step.phase)
        .text("target", |(cost, _)| &cost.target)
        .if_any()
        .text("mode", |(_, step)| &step.mode)
        .text("params", |(_, step)| steps::params(step, &varying))
        .if_any()
        .text("daemon", |(cost, _)| &cost.name)
        .figure("daemons", |(cost, _)| cost.daemons)
        .rate("CPU %", |(cost, _)| cost.cpu_percent)
        .rate("idle %", |(cost, _)| cost.idle_percent)
        .if_any()
        .rate("CPU us/op", |(cost, _)| cost.cpu_us_per_op)
        .rate("until idle", |(cost, _)| cost.cpu_us_per_op_until_idle)
        .if_any()
        .rate("CPU s/GiB", |(cost, _)| cost.cpu_s_per_gib)
        .rate("RSS max MiB", |(cost, _)| cost.rss_max_mib)
        .rate("read MiB", |(cost, _)| cost.read_mib)
        .rate("written MiB", |(cost, _)| cost.written_mib)
        .text("flags", |(_, step)| step.flags.join(" "))
        .if_any()
        .note(
            "CPU time of all daemons of one name during the step, divided by its operations and its bytes.",
        )
        .note_if(
            costs.iter().any(|(cost, _)| cost.cpu_us_per_op_until_idle.is_some()),
            || "Until idle: includes their work after the step.".to_owned(),
        )
        .note_if(report.steps.iter().any(|step| step.groups.len() > 1), || {
            "A step of several groups has no cost per operation: the CPU time of daemons that serve all groups cannot \
             be split between them; v_cost has the sums."
                .to_owned()
        })
        .spare(&[
            "flags",
            "idle %",
            "read MiB",
            "written MiB",
            "CPU s/GiB",
            "RSS max MiB",
            "params",
        ])
        .done()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]
    use super::*;
    use crate::report::tests::{cost, report, step};

    fn daemon(name: &str, serves: Option<bool>) -> DaemonReport {
        DaemonReport {
            name: name.to_owned(),
            serves,
            ..super::super::daemons::tests::daemon(name, "h", serves, 1.0)
        }
    }

    #[test]
    fn a_target_that_nobody_serves_is_explained() {
        let none = "No cost of operations on cephfs: ";
        for (daemons, system, expected) in [
            (
                vec![],
                "cephfs",
                format!(
                    "{none}no agent has found a daemon of a storage system on its host. Run an agent on each of its hosts."
                ),
            ),
            (
                vec![daemon(OWN, Some(false))],
                "cephfs",
                format!(
                    "{none}no agent has found a daemon of a storage system on its host. Run an agent on each of its hosts."
                ),
            ),
            (
                vec![
                    daemon("glusterd", Some(false)),
                    daemon("glusterfsd", Some(false)),
                ],
                "cephfs",
                format!("{none}none of the sampled daemons serves it (glusterd, glusterfsd)."),
            ),
            (
                vec![daemon("ceph-mon", Some(false)), daemon("mystore", None)],
                "mystore",
                format!(
                    "{none}no rule tells whether these daemons serve it: mystore. The label serves=cephfs of their agents does."
                ),
            ),
            (vec![], "xfs", String::new()),
        ] {
            let mut one = step(1, "p", "write");
            one.system = system.to_owned();
            let mut report = report(vec![one]);
            report.daemons = daemons;
            let tables = by_mode(&report, None);
            let notes: Vec<String> = tables.into_iter().flat_map(|table| table.notes).collect();
            assert_eq!(notes.join("\n"), expected, "{system}");
        }
        let mut served = report(vec![step(1, "p", "write")]);
        served.costs = vec![cost()];
        assert_eq!(unserved(&served), Vec::<String>::new());
    }
}

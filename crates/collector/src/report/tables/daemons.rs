//! Daemons: each over the run, and what those of a name used in each mode beside what an operation cost them.

use super::bands::{Band, packed};
use super::{LEAST_COST, Table};
use crate::figures::{self, NONE};
use crate::model::StepId;
use crate::report::{CostReport, DaemonReport, Report, StepReport};
use crate::results::real;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Names that used less of a CPU in every mode have no column.
const LEAST_PERCENT: f64 = 0.5;
/// Names that have a column; more are in `--all`.
const NAMES_ACROSS: usize = 5;

/// Each watched process over the steps.
pub(super) fn each(daemons: &[DaemonReport]) -> Option<Table> {
    if daemons.is_empty() {
        return None;
    }
    let cells = |cell: fn(&DaemonReport) -> String| daemons.iter().map(cell).collect::<Vec<_>>();
    let when = |at: Option<i64>| at.map(figures::instant).unwrap_or_default();
    let mut table = Table::titled("Daemons during the steps")
        .text("host", cells(|one| one.host.clone()))
        .text("daemon", cells(|one| one.name.clone()))
        .text_if_any("instance", cells(|one| one.instance.clone()))
        .figures("pid", cells(|one| one.pid.to_string()))
        .figures("CPU s", cells(|one| figures::maybe_rate(one.cpu_s)))
        .figures("CPU %", cells(|one| figures::maybe_rate(one.cpu_percent)))
        .figures(
            "CPU % max",
            cells(|one| figures::maybe_rate(one.cpu_percent_max)),
        )
        .figures(
            "RSS first MiB",
            cells(|one| figures::maybe_rate(one.rss_first_mib)),
        )
        .figures("max MiB", cells(|one| figures::maybe_rate(one.rss_max_mib)))
        .figures_if_any("peak MiB", cells(|one| figures::maybe_rate(one.rss_peak_mib)))
        .figures(
            "last MiB",
            cells(|one| figures::maybe_rate(one.rss_last_mib)),
        )
        .figures("read MiB", cells(|one| figures::maybe_rate(one.read_mib)))
        .figures(
            "written MiB",
            cells(|one| figures::maybe_rate(one.written_mib)),
        )
        .text_if_any(
            "started",
            daemons.iter().map(|one| when(one.born_us)).collect(),
        )
        .text_if_any(
            "ended",
            daemons.iter().map(|one| when(one.ended_us)).collect(),
        )
        .note(
            "CPU %: 100 is one CPU; mean over the steps, and of the step in which it was highest. Peak: with what was \
             resident between two samples, by the kernel's own highest mark at the edges of each step.",
        );
    table.spare = vec![
        "started",
        "pid",
        "RSS first MiB",
        "read MiB",
        "written MiB",
        "CPU % max",
        "ended",
    ];
    Some(table)
}

/// A row per phase, target and mode.
#[derive(PartialEq, Eq, PartialOrd, Ord, Clone, Copy)]
struct Place<'r> {
    phase: &'r str,
    target: &'r str,
    mode: &'r str,
}

#[derive(Default)]
struct Sum {
    percents: Vec<f64>,
    cpu_s: f64,
    ops: f64,
    /// With what came after the steps, and the operations of the steps of which that is known.
    until_idle_s: f64,
    until_idle_ops: f64,
    busiest: Option<(f64, String)>,
}

/// CPU of the daemons of each name in each mode, and CPU time per operation.
pub(super) fn by_mode(report: &Report, width: Option<usize>) -> Vec<Table> {
    let steps: HashMap<StepId, &StepReport> =
        report.steps.iter().map(|step| (step.id, step)).collect();
    let mut order: Vec<Place<'_>> = Vec::new();
    let mut sums: BTreeMap<(Place<'_>, &str), Sum> = BTreeMap::new();
    for cost in report.costs.iter().filter(|cost| is_shown(cost)) {
        let Some(step) = steps.get(&cost.step_id) else {
            continue;
        };
        let place = Place {
            phase: &step.phase,
            target: &step.target,
            mode: &step.mode,
        };
        if !order.contains(&place) {
            order.push(place);
        }
        let sum = sums.entry((place, cost.name.as_str())).or_default();
        sum.percents.extend(cost.cpu_percent);
        if let (Some(cpu_s), Some(_)) = (cost.cpu_s, cost.cpu_us_per_op) {
            sum.cpu_s += cpu_s;
            sum.ops += real(cost.ops);
            if let Some(after) = cost.after_cpu_s {
                sum.until_idle_s += cpu_s + after;
                sum.until_idle_ops += real(cost.ops);
            }
        }
        if let Some(percent) = cost.busiest_percent.filter(|_| cost.daemons > 1)
            && sum.busiest.as_ref().is_none_or(|(most, _)| percent > *most)
        {
            sum.busiest = Some((percent, cost.busiest.clone()));
        }
    }
    let names = names(&sums);
    if names.is_empty() {
        return Vec::new();
    }
    let several = |of: fn(&Place<'_>) -> String| {
        let values: BTreeSet<String> = order.iter().map(of).collect();
        values.len() > 1
    };
    let column = |head: &str, of: fn(&Place<'_>) -> String| {
        (
            head.to_owned(),
            order.iter().map(of).collect::<Vec<String>>(),
        )
    };
    let phase = |place: &Place<'_>| place.phase.to_owned();
    let target = |place: &Place<'_>| place.target.to_owned();
    let mut labels = Vec::new();
    if several(phase) {
        labels.push(column("phase", phase));
    }
    if several(target) {
        labels.push(column("target", target));
    }
    labels.push(column("mode", |place| place.mode.to_owned()));
    type Cell = fn(&Sum) -> Option<f64>;
    let shown: [(&str, Cell); 3] = [
        ("CPU %", |sum| mean(&sum.percents)),
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
        .values()
        .filter_map(|sum| sum.busiest.as_ref())
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    if let Some(last) = tables.last_mut() {
        last.notes.push(
            "All daemons of a name together, those that serve the target; 100 % is one CPU; mean over the steps of a \
             mode. Until idle: with what they did after a step, for 5 s at most and until the mesh went on."
                .to_owned(),
        );
        last.notes.push(idle(report, &names));
        last.notes.extend(busiest.map(|(percent, who)| {
            format!(
                "Busiest single daemon: {who}, {} %.",
                figures::rate(*percent)
            )
        }));
    }
    tables
}

/// What the daemons used before the run.
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
        true => "What they use when idle is not known: no agent sampled them in the minute before the run, or another \
                 run had just ended."
            .to_owned(),
        false => format!("Idle, in the minute before the run: {} of a CPU.", known.join(", ")),
    }
}

/// The names that used most CPU, in alphabetical order.
fn names<'r>(sums: &BTreeMap<(Place<'r>, &'r str), Sum>) -> Vec<&'r str> {
    let mut most: BTreeMap<&str, f64> = BTreeMap::new();
    for ((_, name), sum) in sums {
        let percent = sum.percents.iter().copied().fold(0.0, f64::max);
        let known = most.entry(*name).or_default();
        *known = known.max(percent);
    }
    let mut names: Vec<(&str, f64)> = most
        .into_iter()
        .filter(|(_, percent)| *percent >= LEAST_PERCENT)
        .collect();
    names.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    names.truncate(NAMES_ACROSS);
    let mut names: Vec<&str> = names.into_iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

fn is_shown(cost: &CostReport) -> bool {
    !cost.target.is_empty()
}

/// What the daemons of each name used in each step.
pub(super) fn by_step(report: &Report) -> Option<Table> {
    let steps: HashMap<StepId, &StepReport> =
        report.steps.iter().map(|step| (step.id, step)).collect();
    let costs: Vec<(&CostReport, &StepReport)> = report
        .costs
        .iter()
        .filter(|cost| is_shown(cost))
        .filter(|cost| {
            let shown = |figure: Option<f64>| figure.is_some_and(|figure| figure >= LEAST_COST);
            shown(cost.cpu_us_per_op) || shown(cost.cpu_s_per_gib) || shown(cost.cpu_percent)
        })
        .filter_map(|cost| Some((cost, *steps.get(&cost.step_id)?)))
        .collect();
    if costs.is_empty() {
        return None;
    }
    let varying = super::results::varying(&report.steps);
    let step = |cell: &dyn Fn(&StepReport) -> String| -> Vec<String> {
        costs.iter().map(|(_, step)| cell(step)).collect()
    };
    let cost = |cell: fn(&CostReport) -> Option<f64>| -> Vec<String> {
        costs
            .iter()
            .map(|(cost, _)| figures::maybe_rate(cell(cost)))
            .collect()
    };
    let mut table = Table::titled("Daemons in each step")
        .figures("step", step(&|step| step.ordinal.to_string()))
        .text("phase", step(&|step| step.phase.clone()))
        .text_if_any("target", costs.iter().map(|(cost, _)| cost.target.clone()).collect())
        .text("mode", step(&|step| step.mode.clone()))
        .text_if_any("params", step(&|step| super::results::params(step, &varying)))
        .text("daemon", costs.iter().map(|(cost, _)| cost.name.clone()))
        .figures("daemons", costs.iter().map(|(cost, _)| cost.daemons.to_string()))
        .figures("CPU %", cost(|one| one.cpu_percent))
        .figures_if_any("idle %", cost(|one| one.idle_percent))
        .figures("CPU us/op", cost(|one| one.cpu_us_per_op))
        .figures_if_any("until idle", cost(|one| one.cpu_us_per_op_until_idle))
        .figures("CPU s/GiB", cost(|one| one.cpu_s_per_gib))
        .figures("RSS max MiB", cost(|one| one.rss_max_mib))
        .figures("read MiB", cost(|one| one.read_mib))
        .figures("written MiB", cost(|one| one.written_mib))
        .text_if_any("flags", step(&|step| step.flags.join(" ")))
        .note("CPU time of all daemons of one name during the step, over its operations and its bytes; until idle: \
               with what they did after it.")
        .note_where(
            report.steps.iter().any(|step| step.groups.len() > 1),
            "A step of several groups has no cost of an operation: nothing tells the CPU time of daemons apart that serve \
             all of them; v_cost has its sums.",
        );
    table.spare = vec![
        "flags",
        "idle %",
        "read MiB",
        "written MiB",
        "CPU s/GiB",
        "RSS max MiB",
        "params",
    ];
    Some(table)
}

fn mean(values: &[f64]) -> Option<f64> {
    let count = i64::try_from(values.len())
        .ok()
        .filter(|count| *count > 0)?;
    Some(values.iter().sum::<f64>() / real(count))
}

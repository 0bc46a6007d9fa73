//! Expands a plan on the attached agents into steps, ordered by repeat, phase, matrix cell, target and mode.
//!
//! Pure: the same plan and agents give the same steps, in whatever order the agents are given.

use super::{
    AgentFacts, Cell, Expansion, Group, Phase, Plan, PlannedLoad, PlannedStep, PlannedTask, Target,
    agents::left_out,
    curve, kept,
    mounts::mounted_otherwise,
    policy,
    probes::cell_name,
    search::Probe,
    source::Mistakes,
    steady,
    task_set::{TaskSet, task_sets},
};
use benchmesh_workloads::workload::{Footprint, Needs};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

/// More steps than this are a mistake.
pub(super) const MAX_STEPS: usize = 100_000;

/// Agents refuse a start more than an hour ahead; the first start has a lead time.
const LATEST_START: Duration = Duration::from_secs(3500);

pub(super) fn expand(
    plan: &Plan,
    agents: &[AgentFacts],
    number: u32,
    mistakes: &mut Mistakes<'_>,
) -> Expansion {
    let mut fleet: Vec<&AgentFacts> = agents.iter().collect();
    fleet.sort_by(|a, b| a.name.cmp(&b.name));
    let mut expansion = Expansion {
        steps: Vec::new(),
        warnings: plan.warnings(),
    };
    if fleet.is_empty() {
        mistakes.whole(
            "no agent is attached",
            "start one on each client: benchmesh agent --collector ADDR --allow PATH",
        );
        return expansion;
    }
    let size: usize = plan
        .phases
        .iter()
        .map(|phase| {
            phase.cells() * phase.targets.len().max(1) * phase.steps() * loads_at_most(phase)
        })
        .sum::<usize>()
        .saturating_mul(usize::try_from(plan.repeat).unwrap_or(usize::MAX));
    if size > MAX_STEPS {
        refuse_size(&size.to_string(), mistakes);
        return expansion;
    }
    let mut cell_number = 0;
    let mut shared = SharedParams::default();
    for repeat in 1..=plan.repeat {
        // Each loop has its own order.
        let draws = number.saturating_sub(1).saturating_mul(plan.repeat) + repeat;
        let mut draw = plan.order.of_repeat(draws);
        let mut cells: Vec<(usize, &Phase, usize)> = plan
            .phases
            .iter()
            .enumerate()
            .flat_map(|(phase_index, phase)| {
                (0..phase.cells()).map(move |cell_index| (phase_index, phase, cell_index))
            })
            .collect();
        draw.order_cells(&mut cells);
        for (phase_index, phase, cell_index) in cells {
            let mut targets: Vec<(usize, Option<&Target>)> = if phase.needs() == Needs::Target {
                phase
                    .targets
                    .iter()
                    .map(|index| plan.targets.get(*index))
                    .enumerate()
                    .collect()
            } else {
                vec![(0, None)]
            };
            draw.order_targets(&mut targets);
            for (target_index, target) in targets {
                if mistakes.is_cancelled() {
                    return expansion;
                }
                let task_sets = task_sets(plan, phase, cell_index, target, &fleet, mistakes);
                for tasks in &task_sets {
                    refuse_late_start(phase, tasks.len(), mistakes);
                }
                let task_sets: Vec<TaskSet<'_>> = task_sets
                    .into_iter()
                    .map(|tasks| TaskSet::of(phase, cell_index, tasks, &fleet, mistakes))
                    .collect();
                let name = format!(
                    "{}r{repeat}-p{}-c{}-t{}",
                    loop_prefix(number),
                    phase_index + 1,
                    cell_index + 1,
                    target_index + 1
                );
                for (name, rates) in cells_of(phase, cell_index, name) {
                    // Links make their own steps, so their number is only known here. Check the limit before making
                    // them.
                    let coming = phase.steps() * rates.len() * task_sets.len() * probes_of(phase);
                    let taken = next_ordinal(&expansion.steps) - 1;
                    if usize::try_from(taken)
                        .unwrap_or(usize::MAX)
                        .saturating_add(coming)
                        > MAX_STEPS
                    {
                        refuse_size(&format!("more than {MAX_STEPS}"), mistakes);
                        return expansion;
                    }
                    let place = CellPlace {
                        loop_number: number,
                        repeat,
                        number: cell_number,
                        index: cell_index,
                        name,
                    };
                    cell_number += if has_own_cells(phase) {
                        probes_of(phase)
                    } else {
                        1
                    };
                    add_steps(
                        &mut expansion.steps,
                        &mut shared,
                        phase,
                        target,
                        &place,
                        &rates,
                        &task_sets,
                    );
                }
            }
        }
    }
    let before = (next_ordinal(&expansion.steps) - 1).saturating_mul(number.saturating_sub(1));
    for step in &mut expansion.steps {
        step.ordinal = step.ordinal.saturating_add(before);
    }
    policy::check_steps(plan, &expansion.steps, mistakes);
    let otherwise = mounted_otherwise(&expansion.steps, fleet.iter().copied());
    expansion.warnings.extend(otherwise);
    for (agent, remedy) in left_out(plan, &expansion.steps, &fleet) {
        // If the plan is refused, the cause may be that this agent is missing.
        match mistakes.count() == 0 {
            true => expansion.warnings.push(format!("{agent}; {remedy}")),
            false => mistakes.whole(agent, remedy),
        }
    }
    expansion
}

/// Prefix of the names of a loop's cells: no loop finds the data of an earlier one.
fn loop_prefix(number: u32) -> String {
    match number {
        ..=1 => String::new(),
        _ => format!("l{number}-"),
    }
}

fn refuse_size(steps: &str, mistakes: &mut Mistakes<'_>) {
    mistakes.whole(
        format!("the plan expands to {steps} steps; at most {MAX_STEPS} are allowed"),
        "shorten the matrices, use fewer repeats, or measure several links per step with `pairs`",
    );
}

/// The position of a cell in the run.
struct CellPlace {
    loop_number: u32,
    repeat: u32,
    number: usize,
    /// Index among the phase's cells.
    index: usize,
    name: String,
}

/// The key and the value of a rate that replaces the phase's own; `None` to keep it.
type Rate = Option<(&'static str, u64)>;

fn loads_at_most(phase: &Phase) -> usize {
    let loads = phase.curve.map_or(1, |curve| {
        usize::try_from(curve.steps).unwrap_or(usize::MAX)
    });
    loads.saturating_mul(probes_of(phase))
}

/// Maximum number of steps that each step of a phase may become: the probes of a search are added as they are decided.
fn probes_of(phase: &Phase) -> usize {
    phase.search.as_ref().map_or(1, |search| {
        usize::try_from(search.steps).unwrap_or(usize::MAX)
    })
}

/// Whether each probe of a search makes its own data.
fn has_own_cells(phase: &Phase) -> bool {
    phase.search.is_some() && !curve::keeps_data(phase)
}

/// The ordinal after these steps. Ordinals of possible probes stay reserved.
fn next_ordinal(steps: &[PlannedStep]) -> u32 {
    steps
        .last()
        .map_or(1, |last| last.ordinal.saturating_add(last.ordinals()))
}

/// The cells that a cell of the matrix makes, with their names and rates: one, or one for each load of a curve if a
/// mode does not leave the data as it found them.
fn cells_of(phase: &Phase, index: usize, name: String) -> Vec<(String, Vec<Rate>)> {
    let cell = phase
        .groups
        .first()
        .and_then(|group| group.cells.get(index));
    if has_own_cells(phase) {
        return vec![(cell_name(&name, 1), vec![None])];
    }
    let (Some(curve), Some(cell)) = (phase.curve, cell) else {
        return vec![(name, vec![None])];
    };
    let rates = curve.loads(cell).into_iter().map(Some);
    if curve::keeps_data(phase) {
        return vec![(name, rates.collect())];
    }
    rates
        .zip(1..)
        .map(|(rate, number)| (format!("{name}-l{number}"), vec![rate]))
        .collect()
}

/// Refuses starts more than an hour ahead, which agents do not accept.
fn refuse_late_start(phase: &Phase, tasks: usize, mistakes: &mut Mistakes<'_>) {
    let last = last_start(phase.stagger, tasks);
    if last > LATEST_START {
        mistakes.at(
            &phase.at,
            format!(
                "the last of {tasks} tasks would start {} s after the first",
                last.as_secs()
            ),
            format!(
                "choose a shorter stagger: at most {} s",
                LATEST_START.as_secs()
            ),
        );
    }
}

/// The delay of the last task's start after the first.
fn last_start(stagger: Duration, tasks: usize) -> Duration {
    stagger.saturating_mul(u32::try_from(tasks.saturating_sub(1)).unwrap_or(u32::MAX))
}

/// Parameters of steps, shared: those of repeats, targets and modes are mostly equal, and a plan may have a hundred
/// thousand steps.
#[derive(Default)]
struct SharedParams(HashSet<Arc<Map<String, Value>>>);

impl SharedParams {
    fn share(&mut self, params: Map<String, Value>) -> Arc<Map<String, Value>> {
        if let Some(known) = self.0.get(&params) {
            return Arc::clone(known);
        }
        let params = Arc::new(params);
        self.0.insert(Arc::clone(&params));
        params
    }
}

fn add_steps(
    steps: &mut Vec<PlannedStep>,
    shared: &mut SharedParams,
    phase: &Phase,
    target: Option<&Target>,
    place: &CellPlace,
    rates: &[Rate],
    task_sets: &[TaskSet<'_>],
) {
    let variants = (0..phase.steps()).flat_map(|mode| rates.iter().map(move |rate| (mode, *rate)));
    for (mode, rate) in variants {
        for TaskSet { tasks, cells } in task_sets {
            let loads = loads(phase, cells, mode, rate, tasks, shared);
            // The mode is impossible in this cell.
            if loads.is_empty() {
                continue;
            }
            steps.push(PlannedStep {
                ordinal: next_ordinal(steps),
                loop_number: place.loop_number,
                repeat: place.repeat,
                phase: phase.name.clone(),
                cell: place.number,
                cell_name: place.name.clone(),
                target: target.map_or_else(String::new, |target| target.name.clone()),
                system: target.map_or_else(String::new, |target| target.system.clone()),
                path: target.map_or_else(String::new, |target| target.locator.to_string()),
                workload: joined(&loads, |load| &load.workload),
                mode: joined(&loads, |load| &load.mode),
                cache: phase.cache_of(place.index),
                settle: phase.settle,
                stagger: phase.stagger,
                steady: steady::after_ramps(
                    phase.steady,
                    loads.iter().filter_map(PlannedLoad::ramp_time),
                    last_start(phase.stagger, tasks.len()),
                ),
                probe: phase.search.as_ref().map(|search| Probe {
                    search: Arc::clone(search),
                    number: 1,
                    has_own_cell: has_own_cells(phase),
                }),
                params: params(&loads, shared),
                kept: kept::planned(phase.kept.as_ref(), &loads),
                tasks: Arc::clone(tasks),
                moved_bytes: moved_bytes(&loads),
                files: total(&loads, |footprint| footprint.files),
                expected: expected(&loads)
                    .map(|expected| expected + last_start(phase.stagger, tasks.len())),
                loads,
                at: phase.at.clone(),
            });
        }
    }
}

/// The load of each group in the `mode`th step of a cell.
fn loads(
    phase: &Phase,
    cells: &[Cow<'_, Cell>],
    mode: usize,
    rate: Rate,
    tasks: &[PlannedTask],
    shared: &mut SharedParams,
) -> Vec<PlannedLoad> {
    let load = |(load, (group, cell)): (usize, (&Group, &Cow<'_, Cell>))| {
        // A group with one mode continues it through all steps.
        let index = mode.min(group.modes.len().checked_sub(1)?);
        let workload = group.workload.0;
        let mode = group.modes.get(index)?.clone();
        let mut params = workload.as_stored(&mode, &cell.params);
        params.extend(rate.map(|(key, rate)| (key.to_owned(), rate.into())));
        let own = tasks.iter().filter(|task| task.load == load);
        let clients: BTreeSet<&str> = own.clone().map(|task| task.agent.as_str()).collect();
        Some(PlannedLoad {
            group: group.name.clone(),
            workload: workload.name().to_owned(),
            footprint: (*cell.footprints.get(index)?)?,
            mode,
            params: shared.share(params),
            tasks: u32::try_from(own.count()).unwrap_or(u32::MAX),
            clients: u32::try_from(clients.len()).unwrap_or(u32::MAX),
        })
    };
    let groups = phase.groups.iter().zip(cells).enumerate();
    groups.filter_map(load).collect()
}

/// A word of each load, joined; loads with the same word repeat it.
fn joined(loads: &[PlannedLoad], word: fn(&PlannedLoad) -> &String) -> String {
    let words: Vec<&str> = loads.iter().map(|load| word(load).as_str()).collect();
    words.join("+")
}

fn params(loads: &[PlannedLoad], shared: &mut SharedParams) -> Arc<Map<String, Value>> {
    match loads {
        [only] if only.group.is_empty() => Arc::clone(&only.params),
        _ => {
            let params = |load: &PlannedLoad| Value::Object((*load.params).clone());
            let loads = loads.iter();
            shared.share(
                loads
                    .map(|load| (load.group.clone(), params(load)))
                    .collect(),
            )
        }
    }
}

fn total(loads: &[PlannedLoad], of_a_task: fn(&Footprint) -> u64) -> u64 {
    loads.iter().fold(0, |sum, load| {
        sum.saturating_add(of_a_task(&load.footprint).saturating_mul(load.tasks.into()))
    })
}

/// Returns 0 if only time ends a load: the amount is not known.
fn moved_bytes(loads: &[PlannedLoad]) -> u64 {
    match loads.iter().any(|load| load.footprint.runtime.is_some()) {
        true => 0,
        false => total(loads, |footprint| footprint.moved_bytes),
    }
}

/// Returns `None` if a load ends by itself.
fn expected(loads: &[PlannedLoad]) -> Option<Duration> {
    let runtimes = loads.iter().map(|load| load.footprint.runtime);
    runtimes.collect::<Option<Vec<_>>>()?.into_iter().max()
}

pub(super) fn unused_targets(plan: &Plan) -> Vec<String> {
    plan.targets
        .iter()
        .enumerate()
        .filter(|(index, _)| {
            !plan
                .phases
                .iter()
                .any(|phase| phase.targets.contains(index))
        })
        .map(|(_, target)| format!("no phase measures target `{}`", target.name))
        .collect()
}

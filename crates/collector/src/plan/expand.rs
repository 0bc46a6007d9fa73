//! From a plan and the attached agents to the steps, in their order: repeat, phase, matrix cell, target, mode.
//!
//! Pure: the same plan and agents give the same steps, whatever order the agents are given in.

use super::{
    AgentFacts, Expansion, Pairs, Phase, Plan, PlannedStep, PlannedTask, Target,
    agents::{capable, chosen, clients},
    cells::Cell,
    source::Mistakes,
};
use benchmesh_workloads::workload::Needs;

/// More steps than this are a slip of the pen, not a plan.
const MAX_STEPS: usize = 100_000;

pub(super) fn expand(plan: &Plan, agents: &[AgentFacts], mistakes: &mut Mistakes<'_>) -> Expansion {
    let mut fleet: Vec<&AgentFacts> = agents.iter().collect();
    fleet.sort_by(|a, b| a.name.cmp(&b.name));
    let mut expansion = Expansion {
        steps: Vec::new(),
        warnings: unused_targets(plan),
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
        .map(|phase| phase.cells.len() * phase.targets.len().max(1) * phase.modes.len())
        .sum::<usize>()
        .saturating_mul(usize::try_from(plan.repeat).unwrap_or(usize::MAX));
    if size > MAX_STEPS {
        refuse_size(size, mistakes);
        return expansion;
    }
    let mut cell_number = 0;
    for repeat in 1..=plan.repeat {
        for (phase_index, phase) in plan.phases.iter().enumerate() {
            for (cell_index, cell) in phase.cells.iter().enumerate() {
                let targets: Vec<Option<&Target>> = if phase.workload.0.needs() == Needs::Target {
                    phase
                        .targets
                        .iter()
                        .map(|index| plan.targets.get(*index))
                        .collect()
                } else {
                    vec![None]
                };
                for (target_index, target) in targets.into_iter().enumerate() {
                    let place = CellPlace {
                        repeat,
                        number: cell_number,
                        name: format!(
                            "r{repeat}-p{}-c{}-t{}",
                            phase_index + 1,
                            cell_index + 1,
                            target_index + 1
                        ),
                    };
                    cell_number += 1;
                    let teams = teams(plan, phase, cell, target, &fleet, mistakes);
                    add_steps(&mut expansion.steps, phase, cell, target, &place, &teams);
                }
            }
        }
    }
    if expansion.steps.len() > MAX_STEPS {
        refuse_size(expansion.steps.len(), mistakes);
    }
    expansion
}

fn refuse_size(steps: usize, mistakes: &mut Mistakes<'_>) {
    mistakes.whole(
        format!("the plan expands to {steps} steps; at most {MAX_STEPS} are run"),
        "shorten the matrices, repeat less, or measure pairs = \"all\" at once",
    );
}

/// Where a cell stands in the run.
struct CellPlace {
    repeat: u32,
    number: usize,
    name: String,
}

fn add_steps(
    steps: &mut Vec<PlannedStep>,
    phase: &Phase,
    cell: &Cell,
    target: Option<&Target>,
    place: &CellPlace,
    teams: &[Vec<PlannedTask>],
) {
    for (mode, footprint) in phase.modes.iter().zip(&cell.footprints) {
        for tasks in teams {
            let count = u64::try_from(tasks.len()).unwrap_or(u64::MAX);
            steps.push(PlannedStep {
                ordinal: u32::try_from(steps.len() + 1).unwrap_or(u32::MAX),
                repeat: place.repeat,
                phase: phase.name.clone(),
                cell: place.number,
                cell_name: place.name.clone(),
                target: target.map_or_else(String::new, |target| target.name.clone()),
                system: target.map_or_else(String::new, |target| target.system.clone()),
                path: target.map_or_else(String::new, |target| target.path.clone()),
                workload: phase.workload.0.name().to_owned(),
                mode: mode.clone(),
                cache: phase.cache,
                settle: phase.settle,
                params: cell.params.clone(),
                tasks: tasks.clone(),
                moved_bytes: match footprint.runtime {
                    None => footprint.moved_bytes.saturating_mul(count),
                    Some(_) => 0,
                },
                files: footprint.files.saturating_mul(count),
                expected: footprint.runtime,
                footprint: *footprint,
                at: phase.at.clone(),
            });
        }
    }
}

fn unused_targets(plan: &Plan) -> Vec<String> {
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

/// The tasks of each step of a cell's mode: one team, or one per ordered pair.
fn teams(
    plan: &Plan,
    phase: &Phase,
    cell: &Cell,
    target: Option<&Target>,
    fleet: &[&AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Vec<PlannedTask>> {
    let copies = usize::try_from(cell.tasks_per_agent).unwrap_or(1);
    if phase.workload.0.needs() != Needs::Peer {
        let team = clients(plan, phase, cell, target, fleet, mistakes)
            .iter()
            .flat_map(|agent| std::iter::repeat_n(*agent, copies))
            .map(|agent| PlannedTask {
                agent: agent.name.clone(),
                peer: None,
            })
            .collect();
        return vec![team];
    }
    let senders = match &phase.from {
        Some(selected) => capable(phase, chosen(selected, fleet, mistakes), mistakes),
        None => clients(plan, phase, cell, target, fleet, mistakes),
    };
    let receivers = match &phase.to {
        Some(selected) => capable(phase, chosen(selected, fleet, mistakes), mistakes),
        None => clients(plan, phase, cell, target, fleet, mistakes),
    };
    let pairs: Vec<PlannedTask> = senders
        .iter()
        .flat_map(|from| receivers.iter().map(move |to| (from, to)))
        .filter(|(from, to)| from.name != to.name)
        .map(|(from, to)| PlannedTask {
            agent: from.name.clone(),
            peer: Some(to.name.clone()),
        })
        .collect();
    if pairs.is_empty() && !senders.is_empty() && !receivers.is_empty() {
        mistakes.at(
            &phase.at,
            format!(
                "{} needs two different agents, and there is only `{}`",
                phase.workload.0.name(),
                senders
                    .iter()
                    .map(|agent| agent.name.as_str())
                    .next()
                    .unwrap_or_default()
            ),
            "attach another agent, or choose others with from and to",
        );
    }
    let copied = |pair: PlannedTask| std::iter::repeat_n(pair, copies);
    match phase.pairs {
        Pairs::All => vec![pairs.into_iter().flat_map(copied).collect()],
        Pairs::Each => pairs
            .into_iter()
            .map(|pair| copied(pair).collect())
            .collect(),
    }
}

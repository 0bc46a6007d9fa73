//! The tasks of a cell's steps: which agent does what, with sizes resolved from the memory of its host.

use super::{
    AgentFacts, Cache, Cell, Expansion, Group, Phase, Plan, PlannedTask, Target, groups::members,
    links, memory, source::Mistakes,
};
use benchmesh_workloads::{
    registry,
    workload::{Needs, all_keys},
};
use std::{borrow::Cow, sync::Arc};

/// Refuses `cache = "other-client"` with a single client.
fn refuse_single_reader(
    phase: &Phase,
    cell: usize,
    members: &[Vec<&AgentFacts>],
    mistakes: &mut Mistakes<'_>,
) {
    let others = phase.cache_of(cell) == Cache::OtherClient;
    for (group, members) in phase.groups.iter().zip(members) {
        let reads = others && group.workload.0.needs() == Needs::Target;
        if let ([only], true) = (members.as_slice(), reads) {
            mistakes.at(
                &group.at,
                format!(
                    "cache = \"other-client\": agent `{}` is the only client, so there are no data of another client \
                     to read",
                    only.name
                ),
                "use two clients or more, on one file system",
            );
        }
    }
}

/// The tasks of each step of a cell's mode: one set, or one per step that the shape of a network phase makes.
pub(super) fn task_sets(
    plan: &Plan,
    phase: &Phase,
    cell: usize,
    target: Option<&Target>,
    fleet: &[&AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Vec<PlannedTask>> {
    let copies = |group: &Group| {
        let copies = group.cells.get(cell).map_or(1, |cell| cell.tasks_per_agent);
        usize::try_from(copies).unwrap_or(1)
    };
    // Links make their own steps only if the phase has no other groups.
    if let [only] = phase.groups.as_slice()
        && only.name.is_empty()
        && only.workload.0.needs() == Needs::Peer
    {
        return links::task_sets(plan, phase, cell, fleet, mistakes);
    }
    let members = members(plan, phase, cell, target, fleet, mistakes);
    refuse_single_reader(phase, cell, &members, mistakes);
    let mut task_set = Vec::new();
    for (load, (group, group_members)) in phase.groups.iter().zip(&members).enumerate() {
        if group.workload.0.needs() == Needs::Peer {
            task_set.extend(links::tasks_of_group(
                load,
                group,
                cell,
                group_members,
                mistakes,
            ));
            continue;
        }
        let tasks = group_members
            .iter()
            .flat_map(|agent| std::iter::repeat_n(*agent, copies(group)));
        task_set.extend(tasks.zip(0..).map(|(agent, index)| PlannedTask {
            load,
            index,
            agent: agent.name.clone(),
            peer: None,
        }));
    }
    vec![task_set]
}

/// The tasks of a step, and each group's load resolved for the memory of their hosts.
pub(super) struct TaskSet<'p> {
    pub tasks: Arc<[PlannedTask]>,
    pub cells: Vec<Cow<'p, Cell>>,
}

impl<'p> TaskSet<'p> {
    pub fn of(
        phase: &'p Phase,
        cell: usize,
        tasks: Vec<PlannedTask>,
        fleet: &[&AgentFacts],
        mistakes: &mut Mistakes<'_>,
    ) -> Self {
        let cells = || {
            let of_group = move |group: &'p Group| Some((group, group.cells.get(cell)?));
            phase.groups.iter().filter_map(of_group)
        };
        let memory_bytes = match cells().any(|(_, cell)| !cell.of_memory.is_empty()) {
            true => largest_memory(&tasks, fleet),
            false => None,
        };
        let on_memory = |(group, cell): (&'p Group, &'p Cell)| {
            cell.on_memory(memory_bytes, group.workload.0, &group.modes, mistakes)
        };
        Self {
            cells: cells().map(on_memory).collect(),
            tasks: Arc::from(tasks),
        }
    }
}

/// The largest memory among the hosts of these tasks; `None` if one of them is unknown.
fn largest_memory(tasks: &[PlannedTask], fleet: &[&AgentFacts]) -> Option<u64> {
    let memory = |task: &PlannedTask| {
        let agent = fleet.iter().find(|agent| agent.name == task.agent);
        agent.map_or(0, |agent| agent.memory_bytes)
    };
    let known: Option<Vec<u64>> = tasks
        .iter()
        .map(|task| Some(memory(task)).filter(|bytes| *bytes > 0))
        .collect();
    known?.into_iter().max()
}

/// Refuses steps whose sizes could not be resolved.
pub(super) fn refuse_unknown_memory(
    expansion: &Expansion,
    agents: &[AgentFacts],
    mistakes: &mut Mistakes<'_>,
) {
    for step in &expansion.steps {
        let is_open = step.loads.iter().any(|load| {
            let Some(workload) = registry::find(&load.workload) else {
                return false;
            };
            let mut keys = all_keys(workload);
            keys.any(|key| {
                let value = load.params.get(key.name);
                value.is_some_and(|value| memory::multiple(key, value).is_some())
            })
        });
        if !is_open {
            continue;
        }
        let unknown = |name: &&str| {
            let agent = agents.iter().find(|agent| agent.name == **name);
            agent.is_none_or(|agent| agent.memory_bytes == 0)
        };
        if let Some(name) = step.agents().into_iter().find(unknown) {
            mistakes.at(
                &step.at,
                format!("agent `{name}` does not report the memory of its host"),
                "write a size instead of a multiple of `ram`",
            );
        }
    }
}

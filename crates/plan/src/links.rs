//! Which agents of a network phase send to which, and which of these links are measured at the same time.
//!
//! Pure. A shape divides the ordered pairs of senders and receivers into steps; all links of a step start at the same
//! instant. Pairs are ordered by the sender's name, then by the receiver's.

use super::{
    AgentFacts, Group, Pairs, Phase, Plan, PlannedTask, Selector,
    agents::{capable, chosen},
    groups::members,
    pairs::Pair,
    select::Selected,
    source::{Mistakes, ValuePosition, listed},
};
use benchmesh_workloads::workload::Needs;
use std::collections::BTreeSet;

/// More links than this in a phase or group are a mistake: each becomes a task and a stream.
const MAX_LINKS: usize = 100_000;

/// The links of a load.
#[derive(Clone, Debug, Default)]
pub struct Links {
    pub pairs: Pairs,
    pub(crate) from: Option<Selected>,
    pub(crate) to: Option<Selected>,
}

/// The tasks of each step of a cell's mode, in a phase without groups. A task is the sending end of its link.
pub(super) fn task_sets(
    plan: &Plan,
    phase: &Phase,
    cell: usize,
    fleet: &[&AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Vec<PlannedTask>> {
    let Some(group) = phase.groups.first() else {
        return Vec::new();
    };
    let mut ends = |selected: &Option<Selected>| match selected {
        Some(selected) => capable(group, chosen(selected, fleet, mistakes), mistakes),
        None => members(plan, phase, cell, None, fleet, mistakes)
            .into_iter()
            .next()
            .unwrap_or_default(),
    };
    let (senders, receivers) = (ends(&group.links.from), ends(&group.links.to));
    let steps = steps(group, &senders, &receivers, &phase.at, mistakes);
    let tasks = |step: Vec<Pair<'_>>| tasks(0, group, cell, step);
    steps.into_iter().map(tasks).collect()
}

/// The tasks of a group: all of its links at once. Both ends of each link belong to the group's agents, which do
/// nothing else meanwhile.
pub(super) fn tasks_of_group(
    load: usize,
    group: &Group,
    cell: usize,
    group_members: &[&AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<PlannedTask> {
    let mut ends = |selected: &Option<Selected>| {
        let Some(Selected {
            selector, position, ..
        }) = selected
        else {
            return group_members.to_vec();
        };
        let found = group_members
            .iter()
            .copied()
            .filter(|agent| selector.chooses(agent));
        let found: Vec<&AgentFacts> = found.collect();
        if found.is_empty() && !group_members.is_empty() {
            mistakes.at(
                position,
                format!(
                    "no agent of group `{}` is {}",
                    group.name,
                    selector.describe()
                ),
                format!(
                    "its agents are {}",
                    listed(group_members.iter().map(|agent| agent.name.as_str()))
                ),
            );
        }
        found
    };
    let (senders, receivers) = (ends(&group.links.from), ends(&group.links.to));
    let steps = steps(group, &senders, &receivers, &group.at, mistakes);
    if steps.len() > 1 {
        mistakes.at(
            &group.at,
            format!(
                "pairs = \"{}\" needs {} steps for the links of group `{}`, but a group measures all links at once",
                group.links.pairs.as_str(),
                steps.len(),
                group.name
            ),
            "write pairs = \"all-to-all\", or choose fewer agents with from and to",
        );
    }
    let first = steps.into_iter().next().unwrap_or_default();
    tasks(load, group, cell, first)
}

/// The links measured at the same time, step by step; reports a mistake at `at` if there are none.
fn steps<'f>(
    group: &Group,
    senders: &[&'f AgentFacts],
    receivers: &[&'f AgentFacts],
    at: &ValuePosition,
    mistakes: &mut Mistakes<'_>,
) -> Vec<Vec<Pair<'f>>> {
    let links = links_between(senders, receivers);
    if links > MAX_LINKS {
        mistakes.at(
            at,
            format!("there are {links} links; at most {MAX_LINKS} are measured"),
            "choose fewer agents with from and to",
        );
        return Vec::new();
    }
    let pairs: Vec<Pair<'_>> = senders
        .iter()
        .flat_map(|from| receivers.iter().map(move |to| (from, to)))
        .filter(|(from, to)| from.name != to.name)
        .map(|(from, to)| Pair {
            from: &from.name,
            to: &to.name,
        })
        .collect();
    if !pairs.is_empty() {
        return group.links.pairs.steps(&pairs);
    }
    if let ([only, ..], [_, ..]) = (senders, receivers) {
        let why = format!("there is only `{}`", only.name);
        refuse_lonely(group, &why, at, mistakes);
    }
    Vec::new()
}

/// The number of ordered pairs of different agents, computed before any pair is made.
fn links_between(senders: &[&AgentFacts], receivers: &[&AgentFacts]) -> usize {
    let both: BTreeSet<&str> = senders.iter().map(|agent| agent.name.as_str()).collect();
    let to_itself = receivers
        .iter()
        .filter(|to| both.contains(to.name.as_str()));
    (senders.len().saturating_mul(receivers.len())).saturating_sub(to_itself.count())
}

fn tasks(load: usize, group: &Group, cell: usize, step: Vec<Pair<'_>>) -> Vec<PlannedTask> {
    let copies = group.cells.get(cell).map_or(1, |cell| cell.tasks_per_agent);
    let copies = usize::try_from(copies).unwrap_or(1);
    let links = step
        .into_iter()
        .flat_map(|pair| std::iter::repeat_n(pair, copies));
    links
        .zip(0..)
        .map(|(pair, index)| PlannedTask {
            load,
            index,
            agent: pair.from.to_owned(),
            peer: Some(pair.to.to_owned()),
        })
        .collect()
}

/// Refuses network loads that the text alone shows to have no link.
pub(super) fn check_text(plan: &Plan, mistakes: &mut Mistakes<'_>) {
    let groups = plan.phases.iter().flat_map(|phase| &phase.groups);
    for group in groups.filter(|group| group.workload.0.needs() == Needs::Peer) {
        let Links { from, to, .. } = &group.links;
        // The ends of a group's links are among its agents; elsewhere they may be selected separately.
        let of_clients = !group.name.is_empty() || (from.is_none() && to.is_none());
        let alone = group.cells.iter().find(|cell| cell.clients == Some(1));
        if let Some(cell) = alone.filter(|_| of_clients) {
            let position = cell.clients_at.as_ref().unwrap_or(&group.at);
            refuse_lonely(group, "clients = 1", position, mistakes);
            continue;
        }
        let clients = group.select.as_ref().or(plan.clients.as_ref());
        let [from, to] = [from, to].map(|end| end.as_ref().or(clients));
        if let (Some(from), Some(to)) = (from, to)
            && let (Selector::Names(senders), Selector::Names(receivers)) =
                (&from.selector, &to.selector)
            && let [only, ..] = senders.as_slice()
            && senders.iter().chain(receivers).all(|name| name == only)
        {
            let why = format!("there is only `{only}`");
            refuse_lonely(group, &why, &to.position, mistakes);
        }
    }
}

fn refuse_lonely(group: &Group, why: &str, at: &ValuePosition, mistakes: &mut Mistakes<'_>) {
    mistakes.at(
        at,
        format!(
            "{} needs two different agents, and {why}",
            group.workload.0.name()
        ),
        "let more agents take part, or choose others with from and to",
    );
}

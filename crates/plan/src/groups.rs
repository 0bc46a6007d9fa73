//! Which agents carry which group of a phase. The sets are disjoint: no agent carries two groups at once.
//!
//! Pure. Groups that select their agents come first; the others share the remaining agents, by name, in the order of
//! the plan.

use super::{
    AgentFacts, Group, Phase, Plan, Target,
    agents::{candidates, capable, fitting},
    images,
    source::{Mistakes, listed},
};
use benchmesh_workloads::workload::Needs;
use std::collections::BTreeMap;

/// The agents of each group in cell `index` of a phase, by name.
pub(super) fn members<'f>(
    plan: &Plan,
    phase: &Phase,
    index: usize,
    target: Option<&Target>,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<Vec<&'f AgentFacts>> {
    let mut taken: BTreeMap<&'f str, &str> = BTreeMap::new();
    let mut members: Vec<Vec<&'f AgentFacts>> = phase.groups.iter().map(|_| Vec::new()).collect();
    for chooses in [true, false] {
        for (group, group_members) in phase.groups.iter().zip(&mut members) {
            if group.select.is_some() != chooses {
                continue;
            }
            *group_members = members_of(plan, group, index, target, fleet, &taken, mistakes);
            for agent in group_members {
                if let Some(other) = taken.insert(&agent.name, &group.name) {
                    refuse_overlap(group, &agent.name, other, mistakes);
                }
            }
        }
    }
    members
}

fn members_of<'f>(
    plan: &Plan,
    group: &Group,
    index: usize,
    target: Option<&Target>,
    fleet: &[&'f AgentFacts],
    taken: &BTreeMap<&str, &str>,
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let target = target.filter(|_| group.workload.0.needs() == Needs::Target);
    let mut group_members = candidates(plan, group.select.as_ref(), target, fleet, mistakes);
    let all = group_members.len();
    if group.select.is_none() {
        group_members.retain(|agent| !taken.contains_key(agent.name.as_str()));
    }
    if group_members.is_empty() && all > 0 {
        mistakes.at(
            &group.at,
            format!(
                "no agent is left for group `{}`: the others take all {all}",
                group.name
            ),
            "attach more agents, or give the other groups fewer with clients = N",
        );
        return group_members;
    }
    let Some(cell) = group.cells.get(index) else {
        return Vec::new();
    };
    fitting(cell, target, &group_members, mistakes);
    if let Some(target) = target {
        images::check_library(group, target, &group_members, mistakes);
    }
    let mut group_members = capable(group, group_members, mistakes);
    if let Some(wanted) = cell.clients {
        let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
        if wanted > group_members.len() && !group_members.is_empty() {
            let position = cell.clients_at.as_ref().unwrap_or(&group.at);
            let which = if group_members.len() == all {
                "selected"
            } else {
                "left"
            };
            mistakes.at(
                position,
                format!(
                    "clients = {wanted}, but {} {which}: {}",
                    match group_members.len() {
                        1 => String::from("1 agent is"),
                        n => format!("{n} agents are"),
                    },
                    listed(group_members.iter().map(|agent| agent.name.as_str())),
                ),
                "attach more agents, or ask for fewer",
            );
        }
        group_members.truncate(wanted);
    }
    group_members
}

fn refuse_overlap(group: &Group, agent: &str, other: &str, mistakes: &mut Mistakes<'_>) {
    let position = group
        .select
        .as_ref()
        .map_or(&group.at, |select| &select.position);
    mistakes.at(
        position,
        format!(
            "agent `{agent}` is in groups `{other}` and `{}`, which run at the same time",
            group.name
        ),
        "choose different agents; a group without select uses only agents that are left",
    );
}

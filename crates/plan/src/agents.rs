//! The agents of a cell: selected, permitted and capable.

use super::{
    AgentFacts, Group, Plan, PlannedStep, Target,
    cells::Cell,
    select::{Selected, Selector},
    source::{Mistakes, NAMED as SHORT_LIST, first_few, listed},
};
use benchmesh_model::targets::Locator;
use benchmesh_workloads::{params::nearest, workload::Needs};

/// The agents that may carry a load, by name.
pub(super) fn candidates<'f>(
    plan: &Plan,
    select: Option<&Selected>,
    target: Option<&Target>,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    match (select.or(plan.clients.as_ref()), target) {
        (Some(selected), _) => chosen(selected, fleet, mistakes),
        (None, target) => taken_unasked(target, fleet, mistakes),
    }
}

/// Completes a message: the flag that includes agents that have been in no run.
const NEW_AGENTS: &str = "--new-agents takes";

/// The agents of a load whose plan selects none: those that are not new.
fn taken_unasked<'f>(
    target: Option<&Target>,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let (new, known): (Vec<_>, Vec<_>) = fleet.iter().partition(|agent| agent.is_new);
    let can = |agent: &&AgentFacts| can_take(target, agent);
    let left_out: Vec<String> = new
        .into_iter()
        .filter(can)
        .map(|agent| agent.name.clone())
        .collect();
    if !left_out.is_empty() && !known.iter().any(can) {
        mistakes.whole(
            format!(
                "no agent that was in a run of this mesh before can take its load, and {} can",
                first_few(&left_out, ", ")
            ),
            format!("{NEW_AGENTS} them along, or name them in [clients]"),
        );
        return Vec::new();
    }
    match target {
        Some(target) => allowing(target, &known, mistakes),
        // Agents that only sample are used only if they are named.
        None => {
            let taking: Vec<_> = known.iter().copied().filter(can).collect();
            // If no other agent remains, keep all, so that each is refused with its reason.
            if taking.is_empty() { known } else { taking }
        }
    }
}

/// Whether an agent can take load on the target; without a target, whether it takes any.
fn can_take(target: Option<&Target>, agent: &AgentFacts) -> bool {
    match target {
        Some(target) => allows(agent, &target.locator),
        None => !agent.workloads.is_empty(),
    }
}

/// Each agent that a plan without `[clients]` would use if it were not new, and what includes it.
pub(super) fn left_out(
    plan: &Plan,
    steps: &[PlannedStep],
    fleet: &[&AgentFacts],
) -> Vec<(String, String)> {
    let mut groups = plan.phases.iter().flat_map(|phase| phase.groups.iter());
    if plan.clients.is_some() || groups.all(|group| group.select.is_some()) {
        return Vec::new();
    }
    let takes_part = |name: &str| {
        let mut tasks = steps.iter().flat_map(|step| step.tasks.iter());
        tasks.any(|task| task.agent == name || task.peer.as_deref() == Some(name))
    };
    let can = |agent: &AgentFacts| {
        let mut targets = plan.targets.iter();
        let mut phases = plan.phases.iter();
        targets.any(|target| can_take(Some(target), agent))
            || phases.any(|phase| phase.targets.is_empty() && can_take(None, agent))
    };
    let left_out = fleet
        .iter()
        .filter(|agent| agent.is_new && can(agent) && !takes_part(&agent.name));
    left_out
        .map(|agent| {
            (
                format!("left out: `{}`, which has been in no run yet", agent.name),
                format!("{NEW_AGENTS} it along, or name it in [clients]"),
            )
        })
        .collect()
}

/// Refuses agents that cannot work on the target or cannot read what the cell's workload reads.
pub(super) fn fitting(
    cell: &Cell,
    target: Option<&Target>,
    selected: &[&AgentFacts],
    mistakes: &mut Mistakes<'_>,
) {
    if let Some(target) = target {
        usable(target, selected, mistakes);
    }
    readable(cell, selected, mistakes);
}

pub(super) fn chosen<'f>(
    selected: &Selected,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let names = || fleet.iter().map(|agent| agent.name.as_str());
    let attached = || match names().count() {
        0..=SHORT_LIST => listed(names()),
        _ => first_few(&names().map(str::to_owned).collect::<Vec<_>>(), ", "),
    };
    if let Selector::Names(wanted) = &selected.selector {
        for (name, at) in wanted.iter().zip(&selected.names_at) {
            if !names().any(|known| known == name) {
                let remedy = match nearest(name, names()) {
                    Some(candidate) => {
                        format!("did you mean `{candidate}`? attached: {}", attached())
                    }
                    None => format!("attached: {}", attached()),
                };
                mistakes.at(at, format!("no agent `{name}` is attached"), remedy);
            }
        }
    }
    let chosen: Vec<&AgentFacts> = fleet
        .iter()
        .copied()
        .filter(|agent| selected.selector.chooses(agent))
        .collect();
    if chosen.is_empty() && matches!(selected.selector, Selector::Labels(_)) {
        mistakes.at(
            &selected.position,
            format!("no attached agent has {}", selected.selector.describe()),
            format!(
                "attached: {}",
                fleet
                    .iter()
                    .map(|agent| labelled(agent))
                    .collect::<Vec<_>>()
                    .join("; ")
            ),
        );
    }
    chosen
}

fn labelled(agent: &AgentFacts) -> String {
    let labels: Vec<String> = agent
        .labels
        .iter()
        .map(|(k, v)| format!("{k}={v}"))
        .collect();
    if labels.is_empty() {
        format!("{} (no labels)", agent.name)
    } else {
        format!("{} ({})", agent.name, labels.join(","))
    }
}

/// Whether the agent allows work on the target.
fn allows(agent: &AgentFacts, target: &Locator) -> bool {
    match agent.surveyed.get(&target.to_string()) {
        Some(facts) => facts.allowed,
        None => {
            let mut allowed = agent.allowed.iter().filter_map(|path| path.to_str());
            allowed.any(|allowed| Locator::parse(allowed).allows(target))
        }
    }
}

/// The agent's reason for not allowing a target.
fn why(agent: &AgentFacts, target: &Locator) -> String {
    let facts = agent.surveyed.get(&target.to_string());
    let problem = facts.map_or("", |facts| facts.problem.as_str());
    match problem {
        "" => String::new(),
        problem => format!(": {problem}"),
    }
}

fn allowing<'f>(
    target: &Target,
    fleet: &[&'f AgentFacts],
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let allowing: Vec<&AgentFacts> = fleet
        .iter()
        .copied()
        .filter(|agent| allows(agent, &target.locator))
        .collect();
    if allowing.is_empty() {
        mistakes.at(
            &target.at,
            format!(
                "no attached agent allows {}{}",
                target.locator,
                fleet
                    .first()
                    .map_or(String::new(), |agent| why(agent, &target.locator))
            ),
            format!(
                "start the clients' agents with {}; attached: {}",
                target.locator.option(),
                first_few(
                    &fleet
                        .iter()
                        .map(|agent| permitted(agent))
                        .collect::<Vec<_>>(),
                    "; ",
                ),
            ),
        );
    }
    allowing
}

fn permitted(agent: &AgentFacts) -> String {
    let paths: Vec<String> = agent
        .allowed
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    format!(
        "{} (allows {})",
        agent.name,
        listed(paths.iter().map(String::as_str))
    )
}

/// Refuses selected agents that cannot work on the target.
fn usable(target: &Target, selected: &[&AgentFacts], mistakes: &mut Mistakes<'_>) {
    for agent in selected {
        let locator = &target.locator;
        if !allows(agent, locator) {
            mistakes.at(
                &target.at,
                format!(
                    "agent `{}` does not allow {locator}{}",
                    agent.name,
                    why(agent, locator)
                ),
                format!(
                    "start it with {}, or leave it out with [clients] select",
                    locator.option()
                ),
            );
        } else if let Some(facts) = agent.surveyed.get(&locator.to_string())
            && !facts.problem.is_empty()
        {
            mistakes.at(
                &target.at,
                format!("on agent `{}`, {locator}: {}", agent.name, facts.problem),
                "fix it there, or leave the agent out with [clients] select",
            );
        } else if !agent.survey_failed.is_empty() {
            mistakes.at(
                &target.at,
                format!(
                    "agent `{}` could not examine {locator}: {}",
                    agent.name, agent.survey_failed
                ),
                "fix it there, or leave the agent out with [clients] select",
            );
        }
    }
}

/// Refuses agents that may not read what the cell's workload reads.
fn readable(cell: &Cell, selected: &[&AgentFacts], mistakes: &mut Mistakes<'_>) {
    for (path, at) in &cell.sources {
        for agent in selected {
            let Some(facts) = agent.sources.get(path) else {
                continue;
            };
            if !facts.allowed {
                mistakes.at(
                    at,
                    format!("agent `{}` does not allow reading {path}", agent.name),
                    format!(
                        "start it with --allow-read {path}, or leave it out with [clients] select"
                    ),
                );
            } else if !facts.problem.is_empty() {
                mistakes.at(
                    at,
                    format!("on agent `{}`, {path}: {}", agent.name, facts.problem),
                    "fix it there, or leave the agent out with [clients] select",
                );
            }
        }
    }
}

/// Refuses agents without the group's workload in the revision that this collector has.
pub(super) fn capable<'f>(
    group: &Group,
    selected: Vec<&'f AgentFacts>,
    mistakes: &mut Mistakes<'_>,
) -> Vec<&'f AgentFacts> {
    let workload = group.workload.0;
    for agent in &selected {
        match agent.workloads.get(workload.name()) {
            Some(revision) if *revision == workload.revision() => {}
            Some(revision) => mistakes.at(
                &group.at,
                format!(
                    "agent `{}` has revision {revision} of {}, this collector revision {}",
                    agent.name,
                    workload.name(),
                    workload.revision(),
                ),
                "run the same version of benchmesh on both",
            ),
            None if agent.forbids_workload(workload.name()) => mistakes.at(
                &group.at,
                format!(
                    "agent `{}` does not allow the workload {}: its `workloads` is {}",
                    agent.name,
                    workload.name(),
                    agent.policy.iter().flat_map(|limits| &limits.workloads).map(String::as_str).collect::<Vec<_>>().join(","),
                ),
                format!(
                    "start it with {} among its --workloads, or leave it out with [clients] select",
                    workload.name()
                ),
            ),
            None => mistakes.at(
                &group.at,
                format!(
                    "agent `{}` does not have or does not allow the workload {}",
                    agent.name,
                    workload.name()
                ),
                format!(
                    "start it with {}, update benchmesh there, or leave the agent out with [clients] select",
                    match workload.needs() {
                        Needs::Peer => "--allow-network",
                        Needs::Nothing | Needs::Target => "--allow PATH",
                    }
                ),
            ),
        }
    }
    selected
}

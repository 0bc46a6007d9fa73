//! Assumed agents that show a plan without a mesh: as many as requested, with everything allowed.
//!
//! Pure. Each set of agents that the plan selects gets this number of agents, with the labels or names that it selects
//! by.

use super::{AgentFacts, Plan, Selector};
use benchmesh_workloads::registry;
use std::path::PathBuf;

/// `count` agents for each set that `plan` selects; `count` in total if it selects none.
pub fn assumed_agents(plan: &Plan, count: u32) -> Vec<AgentFacts> {
    let mut selectors: Vec<&Selector> = Vec::new();
    let selected = plan
        .phases
        .iter()
        .flat_map(|phase| {
            let groups = phase.groups.iter();
            groups.flat_map(|group| [&group.links.from, &group.links.to, &group.select])
        })
        .chain([&plan.clients])
        .flatten();
    for one in selected {
        if !selectors.contains(&&one.selector) {
            selectors.push(&one.selector);
        }
    }
    let mut agents: Vec<AgentFacts> = Vec::new();
    for selector in &selectors {
        match selector {
            Selector::Names(names) => {
                for name in names {
                    if !agents.iter().any(|agent| agent.name == *name) {
                        agents.push(assumed(name.clone(), &[]));
                    }
                }
            }
            Selector::Labels(pairs) => {
                let there = agents
                    .iter()
                    .filter(|agent| selector.chooses(agent))
                    .count();
                for _ in there..count as usize {
                    agents.push(assumed(format!("assumed-{}", agents.len() + 1), pairs));
                }
            }
        }
    }
    if selectors.is_empty() {
        agents.extend((1..=count).map(|number| assumed(format!("assumed-{number}"), &[])));
    }
    for agent in &mut agents {
        let targets = plan.targets.iter();
        let locators = targets.map(|target| target.locator.to_string().into());
        agent.allowed.extend(locators);
    }
    agents
}

fn assumed(name: String, labels: &[(String, String)]) -> AgentFacts {
    let named = labels
        .iter()
        .find(|(key, _)| key == "name")
        .map(|(_, name)| name.clone());
    let name = named.unwrap_or(name);
    AgentFacts {
        host: name.clone(),
        name,
        labels: labels.iter().cloned().collect(),
        allowed: vec![PathBuf::from("/")],
        workloads: registry::all()
            .iter()
            .map(|workload| (workload.name().to_owned(), workload.revision()))
            .collect(),
        ..AgentFacts::default()
    }
}

//! Targets where the agents' surveys find a different mount than the plan states. Pure.

use super::{AgentFacts, PathFacts, PlannedStep};
use benchmesh_model::systems::Place;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of agents named in one sentence.
const MAX_NAMED: usize = 3;

impl PathFacts {
    /// The place of a target of this system.
    pub fn place<'a>(&'a self, system: &'a str) -> Place<'a> {
        Place {
            system,
            mount: Some(self.file_system.as_str()).filter(|kind| !kind.is_empty()),
            beneath: &self.beneath,
        }
    }
}

/// A sentence for each target and each unexpected mount there. `agents` are those of the run.
pub fn mounted_otherwise<'a>(
    steps: &[PlannedStep],
    agents: impl Iterator<Item = &'a AgentFacts>,
) -> Vec<String> {
    let agents: Vec<&AgentFacts> = agents.collect();
    let targets: BTreeSet<(&str, &str, &str)> = steps
        .iter()
        .filter(|step| !step.path.is_empty())
        .map(|step| {
            (
                step.target.as_str(),
                step.system.as_str(),
                step.path.as_str(),
            )
        })
        .collect();
    let mut found: BTreeMap<(&str, &str, &str), Vec<&str>> = BTreeMap::new();
    for (target, system, path) in targets {
        for agent in &agents {
            let facts = agent.surveyed.get(path);
            if let Some(mounted) = facts.and_then(|facts| facts.place(system).mounted_instead()) {
                let key = (target, system, mounted);
                found.entry(key).or_default().push(&agent.name);
            }
        }
    }
    let sentence = |((target, system, mounted), agents): (_, Vec<&str>)| {
        let named = agents.get(..MAX_NAMED).unwrap_or(&agents).join(", ");
        let more = match agents.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!(
            "target `{target}` is said to be {system}, but {mounted} is mounted there on {named}{more}: is {system} \
             mounted?"
        )
    };
    found.into_iter().map(sentence).collect()
}

//! The agents of a run by name: their ids, and their reports when the run was planned.
//!
//! It is stored with the run, so that a restarted collector expands the plan into the same steps.

use benchmesh_model::mesh::AgentId;
use benchmesh_plan::{AgentFacts, PathFacts};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One agent of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RunAgent {
    pub id: AgentId,
    #[serde(default)]
    pub uid: String,
    pub facts: AgentFacts,
}

/// All agents that a run was planned with, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunAgents(BTreeMap<String, RunAgent>);

impl RunAgents {
    pub fn new(members: Vec<RunAgent>) -> Self {
        Self(
            members
                .into_iter()
                .map(|member| (member.facts.name.clone(), member))
                .collect(),
        )
    }

    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self::new(serde_json::from_str(text)?))
    }

    pub fn to_json(&self) -> String {
        let members: Vec<&RunAgent> = self.0.values().collect();
        serde_json::to_string(&members).unwrap_or_else(|_| String::from("[]"))
    }

    pub fn facts(&self) -> Vec<AgentFacts> {
        self.0.values().map(|member| member.facts.clone()).collect()
    }

    pub fn id(&self, name: &str) -> Option<AgentId> {
        self.0.get(name).map(|member| member.id)
    }

    pub fn members(&self) -> impl Iterator<Item = (AgentId, &AgentFacts)> {
        self.0.values().map(|member| (member.id, &member.facts))
    }

    pub fn facts_of(&self, id: AgentId) -> Option<&AgentFacts> {
        self.members()
            .find(|(agent, _)| *agent == id)
            .map(|(_, facts)| facts)
    }

    /// An agent's facts about a path.
    pub fn path_facts(&self, id: AgentId, path: &str) -> Option<&PathFacts> {
        self.facts_of(id)?.surveyed.get(path)
    }

    /// The type of the file system at a path on an agent; empty if not known.
    pub fn file_system(&self, id: AgentId, path: &str) -> &str {
        self.path_facts(id, path)
            .map_or("", |facts| facts.file_system.as_str())
    }

    pub fn name(&self, id: AgentId) -> &str {
        self.0
            .values()
            .find(|member| member.id == id)
            .map_or("unknown", |member| member.facts.name.as_str())
    }
}

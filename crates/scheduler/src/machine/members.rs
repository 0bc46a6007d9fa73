//! The machine's view of the agents: which are attached, on which host, with which tasks.

pub(crate) use crate::sessions::Presence;

use benchmesh_model::mesh::AgentId;
use std::collections::BTreeMap;

/// Every agent, by id.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(BTreeMap<AgentId, Presence>);

impl Members {
    pub fn new(all: Vec<Presence>) -> Self {
        Self(all.into_iter().map(|one| (one.id, one)).collect())
    }

    pub fn get(&self, agent: AgentId) -> Option<&Presence> {
        self.0.get(&agent)
    }

    pub fn all(&self) -> impl Iterator<Item = &Presence> {
        self.0.values()
    }

    pub fn is_attached(&self, agent: AgentId) -> bool {
        self.get(agent).is_some_and(|member| member.attached)
    }
}

//! State of the clients that have left the step under way.

use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Why an agent may come back in the session in which its task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejoin {
    /// It restarted, and holds no earlier task.
    Restarted,
    /// It stopped its load because it had no contact.
    LeaseOver,
    /// It hung, or cannot carry out its task: it may come back only in a later session.
    NewSession,
}

/// An agent whose task of the running step has ended early.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    /// The agent's last contact.
    pub since: MeshMicros,
    pub noticed: MeshMicros,
    pub session: u64,
    pub rejoin: Rejoin,
    /// Whether an event about its return exists.
    pub is_reported: bool,
}

/// State of the clients that left the step under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns {
    pub departures: BTreeMap<AgentId, Departure>,
    /// The last contact of agents whose session has ended.
    pub last_contact: BTreeMap<AgentId, MeshMicros>,
    /// Tasks that their agents no longer know.
    pub unknown: BTreeSet<TaskId>,
    /// The session in which an agent has reported the end of a task.
    pub ended_in: BTreeMap<TaskId, u64>,
    /// Ended tasks that no longer carry load.
    pub gone: BTreeSet<TaskId>,
    /// How long an agent's preparation took.
    pub took: BTreeMap<AgentId, Duration>,
    /// Since when each part has been under preparation.
    pub preparing_since: BTreeMap<TaskId, MeshMicros>,
    /// Start of each part, and how often it was chosen.
    pub starts: BTreeMap<TaskId, (MeshMicros, u32)>,
}

impl Returns {
    pub fn prepared_within(&mut self, agent: AgentId, took: Duration) {
        self.took.insert(agent, took);
    }
}

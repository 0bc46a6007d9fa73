//! What the machine knows of clients that have left the step under way.

use benchmesh_model::mesh::{AgentId, MeshMicros, TaskId};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

/// Why an agent may come back in the session in which its task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejoin {
    /// It was started again, and holds no task of before.
    Restarted,
    /// It has stopped its load without contact.
    LeaseOver,
    /// Only in a later session: it hung, or cannot do its task.
    NewSession,
}

/// An agent whose task of the running step has ended early.
#[derive(Clone, Debug)]
pub(super) struct Departure {
    /// When the agent was in contact last.
    pub since: MeshMicros,
    pub noticed: MeshMicros,
    pub session: u64,
    pub rejoin: Rejoin,
    /// Its return has an event.
    pub is_reported: bool,
}

/// What is known of the clients that left the step under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns {
    pub departures: BTreeMap<AgentId, Departure>,
    /// The last contact of agents whose session has ended.
    pub last_contact: BTreeMap<AgentId, MeshMicros>,
    /// Tasks that their agents do not know any more.
    pub unknown: BTreeSet<TaskId>,
    /// The session in which an agent has reported the end of a task.
    pub ended_in: BTreeMap<TaskId, u64>,
    /// Ended tasks that their agents do not load any more.
    pub gone: BTreeSet<TaskId>,
    /// How long an agent's preparation took.
    pub took: BTreeMap<AgentId, Duration>,
    /// Of parts that are being prepared: since when.
    pub preparing_since: BTreeMap<TaskId, MeshMicros>,
    /// Of parts: their own start, and how often it was chosen.
    pub starts: BTreeMap<TaskId, (MeshMicros, u32)>,
}

impl Returns {
    pub fn prepared_within(&mut self, agent: AgentId, took: Duration) {
        self.took.insert(agent, took);
    }
}

//! An agent in the scheduler's view: whether it is attached, and the contents of its hello.

use super::member::Member;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, TaskId};

/// One agent, attached or not, without the facts that only a plan needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    pub id: AgentId,
    pub name: String,
    pub attached: bool,
    /// Distinguishes its session from earlier ones; 0 if not attached.
    pub session: u64,
    /// Its tasks at the time of attaching.
    pub held_tasks: Vec<TaskId>,
    /// Whether, since the collector's start, it has attached with newer positions than the database has, and has
    /// dropped its tasks: the database was restored from an older copy.
    pub was_ahead: bool,
    pub boot_id: String,
    pub host: HostId,
    pub host_name: String,
    /// The address at which peers reach it, without a port.
    pub address: String,
    pub is_storage: bool,
    /// Whether it samples its host.
    pub samples_host: bool,
    pub samples_interfaces: bool,
    pub last_seen: MeshMicros,
}

impl Member {
    pub(super) fn presence(&self) -> Presence {
        let labels = &self.hello.labels;
        Presence {
            id: self.id,
            name: self.hello.name.clone(),
            attached: self.session.is_some(),
            session: self.session.as_ref().map_or(0, |session| session.number),
            held_tasks: self.hello.held_tasks.iter().copied().map(TaskId).collect(),
            was_ahead: self.was_ahead,
            boot_id: self.hello.boot_id.clone(),
            host: self.host,
            host_name: self.hello.host_name.clone(),
            address: self.address(),
            is_storage: labels.get("role").is_some_and(|role| role == "storage"),
            samples_host: self.sampling.host_wide,
            samples_interfaces: self.sampling.interfaces,
            last_seen: self.last_seen,
        }
    }
}

//! The agent and host that a batch belongs to.

use benchmesh_model::mesh::{AgentId, HostId};

/// The agent of a publisher's batches.
#[derive(Clone, Debug)]
pub(crate) struct BatchSource {
    pub agent: AgentId,
    pub host: HostId,
    pub net_namespace: String,
    /// Number of batches that the agent sends before they are acknowledged.
    pub window: usize,
}

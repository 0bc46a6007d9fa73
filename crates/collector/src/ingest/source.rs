//! Whose batches a publisher's are.

use crate::model::{AgentId, HostId};

/// The agent of a publisher's batches.
#[derive(Debug)]
pub(crate) struct Source {
    pub agent: AgentId,
    pub host: HostId,
    pub net_namespace: String,
}

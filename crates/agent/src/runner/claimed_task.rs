//! A prepared task with its claims on the host.

use super::space::SpaceGuard;
use crate::policy::{Claim, FloorWatch};
use benchmesh_workloads::task::Task;

/// A task that is ready, and its part of the policy's budget; dropped in this order.
#[derive(Debug)]
pub(super) struct ClaimedTask {
    /// Before the task, which then is the last that holds the target open. `None` if its target does not say what is
    /// free.
    pub(super) space_guard: Option<SpaceGuard>,
    pub(super) task: Task,
    pub(super) claim: Claim,
    /// `None` if it has no directory on a target, or only removes data.
    pub(super) floor_watch: Option<FloorWatch>,
}

//! A prepared task with what it holds on the host.

use super::space::SpaceGuard;
use benchmesh_workloads::task::Task;

/// A task that is ready. Its workers hold its claim on the policy's budget. The field order is the drop order.
#[derive(Debug)]
pub(super) struct ClaimedTask {
    /// Dropped before the task, so that the task is the last to hold the target open. `None` if its target does not
    /// report free space. It has no floors if the task only removes data.
    pub(super) space_guard: Option<SpaceGuard>,
    pub(super) task: Task,
}

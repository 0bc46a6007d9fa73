//! Results of a finished step as plain structs.

use super::flags::Flag;
use super::seconds::Seconds;
use benchmesh_model::mesh::{MeshMicros, TaskId};
use benchmesh_workloads::figures;
use benchmesh_workloads::histogram::Histogram;

/// The basis of the headline rate: the all-active window, or everything to the last worker's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Headline {
    Window,
    LastDone,
    /// Tasks did not overlap, so they have no common rate.
    None,
}

impl Headline {
    pub const ALL: &'static [Self] = &[Self::Window, Self::LastDone, Self::None];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::LastDone => "last-done",
            Self::None => "none",
        }
    }
}

/// The figures of a step.
#[derive(Clone, Debug, Default)]
pub struct StepResults {
    /// The planned start, or the end of the ramp after it.
    pub measured_from: Option<MeshMicros>,
    /// From the last start to the first moment any worker finished.
    pub all_active: Option<(MeshMicros, MeshMicros)>,
    /// The end of the last worker of the last task.
    pub last_done: Option<MeshMicros>,
    /// The largest distance of a start from the planned instant, and its uncertainty.
    pub max_skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    pub flags: Vec<Flag>,
    /// By group and operation, in alphabetical order.
    pub ops: Vec<OpResult>,
    pub tasks: Vec<TaskResult>,
}

impl StepResults {
    /// The number of failed operations, as the failure reason of a step in which most operations failed.
    pub fn mostly_failed(&self) -> String {
        let done: i64 = self.ops.iter().map(|op| op.ops).sum();
        let failed: i64 = self.ops.iter().map(|op| op.errors).sum();
        let failed = figures::count(failed);
        match done {
            0 => format!("no operation succeeded, {failed} failed"),
            done => format!(
                "{failed} operations failed and {} succeeded",
                figures::count(done)
            ),
        }
    }
}

/// The result of one operation over all tasks of a step, or of one of its groups. Never a sum over different operations
/// or groups.
#[derive(Clone, Debug)]
pub struct OpResult {
    /// Empty if the step has no groups.
    pub group: String,
    pub op: String,
    /// Tasks that have operations or errors of this kind.
    pub tasks: u32,
    /// Over the whole step, without the ramp.
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
    pub window_us: Option<i64>,
    pub window_ops: Option<f64>,
    pub window_ops_error: Option<f64>,
    pub window_bytes: Option<f64>,
    pub window_bytes_error: Option<f64>,
    pub headline: Headline,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    /// From the start (or the end of the ramp after it) to the last worker's end.
    pub last_done_us: Option<i64>,
    pub last_done_ops_per_s: Option<f64>,
    pub last_done_bytes_per_s: Option<f64>,
    /// `None` if the window has no whole second.
    pub seconds: Option<Seconds>,
    pub service: Histogram,
    /// `None` if the load was not paced.
    pub response: Option<Histogram>,
}

/// The result of one operation in one task, from its first worker's start to its last worker's end.
#[derive(Clone, Debug)]
pub struct TaskResult {
    pub task: TaskId,
    pub op: String,
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
    pub busy_us: Option<i64>,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub service: Histogram,
}

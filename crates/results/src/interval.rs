//! The work of a step in one interval of its grid.

use benchmesh_workloads::histogram::Histogram;

/// One operation over all tasks of a step, or of one of its groups, in one interval of the step's grid.
#[derive(Clone, Debug)]
pub struct StepInterval {
    /// Empty if the step has no groups.
    pub group: String,
    pub at_us: i64,
    /// Longer than a period if a task's interval was wider, shorter if all tasks had ended before.
    pub span_us: i64,
    pub op: String,
    pub ramp: bool,
    pub tasks: u32,
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
    pub service: Histogram,
    /// `None` if the load was not paced.
    pub response: Option<Histogram>,
}

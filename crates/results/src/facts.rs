//! Input of the sums: a step's tasks and their intervals, as stored.

use benchmesh_model::mesh::{AgentId, TaskId, TaskState};
use benchmesh_workloads::histogram::Histogram;

/// The schedule of a paced task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paced {
    pub per_second: f64,
    pub unit: PacedUnit,
    pub arrivals: Arrivals,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacedUnit {
    Operations,
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    Even,
    Poisson,
}

/// A task of a step. Instants are mesh time in microseconds; `None` if its agent has not reported them yet.
#[derive(Clone, Debug)]
pub struct TaskFacts {
    pub task: TaskId,
    /// The client of the task: the index of the client's first task in the step.
    pub client: u32,
    /// Counted from 1; higher if its client rejoined the running step.
    pub part: u32,
    /// Empty if the step has no groups.
    pub group: String,
    pub state: TaskState,
    pub workers: u32,
    /// Duration of the ramp before the measurement.
    pub ramp_us: i64,
    /// The planned start.
    pub start_us: Option<i64>,
    /// The last worker's start minus the planned start.
    pub skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    pub first_done_us: Option<i64>,
    pub ended_us: Option<i64>,
    pub wait_cpu_us: Option<i64>,
    pub harness_ns_per_op: Option<i64>,
    /// The end of its last interval: the last evidence of activity of a lost task.
    pub last_interval_us: Option<i64>,
    pub agent: AgentId,
    /// Upper bound for the reads of its agent; `None` if the target is not behind a known network.
    pub link_bytes_per_s: Option<i64>,
    /// Limit of its agent's policy for all load of the agent; `None` if there is none.
    pub rate_limit_bytes_per_s: Option<i64>,
    /// The mode of its workload.
    pub mode: String,
    /// `None` for an unpaced task.
    pub paced: Option<Paced>,
    /// O_DIRECT: no page cache on the client.
    pub direct: bool,
    /// Minimum round trip measured from its agent to another host before its step, among the agent's last thousand
    /// links; `None` if there was none. Later measurements do not change an old step.
    pub round_trip_ns: Option<i64>,
}

/// One task's operations of one kind in one interval.
#[derive(Clone, Debug)]
pub struct IntervalFacts {
    pub task: TaskId,
    /// The task's group.
    pub group: String,
    pub at_us: i64,
    pub span_us: i64,
    pub op: String,
    pub ramp: bool,
    pub ops: i64,
    pub bytes: i64,
    /// Bytes of operations that ended in the interval and that may have been moved earlier.
    pub undated_bytes: i64,
    pub errors: i64,
    pub in_flight: i64,
    pub service: Histogram,
    pub response: Option<Histogram>,
}

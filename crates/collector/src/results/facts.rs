//! What the sums are made from: a step's tasks and their intervals, as they are stored.

use crate::model::{AgentId, TaskId, TaskState};
use benchmesh_workloads::histogram::Histogram;

/// What was due of a task under a rate.
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

/// A task of a step. Instants are mesh time in microseconds; `None` is what its agent has not said (yet).
#[derive(Clone, Debug)]
pub struct TaskFacts {
    pub task: TaskId,
    /// Empty: the step has no groups.
    pub group: String,
    pub state: TaskState,
    pub workers: u32,
    /// How long it ran before it was measured.
    pub ramp_us: i64,
    /// The planned start.
    pub start_us: Option<i64>,
    /// The last worker's start, less the planned one.
    pub skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    pub first_done_us: Option<i64>,
    pub ended_us: Option<i64>,
    pub wait_cpu_us: Option<i64>,
    pub harness_ns_per_op: Option<i64>,
    /// The end of its last interval: where a lost task was last heard of.
    pub last_interval_us: Option<i64>,
    pub agent: AgentId,
    /// What the reads of its agent are held against; `None`: the target is not behind a network that is known.
    pub link_bytes_per_s: Option<i64>,
    /// What its agent's policy lets all its load move; `None`: no limit.
    pub rate_limit_bytes_per_s: Option<i64>,
    /// The mode of its workload.
    pub mode: String,
    /// `None`: it does all it can.
    pub paced: Option<Paced>,
    /// O_DIRECT: no page cache on the client.
    pub direct: bool,
    /// The least round trip that was measured from its agent to another host before its step, among the agent's last
    /// thousand links; `None`: none was. What is measured later changes nothing of an old step.
    pub round_trip_ns: Option<i64>,
}

/// One task's operations of one kind in one interval.
#[derive(Clone, Debug)]
pub struct IntervalFacts {
    pub task: TaskId,
    /// Its task's.
    pub group: String,
    pub at_us: i64,
    pub span_us: i64,
    pub op: String,
    pub ramp: bool,
    pub ops: i64,
    pub bytes: i64,
    /// Of operations that ended here: when they were moved is unknown.
    pub undated_bytes: i64,
    pub errors: i64,
    pub in_flight: i64,
    pub service: Histogram,
    pub response: Option<Histogram>,
}

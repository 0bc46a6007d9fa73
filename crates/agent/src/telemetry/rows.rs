//! The records of tasks, the agent's clock and its host.
//!
//! Fields and units are those of the wire; a sampler's row gets its instant of mesh time by [`At`].

use benchmesh_model::figures::TargetFigures;
use benchmesh_model::systems::facts::Value;
use benchmesh_workloads::histogram::Blob;
use benchmesh_workloads::op::Op;
use std::fmt;
use std::sync::Arc;

/// An instant of mesh time: microseconds since the Unix epoch on the collector's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeshMicros(pub i64);

/// A run, by the collector's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId(pub i64);

/// A step, by the collector's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepId(pub i64);

/// A task, by the collector's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub i64);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The uid of a run. It is part of the rows of the run's tasks, because task ids are unique only within one database.
/// Empty if the collector did not send it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunUid(Arc<str>);

impl RunUid {
    /// The text of it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for RunUid {
    fn from(uid: String) -> Self {
        Self(uid.into())
    }
}

/// One task's operations of one kind in a stretch of time.
#[derive(Clone, Debug, PartialEq)]
pub struct OpInterval {
    pub task: TaskId,
    pub run_uid: RunUid,
    pub at: MeshMicros,
    pub span_us: i64,
    pub op: Op,
    pub ramp: bool,
    pub ops: u64,
    pub bytes: u64,
    /// Of operations that ended here: when they were moved is unknown.
    pub undated_bytes: u64,
    pub errors: u64,
    pub in_flight: u32,
    pub service: Blob,
    /// `None` if the load is not paced.
    pub response: Option<Blob>,
}

/// How a task ended, after its last interval.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskEnd {
    pub task: TaskId,
    pub run_uid: RunUid,
    /// done, failed, stopped
    pub state: EndState,
    pub workers: u32,
    /// The planned instant.
    pub start: MeshMicros,
    /// The last worker's start, less the planned instant.
    pub skew_us: i64,
    pub skew_error_us: i64,
    pub first_done: MeshMicros,
    pub ended: MeshMicros,
    /// Begin of the last operation; 0 if there was none.
    pub last_begun: MeshMicros,
    pub cpu_user_us: Option<i64>,
    pub cpu_system_us: Option<i64>,
    pub harness_ns_per_op: i64,
    pub wait_cpu_us: Option<i64>,
    /// Empty if there was no error.
    pub error: String,
    pub errors: Vec<ErrorCount>,
}

/// States of a task's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndState {
    Done,
    Failed,
    Stopped,
}

impl EndState {
    /// The name on the wire and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Done, Self::Failed, Self::Stopped]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// Failures of one operation with one errno.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorCount {
    pub op: String,
    pub errno: i32,
    pub count: u64,
    /// The first one in full.
    pub first: String,
}

/// One exchange with the collector's clock that is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    pub at: MeshMicros,
    /// The agent's wall clock, less mesh time.
    pub offset_us: i64,
    pub error_us: i64,
    pub round_trip_us: i64,
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Info,
    Warning,
    Error,
}

impl Severity {
    /// The name on the wire and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }

    /// The severity with this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Info, Self::Warning, Self::Error]
            .into_iter()
            .find(|it| it.as_str() == word)
    }
}

/// The run and the step of an event, if there are any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    pub run_uid: RunUid,
    pub run: Option<RunId>,
    pub step: Option<StepId>,
}

/// A dated fact for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: MeshMicros,
    pub scope: Scope,
    pub severity: Severity,
    pub kind: String,
    pub message: String,
    /// JSON; may be empty.
    pub detail: String,
}

/// What a storage cluster says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    pub at: MeshMicros,
    /// The run in which it was read.
    pub run: Option<RunId>,
    pub system: String,
    pub name: String,
    pub value: Value,
    /// Empty: a count, or a text.
    pub unit: String,
}

/// What is free on a target under load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSample {
    pub at: MeshMicros,
    /// Its locator.
    pub target: String,
    /// Of the run's directory there: agents with the same one share what the target holds.
    pub nonce: String,
    /// Of its file system, as this host numbers it; empty: it has none.
    pub device: String,
    pub figures: TargetFigures,
}

/// Rows that are lost, or dropped for lack of room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossKind {
    DaemonSamples,
    HostSamples,
    DiskSamples,
    NetSamples,
    ClockOffsets,
    /// Whole batches, with everything in them but task ends.
    Batches,
    /// Operations of those batches, as far as known.
    Operations,
}

impl LossKind {
    /// Every kind, in the wire's order.
    pub const ALL: [Self; 7] = [
        Self::DaemonSamples,
        Self::HostSamples,
        Self::DiskSamples,
        Self::NetSamples,
        Self::ClockOffsets,
        Self::Batches,
        Self::Operations,
    ];

    /// The name on the wire and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DaemonSamples => "daemon_samples",
            Self::HostSamples => "host_samples",
            Self::DiskSamples => "disk_samples",
            Self::NetSamples => "net_samples",
            Self::ClockOffsets => "clock_offsets",
            Self::Batches => "batches",
            Self::Operations => "operations",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Dropped rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub what: LossKind,
    pub rows: u64,
    pub from: MeshMicros,
    pub until: MeshMicros,
}

impl Loss {
    /// Adds rows to `losses`, in the row of their kind.
    pub fn note(losses: &mut Vec<Self>, loss: Self) {
        if loss.rows == 0 {
            return;
        }
        match losses.iter_mut().find(|held| held.what == loss.what) {
            Some(held) => {
                held.rows = held.rows.saturating_add(loss.rows);
                held.from = held.from.min(loss.from);
                held.until = held.until.max(loss.until);
            }
            None => losses.push(loss),
        }
    }
}

/// A sampler's row with its instant in mesh time.
#[derive(Clone, Debug, PartialEq)]
pub struct At<T> {
    pub at: MeshMicros,
    pub row: T,
}

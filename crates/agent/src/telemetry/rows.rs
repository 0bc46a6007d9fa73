//! The records of tasks, the agent's clock and its host.
//!
//! Fields and units match the wire's; [`At`] adds the instant of mesh time to a sampler's row.

use benchmesh_model::events::WireKind;
use benchmesh_model::figures::TargetFigures;
use benchmesh_model::systems::facts::Value;
use benchmesh_workloads::histogram::Blob;
use benchmesh_workloads::op::Op;
use std::fmt;
use std::sync::Arc;

/// An instant of mesh time: microseconds since the Unix epoch on the collector's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MeshMicros(pub i64);

/// A run's id in the collector's database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunId(pub i64);

/// A step's id in the collector's database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepId(pub i64);

/// A task's id in the collector's database.
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
    /// The uid as text.
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

/// One task's operations of one kind in a time span.
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
    /// Bytes of operations that ended in this interval but moved them at unknown times.
    pub undated_bytes: u64,
    pub errors: u64,
    pub in_flight: u32,
    pub service: Blob,
    /// `None` if the load is not paced.
    pub response: Option<Blob>,
}

/// The result of a task, recorded after its last interval.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskEnd {
    pub task: TaskId,
    pub run_uid: RunUid,
    /// One of done, failed, stopped.
    pub state: EndState,
    pub workers: u32,
    /// The planned instant.
    pub start: MeshMicros,
    /// Start of the last worker minus the planned instant.
    pub skew_us: i64,
    pub skew_error_us: i64,
    pub first_done: MeshMicros,
    pub ended: MeshMicros,
    /// Start of the last operation; 0 if there was none.
    pub last_begun: MeshMicros,
    pub cpu_user_us: Option<i64>,
    pub cpu_system_us: Option<i64>,
    pub harness_ns_per_op: i64,
    pub wait_cpu_us: Option<i64>,
    /// Empty if there was no error.
    pub error: String,
    pub errors: Vec<ErrorCount>,
}

/// End states of a task.
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
    /// The first failure in full.
    pub first: String,
}

/// One recorded exchange with the collector's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockOffset {
    pub at: MeshMicros,
    /// The agent's wall clock minus mesh time.
    pub offset_us: i64,
    pub error_us: i64,
    pub round_trip_us: i64,
}

/// The run and the step of an event, if there are any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunScope {
    pub run_uid: RunUid,
    pub run: Option<RunId>,
    pub step: Option<StepId>,
}

/// A dated message for users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub at: MeshMicros,
    pub scope: RunScope,
    pub kind: WireKind,
    pub message: String,
    /// JSON; may be empty.
    pub detail: String,
}

/// One fact that a storage cluster reports about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    pub at: MeshMicros,
    /// The run in which it was read.
    pub run: Option<RunId>,
    pub system: String,
    pub name: String,
    pub value: Value,
    /// Empty for a count or a text.
    pub unit: String,
}

/// Free space of a target under load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetSample {
    pub at: MeshMicros,
    /// The target's locator.
    pub target: String,
    /// Nonce of the run's directory there: agents with the same nonce share the target's content.
    pub nonce: String,
    /// Device number of its file system on this host; empty: it has none.
    pub device: String,
    pub figures: TargetFigures,
}

/// Kinds of rows that were lost, or dropped for lack of space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LossKind {
    DaemonSamples,
    HostSamples,
    DiskSamples,
    NetSamples,
    ClockOffsets,
    /// Whole batches, with all rows except task ends.
    Batches,
    /// Operations in those batches, as far as known.
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
    /// Adds rows to `losses`, to the entry of their kind.
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

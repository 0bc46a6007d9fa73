//! The commands of the collector and the agent's answers to them, in the agent's own types.
//!
//! A command of these types has passed the wire, so its fields are in range. Whether a path is allowed or a task exists
//! is decided later.

use crate::envelope::RowPosition;
use crate::sampler::DaemonRule;
pub use crate::targets::{PathFacts, RunDirectoryFacts};
use crate::telemetry::{EndState, MeshMicros, RunId, RunScope, TaskId};
use benchmesh_model::targets::Locator;
use benchmesh_workloads::task::{Cache, OnStall};
use benchmesh_workloads::workload::Params;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// A request, with the number that its reply carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub id: u64,
    /// The run that sent it.
    pub run: Option<RunId>,
    pub request: CommandRequest,
}

/// All requests of the collector.
#[derive(Clone, Debug, PartialEq)]
pub enum CommandRequest {
    Sampling(Sampling),
    Survey {
        targets: Vec<Locator>,
        sources: Vec<String>,
    },
    OpenRunDirectory {
        run_uid: String,
        target: Locator,
        make: MakeDirectory,
    },
    RemoveRunDirectory {
        run_uid: String,
        target: Locator,
    },
    RemoveCell {
        run_uid: String,
        target: Locator,
        cell: String,
        task_index: u32,
    },
    Listen(Listen),
    Prepare(Prepare),
    DropCaches,
    Arm {
        task: TaskId,
        start: MeshMicros,
        /// Latest end of the task's load.
        end: Option<MeshMicros>,
    },
    AwaitEnd {
        task: TaskId,
    },
    StopTask {
        task: TaskId,
        reason: String,
    },
    /// Changes the task's share of its step's rate from a given instant on.
    ShareRate {
        task: TaskId,
        task_index: u32,
        tasks: u32,
        from: MeshMicros,
    },
    ForgetTask {
        task: TaskId,
    },
    /// `None`: now.
    Mark {
        at: Option<MeshMicros>,
    },
}

/// Whether a missing run directory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MakeDirectory {
    IfMissing,
    Never,
}

/// The samples that this agent takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    pub host_wide: bool,
    pub interfaces: bool,
    /// `None`: only at marks.
    pub period: Option<Duration>,
    /// The run that is sampled.
    pub run: Option<RunId>,
    /// The mesh's own processes on this host.
    pub mesh_pids: BTreeSet<i32>,
    /// The rules of all agents on this host.
    pub daemon_rules: Vec<DaemonRule>,
}

/// The receiving end of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    pub task: TaskId,
    pub workload: String,
    pub mode: String,
    pub params: Params,
    /// The only peer that may connect, if it is known.
    pub from: Option<IpAddr>,
    /// This agent's own address, as the sender will dial it, if it is known.
    pub address: Option<IpAddr>,
    pub token: String,
}

/// A task to be laid out and opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    pub task: TaskId,
    pub workload: String,
    pub mode: String,
    pub params: Params,
    /// `None`: the workload needs no target.
    pub place: Option<PlaceName>,
    pub data: DataOwner,
    pub task_index: u32,
    pub tasks: u32,
    pub cache: Cache,
    pub peer: Option<(SocketAddr, String)>,
    pub lease: Duration,
    pub scope: RunScope,
    pub on_stall: OnStall,
}

/// The owner of the data that a task works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataOwner {
    /// The data are removed with the cell.
    Cell,
    /// The kept set of this name; created if it is missing.
    Kept(String),
    /// The kept set of this name, which must exist.
    Existing(String),
}

impl DataOwner {
    /// The name of the kept set.
    #[must_use]
    pub fn kept_set(&self) -> Option<&str> {
        match self {
            Self::Cell => None,
            Self::Kept(set) | Self::Existing(set) => Some(set),
        }
    }
}

/// The place of a task's work, by names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceName {
    pub run_uid: String,
    pub target: Locator,
    pub cell: String,
}

/// The answer to a command, or the reason for its refusal.
pub type CommandResult = Result<Answer, Refusal>;

/// An answer. [`Answer::Done`] carries no data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Done,
    Survey(Survey),
    RunDirectory(RunDirectoryFacts),
    Listening { port: u16 },
    Armed { lead_us: i64 },
    Ended(TaskEnded),
    Dropped(Vec<CacheDrop>),
}

/// Facts about targets and paths before anything runs on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    pub targets: Vec<PathFacts>,
    pub sources: Vec<PathFacts>,
    pub scratch_free_bytes: i64,
    /// 0: unknown.
    pub link_bytes_per_s: i64,
    /// The host's hardware and software, as JSON.
    pub inventory_json: String,
}

/// The end of a task, and the spool position of its last row, which holds the result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEnded {
    pub state: EndState,
    /// `None` for a task that never started, because it has no row.
    pub last_row: Option<RowPosition>,
    /// The task ended because an operation hung.
    pub stalled: bool,
}

/// One cache to be dropped. An empty `error` means success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDrop {
    pub what: &'static str,
    pub error: String,
}

/// Progress of a long command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgressReport {
    pub done: u64,
    pub total: u64,
    pub unit: &'static str,
}

/// The reason for a refusal, as far as the scheduler can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    UnknownTask,
    NotAllowed,
    TooLate,
    NoSpace,
    Unsupported,
    /// An operation hangs, and the plan does not wait for it.
    Stalled,
    /// The target is gone: its mount is dead or was removed.
    TargetLost,
    Failed,
}

impl RefusalKind {
    /// The name used in the wire format.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UnknownTask => "unknown-task",
            Self::NotAllowed => "not-allowed",
            Self::TooLate => "too-late",
            Self::NoSpace => "no-space",
            Self::Unsupported => "unsupported",
            Self::Stalled => "stalled",
            Self::TargetLost => "target-lost",
            Self::Failed => "failed",
        }
    }
}

/// The reason why a command was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub kind: RefusalKind,
    pub message: String,
}

impl Refusal {
    /// A refusal of the given kind.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A failure without a kind of its own.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Failed, message)
    }

    /// No such task on this agent.
    pub fn unknown_task(task: TaskId) -> Self {
        Self::new(
            RefusalKind::UnknownTask,
            format!("task {task} is not known to this agent"),
        )
    }
}

//! Commands of the scheduler to agents, and their answers. Every command is idempotent.

use benchmesh_model::mesh::{MeshMicros, RunId, StepId, TaskId};
use benchmesh_plan::{KeptUse, OnStall};
use benchmesh_store::rows::SpoolPosition;
use std::{collections::BTreeSet, sync::Arc};

/// A request to an agent.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Sampling(Sampling),
    Survey {
        paths: Vec<String>,
        sources: Vec<String>,
    },
    OpenRunDirectory {
        run_uid: String,
        path: String,
        make: Make,
    },
    RemoveRunDirectory {
        run_uid: String,
        path: String,
    },
    RemoveCell {
        run_uid: String,
        path: String,
        cell: String,
        task_index: u32,
    },
    Listen(Listen),
    Prepare(Prepare),
    DropCaches {
        step: StepId,
    },
    Arm {
        task: TaskId,
        start: MeshMicros,
        /// The latest end of its load; `None` if only its parameters decide.
        end: Option<MeshMicros>,
    },
    AwaitEnd {
        task: TaskId,
    },
    StopTask {
        task: TaskId,
        reason: String,
    },
    /// Changes the task's share of its step's rate from an instant on.
    ShareRate {
        task: TaskId,
        task_index: u32,
        tasks: u32,
        from: MeshMicros,
    },
    ForgetTask {
        task: TaskId,
    },
    /// `None` means now.
    Mark {
        at: Option<MeshMicros>,
    },
}

/// Whether a missing run directory is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    IfMissing,
    Never,
}

/// An agent's part of the sampling.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sampling {
    pub host_wide: bool,
    pub interfaces: bool,
    /// 0: only at marks.
    pub period_us: i64,
    /// The run that is sampled.
    pub run: Option<RunId>,
    /// Sampling of the whole host; empty if the agent does not sample it.
    pub host: Arc<HostSampling>,
}

/// The processes of a host, as all of its agents describe them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSampling {
    /// The mesh's own processes.
    pub mesh_pids: BTreeSet<i32>,
    /// In the order of the agents' names, without duplicates.
    pub daemon_rules: Vec<DaemonRule>,
}

/// A process that an agent's operator wants to watch; an empty condition always holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonRule {
    pub name: String,
    pub comm: String,
    pub cmdline: String,
    pub cgroup: String,
    pub unit: String,
    pub instance_option: String,
}

/// The receiving end of a network task.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    pub task: TaskId,
    pub workload: String,
    pub mode: String,
    pub params_json: String,
    /// The only peer that may connect; empty if unknown.
    pub from_address: String,
    /// The receiver's own address, as the sender will dial it.
    pub address: String,
    pub token: String,
}

/// One task, to be laid out and opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepare {
    pub task: TaskId,
    pub run: RunId,
    pub step: StepId,
    pub run_uid: String,
    pub workload: String,
    pub mode: String,
    pub params_json: String,
    pub path: String,
    pub cell: String,
    /// The kept data set that it uses instead of its cell's data.
    pub kept: Option<(String, KeptUse)>,
    pub task_index: u32,
    pub tasks: u32,
    pub cache: String,
    pub peer_address: String,
    pub token: String,
    pub lease_us: i64,
    pub on_stall: OnStall,
}

/// An agent's answer.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAnswer {
    Done,
    Survey(Survey),
    RunDirectory(RunDirectory),
    Listening { port: u16 },
    Armed { lead_us: i64 },
    End(End),
    Dropped(Vec<CacheDrop>),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Each path and the facts about it.
    pub paths: Vec<(String, benchmesh_plan::PathFacts)>,
    pub sources: Vec<(String, benchmesh_plan::PathFacts)>,
    /// `None` if the agent has no scratch directory.
    pub scratch_free_bytes: Option<u64>,
    /// The speed of its interfaces; 0: unknown.
    pub link_bytes_per_s: u64,
    pub inventory: Inventory,
}

/// The hardware and software of an agent's host, as the agent reports it. Empty: not reported.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default)]
pub struct Inventory {
    pub distribution: String,
    pub cpu_model: String,
    /// Objects that are stored unchanged.
    pub interfaces: Vec<serde_json::Value>,
    pub disks: Vec<serde_json::Value>,
    /// Package -> version.
    pub packages: std::collections::BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory {
    pub found: bool,
    pub made: bool,
    /// Equal nonces: one shared file system.
    pub nonce: String,
    pub free_bytes: u64,
}

/// A task has ended, and its last row is in the agent's spool. That row holds the result; until it is stored, `state`
/// is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    pub state: benchmesh_model::mesh::TaskState,
    /// The batch with the last row; `None` if the task never began, so that there is no row.
    pub last_batch: Option<SpoolPosition>,
    /// A hanging operation has ended the task, by `on-stall`.
    pub stalled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDrop {
    pub what: String,
    pub dropped: bool,
    pub error: String,
}

/// Progress of a long command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommandProgress {
    pub done: u64,
    pub total: u64,
    /// `bytes` or `files`.
    pub unit: String,
}

/// The kind of failure that an agent reports.
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
    /// Any unknown name is an ordinary failure.
    pub fn parse(word: &str) -> Self {
        match word {
            "unknown-task" => Self::UnknownTask,
            "not-allowed" => Self::NotAllowed,
            "too-late" => Self::TooLate,
            "no-space" => Self::NoSpace,
            "unsupported" => Self::Unsupported,
            "stalled" => Self::Stalled,
            "target-lost" => Self::TargetLost,
            _ => Self::Failed,
        }
    }
}

/// Why a command got no answer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum CallError {
    #[error("agent `{agent}` has been without contact for {silent_s} s")]
    Lost { agent: String, silent_s: u64 },
    #[error("agent `{agent}`: {message}")]
    Refused {
        agent: String,
        kind: RefusalKind,
        message: String,
    },
    #[error("agent `{agent}` did not {doing} within {within:.1?}")]
    Deadline {
        agent: String,
        doing: &'static str,
        within: std::time::Duration,
    },
    /// The command was not sent, because its deadline had passed.
    #[error("agent `{agent}` was not asked in time to {doing}: the collector was too slow")]
    TooLateToAsk { agent: String, doing: &'static str },
    #[error("agent `{agent}` sent the answer to another command")]
    Mismatched { agent: String },
    #[error("agent {agent} is not known")]
    Unknown {
        agent: benchmesh_model::mesh::AgentId,
    },
}

impl CallError {
    /// The kind of refusal, if the agent refused.
    pub fn refusal(&self) -> Option<RefusalKind> {
        match self {
            Self::Refused { kind, .. } => Some(*kind),
            _ => None,
        }
    }

    /// Whether the agent is lost.
    pub fn is_lost(&self) -> bool {
        matches!(self, Self::Lost { .. })
    }
}

impl Command {
    /// Verb phrase for messages: the agent did not ...
    pub fn action(&self) -> &'static str {
        match self {
            Self::Sampling(_) => "set its sampler",
            Self::Survey { .. } => "survey its paths",
            Self::OpenRunDirectory { .. } => "open the run's directory",
            Self::RemoveRunDirectory { .. } => "remove the run's directory",
            Self::RemoveCell { .. } => "remove the cell's data",
            Self::Listen(_) => "open the receiving end",
            Self::Prepare(_) => "prepare its task",
            Self::DropCaches { .. } => "drop its caches",
            Self::Arm { .. } => "arm its task",
            Self::AwaitEnd { .. } => "report the end of its task",
            Self::StopTask { .. } => "stop its task",
            Self::ShareRate { .. } => "change its share of the rate",
            Self::ForgetTask { .. } => "forget its task",
            Self::Mark { .. } => "take a sample",
        }
    }
}

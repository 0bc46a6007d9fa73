//! The rows that the scheduler and the sessions write and read, as plain structs.
//!
//! It knows nothing of SQL; JSON columns are text here, and their writers define their meaning.

use benchmesh_model::mesh::{
    AgentId, HostId, MeshMicros, RunId, RunState, Severity, StepId, StepState, TaskId, TaskState,
};
use benchmesh_plan::Shape;
use std::time::Duration;

/// A point at which mesh time was tied to the kernel's boot clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    pub boot_id: String,
    pub boottime_ns: i64,
    pub mesh_us: MeshMicros,
}

/// A kernel and PID namespace, as an agent on it describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHost {
    pub boot_id: String,
    pub pid_namespace: String,
    pub name: String,
    pub kernel: String,
    pub cpus: u32,
    pub memory_bytes: i64,
}

/// An agent that attaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewAgent {
    pub uid: String,
    pub name: String,
    pub host: NewHost,
    /// A JSON object of text values.
    pub labels_json: String,
    pub version: String,
    /// Its name takes the place of the one that its uid is bound to.
    pub may_rename: bool,
    /// The row of its host is its own; otherwise it changes nothing of one that is there.
    pub describes_host: bool,
    pub at: MeshMicros,
}

/// An agent's appointment to sample a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSampler {
    pub host: HostId,
    /// The interfaces of this namespace; `None`: all else of the host.
    pub net_namespace: Option<String>,
    pub agent: AgentId,
    pub from: MeshMicros,
}

/// A stored appointment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerRow {
    pub boot_id: String,
    pub pid_namespace: String,
    pub net_namespace: Option<String>,
    pub agent: AgentId,
    /// Of the agent, as it is called now.
    pub name: String,
    pub from: MeshMicros,
    pub until: Option<MeshMicros>,
}

/// A run to be queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRun {
    /// Made by the client; a run that is started twice with one uid is one run.
    pub uid: String,
    pub name: String,
    pub plan_text: String,
    /// A JSON array: the agents chosen.
    pub agents_json: String,
    /// `None`: the cells come as the plan writes them.
    pub order_seed: Option<u32>,
    pub created: MeshMicros,
    /// It begins then or later; `None`: at once.
    pub due: Option<MeshMicros>,
    pub version: String,
}

/// What an agent of the mesh said when a run begins, beside its hello. Empty and `None`: not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRunAgent {
    pub agent: AgentId,
    pub distribution: String,
    pub cpu_model: String,
    pub interfaces_json: Option<String>,
    pub disks_json: Option<String>,
    pub packages_json: Option<String>,
    /// `None`: the agent did not tell its policy.
    pub policy_json: Option<String>,
    pub targets: Vec<NewRunTarget>,
}

/// The facts about a target's path on one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRunTarget {
    pub target: String,
    pub system: String,
    pub path: String,
    pub mount_source: String,
    pub mount_type: String,
    pub mount_options: String,
    /// An array; `None`: nothing is known to lie beneath.
    pub beneath_json: Option<String>,
    pub size_bytes: Option<i64>,
    pub free_bytes: Option<i64>,
    pub packages_json: Option<String>,
}

/// Whether `create_run` made the run or found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creation {
    New,
    Existing,
}

/// A step of a run, before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    pub ordinal: u32,
    pub loop_number: u32,
    pub repeat: u32,
    pub attempt: u32,
    pub phase: String,
    /// The cell that the step belongs to, unique within the run: steps of one cell share their data.
    pub cell: String,
    /// Empty for a workload without one.
    pub target: String,
    pub system: String,
    pub workload: String,
    pub mode: String,
    pub params_json: String,
    pub clients: u32,
    pub cache: String,
    /// Empty: the step is one load.
    pub groups: Vec<NewGroup>,
}

/// The load of one group of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGroup {
    pub name: String,
    pub workload: String,
    pub mode: String,
    pub params_json: String,
    pub clients: u32,
    pub tasks: u32,
}

/// A task of a step, before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTask {
    pub agent: AgentId,
    pub peer: Option<AgentId>,
    pub task_index: u32,
    /// Empty: the step has no groups.
    pub group: String,
    pub workers: u32,
    /// The limit that its reads are checked against; `None`: none.
    pub link_bytes_per_s: Option<i64>,
}

/// A further task of a client that has come back into its running step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPart {
    pub task: NewTask,
    /// From 2.
    pub part: u32,
    /// The `task_index` of the client's first part.
    pub client_index: u32,
}

/// A dated fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    pub at: MeshMicros,
    pub run: Option<RunId>,
    pub step: Option<StepId>,
    pub agent: Option<AgentId>,
    pub severity: Severity,
    pub kind: String,
    pub message: String,
    pub detail_json: Option<String>,
}

/// The result of dropping one cache on one agent's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCacheDrop {
    pub agent: AgentId,
    pub at: MeshMicros,
    pub what: String,
    pub dropped: bool,
    pub error: Option<String>,
}

/// A data set that stays, and the step that works on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKeptData {
    pub name: String,
    pub path: String,
    pub target: String,
    pub system: String,
    pub workload: String,
    pub shape: Shape,
    pub tasks: u32,
    /// What the step lays out where nothing is there.
    pub bytes: u64,
    pub files: u64,
    /// The step makes the data anew.
    pub remakes: bool,
    pub run_uid: String,
    pub agents: Vec<AgentId>,
    pub at: MeshMicros,
}

/// A change of a run's state. `None` leaves a column as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunChange {
    pub state: RunState,
    pub partial: bool,
    pub reason: Option<String>,
    pub at: MeshMicros,
}

/// A change of a step's state. `None` leaves a column as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepChange {
    pub state: StepState,
    /// When it entered it.
    pub at: MeshMicros,
    /// The instant at which all tasks start.
    pub start: Option<MeshMicros>,
    /// Only set when the step ends without results; `finish_step` sets it otherwise.
    pub ended: Option<MeshMicros>,
    pub reason: Option<String>,
}

/// How the scheduler saw a step end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedStep {
    pub state: StepState,
    pub partial: bool,
    pub ended: MeshMicros,
    /// Why, when it did not simply end.
    pub reason: Option<String>,
}

/// A row of `runs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRow {
    pub id: RunId,
    pub uid: String,
    pub name: String,
    pub plan_text: String,
    pub agents_json: String,
    pub order_seed: Option<u32>,
    pub state: RunState,
    pub partial: bool,
    pub reason: Option<String>,
    pub created: MeshMicros,
    pub due: Option<MeshMicros>,
    pub started: Option<MeshMicros>,
    pub ended: Option<MeshMicros>,
    pub version: String,
    /// The reason of a requested stop.
    pub stop_reason: Option<String>,
    /// When a request or the policy ended the load.
    pub halted: Option<MeshMicros>,
    /// How long it was paused before it was resumed, in all.
    pub paused_us: i64,
    /// Since when it is paused: it was resumed, and has not begun again.
    pub paused_from: Option<MeshMicros>,
}

impl RunRow {
    /// For how long it has run until an instant, without its pauses.
    pub fn ran_for(&self, until: MeshMicros) -> Duration {
        let until = self.paused_from.unwrap_or(until);
        let lasted_us = until.since(self.started).saturating_sub(self.paused_us);
        Duration::from_micros(lasted_us.max(0).unsigned_abs())
    }

    /// Ends the pause of a run that begins again.
    pub fn end_pause(&mut self, now: MeshMicros) {
        if let Some(from) = self.paused_from.take() {
            self.paused_us += now.since(Some(from)).max(0);
        }
    }

    /// Whether it need not wait for its time.
    pub fn is_due(&self, now: MeshMicros) -> bool {
        self.due.is_none_or(|due| due <= now)
    }
}

/// How many of these ended as they should.
pub fn steps_done(steps: &[StepRow]) -> usize {
    let done = |step: &&StepRow| step.state == StepState::Done;
    steps.iter().filter(done).count()
}

/// A row of `steps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepRow {
    pub id: StepId,
    pub run: RunId,
    pub ordinal: u32,
    pub loop_number: u32,
    pub repeat: u32,
    pub attempt: u32,
    pub phase: String,
    pub cell: String,
    pub target: String,
    pub system: String,
    pub workload: String,
    pub mode: String,
    pub params_json: String,
    pub clients: u32,
    pub cache: String,
    pub state: StepState,
    pub partial: bool,
    pub flags_json: String,
    pub reason: Option<String>,
    pub start: Option<MeshMicros>,
    pub ended: Option<MeshMicros>,
}

/// A batch in one of an agent's spools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolPosition {
    pub spool_id: String,
    pub sequence: u64,
}

/// A row of `tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    pub id: TaskId,
    pub step: StepId,
    pub task_index: u32,
    /// From 1; more where its client has come back into the step.
    pub part: u32,
    /// The `task_index` of the client's first part.
    pub client_index: u32,
    pub agent: AgentId,
    pub peer: Option<AgentId>,
    pub state: TaskState,
    pub workers: u32,
    pub start: Option<MeshMicros>,
    pub skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    pub first_done: Option<MeshMicros>,
    pub ended: Option<MeshMicros>,
    /// When its last operation began; `None`: none did, or its agent has not reported it.
    pub last_begun: Option<MeshMicros>,
    pub cpu_user_us: Option<i64>,
    pub cpu_system_us: Option<i64>,
    pub wait_cpu_us: Option<i64>,
    pub harness_ns_per_op: Option<i64>,
    pub error: Option<String>,
    /// The batch with its last rows, as its agent reported at its end; `None`: the end came with the rows, or there are
    /// none.
    pub last_batch: Option<SpoolPosition>,
}

/// A row of `agents` with its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    pub id: AgentId,
    pub uid: String,
    pub name: String,
    pub host: HostId,
    /// The host as it was when the agent attached last.
    pub on: NewHost,
    pub labels_json: String,
    pub version: String,
    pub first_seen: MeshMicros,
    pub last_seen: MeshMicros,
}

/// A run's directory on a target, as far as it is known of one agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectoryRow {
    pub run: RunId,
    pub agent: AgentId,
    pub path: String,
    /// Equal nonces are one shared file system; `None`: the agent was asked to make it and has not answered.
    pub nonce: Option<String>,
    /// This agent made it, and removes it.
    pub made: bool,
    pub free_bytes: u64,
}

/// One change that the scheduler writes. Several are one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    Run {
        run: RunId,
        change: RunChange,
    },
    /// Why the policy ends a run, and when.
    Abort {
        run: RunId,
        reason: String,
        at: MeshMicros,
    },
    /// The environment of a run that begins.
    Environment {
        run: RunId,
        agents: Vec<NewRunAgent>,
    },
    /// New steps; their ids come in the same order.
    Steps {
        run: RunId,
        steps: Vec<NewStep>,
    },
    Step {
        step: StepId,
        change: StepChange,
    },
    /// New tasks; their ids come in the same order.
    Tasks {
        step: StepId,
        tasks: Vec<NewTask>,
    },
    /// Further tasks of clients of a running step; their ids come in the same order.
    Parts {
        step: StepId,
        parts: Vec<NewPart>,
    },
    Task {
        task: TaskId,
        state: TaskState,
        error: Option<String>,
        /// The batch with its last rows; `None` leaves what is stored.
        last_batch: Option<SpoolPosition>,
    },
    /// Arming a step failed: the step and its tasks lose their start instants, except tasks that have reported their
    /// end.
    StartsCleared {
        step: StepId,
    },
    /// A task that was stopped before its start is prepared once more: the reported end no longer holds.
    TaskAgain {
        task: TaskId,
    },
    TaskStarts(Vec<(TaskId, MeshMicros)>),
    Directory(RunDirectoryRow),
    /// An agent has no directory there after all.
    NoDirectory {
        run: RunId,
        agent: AgentId,
        path: String,
    },
    /// A run's directories are removed, or an event says that they stay.
    DirectoriesGone {
        run: RunId,
    },
    /// A run fails as it is stored: its steps that have begun fail with it, and their tasks are lost.
    OpenFailed {
        run: RunId,
        reason: String,
        at: MeshMicros,
    },
    Event(NewEvent),
    CacheDrops {
        step: StepId,
        drops: Vec<NewCacheDrop>,
    },
    /// A step is about to work on a data set that stays.
    KeptData(NewKeptData),
    /// The set is there whole.
    KeptDataWhole {
        name: String,
        path: String,
        at: MeshMicros,
    },
}

impl Row {
    /// The latest instant in it that the collector's clock gave.
    pub fn latest(&self) -> Option<MeshMicros> {
        match self {
            Self::Run { change, .. } => Some(change.at),
            Self::Abort { at, .. } | Self::OpenFailed { at, .. } => Some(*at),
            Self::Step { change, .. } => change.start.max(change.ended),
            Self::Event(event) => Some(event.at),
            Self::KeptData(NewKeptData { at, .. }) | Self::KeptDataWhole { at, .. } => Some(*at),
            _ => None,
        }
    }
}

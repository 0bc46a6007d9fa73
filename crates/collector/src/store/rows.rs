//! The rows that the scheduler and the sessions write and read, as plain structs.
//!
//! It knows nothing of SQL; JSON columns are text here, and their meaning belongs to whoever writes them.

use crate::model::{
    AgentId, HostId, MeshMicros, RunId, RunState, Severity, StepId, StepState, TaskId, TaskState,
};

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
    pub at: MeshMicros,
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
    pub version: String,
}

/// Whether `create_run` made the run or found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    New,
    Already,
}

/// A step of a run, before it starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewStep {
    pub ordinal: u32,
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

/// What one group of a step does.
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
    /// What its reads are held against; `None`: nothing.
    pub link_bytes_per_s: Option<i64>,
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

/// What became of dropping one cache on one agent's host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCacheDrop {
    pub agent: AgentId,
    pub at: MeshMicros,
    pub what: String,
    pub dropped: bool,
    pub error: Option<String>,
}

/// A change of a run's state. What is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunChange {
    pub state: RunState,
    pub partial: bool,
    pub reason: Option<String>,
    pub at: MeshMicros,
}

/// A change of a step's state. What is `None` stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepChange {
    pub state: StepState,
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
    pub started: Option<MeshMicros>,
    pub ended: Option<MeshMicros>,
    pub version: String,
    /// Why someone wished that it stops.
    pub stop_reason: Option<String>,
    /// When someone or the policy wished that its load ends.
    pub halted: Option<MeshMicros>,
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

/// A row of `tasks`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRow {
    pub id: TaskId,
    pub step: StepId,
    pub task_index: u32,
    pub agent: AgentId,
    pub peer: Option<AgentId>,
    pub state: TaskState,
    pub workers: u32,
    pub start: Option<MeshMicros>,
    pub skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    pub first_done: Option<MeshMicros>,
    pub ended: Option<MeshMicros>,
    /// When its last operation began; `None`: none did, or its agent has not said.
    pub last_begun: Option<MeshMicros>,
    pub cpu_user_us: Option<i64>,
    pub cpu_system_us: Option<i64>,
    pub wait_cpu_us: Option<i64>,
    pub harness_ns_per_op: Option<i64>,
    pub error: Option<String>,
}

/// A row of `agents` with its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentRow {
    pub id: AgentId,
    pub uid: String,
    pub name: String,
    pub host: HostId,
    pub labels_json: String,
    pub version: String,
    pub first_seen: MeshMicros,
    pub last_seen: MeshMicros,
}

//! What the collector tells, in the commands' own types. Instants are mesh time in microseconds.

use benchmesh_collector::model::RunState;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// A plan on its way to the collector.
#[derive(Clone, Debug)]
pub struct RunRequest {
    pub run_uid: String,
    /// The file's name, for messages.
    pub plan_name: String,
    /// The text, with overrides applied.
    pub plan: String,
    /// Wait until so many agents have attached; 0 takes those that are there.
    pub agents: u32,
    pub agents_wait: Duration,
    pub dry_run: bool,
    /// Take agents that have been in no run yet too.
    pub new_agents: bool,
    /// In microseconds of the wall clock; 0: at once.
    pub due_us: i64,
}

/// A plan that was accepted.
#[derive(Clone, Debug, Serialize)]
pub struct RunStarted {
    pub run_id: i64,
    pub run_uid: String,
    pub steps: Vec<PlannedStep>,
    pub warnings: Vec<String>,
}

/// One step to come.
#[derive(Clone, Debug, Default, Serialize)]
pub struct PlannedStep {
    pub ordinal: u32,
    pub repeat: u32,
    pub phase: String,
    pub target: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub agents: Vec<String>,
    /// The receiving agents of its links, by name.
    pub peer: Option<String>,
    /// Which links it measures, in a few words; empty where there is a target.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// To be moved by all tasks; `None`: bounded by time alone.
    pub bytes: Option<i64>,
    pub files: i64,
    /// `None`: not bounded by time.
    pub expected_s: Option<f64>,
}

impl PlannedStep {
    /// Where it works, in a few words: its target, or its links.
    pub fn place(&self) -> String {
        match self.link.as_str() {
            "" => self.target.clone(),
            link => link.to_owned(),
        }
    }
}

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Update {
    pub run_id: i64,
    pub run: String,
    pub state: RunState,
    pub partial: bool,
    /// `loop 3 of 10`; empty: the plan has no loops.
    pub loop_in_words: String,
    pub steps_done: u32,
    pub steps_total: u32,
    pub elapsed: Duration,
    pub left: Option<Duration>,
    /// Absent between steps.
    pub step: Option<StepNow>,
    /// Events since the last update.
    pub messages: Vec<String>,
    /// Steps that ended since the last update.
    pub finished: Vec<StepDone>,
    /// While data are removed: so many files so far.
    pub removed_files: Option<u64>,
    pub slowest_client: Option<ClientNow>,
    pub busiest_daemon: Option<DaemonNow>,
    /// What agents recorded and people said since the last update.
    pub events: Vec<EventNow>,
}

/// An event, or a mark.
#[derive(Clone, Debug)]
pub struct EventNow {
    /// 0: a mark.
    pub event_id: i64,
    pub at_us: i64,
    pub severity: String,
    /// Empty: of no agent.
    pub agent: String,
    pub message: String,
}

/// One client of the step that is going on.
#[derive(Clone, Debug)]
pub struct ClientNow {
    pub agent: String,
    pub ops_per_s: f64,
    /// How many clients there are.
    pub clients: u32,
}

/// A daemon that is sampled.
#[derive(Clone, Debug)]
pub struct DaemonNow {
    pub host: String,
    pub name: String,
    pub instance: String,
    /// 100 is one CPU.
    pub cpu_percent: f64,
    pub rss_bytes: i64,
}

/// The step that is going on.
#[derive(Clone, Debug)]
pub struct StepNow {
    pub ordinal: u32,
    pub phase: String,
    pub target: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub state: String,
    pub clients: u32,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    /// 0: not known.
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// 0 to 1.
    pub share_done: Option<f64>,
    pub elapsed: Duration,
    pub peer: String,
    /// While it runs: for so long nothing of its load has come.
    pub silent: Duration,
}

/// A step that has ended.
#[derive(Clone, Debug)]
pub struct StepDone {
    pub ordinal: u32,
    pub phase: String,
    pub target: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub state: String,
    pub ops: Vec<OpDone>,
    pub flags: Vec<String>,
    /// "from -> to".
    pub link: String,
}

/// One kind of operation of a step that has ended.
#[derive(Clone, Debug)]
pub struct OpDone {
    /// Empty: the step has no groups.
    pub group: String,
    pub op: String,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// `None`: the load was not paced.
    pub response_p99_ms: Option<f64>,
    pub errors: u64,
}

/// A run that was asked to stop.
#[derive(Clone, Debug, Serialize)]
pub struct StopDone {
    pub run_id: i64,
    pub state: String,
}

/// One agent.
#[derive(Clone, Debug, Serialize)]
pub struct AgentRow {
    pub id: i64,
    pub name: String,
    pub attached: bool,
    pub labels: BTreeMap<String, String>,
    pub host: String,
    pub kernel: String,
    pub cpus: u32,
    pub memory_bytes: i64,
    pub allowed_paths: Vec<String>,
    pub version: String,
    pub address: String,
    pub last_seen_us: i64,
    pub clock_error_us: i64,
    pub round_trip_us: i64,
    pub samples_host: bool,
    /// What it takes of load; none: it does not tell it, or is away.
    pub policy: Option<PolicyRow>,
}

/// What an agent takes of load.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyRow {
    pub devices: Vec<String>,
    /// Empty: all.
    pub workloads: Vec<String>,
    pub memory_bytes: i64,
    pub threads: u32,
    /// 0: all.
    pub cpus: u32,
    /// 0: no limit.
    pub rate_bytes_per_s: i64,
    pub free_space: String,
    pub free_inodes: String,
    pub networks: Vec<String>,
    pub drop_caches: bool,
    pub hours: String,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    pub id: i64,
    pub uid: String,
    pub name: String,
    pub state: String,
    pub partial: bool,
    pub created_us: i64,
    pub started_us: Option<i64>,
    pub ended_us: Option<i64>,
    pub steps_done: u32,
    pub steps_total: u32,
    /// Someone wishes that it stops.
    pub stopping: bool,
    pub tags: BTreeMap<String, String>,
    pub notes: Vec<String>,
    /// The tool whose output it was made from; empty: it was measured.
    pub imported_from: String,
}

/// Which runs to list; what is empty leaves none out.
#[derive(Clone, Debug, Default)]
pub struct RunSearch {
    pub limit: u32,
    pub text: String,
    pub tags: Vec<String>,
    pub target: String,
    pub since_us: Option<i64>,
    pub until_us: Option<i64>,
}

/// What is said of a run, and which one it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Annotated {
    pub run_id: i64,
    pub run: String,
    pub at_us: i64,
}

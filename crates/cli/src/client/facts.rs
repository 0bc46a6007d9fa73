//! What the collector tells, in the commands' own types. Instants are mesh time in microseconds.

use benchmesh_plan::AgentPolicy;
use benchmesh_scheduler::snapshot::{DaemonNow, EventNow, RunNow};
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
    /// How caches are treated before it; empty: a collector that does not say.
    pub cache: String,
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

/// How far a run is: what is new since the last update.
#[derive(Clone, Debug)]
pub struct Update {
    /// Of its clients the slowest alone.
    pub run: RunNow,
    /// How many clients there are.
    pub clients: u32,
    pub busiest_daemon: Option<DaemonNow>,
    /// What agents recorded and people said; a mark has the id 0.
    pub events: Vec<EventNow>,
}

/// A run that is in the queue again.
#[derive(Clone, Debug, Serialize)]
pub struct RunResumed {
    pub run_id: i64,
    pub run_uid: String,
    pub run: String,
    pub steps_done: u32,
    pub steps_total: u32,
    /// Changes of its targets that were accepted.
    pub changes: Vec<String>,
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
    pub policy: Option<AgentPolicy>,
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

//! The collector's answers in the commands' own types. Instants are mesh time in microseconds.

use benchmesh_plan::AgentPolicy;
use serde::Serialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::Duration;

/// A plan to send to the collector.
#[derive(Clone, Debug)]
pub struct RunRequest {
    pub run_uid: String,
    /// The file's name, for messages.
    pub plan_name: String,
    /// The text, with overrides applied.
    pub plan: String,
    /// Wait until this many agents have attached; 0 takes those already attached.
    pub agents: u32,
    pub agents_wait: Duration,
    pub dry_run: bool,
    /// Also use agents that have been in no run yet.
    pub new_agents: bool,
    /// In microseconds of the wall clock; 0 for immediately.
    pub due_us: i64,
}

/// An accepted plan.
#[derive(Clone, Debug, Serialize)]
pub struct RunStarted {
    pub run_id: i64,
    pub run_uid: String,
    pub steps: Vec<PlannedStep>,
    pub warnings: Vec<String>,
}

/// A planned step.
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
    /// The links that it measures, in a few words; empty for a step with a target.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub link: String,
    /// The treatment of caches before it; empty if the collector does not report it.
    pub cache: String,
    /// Bytes to move by all tasks; `None` if only time bounds the step.
    pub bytes: Option<i64>,
    pub files: i64,
    /// `None` if time does not bound the step.
    pub expected_s: Option<f64>,
}

impl PlannedStep {
    /// Its place in a few words: its target, or its links.
    pub fn place(&self) -> String {
        match self.link.as_str() {
            "" => self.target.clone(),
            link => link.to_owned(),
        }
    }
}

/// A run that was queued again.
#[derive(Clone, Debug, Serialize)]
pub struct RunResumed {
    pub run_id: i64,
    pub run_uid: String,
    pub run: String,
    pub steps_done: u32,
    pub steps_total: u32,
    /// Accepted changes of its targets.
    pub changes: Vec<String>,
}

/// When a run ends on request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopWhen {
    Now,
    /// At the end of the loop in progress, as done.
    AfterLoop,
}

/// A run with a stop request.
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
    /// The agent's policy for load; `None` if it is not reported or the agent is not attached.
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
    /// A stop was requested.
    pub stopping: bool,
    pub tags: BTreeMap<String, String>,
    pub notes: Vec<String>,
    /// The tool whose output was imported; empty for a measured run.
    pub imported_from: String,
}

/// Which runs to list; empty fields match all.
#[derive(Clone, Debug, Default)]
pub struct RunSearch {
    pub limit: u32,
    pub text: String,
    pub tags: Vec<String>,
    pub target: String,
    pub since_us: Option<i64>,
    pub until_us: Option<i64>,
}

/// An annotation, and the run that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Annotated {
    pub run_id: i64,
    pub run: String,
    pub at_us: i64,
    /// The run's tags after the change.
    pub tags: BTreeMap<String, String>,
}

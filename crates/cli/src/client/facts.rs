//! The collector's answers in the commands' own types. Instants are mesh time in microseconds.

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

/// An annotation, and the run that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Annotated {
    pub run_id: i64,
    pub run: String,
    pub at_us: i64,
    /// The run's tags after the change.
    pub tags: BTreeMap<String, String>,
}

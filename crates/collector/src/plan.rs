//! The plan: what a person wrote, checked whole, and expanded into the steps that the scheduler drives.
//!
//! Pure functions over text and facts: it knows nothing of sessions, disks or clocks. A plan never widens what an
//! agent allows; it only asks.

mod errors;

pub use errors::{Place, PlanError, PlanErrors};

use serde_json::{Map, Value};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// A plan that `parse` accepted: every key known, every value in its range, every mode and matrix cell checked by its
/// workload.
#[derive(Clone, Debug)]
pub struct Plan {
    pub name: String,
    pub repeat: u32,
}

/// What expansion has to know of an attached agent.
#[derive(Clone, Debug, Default)]
pub struct AgentFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Canonical paths that it works under.
    pub allowed: Vec<PathBuf>,
    /// Workload name -> revision.
    pub workloads: BTreeMap<String, u32>,
}

/// The steps of a plan on given agents, in the order in which they will run.
#[derive(Clone, Debug)]
pub struct Expansion {
    pub steps: Vec<PlannedStep>,
    pub warnings: Vec<String>,
}

/// One step to come.
#[derive(Clone, Debug)]
pub struct PlannedStep {
    /// From 1, over the whole run.
    pub ordinal: u32,
    /// From 1.
    pub repeat: u32,
    pub phase: String,
    /// The target's name; empty for workloads without one.
    pub target: String,
    pub system: String,
    pub path: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub tasks: Vec<PlannedTask>,
    /// To be moved by all tasks; 0: bounded by time alone.
    pub moved_bytes: u64,
    pub files: u64,
    /// `None`: not bounded by time.
    pub expected: Option<Duration>,
}

/// One task of a step to come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedTask {
    pub agent: String,
    /// network: the receiving agent.
    pub peer: Option<String>,
}

/// Reads and checks a plan. `file` is its name for messages.
pub fn parse(text: &str, file: &str) -> Result<Plan, PlanErrors> {
    let _ = text;
    Err(PlanErrors {
        file: file.to_owned(),
        errors: Vec::new(),
    })
}

/// The plan's text with `--set` applied: each override is `K=V` (docs/plan.md says what K may be). Lines keep their
/// numbers.
pub fn set(text: &str, file: &str, overrides: &[String]) -> Result<String, PlanErrors> {
    let _ = (file, overrides);
    Ok(text.to_owned())
}

/// The steps of `plan` on `agents`.
pub fn expand(plan: &Plan, agents: &[AgentFacts]) -> Result<Expansion, PlanErrors> {
    let _ = (plan, agents);
    Ok(Expansion {
        steps: Vec::new(),
        warnings: Vec::new(),
    })
}

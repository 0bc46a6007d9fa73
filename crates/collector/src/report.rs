//! The report of a run: what `benchmesh report` prints, what `Control.Report` sends, what the JSON document holds.
//!
//! [`load`] reads it from a database, through the views and tables that docs/database.md promises. Everything else is a
//! pure function of a [`Report`]: [`sheets`] for people (a terminal, Markdown), [`csv`] and JSON for programs. It knows
//! nothing of terminals, and derives no figure that the database doesn't hold.

mod csv;
pub mod curve;
pub mod figures;
mod load;
mod markdown;
mod sheets;

pub use csv::{csv, field as csv_field};
pub use load::{ReportError, load, load_file};
pub use markdown::markdown;
pub use sheets::{Align, Column, Sheet, heading, sheets};

use crate::model::{RunId, StepId};
use crate::results::Missing;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Changes whenever a field of the JSON document changes its meaning or goes away.
pub const REPORT_FORMAT: u32 = 1;

/// Everything that is said of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_FORMAT`] of the program that made it.
    pub format: u32,
    pub run: RunReport,
    pub agents: Vec<AgentReport>,
    /// In the order of the plan; of a step with several attempts only the last.
    pub steps: Vec<StepReport>,
    /// Loads that were walked up, and where response time left its floor.
    #[serde(default)]
    pub curves: Vec<curve::CurveReport>,
    /// The watched processes, over all steps.
    pub daemons: Vec<DaemonReport>,
    /// What an operation cost the daemons, per step and daemon name.
    pub costs: Vec<CostReport>,
    pub links: Vec<LinkReport>,
    /// Warnings and errors of the run, oldest first.
    pub events: Vec<EventReport>,
}

/// The run itself. Instants are mesh time in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    pub id: RunId,
    pub uid: String,
    pub name: String,
    pub state: String,
    pub partial: bool,
    pub reason: Option<String>,
    pub created_us: i64,
    pub started_us: Option<i64>,
    pub ended_us: Option<i64>,
    /// What the random order of its cells was drawn from.
    #[serde(default)]
    pub order_seed: Option<u32>,
    /// The benchmesh that measured.
    pub version: String,
}

/// One agent that took part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    pub name: String,
    pub host: String,
    pub kernel: String,
    pub cpus: i64,
    pub memory_bytes: i64,
    pub labels: Value,
}

/// One step and what it came to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    pub id: StepId,
    pub ordinal: i64,
    pub repeat: i64,
    pub attempt: i64,
    pub phase: String,
    /// Empty for workloads without one.
    pub target: String,
    pub system: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub clients: i64,
    pub cache: String,
    pub state: String,
    pub partial: bool,
    pub flags: Vec<String>,
    pub reason: Option<String>,
    pub start_us: Option<i64>,
    pub ended_us: Option<i64>,
    /// The latest start of any task's last worker, less the planned instant.
    pub skew_us: Option<i64>,
    pub skew_error_us: Option<i64>,
    /// network: which links it measures, in a few words.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub links: String,
    /// The agents at both ends, when the step measures one link.
    pub from_agent: Option<String>,
    pub to_agent: Option<String>,
    /// What went wrong first in each task that failed: agent and error.
    pub failures: Vec<TaskFailure>,
    /// Different loads at the same time; empty: the step is one.
    #[serde(default)]
    pub groups: Vec<GroupReport>,
    /// The clients that were not in it to the end.
    #[serde(default)]
    pub missing: Vec<Missing>,
    pub ops: Vec<OpReport>,
}

/// One group of a step: a load of its own, counted apart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GroupReport {
    pub name: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    pub clients: i64,
    pub tasks: i64,
}

impl StepReport {
    /// One line of results each: a group's operations, or the step's. What has no result still has its line.
    pub fn lines(&self) -> Vec<Line<'_>> {
        let of = |group: Option<&'_ GroupReport>| -> Vec<&OpReport> {
            let name = group.map_or("", |group| group.name.as_str());
            self.ops.iter().filter(|op| op.group == name).collect()
        };
        let groups: Vec<Option<&GroupReport>> = match self.groups.as_slice() {
            [] => vec![None],
            groups => groups.iter().map(Some).collect(),
        };
        groups
            .into_iter()
            .flat_map(|group| {
                let line = move |op| Line {
                    step: self,
                    group,
                    op,
                };
                match of(group).as_slice() {
                    [] => vec![line(None)],
                    ops => ops.iter().map(|op| line(Some(op))).collect(),
                }
            })
            .collect()
    }
}

/// One line of results.
#[derive(Clone, Copy, Debug)]
pub struct Line<'r> {
    pub step: &'r StepReport,
    pub group: Option<&'r GroupReport>,
    pub op: Option<&'r OpReport>,
}

impl<'r> Line<'r> {
    /// Empty: the step has no groups.
    pub fn group_name(&self) -> &'r str {
        self.group.map_or("", |group| group.name.as_str())
    }

    pub fn workload(&self) -> &'r str {
        self.group
            .map_or(&self.step.workload, |group| &group.workload)
    }

    pub fn mode(&self) -> &'r str {
        self.group.map_or(&self.step.mode, |group| &group.mode)
    }

    pub fn params(&self) -> &'r Map<String, Value> {
        self.group.map_or(&self.step.params, |group| &group.params)
    }

    pub fn clients(&self) -> i64 {
        self.group.map_or(self.step.clients, |group| group.clients)
    }
}

/// A task that ended with an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskFailure {
    pub agent: String,
    pub error: String,
}

/// One kind of operation of a step. `None` where the database has no figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpReport {
    /// Whose operations they are; empty: the step has no groups.
    #[serde(default)]
    pub group: String,
    pub op: String,
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
    /// `window`, `last-done` or `none`: which of the two rates the headline is.
    pub headline: String,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub last_done_ops_per_s: Option<f64>,
    pub last_done_bytes_per_s: Option<f64>,
    pub mean_ms: Option<f64>,
    pub stddev_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    pub max_ms: Option<f64>,
    /// From the intended instant; only under a rate limit.
    pub response_p50_ms: Option<f64>,
    pub response_p99_ms: Option<f64>,
    pub response_max_ms: Option<f64>,
}

/// One watched process over the steps of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DaemonReport {
    pub host: String,
    pub name: String,
    pub instance: String,
    pub pid: i64,
    /// CPU time during the steps.
    pub cpu_s: Option<f64>,
    /// Mean over the steps, weighted by their time; 100 is one CPU.
    pub cpu_percent: Option<f64>,
    /// Of the step in which it was highest.
    pub cpu_percent_max: Option<f64>,
    pub rss_first_mib: Option<f64>,
    pub rss_max_mib: Option<f64>,
    pub rss_last_mib: Option<f64>,
    pub read_mib: Option<f64>,
    pub written_mib: Option<f64>,
}

/// What all daemons of one name spent on one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostReport {
    pub step_id: StepId,
    pub target: String,
    pub name: String,
    pub cpu_us_per_op: Option<f64>,
    pub cpu_s_per_gib: Option<f64>,
}

/// A network path from one agent to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    pub from_agent: String,
    pub to_agent: String,
    pub mib_per_s: Option<f64>,
    /// Both ends asleep in the kernel between.
    pub rtt_p50_us: Option<f64>,
    /// Both ends polling.
    pub rtt_busy_p50_us: Option<f64>,
}

/// A dated fact that may matter to the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventReport {
    pub at_us: i64,
    pub severity: String,
    pub kind: String,
    pub step_id: Option<StepId>,
    pub agent: Option<String>,
    pub message: String,
}

#[cfg(test)]
mod tests;

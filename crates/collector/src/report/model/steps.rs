//! Steps: what was run, what it came to, and who took part.

use super::machines::TrafficReport;
use crate::model::StepId;
use crate::results::Missing;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

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
    /// Caches that a cold step could not drop: `fuse-client`, `daemon-caches`.
    #[serde(default)]
    pub caches_kept: Vec<String>,
    /// Hosts that confirmed that a cold step's caches were dropped.
    #[serde(default)]
    pub caches_dropped: i64,
    /// Kernel caches that were to be dropped and were not: agent and error.
    #[serde(default)]
    pub caches_failed: Vec<TaskFailure>,
    pub state: String,
    pub partial: bool,
    pub flags: Vec<String>,
    pub reason: Option<String>,
    pub start_us: Option<i64>,
    pub ended_us: Option<i64>,
    /// CPU time of the workers of all clients.
    #[serde(default)]
    pub cpu_user_s: Option<f64>,
    #[serde(default)]
    pub cpu_system_s: Option<f64>,
    /// The start of a task's last worker that was farthest from the planned instant, less that instant, by its agent's
    /// clock.
    pub skew_us: Option<i64>,
    /// The largest error of any task's clock at its start.
    pub skew_error_us: Option<i64>,
    #[serde(default)]
    pub judged: Judged,
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
    /// Of each client's host.
    #[serde(default)]
    pub traffic: Vec<TrafficReport>,
    pub ops: Vec<OpReport>,
}

/// What could be judged of a step: without it, that no flag was raised means nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judged {
    /// The harness's cost is known of some task.
    pub harness: bool,
    /// The time that workers waited for a CPU is known of some task.
    pub cpu: bool,
    /// How fast the way to the storage is, is known of some task.
    pub network: bool,
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
    /// The time that the headline is of.
    #[serde(default)]
    pub over_s: Option<f64>,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub last_done_ops_per_s: Option<f64>,
    pub last_done_bytes_per_s: Option<f64>,
    /// From the start to the last worker's end.
    #[serde(default)]
    pub last_done_s: Option<f64>,
    /// How even it was from second to second.
    #[serde(default)]
    pub seconds: Option<SecondsReport>,
    /// Who did it; `None` for links, and where no client has a result.
    #[serde(default)]
    pub clients: Option<ClientsReport>,
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
    /// Where the run has repeats, whose percentiles are those of all their operations: the slots of the histograms of
    /// service and response times, each its highest value in nanoseconds and its count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub service_slots: Vec<(u64, u64)>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub response_slots: Vec<(u64, u64)>,
}

/// The whole seconds of a step's all-active window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondsReport {
    pub seconds: i64,
    /// In which nothing completed.
    pub zero: i64,
    pub ops_per_s_stddev: f64,
    pub ops_per_s_min: f64,
    pub ops_per_s_max: f64,
    pub bytes_per_s_stddev: f64,
    pub bytes_per_s_min: f64,
    pub bytes_per_s_max: f64,
}

/// The clients of one operation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientsReport {
    pub clients: i64,
    pub mean_ops_per_s: f64,
    /// Between the clients.
    pub stddev_ops_per_s: f64,
    pub slowest: ClientReport,
    pub fastest: ClientReport,
    /// Each client by name; empty where there are more than [`CLIENTS_LISTED`].
    #[serde(default)]
    pub each: Vec<ClientReport>,
}

/// Clients of a step up to which each is in the report.
pub const CLIENTS_LISTED: usize = 64;

/// One operation of a step on one agent, all its tasks together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientReport {
    pub agent: String,
    pub tasks: i64,
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    /// Of the slowest of its tasks.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

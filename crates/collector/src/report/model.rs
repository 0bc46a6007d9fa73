//! The report's types: what [`super::load`] reads, what the JSON document holds, and what every renderer takes.
//!
//! Plain data with names, units in the names of fields. Figures that the database does not have are `None`. Fields that
//! came later have a default, so that a report of an older collector is still understood.

mod curves;
mod machines;
mod phases;
mod steps;

pub use curves::{CurveReport, LoadReport};
pub use machines::{
    AgentReport, CostReport, DaemonReport, HostReport, TargetReport, TrafficReport,
};
pub use phases::{Cell, Field, Figure, Measure, PhaseReport, Pivot};
pub use steps::{
    CLIENTS_LISTED, ClientReport, ClientsReport, GroupReport, Judged, Line, OpReport,
    SecondsReport, StepReport, TaskFailure,
};

use crate::compare::Comparison;
use crate::model::{RunId, StepId};
use crate::results::FlagSeverity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Changes whenever a field of the JSON document changes its meaning or goes away.
pub const REPORT_FORMAT: u32 = 2;

/// Everything that is said of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_FORMAT`] of the program that made it.
    pub format: u32,
    pub run: RunReport,
    pub agents: Vec<AgentReport>,
    #[serde(default)]
    pub targets: Vec<TargetReport>,
    /// What a reader must know before any figure.
    #[serde(default)]
    pub validity: Vec<Check>,
    /// The targets, each held against the first of the plan; empty where there is one, and while the run goes on.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// The results in the shape of the plan's matrix, repeats averaged.
    #[serde(default)]
    pub phases: Vec<PhaseReport>,
    /// In the order of the plan; of a step with several attempts only the last.
    pub steps: Vec<StepReport>,
    /// Loads that were walked up, and where response time left its floor.
    #[serde(default)]
    pub curves: Vec<CurveReport>,
    /// The watched processes, over all steps.
    pub daemons: Vec<DaemonReport>,
    /// What an operation cost the daemons, per step and daemon name.
    pub costs: Vec<CostReport>,
    /// What each sampled host did in each step.
    #[serde(default)]
    pub hosts: Vec<HostReport>,
    pub links: Vec<LinkReport>,
    /// Warnings and errors of the run, oldest first.
    pub events: Vec<EventReport>,
    /// How many there are in the database; `events` holds the first thousand.
    #[serde(default)]
    pub events_total: i64,
    /// What is dated on its time line: marks of people and scripts, daemons that started or ended. Oldest first.
    #[serde(default)]
    pub marks: Vec<MarkReport>,
    /// Samples that agents had to give up during the run.
    #[serde(default)]
    pub losses: Vec<LossReport>,
    /// Hosts whose samples of the run's end are not there: what they used in the last step is up to their last sample.
    #[serde(default)]
    pub awaited: Vec<String>,
    /// Who else took CPU time on the clients of steps whose workers had none, or whose tool was the limit.
    #[serde(default)]
    pub busy_others: Vec<BusyOther>,
}

/// Processes of one name that are not watched, in one step on the host of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusyOther {
    pub step_id: StepId,
    pub host: String,
    pub name: String,
    /// Of one CPU, over the whole step; at least.
    pub percent: f64,
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
    /// The tool that measured, with its version; `None`: benchmesh did.
    #[serde(default)]
    pub imported_from: Option<String>,
    /// The plan's text, with what `--set` changed.
    #[serde(default)]
    pub plan: String,
}

/// A dated mark, and what the load did around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkReport {
    pub at_us: i64,
    /// `mark`, or the kind of an event: `daemon-started`, `daemon-stopped`, `carrier-lost`, ...
    pub source: String,
    pub text: String,
    /// The step that was under way.
    pub step_id: Option<StepId>,
    pub ordinal: Option<i64>,
    /// Each operation of that step.
    #[serde(default)]
    pub ops: Vec<MarkedOp>,
}

/// One operation of a step around a mark. The second of the mark itself is the first one of `during`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkedOp {
    pub group: String,
    pub op: String,
    /// The 30 s before.
    pub before: MarkedSpan,
    /// The 10 s from the mark on.
    pub during: MarkedSpan,
    /// The 30 s after those.
    pub after: MarkedSpan,
    /// What was lost in those 40 s; `None`: the step has nothing before the mark to hold them against.
    #[serde(default)]
    pub outage: Option<Outage>,
}

/// What an operation lost from a mark on, against its mean rate before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// The longest time without progress: seconds in a row in which nothing completed, or the slowest operation if that
    /// took longer.
    pub longest_gap_ms: f64,
    /// From the mark to the end of the last second below half of the rate before; 0: none was. `None`: it was still
    /// below at the end.
    pub recovered_s: Option<f64>,
    /// Fewer than at the rate before, until then.
    pub ops_lost: f64,
    /// The slowest, from the instant at which it was due; `None`: the load is not paced.
    pub response_max_ms: Option<f64>,
}

/// Some seconds of one operation; `None`: the step has no such seconds, or nothing completed in them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MarkedSpan {
    pub seconds: f64,
    pub ops_per_s: Option<f64>,
    pub mib_per_s: Option<f64>,
    pub p99_ms: Option<f64>,
}

/// Samples that an agent had to give up because its spool was full.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossReport {
    pub agent: String,
    pub what: String,
    pub rows: i64,
    pub from_us: i64,
    pub until_us: i64,
}

/// One thing that was checked before the figures are shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// `starts`, `caches`, `complete`, ...
    pub name: String,
    pub verdict: Verdict,
    pub text: String,
}

/// What a check came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Checked, and fine.
    Ok,
    /// It was not checked, or cannot be; the text says why.
    NotChecked,
    /// Limits what the figures say.
    Note,
    /// Figures may be wrong or missing.
    Warning,
    /// There are no figures to go by.
    Failed,
}

impl From<FlagSeverity> for Verdict {
    fn from(severity: FlagSeverity) -> Self {
        match severity {
            FlagSeverity::Note => Self::Note,
            FlagSeverity::Warning => Self::Warning,
            FlagSeverity::Failed => Self::Failed,
        }
    }
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
    #[serde(default)]
    pub detail: Option<Value>,
}

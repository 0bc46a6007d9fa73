//! The sections of a report: one file per section, with its data, its query and its tables.
//!
//! A section declares its rows as a struct (the columns of its statement and the keys of the JSON document), the
//! statement, and its tables as columns over those rows. [`super::tables`] defines their order; terminal, Markdown
//! and HTML render all tables in the same way. [`queried`] lists the sections that consist of a query only.
//!
//! [`Report`] is the whole: [`super::load`] reads it, the JSON document contains it, and every renderer takes it. It
//! is plain data with names, and units in the names of fields. Figures that the database does not have are `None`.
//! Fields of later versions have a default, so that a report of an older collector can still be read.

pub(super) mod agents;
pub(super) mod cluster;
pub(super) mod costs;
pub(super) mod curves;
pub(super) mod daemons;
pub(super) mod events;
pub(super) mod findings;
pub(super) mod hosts;
pub(super) mod links;
pub(super) mod loops;
pub(super) mod losses;
pub(super) mod marks;
pub mod pivot;
pub(super) mod queried;
pub(super) mod steps;
pub(super) mod validity;

pub use agents::AgentReport;
pub use benchmesh_results::{Finding, Outage};
pub use cluster::FactReport;
pub use costs::CostReport;
pub use curves::{CurveReport, LoadReport};
pub use daemons::DaemonReport;
pub use events::EventReport;
pub use hosts::{BusyOther, HostReport};
pub use links::LinkReport;
pub use losses::LossReport;
pub use marks::{MarkReport, MarkedOp, MarkedSpan};
pub use pivot::{Field, Measure, PhaseReport, Pivot, PivotCell, PivotFigure};
pub use steps::{
    CLIENTS_LISTED, ClientProgress, ClientReport, ClientsReport, GroupReport, Judged, Line,
    OpReport, ProgressReport, SecondsReport, StepReport, TaskFailure, TrafficReport, load_names,
};
pub use validity::{Check, CheckVerdict};

use super::card::Card;
use crate::compare::Comparison;
use benchmesh_model::mesh::RunId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Changes whenever a field of the JSON document changes its meaning or is removed.
pub const REPORT_FORMAT: u32 = 3;

/// The complete report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_FORMAT`] of the program that created it.
    pub format: u32,
    pub run: RunReport,
    /// The answer in a few lines, with which every output begins.
    #[serde(default)]
    pub card: Card,
    pub agents: Vec<AgentReport>,
    /// The facts that the storage clusters reported about themselves.
    #[serde(default)]
    pub facts: Vec<FactReport>,
    /// The anomalies, and a sentence for each judged kind without one.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// The checks of the figures' validity.
    #[serde(default)]
    pub validity: Vec<Check>,
    /// The targets, each compared with the first of the plan; empty for a single target, and while the run has not
    /// ended.
    #[serde(default)]
    pub comparisons: Vec<Comparison>,
    /// The results in the form of the plan's matrix, with repeats averaged.
    #[serde(default)]
    pub phases: Vec<PhaseReport>,
    /// In the order of the plan; of a step with several attempts, only the last.
    pub steps: Vec<StepReport>,
    /// Load curves, and the loads at which the response time rose above its floor.
    #[serde(default)]
    pub curves: Vec<CurveReport>,
    /// The monitored processes, over all steps.
    pub daemons: Vec<DaemonReport>,
    /// Cost of an operation for the daemons, per step and daemon name.
    pub costs: Vec<CostReport>,
    /// Usage of each sampled host in each step.
    #[serde(default)]
    pub hosts: Vec<HostReport>,
    pub links: Vec<LinkReport>,
    /// Warnings and errors of the run, oldest first.
    pub events: Vec<EventReport>,
    /// The number of events in the database; `events` contains the first thousand.
    #[serde(default)]
    pub events_total: i64,
    /// The marks on its time line: by people and scripts, and daemons that started or ended. Oldest first.
    #[serde(default)]
    pub marks: Vec<MarkReport>,
    /// Samples that agents had to drop during the run.
    #[serde(default)]
    pub losses: Vec<LossReport>,
    /// Hosts with missing samples of the run's end: their usage in the last step ends at their last sample.
    #[serde(default)]
    pub awaited: Vec<String>,
    /// Other processes with high CPU usage on the clients of steps in which the workers lacked CPU time, or the tool
    /// was the limit.
    #[serde(default)]
    pub busy_others: Vec<BusyOther>,
    /// The rows of the sections that consist of a query only ([`queried`]), by their keys: fields of the document
    /// like those above. Also contains fields that a later version may have added to the document.
    #[serde(flatten)]
    pub queried: Map<String, Value>,
}

impl Report {
    /// Whether rates of this phase were increased in steps or searched; these have their own tables and pictures.
    pub fn has_walked_rates(&self, phase: &str) -> bool {
        let searched = |row: &Value| row.get("phase").is_some_and(|of| of == phase);
        self.curves.iter().any(|one| one.phase == phase)
            || self.rows("searches").iter().any(searched)
    }

    /// The rows of a section of [`queried`].
    pub(super) fn rows(&self, key: &str) -> &[Value] {
        let rows = self.queried.get(key).and_then(Value::as_array);
        rows.map_or(&[], Vec::as_slice)
    }
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
    /// The total time of pauses before it was resumed.
    #[serde(default)]
    pub paused_us: i64,
    /// The seed of the random order of its cells.
    #[serde(default)]
    pub order_seed: Option<u32>,
    /// The benchmesh version that measured.
    pub version: String,
    /// The measuring tool with its version; `None` for benchmesh.
    #[serde(default)]
    pub imported_from: Option<String>,
    /// The text of the plan, with the changes of `--set`.
    #[serde(default)]
    pub plan: String,
}

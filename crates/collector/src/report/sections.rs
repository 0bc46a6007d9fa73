//! What a report is made of: one file per section, with what is read, how it is kept and how it is shown.
//!
//! A section declares its rows as a struct (the columns of its statement and the keys of the JSON document), the
//! statement, and its tables as columns over those rows. [`super::tables`] has their order; terminal, Markdown and HTML
//! write every table alike.

pub(super) mod agents;
pub(super) mod clients;
pub(super) mod costs;
pub(super) mod curves;
pub(super) mod daemons;
pub(super) mod events;
pub(super) mod hosts;
pub(super) mod links;
pub(super) mod losses;
pub(super) mod marks;
pub(super) mod steps;
pub(super) mod targets;
pub(super) mod traffic;

pub use agents::AgentReport;
pub use clients::{CLIENTS_LISTED, ClientReport, ClientsReport, SecondsReport};
pub use costs::CostReport;
pub use curves::{CurveReport, LoadReport};
pub use daemons::DaemonReport;
pub use events::EventReport;
pub use hosts::{BusyOther, HostReport};
pub use links::LinkReport;
pub use losses::LossReport;
pub use marks::{MarkReport, MarkedOp, MarkedSpan, Outage};
pub use steps::{GroupReport, Judged, Line, OpReport, StepReport, TaskFailure};
pub use targets::TargetReport;
pub use traffic::TrafficReport;

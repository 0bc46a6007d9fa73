//! A run as series to draw: few enough points for a screen, with the extremes of every second kept.
//!
//! One pass over a run's seconds makes the series of each step; nothing joins one step to the next. Daemons and hosts are read at
//! the edges of the points, so that the cost depends on the picture and not on the run. Their CPU time is exact
//! nevertheless, because it comes from the kernel's cumulative counters. The live page and the report file draw the
//! same values. These values are not results; results are in the tables of a report.

pub mod file;
mod grid;
mod heat;
mod load;
mod overlay;
mod seconds;
mod usage;

pub use file::{card_document, comparison_document, comparison_html, html, report_document};
pub use grid::{Axis, Grid, GridFigure, grids};
pub use load::{PictureError, load, timeline};
pub use overlay::{Overlay, OverlayLine, Overlays, overlays};

use crate::report::{CurveReport, LinkReport, RunReport};
use serde::Serialize;

/// Changes whenever a field changes its meaning or is removed.
pub const PICTURES_FORMAT: u32 = 3;

/// All drawn data of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Pictures {
    pub format: u32,
    pub run: RunReport,
    /// The origin of the seconds in the series.
    pub from_us: i64,
    pub until_us: i64,
    /// The width of a point of daemons and hosts.
    pub bucket_s: f64,
    /// In the order of the plan.
    pub steps: Vec<StepPicture>,
    pub heat: Option<Heat>,
    /// The daemons with the most CPU time in the run's steps.
    pub daemons: Vec<DaemonSeries>,
    /// Number of daemons that are not listed.
    pub daemons_left_out: usize,
    pub hosts: Vec<HostSeries>,
    pub hosts_left_out: usize,
    pub marks: Vec<Mark>,
    pub grids: Vec<Grid>,
    pub curves: Vec<CurveReport>,
    pub links: Vec<LinkReport>,
}

/// One operation over time, in columns of equal length. `None`: not known, or without operations not measured; an
/// operation that moves no bytes has no bytes per second.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OpSeries {
    pub name: String,
    /// The start of each point, in seconds since `from_us`.
    pub at_s: Vec<f64>,
    pub ops_per_s: Vec<Option<f64>>,
    /// The lowest and the highest rate of a second within the point.
    pub ops_least: Vec<Option<f64>>,
    pub ops_most: Vec<Option<f64>>,
    pub mib_per_s: Vec<Option<f64>>,
    /// The mean of the seconds' medians, weighted by operations.
    pub p50_ms: Vec<Option<f64>>,
    /// The mean of the seconds' p99, weighted by operations, and the worst of them.
    pub p99_ms: Vec<Option<f64>>,
    pub p99_most_ms: Vec<Option<f64>>,
    pub max_ms: Vec<Option<f64>>,
    pub errors: Vec<i64>,
}

impl OpSeries {
    /// Adds the later points of another series.
    fn append(&mut self, mut later: Self) {
        self.at_s.append(&mut later.at_s);
        self.ops_per_s.append(&mut later.ops_per_s);
        self.ops_least.append(&mut later.ops_least);
        self.ops_most.append(&mut later.ops_most);
        self.mib_per_s.append(&mut later.mib_per_s);
        self.p50_ms.append(&mut later.p50_ms);
        self.p99_ms.append(&mut later.p99_ms);
        self.p99_most_ms.append(&mut later.p99_most_ms);
        self.max_ms.append(&mut later.max_ms);
        self.errors.append(&mut later.errors);
    }
}

/// One step over time.
#[derive(Clone, Debug, Serialize)]
pub struct StepPicture {
    pub step_id: i64,
    pub ordinal: i64,
    pub title: String,
    /// The load without its target, as in `load_names`: steps of the same load are drawn on each other.
    pub load: String,
    /// Or the links; empty if it has neither.
    pub target: String,
    pub repeat: i64,
    #[serde(rename = "loop")]
    pub loop_number: i64,
    pub state: String,
    pub flags: Vec<String>,
    /// In seconds since the run's `from_us`.
    pub from_s: f64,
    pub until_s: f64,
    pub bucket_s: f64,
    /// One series per group and operation; its seconds too are since the run's `from_us`. Empty in a timeline.
    pub series: Vec<OpSeries>,
}

/// Numbers of operations by duration and time.
#[derive(Clone, Debug, Serialize)]
pub struct Heat {
    pub bucket_s: f64,
    /// The upper bounds of the levels.
    pub levels_ms: Vec<f64>,
    /// Column, level, operations.
    pub cells: Vec<(u32, u32, u64)>,
    /// One second out of this number was counted.
    pub one_of: i64,
}

/// Usage of one daemon.
#[derive(Clone, Debug, Serialize)]
pub struct DaemonSeries {
    pub host: String,
    pub name: String,
    pub instance: String,
    pub pid: i64,
    pub at_s: Vec<f64>,
    /// Over the time to the next point; 100 is one CPU.
    pub cpu_percent: Vec<f64>,
    pub rss_mib: Vec<f64>,
}

/// CPU time of one host.
#[derive(Clone, Debug, Serialize)]
pub struct HostSeries {
    pub host: String,
    pub at_s: Vec<f64>,
    pub busy_percent: Vec<f64>,
    pub iowait_percent: Vec<f64>,
    pub available_mib: Vec<f64>,
}

/// A dated fact on the time axis.
#[derive(Clone, Debug, Serialize)]
pub struct Mark {
    pub at_s: f64,
    pub severity: String,
    /// Kind of the event; `mark` for one by a person or a script.
    pub kind: String,
    pub agent: Option<String>,
    pub message: String,
}

/// The load of a run in total, for the live page.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    pub run_id: i64,
    pub from_us: i64,
    pub until_us: i64,
    pub bucket_s: f64,
    /// All operations together; the latencies are those of the slowest operation.
    pub total: OpSeries,
    /// The indices of the points at which a step begins: no line joins them to the point before.
    pub starts: Vec<usize>,
    pub steps: Vec<StepPicture>,
}

/// Rounds to four significant digits, because more are not visible.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the exponent is clamped to two digits"
)]
pub(crate) fn short(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return 0.0;
    }
    let digits = 3 - value.abs().log10().floor().clamp(-12.0, 15.0) as i32;
    let scale = 10_f64.powi(digits);
    let rounded = (value * scale).round() / scale;
    if digits <= 0 {
        rounded
    } else {
        trim(rounded, digits)
    }
}

/// Removes the digits that the division adds beyond the rounded ones.
fn trim(value: f64, digits: i32) -> f64 {
    let decimals = usize::try_from(digits.min(15)).unwrap_or(0);
    format!("{value:.decimals$}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests;

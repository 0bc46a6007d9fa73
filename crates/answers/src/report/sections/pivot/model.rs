//! The results of a report by phase: small tables of cells, each with the figures of its steps.

/// A figure over the repeats of a cell (docs/compare.md).
pub use benchmesh_results::repeats::RepeatedFigure as PivotFigure;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The tables of one phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseReport {
    pub phase: String,
    pub workload: String,
    pub tables: Vec<Pivot>,
}

/// One table: a cell per row and column.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pivot {
    /// Common values of all its cells that differ from other tables of the phase, such as `mode` = `write`.
    pub fixed: Vec<Field>,
    /// The keys that label the rows.
    pub row_keys: Vec<String>,
    /// A label per row.
    pub rows: Vec<String>,
    /// The keys that label the columns; empty if each column is a figure.
    pub column_keys: Vec<String>,
    /// A label per column; a single empty one if each column is a figure.
    pub columns: Vec<String>,
    /// The main figure of the table. `None` if it differs by row or column, see [`PivotCell::lead`].
    pub lead: Option<Measure>,
    /// Further figures worth showing.
    pub beside: Vec<Measure>,
    /// By row, then by column; `None` if the plan has no such step, or it has no result.
    pub cells: Vec<Vec<Option<PivotCell>>>,
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    pub key: String,
    pub value: String,
}

/// The repeats of one operation with one set of parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PivotCell {
    /// The ordinals of its steps.
    pub steps: Vec<i64>,
    /// Those of its steps that are in no figure: they failed or lost a client, and others are whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<i64>,
    pub lead: Measure,
    pub figures: BTreeMap<Measure, PivotFigure>,
    /// Flags of any of its steps.
    pub flags: Vec<String>,
}

/// A kind of figure, with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    OpsPerS,
    MibPerS,
    /// From the start to the last worker's end, like `time`.
    ElapsedS,
    /// CPU time of the clients' workers.
    UserS,
    SystemS,
    MeanMs,
    P50Ms,
    P99Ms,
    MaxMs,
    ResponseP99Ms,
    /// CPU time of all daemons that serve the target, per operation.
    DaemonUsPerOp,
    /// Variation between seconds: standard deviation of the rate, in percent of its mean.
    UnevenPercent,
    /// Seconds in which nothing completed.
    ZeroSeconds,
    Errors,
    /// Ratio to the rate of the row above, per doubling of the clients.
    PerDoubling,
}

impl Measure {
    /// The heading of a column.
    pub fn title(self) -> &'static str {
        match self {
            Self::OpsPerS => "ops/s",
            Self::MibPerS => "MiB/s",
            Self::ElapsedS => "elapsed s",
            Self::UserS => "user s",
            Self::SystemS => "system s",
            Self::MeanMs => "mean ms",
            Self::P50Ms => "p50 ms",
            Self::P99Ms => "p99 ms",
            Self::MaxMs => "max ms",
            Self::ResponseP99Ms => "response p99 ms",
            Self::DaemonUsPerOp => "daemons us/op",
            Self::UnevenPercent => "uneven %",
            Self::ZeroSeconds => "zero s",
            Self::Errors => "errors",
            Self::PerDoubling => "per doubling",
        }
    }

    /// Whether higher values are better; `None` if neither direction is.
    pub fn more_is_better(self) -> Option<bool> {
        match self {
            Self::OpsPerS | Self::MibPerS | Self::PerDoubling => Some(true),
            Self::UserS | Self::SystemS => None,
            _ => Some(false),
        }
    }
}

impl Pivot {
    /// Whether each column is a different figure.
    pub fn columns_are_figures(&self) -> bool {
        self.column_keys.is_empty()
    }

    /// All cells with their row and column.
    pub fn each_cell(&self) -> impl Iterator<Item = (usize, usize, &PivotCell)> {
        self.cells.iter().enumerate().flat_map(|(row, cells)| {
            let there = cells.iter().enumerate();
            there.filter_map(move |(column, cell)| Some((row, column, cell.as_ref()?)))
        })
    }
}

//! A cell of a comparison: one operation of one step, identified by its key.

use super::figure::FigureName;
use benchmesh_analysis::Series;
use benchmesh_results::repeats::RepeatedFigure;
use serde_json::{Map, Value as Json};
use std::{collections::BTreeMap, sync::Arc};

const NS_PER_MS: f64 = 1e6;
const MIB: f64 = 1_048_576.0;
/// None lost counts as half a datagram, so that a ratio to it exists.
const ZERO_SUBSTITUTE: f64 = 0.5;
/// The resolution of CPU time and traffic per operation, as a ratio.
const COST_RESOLUTION: f64 = 1e-3;
/// In simulations of runs that do not differ, intervals of percentiles from the seconds of a run raise false alarms if
/// fewer operations are above the percentile: 7 % with one, 23 % with half of one.
const MIN_ABOVE: f64 = 3.0;

/// One operation of one step, with its results.
#[derive(Clone, Debug)]
pub(super) struct MeasuredCell {
    /// The cell's step.
    pub step: i64,
    pub run: i64,
    pub repeat: i64,
    pub key: CellKey,
    pub target: String,
    pub flags: Vec<String>,
    pub partial: bool,
    /// Number of clients that contribute to its rate: all of them, or those that stayed to the end; 0 if unknown.
    pub rate_clients: i64,
    /// Events of the mesh and the storage during the step, in words.
    pub events: Vec<String>,
    /// `None` in an imported log that does not count operations.
    pub ops: Option<i64>,
    pub errors: Option<i64>,
    pub ops_per_s: Option<f64>,
    /// Compared where a side has no rate of operations.
    pub bytes_per_s: Option<f64>,
    /// The duration from which the rate was computed, for its resolution.
    pub over_us: Option<f64>,
    pub mean_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p90_ms: Option<f64>,
    pub p95_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub p999_ms: Option<f64>,
    /// Variation of the rate between seconds.
    pub uneven_percent: Option<f64>,
    /// Measured from the intended instant; only for a load with a rate limit.
    pub response_p99_ms: Option<f64>,
    /// All datagrams or requests of its link, of which a part was lost; 0 if unknown.
    pub datagrams: i64,
    /// CPU time of the storage's daemons, by name; stored with the step's most frequent operation.
    pub cpu_us_per_op: BTreeMap<String, f64>,
    /// CPU time of the clients' workers; stored with the most frequent operation of the step, or of its group.
    pub client_us_per_op: Option<f64>,
    /// Bytes that the interfaces of the clients' hosts carried; stored with the step's most frequent operation.
    pub net_bytes_per_op: Option<f64>,
    pub series: Option<Arc<Series>>,
    /// The same seconds with the response times.
    pub response_series: Option<Arc<Series>>,
    pub imported: bool,
}

/// Identity of a cell, without its target and its repeat.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CellKey {
    pub phase: String,
    pub group: String,
    pub workload: String,
    pub mode: String,
    pub op: String,
    pub params: Map<String, Json>,
    pub clients: i64,
    pub cache: String,
    /// For workload `network`: `a -> b`.
    pub link: String,
}

impl MeasuredCell {
    /// `None` if it has no comparable value of this figure.
    pub fn value(&self, figure: FigureName) -> Option<f64> {
        let value = match figure {
            FigureName::Ops => self.ops_per_s,
            FigureName::Bytes => self.bytes_per_s.map(|bytes| bytes / MIB),
            FigureName::Response => self.response_p99_ms,
            FigureName::Mean | FigureName::Jitter => self.mean_ms,
            FigureName::P50 => self.p50_ms,
            FigureName::P90 => self.p90_ms,
            FigureName::P95 => self.p95_ms,
            FigureName::P99 => self.p99_ms,
            FigureName::P999 => self.p999_ms,
            FigureName::Spread => self.uneven_percent,
            FigureName::ClientCpu => self.client_us_per_op,
            FigureName::NetBytes => self.net_bytes_per_op,
            FigureName::Cpu => {
                let costs = &self.cpu_us_per_op;
                (!costs.is_empty()).then(|| costs.values().sum())
            }
            FigureName::Share => {
                let counted = benchmesh_results::real(self.ops?).max(ZERO_SUBSTITUTE);
                let all = benchmesh_results::real(self.datagrams);
                (self.datagrams > 0).then(|| 100.0 * counted / all)
            }
        };
        value.filter(|value| *value > 0.0 && value.is_finite())
    }

    /// The smallest relative change that counts, clocks and the slots of histograms can resolve.
    pub fn resolution(&self, figure: FigureName) -> f64 {
        let one_of = |count: f64| if count > 0.0 { 1.0 / count } else { 0.0 };
        let ops = benchmesh_results::real(self.ops.unwrap_or(0));
        match figure {
            FigureName::Ops => one_of(ops).max(one_of(self.over_us.unwrap_or(0.0))),
            FigureName::Bytes => one_of(self.over_us.unwrap_or(0.0)),
            FigureName::Share => one_of(ops.max(ZERO_SUBSTITUTE)),
            FigureName::Mean | FigureName::Jitter => {
                one_of(self.mean_ms.unwrap_or(0.0) * NS_PER_MS)
            }
            FigureName::P50
            | FigureName::P90
            | FigureName::P95
            | FigureName::P99
            | FigureName::P999
            | FigureName::Response => figure.analysed().resolution(),
            // One operation more or less in a second changes the standard deviation of n seconds by a share of about
            // 1 / (n * deviation).
            FigureName::Spread => one_of(ops * self.uneven_percent.unwrap_or(0.0) / 100.0),
            FigureName::Cpu | FigureName::ClientCpu | FigureName::NetBytes => COST_RESOLUTION,
        }
    }

    /// Whether its operation has a result to compare: a rate, a share or a jitter.
    pub fn has_result(&self) -> bool {
        FigureName::leading(&self.key.op)
            .iter()
            .any(|figure| self.value(*figure).is_some())
    }

    pub fn series_of(&self, figure: FigureName) -> Option<&Series> {
        if self.has_few_above(figure) {
            return None;
        }
        match figure {
            FigureName::Response => self.response_series.as_deref(),
            // The seconds of a count have no total, and those that are read are of operations.
            FigureName::Cpu
            | FigureName::ClientCpu
            | FigureName::NetBytes
            | FigureName::Spread
            | FigureName::Share
            | FigureName::Bytes => None,
            _ => self.series.as_deref(),
        }
    }

    /// Whether too few operations took longer than this percentile for an interval from the seconds of one run.
    pub fn has_few_above(&self, figure: FigureName) -> bool {
        let ops = benchmesh_results::real(self.ops.unwrap_or(0));
        let quantile = figure.analysed().quantile();
        quantile.is_some_and(|quantile| (1.0 - quantile) * ops < MIN_ABOVE)
    }
}

/// The rates of these repeats per contributing client; `None` if one of them is unknown.
pub(super) fn per_client(cells: &[MeasuredCell]) -> Option<Vec<MeasuredCell>> {
    let of = |cell: &MeasuredCell| {
        let clients = benchmesh_results::real(cell.rate_clients);
        (cell.rate_clients > 0 && cell.key.link.is_empty()).then(|| MeasuredCell {
            ops_per_s: cell.ops_per_s.map(|rate| rate / clients),
            bytes_per_s: cell.bytes_per_s.map(|rate| rate / clients),
            ..cell.clone()
        })
    };
    cells.iter().map(of).collect()
}

/// The figure of several repeats; `None` if one of them has none.
pub(super) fn figure_of(figure: FigureName, cells: &[MeasuredCell]) -> Option<RepeatedFigure> {
    let of = |cell: &MeasuredCell| Some((cell.run, cell.value(figure)?));
    let values: Option<Vec<(i64, f64)>> = cells.iter().map(of).collect();
    RepeatedFigure::level(&values?)
}

//! A cell as it is compared: one operation of one step, told from others by its key.

use super::model::FigureName;
use benchmesh_analysis::Series;
use serde_json::{Map, Value as Json};
use std::{collections::BTreeMap, sync::Arc};

/// One operation of one step: what it came to.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    /// The step that it is of.
    pub step: i64,
    pub key: Key,
    pub target: String,
    pub flags: Vec<String>,
    pub partial: bool,
    pub ops: i64,
    pub errors: i64,
    pub ops_per_s: Option<f64>,
    pub mean_ms: Option<f64>,
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    /// Of the storage's daemons, by name; on the operation of a step that there are most of.
    pub cpu_us_per_op: BTreeMap<String, f64>,
    pub series: Option<Arc<Series>>,
    pub imported: bool,
}

/// What a cell is, without its target and its repeat.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub phase: String,
    pub group: String,
    pub workload: String,
    pub mode: String,
    pub op: String,
    pub params: Map<String, Json>,
    pub clients: i64,
    pub cache: String,
    /// network: `a -> b`.
    pub link: String,
}

impl Cell {
    /// `None`: it has no such figure that could be compared.
    pub fn value(&self, figure: FigureName) -> Option<f64> {
        let value = match figure {
            FigureName::Ops => self.ops_per_s,
            FigureName::Mean => self.mean_ms,
            FigureName::P50 => self.p50_ms,
            FigureName::P99 => self.p99_ms,
            FigureName::Cpu => {
                let costs = &self.cpu_us_per_op;
                (!costs.is_empty()).then(|| costs.values().sum())
            }
        };
        value.filter(|value| *value > 0.0 && value.is_finite())
    }
}

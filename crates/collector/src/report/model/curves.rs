//! Curves of a report: the loads of a rate that was walked up.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// A rate that was walked up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CurveReport {
    pub phase: String,
    pub repeat: i64,
    pub target: String,
    pub mode: String,
    pub op: String,
    pub clients: i64,
    /// What the steps have in common, without the rate.
    pub params: Map<String, Value>,
    /// `rate_iops` or `rate`: what was walked up.
    pub key: String,
    /// In rising order.
    pub loads: Vec<LoadReport>,
    /// The response time (p99) at low load.
    pub floor_ms: f64,
    /// The place in `loads` of the highest load at the floor; `None`: no load was.
    pub knee: Option<usize>,
}

/// One load of a curve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    pub ordinal: i64,
    /// As the plan gives it: per worker, task or step.
    pub rate: i64,
    pub ops_per_s: Option<f64>,
    pub response_p50_ms: Option<f64>,
    pub response_p99_ms: f64,
    /// Its step's: what there is to know of it.
    #[serde(default)]
    pub flags: Vec<String>,
}

impl CurveReport {
    /// The highest load at the floor.
    pub fn before(&self) -> Option<&LoadReport> {
        self.loads.get(self.knee?)
    }

    /// The lowest load that has left it for good; `None`: none did.
    pub fn after(&self) -> Option<&LoadReport> {
        self.loads.get(self.knee.map_or(0, |knee| knee + 1))
    }
}

//! Bytes that the load moved on the clients' hosts, and the traffic of their interfaces and disks: bytes per
//! operation, and the part that came from a cache.

use super::StepReport;
use crate::report::row::Statement;
use crate::report::{Report, Table};
use serde::{Deserialize, Serialize};

const MIB: f64 = 1_048_576.0;

/// Bytes that the load on a client's host moved in a step, and the traffic of its interfaces and disks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrafficReport {
    pub host: String,
    pub read_mib: f64,
    pub written_mib: f64,
    pub received_mib: Option<f64>,
    pub sent_mib: Option<f64>,
    pub disk_read_mib: Option<f64>,
    pub disk_written_mib: Option<f64>,
    pub received_bytes_per_op: Option<f64>,
    pub sent_bytes_per_op: Option<f64>,
    /// Percentage of the read bytes.
    pub cached_percent: Option<f64>,
    /// Why it is unknown whether a cache answered.
    pub not_judged: Option<String>,
}

pub(in crate::report) const TRAFFIC: Statement = Statement {
    what: "v_traffic",
    sql: "SELECT * FROM v_traffic WHERE run_id = ? ORDER BY step_id, host, host_id",
};

/// The sums of one mode of a phase on one target. A figure that is missing for one host of a step has no sum.
struct TrafficSum<'r> {
    phase: &'r str,
    target: &'r str,
    mode: &'r str,
    ops: f64,
    read: f64,
    written: f64,
    received: Option<f64>,
    sent: Option<f64>,
    cached: Option<f64>,
}

/// A row per phase, target and mode; `None` if nothing moved.
pub(in crate::report) fn by_mode(report: &Report) -> Option<Table> {
    let mut sums: Vec<TrafficSum<'_>> = Vec::new();
    for step in report.steps.iter().filter(|step| !step.traffic.is_empty()) {
        let own = TrafficSum::of(step);
        let is_same = |sum: &&mut TrafficSum<'_>| sum.key() == own.key();
        match sums.iter_mut().find(is_same) {
            Some(sum) => sum.add(&own),
            None => sums.push(own),
        }
    }
    sums.retain(|sum| sum.read + sum.written > 0.0);
    Table::of("Traffic of the clients", &sums)
        .text("phase", |sum| sum.phase)
        .text("target", |sum| sum.target)
        .text("mode", |sum| sum.mode)
        .rate("received B/op", |sum| per(Some(sum.received? * MIB), sum.ops))
        .rate("sent B/op", |sum| per(Some(sum.sent? * MIB), sum.ops))
        .rate("received / read", |sum| per(sum.received, sum.read))
        .if_any()
        .rate("sent / written", |sum| per(sum.sent, sum.written))
        .if_any()
        .rate("cached %", |sum| per(Some(100.0 * sum.cached?), sum.read))
        .if_any()
        .note(
            "Bytes of all interfaces of the clients' hosts, including the loopback, divided by the load's bytes; \
             cached: bytes that were read but neither received nor, on a local file system, read from a disk. \
             v_traffic has each host.",
        )
        .spare(&["sent / written", "received / read", "phase"])
        .done()
}

fn per(value: Option<f64>, by: f64) -> Option<f64> {
    value.filter(|_| by > 0.0).map(|value| value / by)
}

impl<'r> TrafficSum<'r> {
    fn of(step: &'r StepReport) -> Self {
        let ops = step
            .ops
            .iter()
            .map(|op| benchmesh_results::real(op.ops.unwrap_or(0)));
        let all = |figure: fn(&TrafficReport) -> Option<f64>| -> Option<f64> {
            step.traffic.iter().map(figure).sum()
        };
        Self {
            phase: &step.phase,
            target: &step.target,
            mode: &step.mode,
            ops: ops.sum(),
            read: step.traffic.iter().map(|one| one.read_mib).sum(),
            written: step.traffic.iter().map(|one| one.written_mib).sum(),
            received: all(|one| one.received_mib),
            sent: all(|one| one.sent_mib),
            cached: all(|one| Some(one.cached_percent? / 100.0 * one.read_mib)),
        }
    }

    fn key(&self) -> [&'r str; 3] {
        [self.phase, self.target, self.mode]
    }

    fn add(&mut self, other: &Self) {
        self.ops += other.ops;
        self.read += other.read;
        self.written += other.written;
        for (sum, value) in [
            (&mut self.received, other.received),
            (&mut self.sent, other.sent),
            (&mut self.cached, other.cached),
        ] {
            *sum = sum.zip(value).map(|(sum, value)| sum + value);
        }
    }
}

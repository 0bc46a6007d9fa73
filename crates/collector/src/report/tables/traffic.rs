//! What the load moved on the clients' hosts beside what their interfaces carried: bytes per operation, and what a
//! cache answered.

use super::Table;
use crate::figures;
use crate::report::{Report, StepReport, TrafficReport};
use std::collections::BTreeMap;

/// The sums of one mode of a phase on one target. A figure that one host of a step does not have is none.
#[derive(Default)]
struct Sum {
    ops: f64,
    read: f64,
    written: f64,
    received: Option<f64>,
    sent: Option<f64>,
    cached: Option<f64>,
    is_new: bool,
}

const MIB: f64 = 1_048_576.0;

/// A row per phase, target and mode; `None`: nothing moved.
pub(super) fn by_mode(report: &Report) -> Option<Table> {
    let mut order: Vec<[&str; 3]> = Vec::new();
    let mut sums: BTreeMap<[&str; 3], Sum> = BTreeMap::new();
    for step in report.steps.iter().filter(|step| !step.traffic.is_empty()) {
        let key = [
            step.phase.as_str(),
            step.target.as_str(),
            step.mode.as_str(),
        ];
        let sum = sums.entry(key).or_insert_with(|| {
            order.push(key);
            Sum {
                is_new: true,
                ..Sum::default()
            }
        });
        sum.add(step);
    }
    let rows: Vec<(&[&str; 3], &Sum)> = order
        .iter()
        .filter_map(|key| Some((key, sums.get(key)?)))
        .filter(|(_, sum)| sum.read + sum.written > 0.0)
        .collect();
    if rows.is_empty() {
        return None;
    }
    let figure = |cell: fn(&Sum) -> Option<f64>| -> Vec<String> {
        rows.iter()
            .map(|(_, sum)| figures::maybe_rate(cell(sum)))
            .collect()
    };
    let mut table = Table::titled("Traffic of the clients")
        .text("phase", rows.iter().map(|(key, _)| key[0].to_owned()))
        .text("target", rows.iter().map(|(key, _)| key[1].to_owned()))
        .text("mode", rows.iter().map(|(key, _)| key[2].to_owned()))
        .figures("received B/op", figure(|sum| per(sum.received.map(|mib| mib * MIB), sum.ops)))
        .figures("sent B/op", figure(|sum| per(sum.sent.map(|mib| mib * MIB), sum.ops)))
        .figures_if_any("received / read", figure(|sum| per(sum.received, sum.read)))
        .figures_if_any("sent / written", figure(|sum| per(sum.sent, sum.written)))
        .figures_if_any("cached %", figure(|sum| per(sum.cached.map(|mib| 100.0 * mib), sum.read)))
        .note(
            "Bytes of all interfaces of the clients' hosts, the loopback included, over the load's own; cached: what \
             was read and neither received nor, of a local file system, read from a disk. v_traffic has each host.",
        );
    table.spare = vec!["sent / written", "received / read", "phase"];
    Some(table)
}

fn per(value: Option<f64>, by: f64) -> Option<f64> {
    value.filter(|_| by > 0.0).map(|value| value / by)
}

impl Sum {
    fn add(&mut self, step: &StepReport) {
        let ops = step.ops.iter().map(|op| crate::results::real(op.ops));
        self.ops += ops.sum::<f64>();
        let all = |figure: fn(&TrafficReport) -> Option<f64>| -> Option<f64> {
            step.traffic.iter().map(figure).sum()
        };
        let is_new = std::mem::take(&mut self.is_new);
        let add = |sum: &mut Option<f64>, value: Option<f64>| {
            *sum = match is_new {
                true => value,
                false => sum.zip(value).map(|(sum, value)| sum + value),
            };
        };
        self.read += step.traffic.iter().map(|one| one.read_mib).sum::<f64>();
        self.written += step.traffic.iter().map(|one| one.written_mib).sum::<f64>();
        add(&mut self.received, all(|one| one.received_mib));
        add(&mut self.sent, all(|one| one.sent_mib));
        add(
            &mut self.cached,
            all(|one| Some(one.cached_percent? / 100.0 * one.read_mib)),
        );
    }
}

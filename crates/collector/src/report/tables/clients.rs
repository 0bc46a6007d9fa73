//! Each client's part of each step, and how even each step was from second to second.

use super::Table;
use crate::figures;
use crate::report::{ClientReport, OpReport, Report, SecondsReport, StepReport};

const MIB: f64 = 1_048_576.0;

/// A row per step, operation and client; `None`: no step had more than one.
pub(super) fn each(report: &Report) -> Option<Table> {
    let rows: Vec<(&StepReport, &OpReport, &ClientReport)> = report
        .steps
        .iter()
        .flat_map(|step| step.ops.iter().map(move |op| (step, op)))
        .filter_map(|(step, op)| {
            Some((step, op, op.clients.as_ref().filter(|all| all.clients > 1)?))
        })
        .flat_map(|(step, op, clients)| clients.each.iter().map(move |client| (step, op, client)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let client = |cell: fn(&ClientReport) -> String| -> Vec<String> {
        rows.iter().map(|(.., client)| cell(client)).collect()
    };
    let place = |rate: f64, op: &OpReport| {
        let clients = op.clients.as_ref();
        let mean = clients.map_or(0.0, |all| all.mean_ops_per_s);
        figures::maybe_rate((mean > 0.0).then(|| 100.0 * rate / mean))
    };
    let mut table = Table::titled("Clients in each step")
        .figures(
            "step",
            rows.iter().map(|(step, ..)| step.ordinal.to_string()),
        )
        .text("phase", rows.iter().map(|(step, ..)| step.phase.clone()))
        .text("mode", rows.iter().map(|(step, ..)| step.mode.clone()))
        .text("op", rows.iter().map(|(_, op, _)| op.op.clone()))
        .text("client", client(|one| one.agent.clone()))
        .figures("ops/s", client(|one| figures::rate(one.ops_per_s)))
        .figures(
            "% of mean",
            rows.iter().map(|(_, op, one)| place(one.ops_per_s, op)),
        )
        .figures("MiB/s", client(|one| figures::rate(one.bytes_per_s / MIB)))
        .figures("p50 ms", client(|one| figures::maybe_millis(one.p50_ms)))
        .figures("p99 ms", client(|one| figures::maybe_millis(one.p99_ms)))
        .figures("max ms", client(|one| figures::maybe_millis(one.max_ms)))
        .figures("errors", client(|one| figures::count(one.errors)));
    table.spare = vec!["errors", "p50 ms", "MiB/s", "phase"];
    Some(table)
}

/// What `rados bench` says at its end: mean, standard deviation and extremes of the seconds' rates.
pub(super) fn seconds(report: &Report) -> Option<Table> {
    let rows: Vec<(&StepReport, &OpReport, &SecondsReport)> = report
        .steps
        .iter()
        .flat_map(|step| step.ops.iter().map(move |op| (step, op)))
        .filter_map(|(step, op)| Some((step, op, op.seconds.as_ref()?)))
        .collect();
    if rows.is_empty() {
        return None;
    }
    let step = |cell: fn(&StepReport) -> String| -> Vec<String> {
        rows.iter().map(|(step, ..)| cell(step)).collect()
    };
    let of = |cell: fn(&OpReport, &SecondsReport) -> f64| -> Vec<String> {
        rows.iter()
            .map(|(_, op, seconds)| figures::rate(cell(op, seconds)))
            .collect()
    };
    let mut table = Table::titled("Seconds of each step")
        .figures("step", step(|step| step.ordinal.to_string()))
        .text("phase", step(|step| step.phase.clone()))
        .text_if_any("target", step(|step| step.target.clone()))
        .text("mode", step(|step| step.mode.clone()))
        .text("op", rows.iter().map(|(_, op, _)| op.op.clone()))
        .figures(
            "seconds",
            rows.iter().map(|(.., seconds)| seconds.seconds.to_string()),
        )
        .figures(
            "at zero",
            rows.iter().map(|(.., seconds)| seconds.zero.to_string()),
        )
        .banded(
            "MiB/s",
            "mean",
            of(|op, _| op.bytes_per_s.unwrap_or(0.0) / MIB),
        )
        .banded("MiB/s", "stddev", of(|_, one| one.bytes_per_s_stddev / MIB))
        .banded("MiB/s", "max", of(|_, one| one.bytes_per_s_max / MIB))
        .banded("MiB/s", "min", of(|_, one| one.bytes_per_s_min / MIB))
        .banded("ops/s", "mean", of(|op, _| op.ops_per_s.unwrap_or(0.0)))
        .banded("ops/s", "stddev", of(|_, one| one.ops_per_s_stddev))
        .banded("ops/s", "max", of(|_, one| one.ops_per_s_max))
        .banded("ops/s", "min", of(|_, one| one.ops_per_s_min));
    table.spare = vec!["phase", "op", "target"];
    Some(table.note(format!(
        "Each second, as rados bench prints it: benchmesh query --example rados-bench --run {}.",
        report.run.id
    )))
}

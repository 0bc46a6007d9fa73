//! The figures of one cell: those of its steps over their repeats ([`repeats`]).

use crate::report::{Line, Measure, PivotCell, PivotFigure, Report};
use benchmesh_model::mesh::StepId;
use benchmesh_results::seconds::uneven_percent;
use benchmesh_results::{real, repeats};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const MIB: f64 = 1_048_576.0;
/// Operations that move at least this many bytes are shown as throughput.
const BULK_BYTES: f64 = 65_536.0;
/// Workloads with the elapsed time as the main figure.
const TIMED: [&str; 3] = ["copy", "tree", "fill"];

/// CPU time of all daemons per operation, by step.
pub(super) fn costs_by_step(report: &Report) -> HashMap<StepId, f64> {
    let mut costs: HashMap<StepId, f64> = HashMap::new();
    for cost in &report.costs {
        if let (Some(us), false) = (cost.cpu_us_per_op, cost.target.is_empty()) {
            *costs.entry(cost.step_id).or_default() += us;
        }
    }
    costs
}

/// The main figure of a line: time, throughput or operations.
pub(super) fn lead(line: &Line<'_>) -> Measure {
    if TIMED.contains(&line.workload()) {
        return Measure::ElapsedS;
    }
    let Some(op) = line.op.filter(|op| op.bytes != Some(0)) else {
        return Measure::OpsPerS;
    };
    if op.ops_per_s.is_none() && op.bytes_per_s.is_some() {
        return Measure::MibPerS;
    }
    let Some((ops, bytes)) = op.ops.zip(op.bytes).filter(|(ops, _)| *ops > 0) else {
        return Measure::OpsPerS;
    };
    // One byte per call, but throughput is the relevant figure.
    let by_bytes = matches!(
        op.op.as_str(),
        "putc" | "getc" | "send" | "fwrite" | "fread"
    );
    match by_bytes || real(bytes) / real(ops) >= BULK_BYTES {
        true => Measure::MibPerS,
        false => Measure::OpsPerS,
    }
}

/// The cell of lines that differ only in their repeat or loop; `None` if none of them has a result.
pub(super) fn cell(lines: &[Line<'_>], costs: &HashMap<StepId, f64>) -> Option<PivotCell> {
    let measured: Vec<Line<'_>> = lines
        .iter()
        .filter(|line| line.op.is_some())
        .copied()
        .collect();
    let lead = measured.first().map(lead)?;
    let counted = repeats::counted(&measured, has_rate, |line| {
        repeats::is_whole(line.step.partial, &line.step.flags)
    });
    let mut values: BTreeMap<Measure, Vec<f64>> = BTreeMap::new();
    for (measure, value) in counted.iter().flat_map(|line| figures_of(line, costs)) {
        values.entry(measure).or_default().push(value);
    }
    let flags: BTreeSet<&str> = lines
        .iter()
        .flat_map(|line| {
            let partial = line.step.partial.then_some("partial");
            let flags = line.step.flags.iter().map(String::as_str);
            flags.chain(partial)
        })
        .collect();
    let ordinals = ordinals_of(lines);
    Some(PivotCell {
        left_out: ordinals
            .difference(&ordinals_of(&counted))
            .copied()
            .collect(),
        steps: ordinals.into_iter().collect(),
        lead,
        figures: values
            .iter()
            .filter_map(|(measure, values)| Some((*measure, figure(*measure, values)?)))
            .collect(),
        flags: flags.into_iter().map(str::to_owned).collect(),
    })
}

fn ordinals_of(lines: &[Line<'_>]) -> BTreeSet<i64> {
    lines.iter().map(|line| line.step.ordinal).collect()
}

fn has_rate(line: &Line<'_>) -> bool {
    let rate = line.op.and_then(|op| op.ops_per_s.or(op.bytes_per_s));
    rate.is_some_and(|rate| rate > 0.0)
}

fn figures_of(line: &Line<'_>, costs: &HashMap<StepId, f64>) -> Vec<(Measure, f64)> {
    let Some(op) = line.op else { return Vec::new() };
    let moved = op.bytes != Some(0) && op.op != "ping";
    let uneven = op.seconds.as_ref().and_then(|seconds| {
        uneven_percent(op.ops_per_s?, seconds.ops_per_s_stddev?, seconds.seconds)
    });
    // CPU time of daemons and workers covers all operations and groups of a step together.
    let alone = line.step.ops.len() == 1;
    let of_step = |value: Option<f64>| value.filter(|_| alone);
    [
        (Measure::OpsPerS, op.ops_per_s),
        (
            Measure::MibPerS,
            op.bytes_per_s.filter(|_| moved).map(|bytes| bytes / MIB),
        ),
        (Measure::ElapsedS, op.last_done_s),
        (Measure::UserS, of_step(line.step.cpu_user_s)),
        (Measure::SystemS, of_step(line.step.cpu_system_s)),
        (Measure::MeanMs, op.mean_ms),
        (Measure::P50Ms, op.p50_ms),
        (Measure::P99Ms, op.p99_ms),
        (Measure::MaxMs, op.max_ms),
        (Measure::ResponseP99Ms, op.response_p99_ms),
        (
            Measure::DaemonUsPerOp,
            of_step(costs.get(&line.step.id).copied()),
        ),
        (Measure::UnevenPercent, uneven),
        (
            Measure::ZeroSeconds,
            op.seconds.as_ref().map(|seconds| real(seconds.zero)),
        ),
        (Measure::Errors, op.errors.map(real)),
    ]
    .into_iter()
    .filter_map(|(measure, value)| Some((measure, value?)))
    .filter(|(_, value)| value.is_finite())
    .collect()
}

/// The figure of the repeats.
fn figure(measure: Measure, repeats: &[f64]) -> Option<PivotFigure> {
    let values = repeats.iter().copied();
    match measure {
        Measure::MaxMs => PivotFigure::largest(values),
        Measure::ZeroSeconds | Measure::Errors => PivotFigure::mean(values),
        // A report is of one run.
        _ => PivotFigure::level(&values.map(|value| (0, value)).collect::<Vec<_>>()),
    }
}

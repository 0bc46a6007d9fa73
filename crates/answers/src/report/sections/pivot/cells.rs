//! The figures of one cell: those of its steps, with repeats merged ([`repeats`]).

use crate::report::{Line, Measure, OpReport, PivotCell, PivotFigure, Report};
use benchmesh_model::mesh::StepId;
use benchmesh_results::{real, repeats};
use benchmesh_workloads::histogram::Histogram;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const MIB: f64 = 1_048_576.0;
const NS_PER_MS: f64 = 1e6;
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
    let Some(op) = line.op.filter(|op| op.ops > 0 && op.bytes > 0) else {
        return Measure::OpsPerS;
    };
    // One byte per call, but throughput is the relevant figure.
    let by_bytes = matches!(
        op.op.as_str(),
        "putc" | "getc" | "send" | "fwrite" | "fread"
    );
    match by_bytes || real(op.bytes) / real(op.ops) >= BULK_BYTES {
        true => Measure::MibPerS,
        false => Measure::OpsPerS,
    }
}

/// The cell of lines that differ only in their repeat or loop; `None` if none of them has a result.
pub(super) fn cell(lines: &[Line<'_>], costs: &HashMap<StepId, f64>) -> Option<PivotCell> {
    let mut values: BTreeMap<Measure, Vec<(f64, &OpReport)>> = BTreeMap::new();
    for line in lines {
        for (measure, value) in figures_of(line, costs) {
            let of = line.op.map(|op| (value, op));
            values.entry(measure).or_default().extend(of);
        }
    }
    let lead = lines.iter().find(|line| line.op.is_some()).map(lead)?;
    let flags: BTreeSet<&str> = lines
        .iter()
        .flat_map(|line| {
            let partial = line.step.partial.then_some("partial");
            let flags = line.step.flags.iter().map(String::as_str);
            flags.chain(partial)
        })
        .collect();
    let ordinals: BTreeSet<i64> = lines.iter().map(|line| line.step.ordinal).collect();
    Some(PivotCell {
        steps: ordinals.into_iter().collect(),
        lead,
        figures: values
            .iter()
            .filter_map(|(measure, values)| Some((*measure, figure(*measure, values)?)))
            .collect(),
        flags: flags.into_iter().map(str::to_owned).collect(),
    })
}

fn figures_of(line: &Line<'_>, costs: &HashMap<StepId, f64>) -> Vec<(Measure, f64)> {
    let Some(op) = line.op else { return Vec::new() };
    let moved = op.bytes > 0 && op.op != "ping";
    let uneven = op.seconds.as_ref().and_then(|seconds| {
        let mean = op.ops_per_s.filter(|rate| *rate > 0.0)?;
        (seconds.seconds > 1).then(|| 100.0 * seconds.ops_per_s_stddev / mean)
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
        (Measure::Errors, Some(real(op.errors))),
    ]
    .into_iter()
    .filter_map(|(measure, value)| Some((measure, value?)))
    .filter(|(_, value)| value.is_finite())
    .collect()
}

/// The figure of all repeats together, the sample standard deviation between them, and their extremes.
fn figure(measure: Measure, repeats: &[(f64, &OpReport)]) -> Option<PivotFigure> {
    let values: Vec<f64> = repeats.iter().map(|(value, _)| *value).collect();
    let n = u32::try_from(values.len()).ok().filter(|n| *n > 0)?;
    let mean = values.iter().sum::<f64>() / f64::from(n);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let merged = match measure {
        Measure::MaxMs => Some(max),
        _ if n == 1 => None,
        _ => merged(measure, repeats),
    };
    Some(PivotFigure {
        n,
        value: merged.unwrap_or(mean),
        stddev: (n > 1).then(|| (squares / f64::from(n - 1)).sqrt()),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max,
    })
}

/// `None` for a figure of a whole repeat, which is averaged.
fn merged(measure: Measure, all: &[(f64, &OpReport)]) -> Option<f64> {
    let by = |weight: fn(&OpReport) -> Option<f64>| {
        let parts: Vec<(f64, Option<f64>)> =
            all.iter().map(|(value, op)| (*value, weight(op))).collect();
        repeats::weighted(&parts)
    };
    let of =
        |slots: fn(&OpReport) -> &[(u64, u64)], most: fn(&OpReport) -> Option<f64>, quantile| {
            // Decoded one at a time, because a histogram takes far more memory than its slots.
            let histograms = all.iter().map(|(_, op)| histogram(slots(op)));
            let ns = repeats::percentile(histograms, quantile);
            let ms = ns
                .and_then(|ns| i64::try_from(ns).ok())
                .map(|ns| real(ns) / NS_PER_MS);
            // The upper bound of a slot exceeds the largest value in it.
            let most = all
                .iter()
                .filter_map(|(_, op)| most(op))
                .fold(f64::NAN, f64::max);
            let values: Vec<f64> = all.iter().map(|(value, _)| *value).collect();
            Some(ms.map_or_else(|| repeats::geometric(&values), |ms| ms.min(most)))
        };
    match measure {
        Measure::OpsPerS | Measure::MibPerS => by(|op| op.over_s),
        Measure::MeanMs | Measure::DaemonUsPerOp => by(|op| Some(real(op.ops))),
        Measure::P50Ms => of(|op| &op.service_slots, |op| op.max_ms, 0.5),
        Measure::P99Ms => of(|op| &op.service_slots, |op| op.max_ms, 0.99),
        Measure::ResponseP99Ms => of(|op| &op.response_slots, |op| op.response_max_ms, 0.99),
        _ => None,
    }
}

fn histogram(slots: &[(u64, u64)]) -> Option<Histogram> {
    let mut histogram = Histogram::new();
    for (ns, count) in slots {
        histogram.record_many(*ns, *count);
    }
    (!slots.is_empty()).then_some(histogram)
}

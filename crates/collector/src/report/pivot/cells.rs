//! The figures of one cell: those of its steps, averaged over the repeats.

use crate::model::StepId;
use crate::report::{Cell, Figure, Line, Measure, Report};
use crate::results::real;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const MIB: f64 = 1_048_576.0;
/// Operations that move at least so much are judged by their bytes.
const BULK_BYTES: f64 = 65_536.0;
/// Workloads whose question is how long the whole takes.
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

/// What a line is about: its time, its bytes or its operations.
pub(super) fn lead(line: &Line<'_>) -> Measure {
    if TIMED.contains(&line.workload()) {
        return Measure::ElapsedS;
    }
    let Some(op) = line.op.filter(|op| op.ops > 0 && op.bytes > 0) else {
        return Measure::OpsPerS;
    };
    // One byte per call, and yet the question is how many bytes per second.
    let by_bytes = matches!(
        op.op.as_str(),
        "putc" | "getc" | "send" | "fwrite" | "fread"
    );
    match by_bytes || real(op.bytes) / real(op.ops) >= BULK_BYTES {
        true => Measure::MibPerS,
        false => Measure::OpsPerS,
    }
}

/// The cell of lines that differ in their repeat alone; `None`: none of them has a result.
pub(super) fn cell(lines: &[Line<'_>], costs: &HashMap<StepId, f64>) -> Option<Cell> {
    let mut values: BTreeMap<Measure, Vec<f64>> = BTreeMap::new();
    for line in lines {
        for (measure, value) in figures_of(line, costs) {
            values.entry(measure).or_default().push(value);
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
    Some(Cell {
        steps: ordinals.into_iter().collect(),
        lead,
        figures: values
            .iter()
            .filter_map(|(measure, values)| Some((*measure, figure(values)?)))
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
    // Daemons serve all operations and groups of a step at once, and so does the workers' CPU time.
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

/// Mean, sample standard deviation and extremes.
pub(super) fn figure(values: &[f64]) -> Option<Figure> {
    let n = u32::try_from(values.len()).ok().filter(|n| *n > 0)?;
    let mean = values.iter().sum::<f64>() / f64::from(n);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Some(Figure {
        n,
        mean,
        stddev: (n > 1).then(|| (squares / f64::from(n - 1)).sqrt()),
        min: values.iter().copied().fold(f64::INFINITY, f64::min),
        max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
    })
}

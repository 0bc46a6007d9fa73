//! `rados bench`: its line per second, and the summary at its end.

use super::{Hints, ImportError, ImportedLog, ImportedOp, ImportedSecond, ImportedStep, at, nanos};
use serde_json::{Map, Value};
use std::collections::HashMap;

/// rados bench's MB is 2^20 bytes.
const MIB: f64 = 1_048_576.0;
const SECOND_US: i64 = 1_000_000;

#[derive(Default)]
struct Bench {
    mode: String,
    concurrent: Option<i64>,
    seconds: Vec<(i64, i64, Option<f64>)>,
    summary: HashMap<String, String>,
}

pub(super) fn parse(log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let mut benches: Vec<Bench> = Vec::new();
    let mut current = Bench::default();
    let mut lines = 0;
    for (number, line) in log.lines().enumerate() {
        lines = number + 1;
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("Maintaining ") {
            current.concurrent = rest
                .split_once(' ')
                .and_then(|(count, _)| count.parse().ok());
            current.mode = String::from("write");
        } else if let Some((name, value)) = line.split_once(':')
            && !line.starts_with(|c: char| c.is_ascii_digit())
        {
            let (name, value) = (name.trim().to_lowercase(), value.trim());
            if name == "total time run" && current.summary.contains_key(&name) {
                benches.push(std::mem::take(&mut current));
            }
            current.summary.insert(name, value.to_owned());
        } else if line.starts_with("sec ") || line.starts_with("hints") {
            if current.summary.contains_key("total time run") {
                benches.push(std::mem::take(&mut current));
            }
        } else if let Some(second) = second(line) {
            current
                .seconds
                .push(second.map_err(|what| at(lines, what))?);
        }
    }
    benches.push(current);
    let mut steps = Vec::new();
    let mut begun_us = 0_i64;
    for bench in &benches {
        let step = step(bench).map_err(|what| at(lines, what))?;
        begun_us = begun_us.saturating_add(step.lasted_us);
        steps.push(ImportedStep {
            at_us: begun_us.saturating_sub(step.lasted_us),
            ..step
        });
    }
    Ok(ImportedLog {
        tool: String::from("rados bench"),
        started_us: hints.written_us.saturating_sub(begun_us),
        steps,
    })
}

type SecondLine = (i64, i64, Option<f64>);

/// `   1      16        26        10   39.9939        40    0.912     0.711`: second, in flight, started, finished,
/// mean MB/s, MB/s, last and mean latency. `None` for another kind of line.
fn second(line: &str) -> Option<Result<SecondLine, String>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [sec, in_flight, started, finished, _, _, last, ..] = words.as_slice() else {
        return None;
    };
    let (sec, _, _) = (
        sec.parse::<i64>().ok()?,
        in_flight.parse::<i64>().ok()?,
        started.parse::<i64>().ok()?,
    );
    let finished = match finished.parse::<i64>() {
        Ok(finished) => finished,
        Err(_) => return Some(Err(format!("{finished:?} is no count of operations"))),
    };
    Some(Ok((sec, finished, last.parse::<f64>().ok())))
}

fn step(bench: &Bench) -> Result<ImportedStep, String> {
    let given = |names: &[&str]| -> Option<f64> {
        names.iter().find_map(|name| {
            let value = bench.summary.get(*name)?;
            value.split_whitespace().next()?.parse().ok()
        })
    };
    let need = |names: &[&str]| {
        given(names).ok_or_else(|| {
            let name = names.first().copied().unwrap_or_default();
            format!("the summary has no \"{name}\": the log is cut off")
        })
    };
    let seconds = need(&["total time run"])?;
    let (mode, op, ops) = match (given(&["total writes made"]), given(&["total reads made"])) {
        (Some(writes), _) => ("write", "write", writes),
        (None, Some(reads)) => ("read", "read", reads),
        (None, None) => {
            return Err(String::from(
                "the summary has neither \"Total writes made\" nor \"Total reads made\": the log is cut off",
            ));
        }
    };
    let object = need(&["object size", "write size", "read size"])?;
    let bandwidth = need(&["bandwidth (mb/sec)"])?;
    let mean = need(&["average latency(s)", "average latency"])?;
    let mut params = Map::new();
    params.insert(String::from("bs"), Value::from(nanos(object)));
    if let Some(concurrent) = bench.concurrent {
        params.insert(String::from("iodepth"), Value::from(concurrent));
    }
    // The last line of the summary.
    need(&["min latency(s)", "min latency"])?;
    let ns = |name: &str, other: &str| given(&[name, other]).map(|seconds| seconds * 1e9);
    let mut finished = 0;
    let mut rows = Vec::new();
    for (sec, all, last) in &bench.seconds {
        // The first line, for second 0, contains no data.
        if *sec > 0 {
            let ops = all.saturating_sub(finished);
            rows.push(ImportedSecond {
                op: op.to_owned(),
                at_us: sec.saturating_sub(1).saturating_mul(SECOND_US),
                span_us: SECOND_US,
                ops: Some(ops),
                bytes: Some(ops.saturating_mul(nanos(object))),
                mean_ns: last.filter(|_| ops == 1).map(|last| last * 1e9),
            });
        }
        finished = *all;
    }
    Ok(ImportedStep {
        phase: String::from("rados bench"),
        workload: String::from("io"),
        mode: mode.to_owned(),
        params,
        lasted_us: nanos(seconds * 1e6),
        tasks: 1,
        ops: vec![ImportedOp {
            op: op.to_owned(),
            ops: Some(nanos(ops)),
            bytes: Some(nanos(ops * object)),
            ops_per_s: Some(ops / seconds),
            bytes_per_s: Some(bandwidth * MIB),
            mean_ns: Some(mean * 1e9),
            stddev_ns: ns("stddev latency(s)", "stddev latency"),
            min_ns: ns("min latency(s)", "min latency").map(nanos),
            max_ns: ns("max latency(s)", "max latency").map(nanos),
            ..ImportedOp::default()
        }],
        seconds: rows,
        ..ImportedStep::default()
    })
}

//! `fio --output-format=json` (and json+), fio 3.x: a step per job, completion latencies.

use super::{ImportError, ImportedLog, ImportedOp, ImportedStep, at, json, nanos};
use serde_json::{Map, Value};

/// Options that describe the load.
const KEYS: [&str; 14] = [
    "bs",
    "size",
    "iodepth",
    "numjobs",
    "direct",
    "ioengine",
    "runtime",
    "ramp_time",
    "rate",
    "rate_iops",
    "rwmixread",
    "fsync",
    "time_based",
    "filesize",
];

pub(super) fn parse(log: &str) -> Result<ImportedLog, ImportError> {
    let (whole, line) = json::document(log, "run fio with --output-format=json")?;
    let fault = |what: &str| at(line, what);
    let version = whole.get("fio version").and_then(Value::as_str);
    let version = version
        .and_then(|version| version.strip_prefix("fio-"))
        .ok_or_else(|| fault("there is no \"fio version\": another tool wrote this"))?;
    if !version.starts_with("3.") {
        return Err(fault(&format!(
            "fio {version} is not known here; fio 3.x is"
        )));
    }
    let jobs = whole.get("jobs").and_then(Value::as_array).ok_or_else(|| {
        fault("there are no \"jobs\": fio --client output is not read, the servers' own is")
    })?;
    let ended_ms = whole
        .get("timestamp_ms")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let global = whole.get("global options").and_then(Value::as_object);
    let mut steps: Vec<ImportedStep> = Vec::new();
    for job in jobs {
        let step = step(job, global).map_err(|what| fault(&what))?;
        // Identical jobs of one group ran at once; without group_reporting fio lists each separately.
        let twin = steps.iter_mut().find(|one| {
            one.phase == step.phase && one.mode == step.mode && one.params == step.params
        });
        match twin {
            Some(twin) => add(twin, &step),
            None => steps.push(step),
        }
    }
    let longest = steps.iter().map(|step| step.lasted_us).max().unwrap_or(0);
    Ok(ImportedLog {
        tool: format!("fio {version}"),
        started_us: ended_ms.saturating_mul(1000).saturating_sub(longest),
        steps,
    })
}

fn step(job: &Value, global: Option<&Map<String, Value>>) -> Result<ImportedStep, String> {
    let name = job
        .get("jobname")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .ok_or("a job has no \"jobname\"")?;
    let own = job.get("job options").and_then(Value::as_object);
    let option = |key: &str| -> Option<&str> {
        let places = [own, global].into_iter().flatten();
        places
            .filter_map(|options| options.get(key)?.as_str())
            .next()
    };
    let mut params = Map::new();
    for key in KEYS {
        if let Some(value) = option(key) {
            params.insert(key.to_owned(), param(key, value));
        }
    }
    let mut step = ImportedStep {
        phase: name.to_owned(),
        workload: "io".to_owned(),
        mode: option("rw")
            .or(option("readwrite"))
            .unwrap_or("read")
            .to_owned(),
        params,
        tasks: 1,
        partial: job.get("error").and_then(Value::as_i64).unwrap_or(0) != 0,
        ..ImportedStep::default()
    };
    for op in ["read", "write", "trim"] {
        let Some(side) = job.get(op).and_then(Value::as_object) else {
            continue;
        };
        let count = |key: &str| side.get(key).and_then(Value::as_i64);
        let ops =
            count("total_ios").ok_or_else(|| format!("job {name}: {op} has no \"total_ios\""))?;
        if ops == 0 {
            continue;
        }
        let lasted_us = count("runtime").unwrap_or(0).saturating_mul(1000);
        step.lasted_us = step.lasted_us.max(lasted_us);
        step.ops.push(
            operation(op, ops, side, job)
                .ok_or_else(|| format!("job {name}: {op} lacks its figures"))?,
        );
    }
    match step.ops.is_empty() {
        true => Err(format!("job {name} did nothing")),
        false => Ok(step),
    }
}

fn operation(op: &str, ops: i64, side: &Map<String, Value>, job: &Value) -> Option<ImportedOp> {
    let real = |key: &str| side.get(key).and_then(Value::as_f64);
    let errors = job.get("total_err").and_then(Value::as_i64).unwrap_or(0);
    // fio reports percentiles of one kind of latency: take the mean and the others of the same kind.
    let latencies = ["clat_ns", "lat_ns"]
        .iter()
        .filter_map(|kind| side.get(*kind)?.as_object())
        .find(|kind| kind.contains_key("percentile"))
        .or_else(|| side.get("clat_ns")?.as_object());
    let latency = |key: &str| latencies?.get(key)?.as_f64();
    let percentile = |key: &str| latencies?.get("percentile")?.get(key)?.as_i64();
    Some(ImportedOp {
        op: op.to_owned(),
        ops,
        bytes: side.get("io_bytes")?.as_i64()?,
        errors,
        ops_per_s: Some(real("iops")?),
        bytes_per_s: Some(real("bw_bytes")?),
        mean_ns: latency("mean"),
        stddev_ns: latency("stddev"),
        min_ns: latency("min").map(nanos),
        p50_ns: percentile("50.000000"),
        p90_ns: percentile("90.000000"),
        p95_ns: percentile("95.000000"),
        p99_ns: percentile("99.000000"),
        p999_ns: percentile("99.900000"),
        max_ns: latency("max").map(nanos),
    })
}

/// Converts an option to a plan value: flags become true or false, counts numbers, sizes and spans text.
fn param(key: &str, value: &str) -> Value {
    match (key, value) {
        ("direct" | "time_based", "1" | "true" | "") => Value::Bool(true),
        ("direct" | "time_based", "0" | "false") => Value::Bool(false),
        ("iodepth" | "numjobs" | "rate_iops" | "rwmixread" | "fsync", value) => value
            .parse::<i64>()
            .map_or_else(|_| Value::from(value), Value::from),
        // fio reads a bare number as seconds.
        ("runtime" | "ramp_time", value) if value.parse::<u64>().is_ok() => {
            Value::from(format!("{value}s"))
        }
        (_, value) => Value::from(value),
    }
}

/// Adds counts and rates of simultaneous jobs; their percentiles cannot be added and are dropped.
fn add(sum: &mut ImportedStep, other: &ImportedStep) {
    sum.tasks += 1;
    sum.partial |= other.partial;
    sum.lasted_us = sum.lasted_us.max(other.lasted_us);
    for op in &other.ops {
        let Some(into) = sum.ops.iter_mut().find(|one| one.op == op.op) else {
            sum.ops.push(op.clone());
            continue;
        };
        // Jobs without operations have no mean.
        let share = |ops: i64| crate::real(ops);
        into.mean_ns = into.mean_ns.zip(op.mean_ns).map(|(a, b)| {
            (a * share(into.ops) + b * share(op.ops)) / (share(into.ops) + share(op.ops))
        });
        into.mean_ns = into.mean_ns.filter(|mean| mean.is_finite());
        into.ops = into.ops.saturating_add(op.ops);
        into.bytes = into.bytes.saturating_add(op.bytes);
        into.errors = into.errors.saturating_add(op.errors);
        let plus = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        into.ops_per_s = plus(into.ops_per_s, op.ops_per_s);
        into.bytes_per_s = plus(into.bytes_per_s, op.bytes_per_s);
        into.min_ns = into.min_ns.zip(op.min_ns).map(|(a, b)| a.min(b));
        into.max_ns = into.max_ns.zip(op.max_ns).map(|(a, b)| a.max(b));
        into.stddev_ns = None;
        into.p50_ns = None;
        into.p90_ns = None;
        into.p95_ns = None;
        into.p99_ns = None;
        into.p999_ns = None;
    }
}

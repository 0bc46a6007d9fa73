//! `fio --output-format=json` (and json+), fio 3.x, also of `fio --client`: a step per job, completion latencies.

use super::{ImportError, ImportedLog, ImportedOp, ImportedStep, at, json, nanos};
use benchmesh_model::fio::{FioRole, FioValue, fio_option};
use serde_json::{Map, Value};

/// Name of the job that sums those of several hosts.
const ALL_CLIENTS: &str = "All clients";

pub(super) fn parse(log: &str) -> Result<ImportedLog, ImportError> {
    let documents = json::documents(log, "run fio with --output-format=json")?;
    let mut calls = Vec::with_capacity(documents.len());
    for (whole, line) in &documents {
        calls.push(call(whole).map_err(|what| at(*line, what))?);
    }
    Ok(json::in_one_log(calls))
}

/// One call of fio: its log with the steps' times relative to its own start.
fn call(whole: &Value) -> Result<ImportedLog, String> {
    let version = whole.get("fio version").and_then(Value::as_str);
    let version = version
        .and_then(|version| version.strip_prefix("fio-"))
        .ok_or("there is no \"fio version\": another tool wrote this")?;
    if !version.starts_with("3.") {
        return Err(format!("fio {version} is not known here; fio 3.x is"));
    }
    let list = |key: &str| whole.get(key).and_then(Value::as_array);
    let jobs = list("jobs")
        .or_else(|| list("client_stats"))
        .ok_or("there are neither \"jobs\" nor \"client_stats\"")?;
    let ended_ms = whole
        .get("timestamp_ms")
        .and_then(Value::as_i64)
        .unwrap_or(0);
    let global = whole.get("global options").and_then(Value::as_object);
    let (sums, jobs): (Vec<&Value>, Vec<&Value>) = (jobs.iter())
        .partition(|job| job.get("jobname").and_then(Value::as_str) == Some(ALL_CLIENTS));
    let mut groups: Vec<Group<'_>> = Vec::new();
    for job in jobs {
        let next = Group::of(job, global)?;
        // Identical jobs of one group ran at once; without group_reporting fio lists each separately.
        match groups.iter_mut().find(|one| one.is_same_load(&next)) {
            Some(twin) => twin.add(next),
            None => groups.push(next),
        }
    }
    // Only fio itself can merge the percentiles of several hosts.
    if let ([sum], [only]) = (sums.as_slice(), groups.as_mut_slice()) {
        only.step.ops = ops(sum, &only.step.phase, &only.step.mode)?;
    }
    let first_ms = groups.iter().filter_map(|group| group.start_ms).min();
    let steps: Vec<ImportedStep> = groups
        .into_iter()
        .map(|group| {
            let after_ms = group.start_ms.zip(first_ms).map(|(at, first)| at - first);
            ImportedStep {
                at_us: after_ms.unwrap_or(0).saturating_mul(1000),
                ..group.step
            }
        })
        .collect();
    let lasted = |step: &ImportedStep| step.at_us.saturating_add(step.lasted_us);
    let longest = steps.iter().map(lasted).max().unwrap_or(0);
    Ok(ImportedLog {
        tool: format!("fio {version}"),
        started_us: ended_ms.saturating_mul(1000).saturating_sub(longest).max(0),
        steps,
    })
}

/// Jobs of the same load that ran at once.
struct Group<'j> {
    id: Option<i64>,
    hosts: Vec<&'j str>,
    /// fio 3.36 and later.
    start_ms: Option<i64>,
    step: ImportedStep,
}

impl<'j> Group<'j> {
    fn of(job: &'j Value, global: Option<&Map<String, Value>>) -> Result<Self, String> {
        let whole = |key: &str| job.get(key).and_then(Value::as_i64);
        let host = job.get("hostname").and_then(Value::as_str);
        Ok(Self {
            id: whole("groupid"),
            hosts: host.into_iter().collect(),
            start_ms: whole("job_start").filter(|at| *at > 0),
            step: step(job, global)?,
        })
    }

    fn is_same_load(&self, other: &Self) -> bool {
        let (a, b) = (&self.step, &other.step);
        self.id == other.id && a.phase == b.phase && a.mode == b.mode && a.params == b.params
    }

    fn add(&mut self, other: Self) {
        add(&mut self.step, &other.step);
        self.start_ms = self.start_ms.zip(other.start_ms).map(|(a, b)| a.min(b));
        for host in other.hosts {
            if !self.hosts.contains(&host) {
                self.hosts.push(host);
            }
        }
        self.step.clients = i64::try_from(self.hosts.len())
            .ok()
            .filter(|hosts| *hosts > 1);
    }
}

fn step(job: &Value, global: Option<&Map<String, Value>>) -> Result<ImportedStep, String> {
    let name = job
        .get("jobname")
        .and_then(Value::as_str)
        .filter(|name| !name.is_empty())
        .ok_or("a job has no \"jobname\"")?;
    let own = job.get("job options").and_then(Value::as_object);
    let options = || [global, own].into_iter().flatten().flatten();
    let places = || [own, global].into_iter().flatten();
    let option = |key: &str| places().find_map(|options| options.get(key)?.as_str());
    let mut params = Map::new();
    for (key, value) in options() {
        let value = value.as_str().unwrap_or_default();
        match fio_option(key).map(|option| option.role) {
            Some(FioRole::Place | FioRole::NotTheLoad(_)) => {}
            Some(FioRole::Load(kind)) => {
                params.insert(key.clone(), param(kind, value));
            }
            Some(FioRole::Settled(_) | FioRole::Unknown(_)) | None => {
                params.insert(key.clone(), param(FioValue::Number, value));
            }
        }
    }
    if let Some(buffered) = option("buffered") {
        params.insert(String::from("direct"), Value::Bool(buffered == "0"));
    }
    let rw = option("rw").or(option("readwrite")).unwrap_or("read");
    // `randread:8`: eight blocks in a row at each random place.
    let (mode, in_a_row) = rw.split_once(':').unwrap_or((rw, ""));
    if let Ok(in_a_row) = in_a_row.parse::<i64>() {
        params.insert(String::from("blocks-in-a-row"), Value::from(in_a_row));
    }
    let error = job.get("error").and_then(Value::as_i64).unwrap_or(0);
    let ops = ops(job, name, mode)?;
    let runtime = |side: &str| job.get(side)?.get("runtime")?.as_i64();
    let lasted_ms = SIDES.iter().filter_map(|side| runtime(side)).max();
    if ops.is_empty() && error == 0 {
        return Err(format!("job {name} has neither read nor written"));
    }
    Ok(ImportedStep {
        phase: name.to_owned(),
        workload: String::from("io"),
        mode: mode.to_owned(),
        params,
        lasted_us: lasted_ms.unwrap_or(0).saturating_mul(1000),
        tasks: 1,
        failed: (error != 0).then(|| system_error(error)),
        ops,
        ..ImportedStep::default()
    })
}

fn system_error(number: i64) -> String {
    match i32::try_from(number) {
        Ok(number) => std::io::Error::from_raw_os_error(number).to_string(),
        Err(_) => format!("error {number}"),
    }
}

/// What fio reports separately; `mixed` takes the place of the others with `unified_rw_reporting`.
const SIDES: [&str; 4] = ["read", "write", "trim", "mixed"];

/// The operations of a job. One that is of the job's mode counts even if it never ended.
fn ops(job: &Value, name: &str, mode: &str) -> Result<Vec<ImportedOp>, String> {
    let mut ops = Vec::new();
    for op in SIDES {
        let Some(side) = job.get(op).and_then(Value::as_object) else {
            continue;
        };
        // `unified_rw_reporting=both` repeats the sum.
        if op == "mixed" && !ops.is_empty() {
            continue;
        }
        let total = side.get("total_ios").and_then(Value::as_i64);
        let total = total.ok_or_else(|| format!("job {name}: {op} has no \"total_ios\""))?;
        if total > 0 || mode.trim_start_matches("rand") == op {
            let op = operation(op, total, side, job);
            ops.push(op.ok_or_else(|| format!("job {name}: {mode} lacks its figures"))?);
        }
    }
    Ok(ops)
}

fn operation(op: &str, ops: i64, side: &Map<String, Value>, job: &Value) -> Option<ImportedOp> {
    let real = |key: &str| side.get(key).and_then(Value::as_f64);
    // fio reports percentiles of one kind of latency: take the mean and the others of the same kind. A kind without
    // samples (gtod_reduce, disable_clat) was not measured.
    let measured = |kind: &&Map<String, Value>| kind.get("N").and_then(Value::as_i64) != Some(0);
    let kinds = || {
        ["clat_ns", "lat_ns"]
            .iter()
            .filter_map(|kind| side.get(*kind)?.as_object())
            .filter(measured)
    };
    let latencies = kinds()
        .find(|kind| kind.contains_key("percentile"))
        .or_else(|| kinds().next());
    let latency = |key: &str| latencies?.get(key)?.as_f64();
    let percentile = |key: &str| latencies?.get("percentile")?.get(key)?.as_i64();
    Some(ImportedOp {
        op: op.to_owned(),
        ops: Some(ops),
        bytes: Some(side.get("io_bytes")?.as_i64()?),
        errors: job.get("total_err").and_then(Value::as_i64),
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
fn param(kind: FioValue, value: &str) -> Value {
    match (kind, value) {
        (FioValue::Flag, "1" | "true" | "") => Value::Bool(true),
        (FioValue::Flag, "0" | "false") => Value::Bool(false),
        (FioValue::Sync, "1") => Value::from("sync"),
        (FioValue::Sync, "0") => Value::from("none"),
        // fio reads a bare number as seconds.
        (FioValue::Time, value) if value.parse::<u64>().is_ok() => Value::from(format!("{value}s")),
        (FioValue::Text, value) => Value::from(value),
        (_, value) => value
            .parse::<i64>()
            .map_or_else(|_| Value::from(value), Value::from),
    }
}

/// Adds counts of simultaneous jobs. Their rate is their work over the time of the longest, as in fio's own sum; their
/// percentiles cannot be added and are dropped.
fn add(sum: &mut ImportedStep, other: &ImportedStep) {
    sum.tasks += 1;
    if sum.failed.is_none() {
        sum.failed.clone_from(&other.failed);
    }
    sum.lasted_us = sum.lasted_us.max(other.lasted_us);
    for op in &other.ops {
        match sum.ops.iter_mut().find(|one| one.op == op.op) {
            Some(into) => add_op(into, op),
            None => sum.ops.push(op.clone()),
        }
    }
    let seconds = crate::real(sum.lasted_us) / 1e6;
    let rate = |count: Option<i64>| Some(crate::real(count?) / seconds);
    for op in &mut sum.ops {
        op.ops_per_s = rate(op.ops).filter(|rate| rate.is_finite());
        op.bytes_per_s = rate(op.bytes).filter(|rate| rate.is_finite());
    }
}

fn add_op(into: &mut ImportedOp, op: &ImportedOp) {
    // Jobs without operations have no mean.
    let share = |ops: Option<i64>| crate::real(ops.unwrap_or(0));
    let (a, b) = (share(into.ops), share(op.ops));
    let mean = into.mean_ns.zip(op.mean_ns);
    let mean = mean.map(|(mean, other)| (mean * a + other * b) / (a + b));
    let plus = |a: Option<i64>, b: Option<i64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
    *into = ImportedOp {
        op: op.op.clone(),
        ops: plus(into.ops, op.ops),
        bytes: plus(into.bytes, op.bytes),
        errors: plus(into.errors, op.errors),
        mean_ns: mean.filter(|mean| mean.is_finite()),
        min_ns: into.min_ns.zip(op.min_ns).map(|(a, b)| a.min(b)),
        max_ns: into.max_ns.zip(op.max_ns).map(|(a, b)| a.max(b)),
        ..ImportedOp::default()
    };
}

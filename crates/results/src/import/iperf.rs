//! `iperf3 --json`: a step per log, with its seconds. TCP logs contain sent and received bytes, UDP logs also loss and
//! jitter.

use super::{ImportError, ImportedLog, ImportedOp, ImportedSecond, ImportedStep, at, json, nanos};
use serde_json::{Map, Value};

pub(super) fn parse(log: &str) -> Result<ImportedLog, ImportError> {
    let (whole, line) = json::document(log, "run iperf3 with --json")?;
    let fault = |what: String| at(line, what);
    let start = whole.get("start").ok_or_else(|| {
        fault(String::from(
            "there is no \"start\": another tool wrote this",
        ))
    })?;
    let version = start
        .get("version")
        .and_then(Value::as_str)
        .and_then(|version| version.strip_prefix("iperf "))
        .ok_or_else(|| {
            fault(String::from(
                "there is no version of iperf3: another tool wrote this",
            ))
        })?;
    if !version.starts_with("3.") {
        return Err(fault(format!("iperf {version} is not known; 3.x is")));
    }
    let step = step(&whole).map_err(fault)?;
    let began_s = start.pointer("/timestamp/timesecs").and_then(Value::as_i64);
    Ok(ImportedLog {
        tool: format!("iperf3 {version}"),
        started_us: began_s.unwrap_or(0).saturating_mul(1_000_000),
        steps: vec![step],
    })
}

fn step(whole: &Value) -> Result<ImportedStep, String> {
    if let Some(error) = whole.get("error").and_then(Value::as_str) {
        return Err(format!("iperf3 has failed: {error}"));
    }
    let test = whole
        .pointer("/start/test_start")
        .ok_or("there is no \"test_start\": the test had not begun")?;
    let count = |key: &str| test.get(key).and_then(Value::as_i64);
    let udp = test.get("protocol").and_then(Value::as_str) == Some("UDP");
    let mut params = Map::new();
    for (key, from) in [("bs", "blksize"), ("streams", "num_streams")] {
        if let Some(value) = count(from) {
            params.insert(key.to_owned(), Value::from(value));
        }
    }
    let reverse = count("reverse") == Some(1);
    if reverse {
        params.insert(String::from("reverse"), Value::from(true));
    }
    let ops = match udp {
        true => datagrams(whole)?,
        false => vec![
            stream("send", whole.pointer("/end/sum_sent"))?,
            stream("receive", whole.pointer("/end/sum_received"))?,
        ],
    };
    let side = if reverse { "receive" } else { "send" };
    let lasted_s = whole
        .pointer("/end/sum_sent/seconds")
        .or_else(|| whole.pointer("/end/sum/seconds"))
        .and_then(Value::as_f64)
        .unwrap_or(0.0);
    Ok(ImportedStep {
        phase: String::from("iperf3"),
        workload: String::from("network"),
        mode: String::from(if udp { "udp-stream" } else { "throughput" }),
        params,
        lasted_us: nanos(lasted_s * 1e6),
        tasks: 1,
        ops,
        seconds: seconds(whole, side),
        ..ImportedStep::default()
    })
}

fn stream(op: &str, sum: Option<&Value>) -> Result<ImportedOp, String> {
    let given = |key: &str| sum?.get(key);
    let bytes = given("bytes").and_then(Value::as_i64);
    let bits_per_s = given("bits_per_second").and_then(Value::as_f64);
    let (bytes, bits_per_s) = bytes
        .zip(bits_per_s)
        .ok_or_else(|| format!("the end has no sum of what was {op}: the test did not end"))?;
    Ok(ImportedOp {
        op: op.to_owned(),
        bytes,
        bytes_per_s: Some(bits_per_s / 8.0),
        ..ImportedOp::default()
    })
}

fn datagrams(whole: &Value) -> Result<Vec<ImportedOp>, String> {
    let sum = whole.pointer("/end/sum");
    let number = |key: &str| sum?.get(key)?.as_f64();
    let packets = |key: &str| number(key).map(nanos);
    let mut sent = stream("send", sum)?;
    sent.ops = packets("packets").unwrap_or(0);
    let mut ops = vec![sent];
    if let Some(lost) = packets("lost_packets") {
        ops.push(ImportedOp {
            op: String::from("lost"),
            ops: lost,
            ..ImportedOp::default()
        });
    }
    if let Some(jitter_ms) = number("jitter_ms") {
        ops.push(ImportedOp {
            op: String::from("jitter"),
            mean_ns: Some(jitter_ms * 1e6),
            ..ImportedOp::default()
        });
    }
    Ok(ops)
}

fn seconds(whole: &Value, op: &str) -> Vec<ImportedSecond> {
    let intervals = whole.get("intervals").and_then(Value::as_array);
    let sums = intervals
        .into_iter()
        .flatten()
        .filter_map(|one| one.get("sum"));
    sums.filter(|sum| sum.get("omitted").and_then(Value::as_bool) != Some(true))
        .filter_map(|sum| {
            let real = |key: &str| sum.get(key)?.as_f64();
            Some(ImportedSecond {
                op: op.to_owned(),
                at_us: nanos(real("start")? * 1e6),
                span_us: nanos(real("seconds")? * 1e6),
                ops: sum.get("packets").and_then(Value::as_i64).unwrap_or(0),
                bytes: sum.get("bytes")?.as_i64()?,
                mean_ns: None,
            })
        })
        .collect()
}

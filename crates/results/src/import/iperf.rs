//! `iperf3 --json`: a step per test, with its seconds; two for `--bidir`, one for each direction. TCP logs contain sent
//! and received bytes but no operations, UDP logs also datagrams, loss and jitter.

use super::{ImportError, ImportedLog, ImportedOp, ImportedSecond, ImportedStep, at, json, nanos};
use serde_json::{Map, Value};

pub(super) fn parse(log: &str) -> Result<ImportedLog, ImportError> {
    let documents = json::documents(log, "run iperf3 with --json")?;
    let mut tests = Vec::with_capacity(documents.len());
    for (whole, line) in &documents {
        tests.push(test(whole).map_err(|what| at(*line, what))?);
    }
    Ok(json::in_one_log(tests))
}

fn test(whole: &Value) -> Result<ImportedLog, String> {
    let start = whole
        .get("start")
        .ok_or("there is no \"start\": another tool wrote this")?;
    let version = start
        .get("version")
        .and_then(Value::as_str)
        .and_then(|version| version.strip_prefix("iperf "))
        .ok_or("there is no version of iperf3: another tool wrote this")?;
    if !version.starts_with("3.") {
        return Err(format!("iperf {version} is not known; 3.x is"));
    }
    let began_s = start.pointer("/timestamp/timesecs").and_then(Value::as_i64);
    Ok(ImportedLog {
        tool: format!("iperf3 {version}"),
        started_us: began_s.unwrap_or(0).saturating_mul(1_000_000),
        steps: steps(whole)?,
    })
}

/// The sums of one direction, by their names in the log.
struct Direction {
    is_reverse: bool,
    sent: String,
    received: String,
    of_both: String,
    of_interval: String,
}

impl Direction {
    /// The first, or only, direction.
    fn first(is_reverse: bool) -> Self {
        Self::named(is_reverse, "")
    }

    /// The other direction of `--bidir`: with keys of its own, or with those of the first one again (3.7 to 3.10).
    fn other(whole: &Value) -> Option<Self> {
        let suffixes = ["_bidir_reverse", json::AGAIN];
        let given = suffixes.into_iter().find(|suffix| {
            let has = |sum: &str| whole.pointer(&format!("/end/{sum}{suffix}")).is_some();
            has("sum_sent") || has("sum")
        })?;
        Some(Self::named(true, given))
    }

    fn named(is_reverse: bool, suffix: &str) -> Self {
        Self {
            is_reverse,
            sent: format!("sum_sent{suffix}"),
            received: format!("sum_received{suffix}"),
            of_both: format!("sum{suffix}"),
            of_interval: format!("sum{suffix}"),
        }
    }
}

fn steps(whole: &Value) -> Result<Vec<ImportedStep>, String> {
    let test = whole.pointer("/start/test_start");
    if let Some(error) = whole.get("error").and_then(Value::as_str) {
        let failed = ImportedStep {
            failed: Some(error.to_owned()),
            ..described(test.unwrap_or(&Value::Null))
        };
        return Ok(vec![failed]);
    }
    let test = test.ok_or("there is no \"test_start\": the test had not begun")?;
    let is_reverse = test.get("reverse").and_then(Value::as_i64) == Some(1);
    let first = Direction::first(is_reverse);
    let other = Direction::other(whole);
    let is_bidir = other.is_some();
    [Some(first), other]
        .into_iter()
        .flatten()
        .map(|direction| {
            let mut step = step(whole, test, &direction)?;
            let flags = [("reverse", direction.is_reverse), ("bidir", is_bidir)];
            for (key, _) in flags.into_iter().filter(|(_, is_set)| *is_set) {
                step.params.insert(key.to_owned(), Value::from(true));
            }
            Ok(step)
        })
        .collect()
}

fn is_udp(test: &Value) -> bool {
    test.get("protocol").and_then(Value::as_str) == Some("UDP")
}

/// A step with what the log says of the test, without figures.
fn described(test: &Value) -> ImportedStep {
    let mut params = Map::new();
    for (key, from) in [
        ("bs", "blksize"),
        ("streams", "num_streams"),
        ("target-bits-per-s", "target_bitrate"),
        ("tos", "tos"),
    ] {
        let value = test.get(from).and_then(Value::as_i64);
        if let Some(value) = value.filter(|value| *value > 0) {
            params.insert(key.to_owned(), Value::from(value));
        }
    }
    ImportedStep {
        phase: String::from("iperf3"),
        workload: String::from("network"),
        mode: String::from(match is_udp(test) {
            true => "udp-stream",
            false => "throughput",
        }),
        params,
        tasks: 1,
        ..ImportedStep::default()
    }
}

fn step(whole: &Value, test: &Value, direction: &Direction) -> Result<ImportedStep, String> {
    let end = |sum: &str| whole.get("end").and_then(|end| end.get(sum));
    let ops = match is_udp(test) {
        true => datagrams(
            end(&direction.of_both).or_else(|| end(&direction.sent)),
            end(&direction.received),
        )?,
        false => vec![
            stream("send", end(&direction.sent))?,
            stream("receive", end(&direction.received))?,
        ],
    };
    let side = match direction.is_reverse {
        true => "receive",
        false => "send",
    };
    let lasted_s = end(&direction.sent)
        .or_else(|| end(&direction.of_both))
        .and_then(|sum| sum.get("seconds")?.as_f64());
    Ok(ImportedStep {
        lasted_us: nanos(lasted_s.unwrap_or(0.0) * 1e6),
        ops,
        seconds: seconds(whole, &direction.of_interval, side),
        ..described(test)
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
        bytes: Some(bytes),
        bytes_per_s: Some(bits_per_s / 8.0),
        ..ImportedOp::default()
    })
}

/// Datagrams sent, received, and lost, and their jitter. `received` has bytes only in later versions of iperf3.
fn datagrams(sum: Option<&Value>, received: Option<&Value>) -> Result<Vec<ImportedOp>, String> {
    let number = |sum: Option<&Value>, key: &str| sum?.get(key)?.as_f64();
    let seen = received.or(sum);
    let packets = number(sum, "packets").map(nanos);
    let lost = number(seen, "lost_packets").map(nanos);
    let mut sent = stream("send", sum)?;
    let per_s = |count: Option<i64>| {
        let seconds = number(sum, "seconds").filter(|seconds| *seconds > 0.0)?;
        Some(crate::real(count?) / seconds)
    };
    sent.ops = packets;
    sent.ops_per_s = per_s(packets);
    let arrived = packets
        .zip(lost)
        .map(|(packets, lost)| packets.saturating_sub(lost));
    let mut ops = vec![sent];
    if arrived.is_some() || received.is_some() {
        ops.push(ImportedOp {
            op: String::from("receive"),
            ops: arrived,
            ops_per_s: per_s(arrived),
            ..stream("receive", received).unwrap_or_default()
        });
    }
    if lost.is_some() {
        ops.push(ImportedOp {
            op: String::from("lost"),
            ops: lost,
            ops_per_s: per_s(lost),
            ..ImportedOp::default()
        });
    }
    if let Some(jitter_ms) = number(seen, "jitter_ms") {
        ops.push(ImportedOp {
            op: String::from("jitter"),
            mean_ns: Some(jitter_ms * 1e6),
            ..ImportedOp::default()
        });
    }
    Ok(ops)
}

fn seconds(whole: &Value, sum: &str, op: &str) -> Vec<ImportedSecond> {
    let intervals = whole.get("intervals").and_then(Value::as_array);
    let sums = intervals
        .into_iter()
        .flatten()
        .filter_map(|one| one.get(sum));
    sums.filter(|sum| sum.get("omitted").and_then(Value::as_bool) != Some(true))
        .filter_map(|sum| {
            let real = |key: &str| sum.get(key)?.as_f64();
            Some(ImportedSecond {
                op: op.to_owned(),
                at_us: nanos(real("start")? * 1e6),
                span_us: nanos(real("seconds")? * 1e6),
                ops: sum.get("packets").and_then(Value::as_i64),
                bytes: Some(sum.get("bytes")?.as_i64()?),
                mean_ns: None,
            })
        })
        .collect()
}

//! `dd` of GNU coreutils: three lines on standard error per call, in any language: two counts of records, in and out,
//! and bytes with the time. The output does not contain the direction.

use super::{Hints, ImportError, ImportedLog, ImportedOp, ImportedStep, at, nanos};
use serde_json::{Map, Value};

pub(super) fn parse(log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let mut steps = Vec::new();
    let mut records: Option<(usize, Records)> = None;
    let mut begun_us = 0_i64;
    for (number, line) in log.lines().enumerate() {
        let number = number + 1;
        let line = line.trim();
        if let Some(counts) = counts(line) {
            let counted = Records::parse(counts)
                .ok_or_else(|| at(number, format!("{counts:?} is no count of records")))?;
            // The counts of records read come first and are replaced by those written.
            records = Some((number, counted));
        } else if let Some((bytes, seconds)) = copied(line) {
            let (_, records) = records
                .take()
                .ok_or_else(|| at(number, "no line with the written records before this one"))?;
            let step = step(&records, bytes, seconds, &hints.mode);
            steps.push(ImportedStep {
                at_us: begun_us,
                ..step
            });
            begun_us = begun_us.saturating_add(nanos(seconds * 1e6));
        }
    }
    match records {
        Some((line, ..)) => Err(at(
            line,
            "dd's line with the bytes and the time does not follow: the log is cut off",
        )),
        None => Ok(ImportedLog {
            tool: String::from("dd"),
            started_us: hints.written_us.saturating_sub(begun_us),
            steps,
        }),
    }
}

/// Whether a line is from dd, in any language.
pub(super) fn is_result(line: &str) -> bool {
    copied(line.trim()).is_some()
}

/// `1024+1 records out`: full records and partial ones.
struct Records {
    full: i64,
    part: i64,
    all: i64,
}

impl Records {
    fn parse(counts: &str) -> Option<Self> {
        let (full, part) = counts.split_once('+')?;
        let full: i64 = full.parse().ok()?;
        let part: i64 = part.parse().ok()?;
        let all = full.checked_add(part)?;
        Some(Self { full, part, all })
    }
}

/// The counts of a line such as `1024+1 records out`.
fn counts(line: &str) -> Option<&str> {
    let (counts, _) = line.split_once(' ')?;
    let (full, part) = counts.split_once('+')?;
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (is_digits(full) && is_digits(part)).then_some(counts)
}

/// `1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1.2345 s, 870 MB/s`,
/// `1073741824 Bytes (1,1 GB, 1,0 GiB) kopiert, 1,2345 s, 870 MB/s`
fn copied(line: &str) -> Option<(i64, f64)> {
    let bytes = line.split_once(' ')?.0.parse().ok()?;
    let (rest, rate) = line.rsplit_once(", ")?;
    let time = rest.rsplit_once(", ")?.1;
    let seconds: f64 = time.split(' ').next()?.replace(',', ".").parse().ok()?;
    (seconds > 0.0 && rate.contains('/')).then_some((bytes, seconds))
}

fn step(records: &Records, bytes: i64, seconds: f64, mode: &str) -> ImportedStep {
    let real = crate::real;
    let mut params = Map::new();
    if records.full > 0 && records.part == 0 && bytes % records.full == 0 {
        params.insert(String::from("bs"), Value::from(bytes / records.full));
    }
    params.insert(String::from("size"), Value::from(bytes));
    let ops = records.all;
    ImportedStep {
        phase: String::from("dd"),
        workload: String::from("io"),
        mode: mode.to_owned(),
        params,
        lasted_us: nanos(seconds * 1e6),
        tasks: 1,
        ops: vec![ImportedOp {
            op: mode.to_owned(),
            ops,
            bytes,
            ops_per_s: Some(real(ops) / seconds),
            bytes_per_s: Some(real(bytes) / seconds),
            mean_ns: (ops > 0).then(|| seconds * 1e9 / real(ops)),
            ..ImportedOp::default()
        }],
        ..ImportedStep::default()
    }
}

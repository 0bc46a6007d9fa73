//! `dd` of GNU coreutils: three lines on standard error per call, in any language: two counts of records, in and out,
//! and bytes with the time. The output does not contain the direction. Lines of `status=progress` are skipped: no
//! counts of records precede them.

use super::failure;
use super::{Hints, ImportError, ImportedLog, ImportedOp, ImportedStep, at, nanos};
use serde_json::{Map, Value};

pub(super) fn parse(log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let mut steps = Vec::new();
    let mut records: Option<(usize, Records)> = None;
    let mut failed: Option<String> = None;
    let mut begun_us = 0_i64;
    for (number, line) in lines(log) {
        if let Some(counts) = counts(line) {
            let counted = Records::parse(counts)
                .ok_or_else(|| at(number, format!("{counts:?} is no count of records")))?;
            // The counts of records read come first and are replaced by those written.
            records = Some((number, counted));
        } else if let Some((bytes, seconds)) = copied(line) {
            let Some((_, records)) = records.take() else {
                continue;
            };
            let step = step(&records, bytes, seconds, &hints.mode);
            steps.push(ImportedStep {
                at_us: begun_us,
                failed: failed.take(),
                ..step
            });
            begun_us = begun_us.saturating_add(nanos(seconds * 1e6));
        } else if line.starts_with("dd: ") && !is_warning(line) {
            // Counts follow an error while copying, but none follow a file that cannot be opened.
            let alone = match line.starts_with("dd: failed to open") {
                true => Some(failure::words(line)),
                false => failed.replace(failure::words(line)),
            };
            steps.extend(alone.map(|failure| ImportedStep {
                at_us: begun_us,
                failed: Some(failure),
                ..no_records(&hints.mode)
            }));
        }
    }
    // The log ends after the failure.
    if let Some(failed) = failed {
        steps.push(ImportedStep {
            at_us: begun_us,
            failed: Some(failed),
            ..no_records(&hints.mode)
        });
    }
    match records {
        Some((line, ..)) => Err(at(
            line,
            "dd's line with the bytes and the time does not follow: the log is cut off",
        )),
        None if steps.is_empty() => Err(at(
            log.lines().count().max(1),
            "dd's counts of records, its last lines, are not there: the log is cut off, or dd ran with status=none",
        )),
        None => Ok(ImportedLog {
            tool: String::from("dd"),
            started_us: hints.written_us.saturating_sub(begun_us),
            steps,
        }),
    }
}

/// Lines with their numbers; `status=progress` returns to the beginning of its line.
fn lines(log: &str) -> impl Iterator<Item = (usize, &str)> {
    log.lines().enumerate().flat_map(|(number, line)| {
        let parts = line.split('\r').map(str::trim);
        parts.map(move |part| (number + 1, part))
    })
}

/// Whether a line is from dd, in any language.
pub(super) fn is_result(line: &str) -> bool {
    line.split('\r').any(|part| copied(part.trim()).is_some())
}

/// A warning in any language: the one of partial reads names the option that avoids them.
fn is_warning(line: &str) -> bool {
    line.contains("warning") || line.contains("fullblock")
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

/// The counts of a line such as `1024+1 records out`, at any place in it, with any space around it.
fn counts(line: &str) -> Option<&str> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_counts = |word: &&str| {
        word.split_once('+')
            .is_some_and(|(full, part)| is_digits(full) && is_digits(part))
    };
    let mut found = words(line).filter(is_counts);
    let counts = found.next()?;
    found.next().is_none().then_some(counts)
}

/// Languages separate words by spaces of any kind, and by nothing where digits meet letters of another script.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_graphic() && c != '(' && c != ')'))
        .filter(|word| !word.is_empty())
}

/// `1073741824 bytes (1.1 GB, 1.0 GiB) copied, 1.2345 s, 870 MB/s`,
/// `1073741824 Bytes (1,1 GB, 1,0 GiB) kopiert, 1,2345 s, 870 MB/s`, with the bytes at any place before the time, and
/// with the comma of any script.
fn copied(line: &str) -> Option<(i64, f64)> {
    let line = line.replace(['，', '،', '、'], ", ");
    let (rest, rate) = line.rsplit_once(", ")?;
    let (before, time) = rest.rsplit_once(", ")?;
    let bytes = words(before).find_map(|word| word.parse().ok())?;
    let seconds = words(time).next()?.replace(',', ".");
    let seconds: f64 = seconds.parse().ok()?;
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
        params,
        lasted_us: nanos(seconds * 1e6),
        ops: vec![ImportedOp {
            op: mode.to_owned(),
            ops: Some(ops),
            bytes: Some(bytes),
            ops_per_s: Some(real(ops) / seconds),
            bytes_per_s: Some(real(bytes) / seconds),
            mean_ns: (ops > 0).then(|| seconds * 1e9 / real(ops)),
            ..ImportedOp::default()
        }],
        ..no_records(mode)
    }
}

fn no_records(mode: &str) -> ImportedStep {
    ImportedStep {
        phase: String::from("dd"),
        workload: String::from("io"),
        mode: mode.to_owned(),
        tasks: 1,
        ..ImportedStep::default()
    }
}

//! Imports output of other tools as runs: pure parsers, one module each, and their common types.
//!
//! A figure is taken from the log and converted to our units without rounding; figures missing in a log stay absent and
//! are never guessed. What a log says about its load becomes a parameter, under the plan's key if there is one and
//! otherwise under the tool's. A log that is truncated, of another tool or of an unknown version is refused as a whole,
//! with the invalid line; a log in which the tool reports a failure becomes a failed step.

mod bonnie;
mod dd;
mod elbencho;
mod failure;
mod fio;
mod iozone;
mod iperf;
mod json;
mod rados;
mod time;

use benchmesh_model::text::is_hidden;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fmt;

/// Maximum size of a log.
pub const MAX_LOG_BYTES: u64 = 64 << 20;

/// Maximum plausible count, 288 petabytes or 9 years in nanoseconds: sums of several stay within 64 bits.
const LARGEST: i64 = 1 << 58;
/// The year 2200: sums of an instant and of counts stay within 64 bits.
const LATEST_US: i64 = 7_258_118_400_000_000;
/// Limit of short words: operations, workloads, modes, the tool.
const MAX_WORD_BYTES: usize = 256;
/// Limit of the names of phases.
const MAX_PHASE_BYTES: usize = 1024;
/// Limit of the text of a failure.
const MAX_FAILURE_BYTES: usize = 1024;

/// A tool with a supported output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    Fio,
    Bonnie,
    Rados,
    Dd,
    Iozone,
    Elbencho,
    Iperf3,
    Time,
}

impl Tool {
    pub const ALL: [Self; 8] = [
        Self::Fio,
        Self::Bonnie,
        Self::Rados,
        Self::Dd,
        Self::Iozone,
        Self::Elbencho,
        Self::Iperf3,
        Self::Time,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Bonnie => "bonnie++",
            Self::Rados => "rados bench",
            Self::Dd => "dd",
            Self::Iozone => "iozone",
            Self::Elbencho => "elbencho",
            Self::Iperf3 => "iperf3",
            Self::Time => "time",
        }
    }

    /// The tool that wrote a log, recognised by text that only this tool writes.
    pub fn of(log: &str) -> Option<Self> {
        let has = |text: &str| log.contains(text);
        if has("\"fio version\"") {
            Some(Self::Fio)
        } else if has("\"iperf 3") {
            Some(Self::Iperf3)
        } else if iozone::is_log(log) {
            Some(Self::Iozone)
        } else if log.lines().any(elbencho::is_header) {
            Some(Self::Elbencho)
        } else if log.lines().any(bonnie::is_result) || has("--Sequential Output--") {
            Some(Self::Bonnie)
        } else if has("Total time run:") || has("Cur ops") && has("finished") {
            Some(Self::Rados)
        } else if log.lines().any(dd::is_result) || has("records out") || has("records in") {
            Some(Self::Dd)
        } else if log.lines().any(time::is_result) {
            Some(Self::Time)
        } else {
            None
        }
    }
}

/// Facts that the log itself does not contain.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    /// Direction in which `dd` or `time cp` moved data: `read` or `write`.
    pub mode: String,
    /// When the log was written, if it contains no date.
    pub written_us: i64,
}

/// The content of one log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ImportedLog {
    /// `fio 3.33`
    pub tool: String,
    pub started_us: i64,
    pub steps: Vec<ImportedStep>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportedStep {
    pub phase: String,
    pub workload: String,
    pub mode: String,
    pub params: Map<String, Value>,
    /// Relative to the log's start.
    pub at_us: i64,
    pub lasted_us: i64,
    pub tasks: i64,
    /// Number of hosts that created the load; 1 if the log does not contain it.
    #[serde(default)]
    pub clients: Option<i64>,
    /// The failure that the tool reported, in its words.
    #[serde(default)]
    pub failed: Option<String>,
    pub ops: Vec<ImportedOp>,
    pub seconds: Vec<ImportedSecond>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportedOp {
    pub op: String,
    pub ops: Option<i64>,
    pub bytes: Option<i64>,
    pub errors: Option<i64>,
    pub ops_per_s: Option<f64>,
    pub bytes_per_s: Option<f64>,
    pub mean_ns: Option<f64>,
    pub stddev_ns: Option<f64>,
    pub min_ns: Option<i64>,
    pub p50_ns: Option<i64>,
    pub p90_ns: Option<i64>,
    pub p95_ns: Option<i64>,
    pub p99_ns: Option<i64>,
    pub p999_ns: Option<i64>,
    pub max_ns: Option<i64>,
}

/// One second of a step, for tools that report seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImportedSecond {
    pub op: String,
    /// Relative to the step's start.
    pub at_us: i64,
    pub span_us: i64,
    pub ops: Option<i64>,
    pub bytes: Option<i64>,
    pub mean_ns: Option<f64>,
}

/// Why a log is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportError {
    /// Line number from 1; `None` for the log as a whole.
    pub line: Option<usize>,
    pub what: String,
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

impl std::error::Error for ImportError {}

fn at(line: usize, what: impl Into<String>) -> ImportError {
    ImportError {
        line: Some(line),
        what: what.into(),
    }
}

/// Reads a log of a tool.
pub fn parse(tool: Tool, log: &str, hints: &Hints) -> Result<ImportedLog, ImportError> {
    let parsed = match tool {
        Tool::Fio => fio::parse(log),
        Tool::Bonnie => bonnie::parse(log, hints),
        Tool::Rados => rados::parse(log, hints),
        Tool::Dd => dd::parse(log, hints),
        Tool::Iozone => iozone::parse(log, hints),
        Tool::Elbencho => elbencho::parse(log, hints),
        Tool::Iperf3 => iperf::parse(log),
        Tool::Time => time::parse(log, hints),
    };
    // rados warns in the system's words (a missing keyring) and goes on; its summary says that it ended.
    let failure = failure::reported(tool, log).filter(|_| tool != Tool::Rados || parsed.is_err());
    let imported = match failure {
        Some(failure) => failure::failed_log(tool, parsed, failure, hints),
        None => parsed?,
    };
    check(&imported)?;
    Ok(imported)
}

/// Refuses impossible figures and words, wherever the log was parsed: the collector does not trust its clients.
pub fn check(log: &ImportedLog) -> Result<(), ImportError> {
    let whole = |what| ImportError { line: None, what };
    if log.steps.is_empty() {
        let what = format!("{} has written no result into this log", log.tool);
        return Err(whole(what));
    }
    if let Some((what, found)) = impossible(log) {
        return Err(whole(format!(
            "{what} of a result is {found}, which is impossible: the log is damaged"
        )));
    }
    match not_a_word(log) {
        Some(what) => Err(whole(format!(
            "{what} is empty, too long or has control characters"
        ))),
        None => Ok(()),
    }
}

/// Returns the first invalid text.
fn not_a_word(log: &ImportedLog) -> Option<&'static str> {
    let word = |what, text: &str, most| {
        let is_word = !text.is_empty() && text.len() <= most && !text.chars().any(is_hidden);
        (!is_word).then_some(what)
    };
    let ops = |step: &ImportedStep| {
        let of_ops = step.ops.iter().map(|op| &op.op);
        let mut all = of_ops.chain(step.seconds.iter().map(|second| &second.op));
        all.find_map(|op| word("an operation", op, MAX_WORD_BYTES))
    };
    word("the tool", &log.tool, MAX_WORD_BYTES).or_else(|| {
        log.steps.iter().find_map(|step| {
            let failed = step.failed.as_ref();
            word("a phase", &step.phase, MAX_PHASE_BYTES)
                .or_else(|| word("a failure", failed?, MAX_FAILURE_BYTES))
                .or_else(|| word("a workload", &step.workload, MAX_WORD_BYTES))
                .or_else(|| word("a mode", &step.mode, MAX_WORD_BYTES))
                .or_else(|| ops(step))
        })
    })
}

/// Returns the first figure outside the possible range, with its name.
fn impossible(log: &ImportedLog) -> Option<(&'static str, String)> {
    let whole =
        |what, found: i64| (!(0..=LARGEST).contains(&found)).then(|| (what, found.to_string()));
    let real = |what, found: Option<f64>| {
        let found = found.filter(|found| !(found.is_finite() && *found >= 0.0))?;
        Some((what, found.to_string()))
    };
    let of_op = |op: &ImportedOp| {
        let counts = [("ops", op.ops), ("bytes", op.bytes), ("errors", op.errors)];
        let counts = counts
            .into_iter()
            .filter_map(|(what, count)| Some((what, count?)));
        let rates = [
            ("the rate of operations", op.ops_per_s),
            ("the rate of bytes", op.bytes_per_s),
            ("the mean latency", op.mean_ns),
            ("the deviation of latencies", op.stddev_ns),
        ];
        let latencies = [
            op.min_ns, op.p50_ns, op.p90_ns, op.p95_ns, op.p99_ns, op.p999_ns, op.max_ns,
        ];
        let latencies = latencies.into_iter().flatten();
        let mut counts = counts;
        (counts.find_map(|(what, found)| whole(what, found)))
            .or_else(|| {
                rates
                    .into_iter()
                    .find_map(|(what, found)| real(what, found))
            })
            .or_else(|| {
                latencies
                    .into_iter()
                    .find_map(|found| whole("a latency", found))
            })
    };
    let of_second = |second: &ImportedSecond| {
        let times = [Some(second.at_us), Some(second.span_us)];
        let counts = times.into_iter().chain([second.ops, second.bytes]);
        (counts.flatten().find_map(|found| whole("a second", found)))
            .or_else(|| (second.span_us == 0).then(|| ("a second", "0".to_owned())))
            .or_else(|| real("a second's mean latency", second.mean_ns))
    };
    let of_steps = || {
        log.steps.iter().find_map(|step| {
            let clients = step.clients.unwrap_or(1);
            whole("the start", step.at_us)
                .or_else(|| whole("the number of hosts", clients))
                .or_else(|| whole("the time", step.lasted_us))
                .or_else(|| whole("the number of jobs", step.tasks))
                .or_else(|| step.ops.iter().find_map(of_op))
                .or_else(|| step.seconds.iter().find_map(of_second))
        })
    };
    let date = log.started_us;
    (!(0..=LATEST_US).contains(&date))
        .then(|| ("the date", date.to_string()))
        .or_else(of_steps)
}

/// Converts a time in another unit to whole nanoseconds.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast saturates; a latency has at most 19 digits"
)]
fn nanos(value: f64) -> i64 {
    value.round() as i64
}

/// A size in plan notation: `4k`, `1m`; in bytes if not a whole number of KiB.
fn size_text(bytes: i64) -> String {
    let units = [(30, 'g'), (20, 'm'), (10, 'k')];
    let unit = units
        .into_iter()
        .find(|(shift, _)| bytes > 0 && bytes % (1 << shift) == 0);
    match unit {
        Some((shift, letter)) => format!("{}{letter}", bytes >> shift),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests;

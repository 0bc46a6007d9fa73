//! Failures that a tool reports in its log: they become a failed step.

use super::{Hints, ImportError, ImportedLog, ImportedStep, Tool};

/// The system's words for errors of storage and networks that end a tool.
const SYSTEM_ERRORS: [&str; 13] = [
    "No space left on device",
    "Input/output error",
    "Read-only file system",
    "Disk quota exceeded",
    "Permission denied",
    "Operation not permitted",
    "No such file or directory",
    "Stale file handle",
    "Transport endpoint is not connected",
    "Connection refused",
    "Connection reset by peer",
    "Cannot allocate memory",
    "Too many open files",
];
/// Maximum length of the reported line that is kept.
const MAX_CHARS: usize = 240;

/// The first line with which the tool reports a failure. `None` for fio and iperf3, whose JSON contains it, for dd,
/// whose parser knows the call that failed, and for the output of `time`, which is of other programs.
pub(super) fn reported(tool: Tool, log: &str) -> Option<String> {
    if matches!(tool, Tool::Fio | Tool::Iperf3 | Tool::Dd | Tool::Time) {
        return None;
    }
    let mut lines = log.lines().map(str::trim);
    lines.find(|line| is_system_error(line)).map(words)
}

/// Whether a line contains the system's words for an error.
fn is_system_error(line: &str) -> bool {
    SYSTEM_ERRORS.iter().any(|error| line.contains(error))
}

/// A line without control characters, not too long.
pub(super) fn words(line: &str) -> String {
    let visible = line
        .chars()
        .filter(|c| !benchmesh_model::text::is_hidden(*c));
    visible.take(MAX_CHARS).collect()
}

/// The log of a tool that failed: what was parsed, the last step of it marked, or one failed step without figures.
pub(super) fn failed_log(
    tool: Tool,
    parsed: Result<ImportedLog, ImportError>,
    failure: String,
    hints: &Hints,
) -> ImportedLog {
    let mut log = parsed.unwrap_or_else(|_| ImportedLog {
        tool: tool.as_str().to_owned(),
        started_us: hints.written_us,
        steps: Vec::new(),
    });
    if log.steps.is_empty() {
        log.steps.push(ImportedStep {
            phase: tool.as_str().to_owned(),
            workload: String::from("io"),
            mode: hints.mode.clone(),
            tasks: 1,
            ..ImportedStep::default()
        });
    }
    if let Some(last) = log.steps.last_mut() {
        last.failed = Some(failure);
    }
    log
}

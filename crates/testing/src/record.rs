//! Counts events of a `cargo test` over all its test programs: skipped tests, and repeated measurements.
//!
//! Each is one line of a file named after cargo's process, from which the last test target of the workspace prints one
//! line of totals. Each is also reported at once, so an unwritable file loses little.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

/// A counted event.
pub(crate) enum Event<'a> {
    /// A test was skipped because the machine lacks this.
    Skipped { need: &'a str },
    /// A test's measurement failed once and was repeated.
    MeasuredAgain { test: &'a str },
}

const SKIPPED: &str = "skipped ";
const MEASURED_AGAIN: &str = "measured-again ";

impl Event<'_> {
    fn line(&self) -> String {
        match self {
            Self::Skipped { need } => format!("{SKIPPED}{need}\n"),
            Self::MeasuredAgain { test } => format!("{MEASURED_AGAIN}{test}\n"),
        }
    }
}

pub(crate) fn record(event: &Event<'_>) {
    let Some(path) = record_file() else { return };
    if let Some(directory) = path.parent() {
        let _ = std::fs::create_dir_all(directory);
    }
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(&path) {
        // One write per line: tests of other threads append to the same file.
        let _ = file.write_all(event.line().as_bytes());
    }
}

/// `target/debug/test-records/PID-START` of the cargo that runs this test program.
fn record_file() -> Option<PathBuf> {
    let cargo = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{cargo}/stat")).ok()?;
    // Field 22, counted from the end of the name, which may contain spaces.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    let program = std::env::current_exe().ok()?;
    let profile = program.parent()?.parent()?;
    let name = format!("{cargo}-{started}");
    Some(profile.join("test-records").join(name))
}

/// One line about all tests that this `cargo test` has skipped or repeated so far. Resets the count.
pub fn totals() -> String {
    let path = record_file();
    let records = path.as_ref().map(std::fs::read_to_string);
    let records = records.and_then(Result::ok).unwrap_or_default();
    if let Some(directory) = path.as_ref().and_then(|path| path.parent()) {
        // Records of earlier calls without totals are removed too.
        let _ = std::fs::remove_dir_all(directory);
    }
    summary(&records)
}

/// `skipped tests: 5 (3 need root, 2 need fuse); measured again: 3 (truth::cpu 2 times, truth::pace)`.
fn summary(records: &str) -> String {
    let skipped = counted(records, SKIPPED, |need, count| match count {
        1 => format!("1 needs {need}"),
        _ => format!("{count} need {need}"),
    });
    let measured = counted(records, MEASURED_AGAIN, |test, count| match count {
        1 => test.to_owned(),
        _ => format!("{test} {count} times"),
    });
    format!("skipped tests: {skipped}; measured again: {measured}")
}

/// The number of lines with `prefix`, and each different one as text, the most frequent first.
fn counted(records: &str, prefix: &str, words: impl Fn(&str, u32) -> String) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for name in records.lines().filter_map(|line| line.strip_prefix(prefix)) {
        *counts.entry(name).or_default() += 1;
    }
    let all: u32 = counts.values().sum();
    if all == 0 {
        return "none".to_owned();
    }
    let mut counts: Vec<(&str, u32)> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let parts: Vec<String> = counts
        .into_iter()
        .map(|(name, count)| words(name, count))
        .collect();
    format!("{all} ({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_by_name_the_most_frequent_first() {
        assert_eq!(summary(""), "skipped tests: none; measured again: none");
        let events = [
            Event::Skipped { need: "fuse" },
            Event::MeasuredAgain { test: "cpu" },
            Event::Skipped { need: "root" },
            Event::MeasuredAgain { test: "pace" },
            Event::Skipped { need: "root" },
            Event::MeasuredAgain { test: "pace" },
        ];
        let records: String = events.iter().map(Event::line).collect();
        assert_eq!(
            summary(&records),
            "skipped tests: 3 (2 need root, 1 needs fuse); measured again: 3 (pace 2 times, cpu)"
        );
    }

    #[test]
    fn a_record_belongs_to_the_process_that_started_the_tests() {
        let path = record_file().map(|path| path.display().to_string());
        let parent = format!("test-records/{}-", std::os::unix::process::parent_id());
        assert!(
            path.as_ref().is_some_and(|path| path.contains(&parent)),
            "{path:?}"
        );
    }
}

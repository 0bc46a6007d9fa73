//! How tests are run: how many at once, and what was skipped.
//!
//! libtest runs as many tests at once as the machine has processors, which is few for tests that wait: see
//! [`tests_at_once`].
//!
//! Skipped tests: each is reported at once, all are counted at the end, and a skip is a failure where it is forbidden.
//!
//! libtest cannot skip a test at run time and hides what a passed test prints, so a skip is written to the real standard
//! error. It is also appended to a file of this one `cargo test` (named after cargo's process), from which the last test
//! target of the workspace, `skipped_tests` of `crates/workloads`, prints one line of totals. `BENCHMESH_REQUIRE` lists
//! the needs that the machine must meet (`root,fuse,...`, or `all`); `.ci/run` sets it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// Lets libtest run so many tests of this program at once; a number that the user has set wins. Once per test program.
#[macro_export]
macro_rules! tests_at_once {
    ($tests:literal) => {
        #[used]
        #[unsafe(link_section = ".init_array")]
        static TESTS_AT_ONCE: extern "C" fn() = {
            extern "C" fn before_main() {
                $crate::set_tests_at_once($tests);
            }
            before_main
        };
    };
}

/// What [`tests_at_once`] calls before `main`, where the process has one thread.
#[allow(
    clippy::disallowed_methods,
    reason = "no other thread is there to read the environment"
)]
pub fn set_tests_at_once(tests: u32) {
    const VARIABLE: &str = "RUST_TEST_THREADS";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: nobody reads the environment meanwhile.
        unsafe { std::env::set_var(VARIABLE, tests.to_string()) };
    }
}

/// The interpreter of a virtual environment beside the test programs in which these packages of PyPI can be imported. Made
/// once, under the environment's name.
///
/// # Errors
/// What failed of making the environment, installing the packages or importing them.
pub fn python(environment: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = program.ancestors().nth(3).ok_or("no target directory")?;
    let environment = target.join(environment);
    let python = environment.join("bin/python");
    let run = |command: &mut Command| -> Result<(), String> {
        let done = command.output().map_err(|error| error.to_string())?;
        match done.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        }
    };
    let imports = format!("import {}", packages.join(", "));
    if run(Command::new(&python).args(["-c", &imports])).is_ok() {
        return Ok(python);
    }
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(&environment))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "-q"])
        .args(packages))?;
    run(Command::new(&python).args(["-c", &imports])).map(|()| python)
}

/// Skips the current test because the machine has no `need`. The caller returns from the test afterwards.
///
/// # Panics
/// If `BENCHMESH_REQUIRE` lists the need.
pub fn skip(need: &str, why: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let required = std::env::var("BENCHMESH_REQUIRE").unwrap_or_default();
    let is_required = required
        .split(',')
        .map(str::trim)
        .any(|one| one == need || one == "all");
    assert!(
        !is_required,
        "{test} needs {need}, which BENCHMESH_REQUIRE demands: {why}"
    );
    say(&format!("SKIPPED {test}: needs {need}: {why}"));
    record(need);
}

/// Writes a line to the process's standard error, past libtest's capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Counts a skip for the totals. The skip itself has been reported, so a file that cannot be written changes little.
fn record(need: &str) {
    let Some(path) = record_file() else { return };
    if let Some(directory) = path.parent() {
        let _ = std::fs::create_dir_all(directory);
    }
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(&path) {
        // One write of one line: tests of other threads append to the same file.
        let _ = file.write_all(format!("{need}\n").as_bytes());
    }
}

/// `target/debug/skipped-tests/PID-START` of the cargo that runs this test program.
fn record_file() -> Option<PathBuf> {
    let cargo = std::os::unix::process::parent_id();
    let stat = std::fs::read_to_string(format!("/proc/{cargo}/stat")).ok()?;
    // Field 22, counted from behind the name, which may contain spaces.
    let started = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?;
    let program = std::env::current_exe().ok()?;
    let profile = program.parent()?.parent()?;
    let name = format!("{cargo}-{started}");
    Some(profile.join("skipped-tests").join(name))
}

/// One line about all tests that this `cargo test` has skipped so far. Starts the count anew.
pub fn totals() -> String {
    let path = record_file();
    let records = path.as_ref().map(std::fs::read_to_string);
    let records = records.and_then(Result::ok).unwrap_or_default();
    if let Some(directory) = path.as_ref().and_then(|path| path.parent()) {
        // Records of earlier calls that never came to their totals go too.
        let _ = std::fs::remove_dir_all(directory);
    }
    summary(&records)
}

/// `skipped tests: 5 (3 need root, 2 need fuse)`.
fn summary(records: &str) -> String {
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for need in records.lines() {
        *counts.entry(need).or_default() += 1;
    }
    let all: u32 = counts.values().sum();
    if all == 0 {
        return "skipped tests: none".to_owned();
    }
    let mut counts: Vec<(&str, u32)> = counts.into_iter().collect();
    counts.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    let parts: Vec<String> = counts
        .into_iter()
        .map(|(need, count)| match count {
            1 => format!("1 needs {need}"),
            _ => format!("{count} need {need}"),
        })
        .collect();
    format!("skipped tests: {all} ({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_by_need_the_most_frequent_first() {
        assert_eq!(summary(""), "skipped tests: none");
        assert_eq!(
            summary("fuse\nroot\nroot\n"),
            "skipped tests: 3 (2 need root, 1 needs fuse)"
        );
    }

    #[test]
    fn a_record_belongs_to_the_process_that_started_the_tests() {
        let path = record_file().map(|path| path.display().to_string());
        let parent = format!("skipped-tests/{}-", std::os::unix::process::parent_id());
        assert!(
            path.as_ref().is_some_and(|path| path.contains(&parent)),
            "{path:?}"
        );
    }
}

//! Test infrastructure: the number of parallel tests, skipped tests, and repeated measurements.
//!
//! libtest runs as many tests at once as the machine has processors, which is too few for tests that mostly wait: see
//! [`tests_at_once`].
//!
//! Skipped tests: each is reported at once, all are counted at the end, and a skip is a failure where it is forbidden.
//! Tests that measure time are repeated if other load on the machine disturbed them: see [`measured`].
//!
//! libtest cannot skip a test at run time and hides the output of a passed test, so a skip is written to the real
//! standard error. It is also appended to a file of this `cargo test` (named after cargo's process), from which the
//! last test target of the workspace, `skipped_tests` of `crates/workloads`, prints one line of totals. [`NEEDS`] lists
//! all possible needs of tests; `BENCHMESH_REQUIRE` selects those that the machine must meet; `.ci/run` sets it.
//!
//! Tables of many cases are written as text: see [`table()`].

pub mod hostile;
pub mod logs;
mod measured;
pub mod memory;
mod needs;
pub mod postgres;
mod record;
#[cfg(test)]
mod sources;
mod table;

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

pub use measured::{TimingError, measured, scheduled};
pub use needs::{NEEDS, skip};
pub use record::totals;
pub use table::table;

/// Sets the number of parallel tests of this program; a value set by the user takes precedence. Once per test program.
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

/// Called by [`tests_at_once`] before `main`, while the process has one thread.
#[allow(
    clippy::disallowed_methods,
    reason = "no other thread is there to read the environment"
)]
pub fn set_tests_at_once(tests: u32) {
    const VARIABLE: &str = "RUST_TEST_THREADS";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: no other thread reads the environment.
        unsafe { std::env::set_var(VARIABLE, tests.to_string()) };
    }
}

/// The interpreter of a virtual environment beside the test programs in which these packages of PyPI are installed:
/// `name`, or `name==version` for this version alone.
/// Created once per environment name, by one process at a time.
///
/// # Errors
///
/// Why creating the environment, installing the packages or importing them failed.
pub fn python(environment: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = program.ancestors().nth(3).ok_or("no target directory")?;
    let beside = target.join(format!("{environment}.lock"));
    let environment = target.join(environment);
    let python = environment.join("bin/python");
    let run = |command: &mut Command| -> Result<(), String> {
        let done = command.output().map_err(|error| error.to_string())?;
        match done.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
        }
    };
    let imports = packages
        .iter()
        .map(|package| match package.split_once("==") {
            Some((name, version)) => format!(
                "import {name}, importlib.metadata\n\
                 assert importlib.metadata.version('{name}') == '{version}', '{package}'\n"
            ),
            None => format!("import {package}\n"),
        })
        .collect::<String>();
    let try_it = || run(Command::new(&python).args(["-c", &imports]));
    if try_it().is_ok() {
        return Ok(python);
    }
    // Several tests, also of different programs, may need it at the same time. Dropping the file unlocks it.
    let _lock = File::create(beside)
        .and_then(|file| file.lock().map(|()| file))
        .map_err(|error| error.to_string())?;
    if try_it().is_ok() {
        return Ok(python);
    }
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(&environment))?;
    run(Command::new(&python)
        .args(["-m", "pip", "install", "-q"])
        .args(packages))?;
    try_it()?;
    Ok(python)
}

/// Writes a line to the process's standard error, bypassing libtest's capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

/// Returns the output of `work`, and how often another task of the runtime ran meanwhile.
pub async fn beats_meanwhile<T>(work: impl Future<Output = T>) -> (T, u64) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let beats = std::sync::Arc::new(AtomicU64::new(0));
    let heartbeat = tokio::spawn({
        let beats = std::sync::Arc::clone(&beats);
        async move {
            loop {
                beats.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let done = work.await;
    heartbeat.abort();
    (done, beats.load(Ordering::Relaxed))
}

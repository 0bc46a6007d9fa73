//! How tests are run: how many at once, what was skipped, and what was measured again.
//!
//! libtest runs as many tests at once as the machine has processors, which is few for tests that wait: see
//! [`tests_at_once`].
//!
//! Skipped tests: each is reported at once, all are counted at the end, and a skip is a failure where it is forbidden.
//! Tests that measure time run again where another user of the machine disturbed them: see [`measured`].
//!
//! libtest cannot skip a test at run time and hides what a passed test prints, so a skip is written to the real standard
//! error. It is also appended to a file of this one `cargo test` (named after cargo's process), from which the last test
//! target of the workspace, `skipped_tests` of `crates/workloads`, prints one line of totals. What tests may need is
//! one table, [`NEEDS`]; `BENCHMESH_REQUIRE` says what of it the machine must meet; `.ci/run` sets it.

pub mod hostile;
pub mod layers;
pub mod logs;
mod measured;
pub mod memory;
mod needs;
mod record;
#[cfg(test)]
mod sources;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

pub use measured::{TimingError, measured, scheduled};
pub use needs::{NEEDS, skip};
pub use record::totals;

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

/// Writes a line to the process's standard error, past libtest's capture.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

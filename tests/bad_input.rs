//! User mistakes: each is refused before anything runs, with its location and its remedy.

mod databases;
mod plans;
mod ports;
mod queries;

use crate::support::command::{CommandOutput, benchmesh};
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);

fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("bm-bad-")
        .tempdir()
        .unwrap()
}

/// Runs a command that must fail by itself, soon, and without a panic.
fn refused(mut command: Command) -> CommandOutput {
    let directory = directory();
    let (out, err) = (directory.path().join("out"), directory.path().join("err"));
    command.stdout(std::fs::File::create(&out).unwrap());
    command.stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let status = crate::support::wait::try_until(LIMIT, || child.try_wait().unwrap());
    let status = status.unwrap_or_else(|| {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("it hangs: {}", std::fs::read_to_string(&err).unwrap())
    });
    let output = CommandOutput {
        code: status.code().unwrap_or(128),
        out: std::fs::read_to_string(&out).unwrap(),
        err: std::fs::read_to_string(&err).unwrap(),
    };
    assert_ne!(output.code, 0, "{}", output.all());
    assert!(!output.err.contains("panicked"), "{}", output.all());
    output
}

fn collector(db: &Path) -> Command {
    let mut command = benchmesh();
    command
        .args(["collector", "--listen", "127.0.0.1:0", "--db"])
        .arg(db);
    command
}

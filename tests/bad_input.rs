//! What people get wrong: each mistake is refused before anything runs, and told with its place and its remedy.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

mod support;

mod bad_input {
    mod databases;
    mod plans;
    mod ports;
    mod queries;
}

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::command::{Said, benchmesh};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(30);

fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("bm-bad-")
        .tempdir()
        .unwrap()
}

/// Runs a command that must fail by itself, soon, without a panic.
fn refused(mut command: Command) -> Said {
    let directory = directory();
    let (out, err) = (directory.path().join("out"), directory.path().join("err"));
    command.stdout(std::fs::File::create(&out).unwrap());
    command.stderr(std::fs::File::create(&err).unwrap());
    let mut child = command.spawn().unwrap();
    let status = support::wait::try_until(LIMIT, || child.try_wait().unwrap());
    let status = status.unwrap_or_else(|| {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!("it hangs: {}", std::fs::read_to_string(&err).unwrap())
    });
    let said = Said {
        code: status.code().unwrap_or(128),
        out: std::fs::read_to_string(&out).unwrap(),
        err: std::fs::read_to_string(&err).unwrap(),
    };
    assert_ne!(said.code, 0, "{}", said.all());
    assert!(!said.err.contains("panicked"), "{}", said.all());
    said
}

fn collector(db: &Path) -> Command {
    let mut command = benchmesh();
    command
        .args(["collector", "--listen", "127.0.0.1:0", "--db"])
        .arg(db);
    command
}

//! Compares the system calls of `io` with those of the installed bonnie++; strace traces both.
//!
//! Calls on the data file are compared by kind and size, for 1 MiB. Tolerance: two lseek calls, because bonnie++ uses
//! more of them to go to the beginning. Needs bonnie++ (1.92 or later) and strace; reports a skip without them, and
//! fails instead if BENCHMESH_REQUIRE has `bonnie++`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::registry;
use benchmesh_workloads::sandbox::{Allowed, Make, RunDirectory};
use benchmesh_workloads::task::{CellDir, End, Place, PrepareControl, TaskSpec};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

const CALLS: &str = "trace=read,write,pread64,pwrite64,lseek,fsync,fdatasync";
const MIB: u64 = 1 << 20;
/// Calls on single bytes to count; bonnie++ is killed after that.
const BYTES: u64 = 5000;
/// Mode and parameters of the task that the traced test below runs.
const TASK: &str = "BENCHMESH_TRACED_TASK";
const PLACE: &str = "BENCHMESH_TRACED_PLACE";

/// Number of calls by name and, for reads and writes, bytes moved.
type Calls = BTreeMap<(String, u64), u64>;

fn is_there(program: &str) -> bool {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("command -v {program}")]);
    let found = shell.stdout(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

fn has_all() -> bool {
    if !is_there("bonnie++") {
        benchmesh_testing::skip("bonnie++", "its calls are compared with ours");
        return false;
    }
    let tried = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .stderr(Stdio::null())
        .status();
    let traces = tried.is_ok_and(|status| status.success());
    if !traces {
        benchmesh_testing::skip("strace", "it cannot trace a process here");
    }
    traces
}

/// Runs a command under strace and counts its calls on files whose path contains `file`; kills it after `most` calls.
fn traced(command: &mut Command, file: &str, most: u64) -> Calls {
    let program = command.get_program().to_owned();
    let arguments: Vec<_> = command.get_args().map(ToOwned::to_owned).collect();
    let environment: Vec<_> = command
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    let (lines, end) = std::io::pipe().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-f", "-y", "-qq", "-e", CALLS, "-o", "/proc/self/fd/2"]);
    strace.arg(program).args(arguments).envs(environment);
    strace.stdout(Stdio::null()).stderr(end).process_group(0);
    let mut child = strace.spawn().unwrap();
    drop(strace);
    let (mut calls, mut count) = (Calls::new(), 0);
    for line in BufReader::new(lines).lines() {
        let Some((name, moved)) = call_of(&line.unwrap(), file) else {
            continue;
        };
        *calls.entry((name, moved)).or_default() += 1;
        count += 1;
        if count == most {
            let group = Pid::from_child(&child);
            kill_process_group(group, Signal::KILL).unwrap();
            break;
        }
    }
    child.wait().unwrap();
    calls
}

/// `123 write(3</tmp/x/Bonnie.1>, "..."..., 8192) = 8192`; with several processes a call may end on a separate line.
fn call_of(line: &str, file: &str) -> Option<(String, u64)> {
    let (call, rest) = line.split_once('(')?;
    let name = call.rsplit(' ').next()?.trim_end_matches("64");
    let (descriptor, _) = rest.split_once('>')?;
    let moves = matches!(name, "read" | "write" | "pread" | "pwrite");
    let moved = rest.rsplit(" = ").next()?.trim().parse().unwrap_or(0);
    descriptor
        .contains(file)
        .then(|| (name.to_owned(), if moves { moved } else { 0 }))
}

fn bonnie(directory: &Path, fast: bool, most: u64) -> Calls {
    let mut command = Command::new("bonnie++");
    command.args(["-s", "1", "-r", "0", "-n", "0", "-q", "-d"]);
    command.arg(directory);
    if rustix::process::geteuid().is_root() {
        command.args(["-u", "root"]);
    }
    if fast {
        command.arg("-f");
    }
    traced(&mut command, "Bonnie", most)
}

fn ours(directory: &Path, workload: &str, mode: &str, params: &Value) -> Calls {
    let task = json!({"workload": workload, "mode": mode, "params": params});
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "traced_task", "--nocapture"]);
    command.env(TASK, task.to_string()).env(PLACE, directory);
    traced(&mut command, "/w0", u64::MAX)
}

/// Not a test: the process that [`ours`] traces.
#[test]
fn traced_task() {
    let Ok(task) = std::env::var(TASK) else {
        return;
    };
    let task: Value = serde_json::from_str(&task).unwrap();
    let target = std::path::PathBuf::from(std::env::var_os(PLACE).unwrap());
    let allowed = Allowed::new(vec![target.clone()]).unwrap();
    let run = RunDirectory::open_or_make(&allowed, &target, "m", "r", Make::IfMissing);
    let params = task["params"].as_object().unwrap().clone();
    let text = |key: &str| task[key].as_str().unwrap();
    let spec = TaskSpec {
        place: Some(Place::Directory(CellDir {
            run: Arc::new(run.unwrap().unwrap().0),
            cell: "c".to_owned(),
        })),
        ..TaskSpec::new(text("workload"), text("mode"), params)
    };
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    // The tracer stops the process twice per call, so leave time to arm.
    let soon = || MonoNanos::now().saturating_add(Duration::from_millis(500));
    while task.arm(soon()).is_err() {}
    let end = task.run_to_end(&mut |_| ());
    assert_eq!((end.state, end.error), (End::Done, None));
}

fn count(calls: &Calls, name: &str, moved: u64) -> u64 {
    let key = (name.to_owned(), moved);
    calls.get(&key).copied().unwrap_or(0)
}

#[test]
fn bytes_are_written_one_by_one_as_bonnie_writes_them() {
    if !has_all() {
        return;
    }
    let (theirs, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let bonnie = bonnie(theirs.path(), false, BYTES);
    assert_eq!(count(&bonnie, "write", 1), BYTES, "{bonnie:?}");
    let params = json!({"size": BYTES, "buffer": 1, "bs": 1, "end_fsync": true});
    let putc = ours(own.path(), "io", "putc", &params);
    assert_eq!(count(&putc, "write", 1), BYTES, "{putc:?}");
    assert_eq!(count(&putc, "fsync", 0), 1, "{putc:?}");
    let getc = ours(own.path(), "io", "getc", &params);
    assert_eq!(count(&getc, "read", 1), BYTES, "{getc:?}");
}

/// Block output, rewrite and block input of 1 MiB; each output ends with one fsync.
#[test]
fn blocks_are_written_rewritten_and_read_as_bonnie_does() {
    if !has_all() {
        return;
    }
    let (theirs, own) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let blocks = MIB / 8192;
    let bonnie = bonnie(theirs.path(), true, u64::MAX);
    // Block output and rewrite; the seekers rewrite some more blocks.
    let written = count(&bonnie, "write", 8192);
    assert!(written >= 2 * blocks, "{bonnie:?}");
    let io = json!({"size": MIB, "bs": "8k", "end_fsync": true});
    let write = ours(own.path(), "io", "write", &io);
    assert_eq!(count(&write, "pwrite", 8192), blocks, "{write:?}");
    assert_eq!(count(&write, "fsync", 0), 1, "{write:?}");
    let own = tempfile::tempdir().unwrap();
    let params = json!({"size": MIB, "buffer": "8k", "change": "one", "end_fsync": true});
    let rewrite = ours(own.path(), "io", "rmw", &params);
    assert_eq!(count(&rewrite, "read", 8192), blocks, "{rewrite:?}");
    assert_eq!(count(&rewrite, "write", 8192), blocks, "{rewrite:?}");
    assert_eq!(count(&rewrite, "fsync", 0), 1, "{rewrite:?}");
    let sought = count(&rewrite, "lseek", 0);
    assert!((blocks..=blocks + 2).contains(&sought), "{rewrite:?}");
    // Both outputs and the rewrite together: one fsync for each, one lseek for each rewritten block.
    assert!(count(&bonnie, "fsync", 0) >= 2, "{bonnie:?}");
    assert!(count(&bonnie, "lseek", 0) >= blocks, "{bonnie:?}");
}

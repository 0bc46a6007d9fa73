//! Runs one command and returns its output, within limits of time and size.
//!
//! The command leads its own process group, which is killed at the end in every case. It has a low priority, no
//! standard input, and none of the agent's own variables.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, setpriority_process};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Limits of one command.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub time: Duration,
    pub bytes: usize,
}

/// About a tenth of the CPU weight of a process with default priority, so the command still finishes on a busy host.
const NICENESS: i32 = 10;
/// Interval of checks for a stop request, and for the exit of a command that has closed its output.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum bytes of the first line of standard error that are reported.
const MAX_COMPLAINT_BYTES: usize = 256;
/// Variables that only the agent needs, such as a join token.
const OWN_VARIABLES: &str = "BENCHMESH_";

/// Why a command has no output.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    #[error("it cannot be started")]
    Start(#[source] io::Error),
    #[error("its output cannot be read")]
    Read(#[source] io::Error),
    #[error("it was killed after its timeout of {} s", .0.as_secs())]
    TooLong(Duration),
    #[error("it was killed: its output has more than {0} bytes")]
    TooMuch(usize),
    #[error("{0}")]
    Failed(String),
    #[error("the agent stops")]
    Stopped,
}

/// Kills the command's process group when dropped.
struct ChildGroup(Child);

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if let Some(group) = pid(&self.0) {
            // Fails if all processes of the group have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// The output of a command that succeeded.
#[derive(Debug)]
pub struct Output {
    pub stdout: String,
    /// Beginning of standard error.
    pub stderr: String,
}

/// Runs a command and returns its output if it succeeded. Blocks.
///
/// # Errors
/// If the command cannot be started, fails or exceeds a limit.
pub fn output(
    mut command: Command,
    stop: &AtomicBool,
    limits: Limits,
) -> Result<Output, ExecuteError> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    for (name, _) in std::env::vars_os() {
        if name
            .as_encoded_bytes()
            .starts_with(OWN_VARIABLES.as_bytes())
        {
            command.env_remove(name);
        }
    }
    let deadline = Instant::now() + limits.time;
    let mut child = ChildGroup(command.spawn().map_err(ExecuteError::Start)?);
    if let Some(pid) = pid(&child.0) {
        // Fails if the process has ended.
        let _ = setpriority_process(Some(pid), NICENESS);
    }
    let mut stdout = Pipe::new(child.0.stdout.take().map(OwnedFd::from));
    let mut stderr = Pipe::new(child.0.stderr.take().map(OwnedFd::from));
    let over = |now: Instant| match (stop.load(Ordering::Relaxed), now >= deadline) {
        (true, _) => Err(ExecuteError::Stopped),
        (false, true) => Err(ExecuteError::TooLong(limits.time)),
        (false, false) => Ok(()),
    };
    while stdout.is_open() || stderr.is_open() {
        over(Instant::now())?;
        read_ready(&mut stdout, &mut stderr, deadline).map_err(ExecuteError::Read)?;
        if stdout.read.len() > limits.bytes {
            return Err(ExecuteError::TooMuch(limits.bytes));
        }
        // Only the beginning is reported.
        stderr.read.truncate(MAX_COMPLAINT_BYTES);
    }
    let status = loop {
        match child.0.try_wait().map_err(ExecuteError::Read)? {
            Some(status) => break status,
            None => {
                over(Instant::now())?;
                std::thread::park_timeout(POLL_INTERVAL);
            }
        }
    };
    if status.success() {
        let text = |pipe: &Pipe| String::from_utf8_lossy(&pipe.read).into_owned();
        return Ok(Output {
            stdout: text(&stdout),
            stderr: text(&stderr),
        });
    }
    let ended = match (status.code(), status.signal()) {
        (Some(code), _) => format!("it failed with code {code}"),
        (None, Some(signal)) => format!("it was killed by signal {signal}"),
        (None, None) => "it failed".to_owned(),
    };
    let complaint = String::from_utf8_lossy(&stderr.read);
    let complaint = complaint.lines().find(|line| !line.trim().is_empty());
    Err(ExecuteError::Failed(match complaint {
        Some(line) => format!("{ended}: {}", line.trim()),
        None => ended,
    }))
}

/// One output stream of a command, and the bytes read from it.
struct Pipe {
    source: Option<File>,
    read: Vec<u8>,
}

impl Pipe {
    fn new(source: Option<OwnedFd>) -> Self {
        Self {
            source: source.map(File::from),
            read: Vec::new(),
        }
    }

    fn is_open(&self) -> bool {
        self.source.is_some()
    }

    /// Reads once; does not block if data or the end of the stream is available.
    fn read_once(&mut self) -> io::Result<()> {
        let mut buffer = [0; 16 << 10];
        let Some(source) = &mut self.source else {
            return Ok(());
        };
        match source.read(&mut buffer) {
            Ok(0) => self.source = None,
            Ok(count) => self.read.extend(buffer.iter().take(count)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Reads the available data, or waits for a moment.
fn read_ready(a: &mut Pipe, b: &mut Pipe, deadline: Instant) -> io::Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let wait = Timespec {
        tv_sec: 0,
        tv_nsec: left.min(POLL_INTERVAL).subsec_nanos().into(),
    };
    let open = a.source.iter().chain(&b.source);
    let mut fds: Vec<PollFd<'_>> = open.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    match poll(&mut fds, Some(&wait)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let is_ready = |fd: Option<&PollFd<'_>>| fd.is_some_and(|fd| !fd.revents().is_empty());
    let ready = [is_ready(fds.first()), is_ready(fds.last())];
    for (pipe, is_ready) in [a, b].into_iter().zip(ready) {
        if is_ready && pipe.is_open() {
            pipe.read_once()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const SHORT: Limits = Limits {
        time: Duration::from_millis(400),
        bytes: 4096,
    };

    fn run(script: &str) -> Result<String, String> {
        output(shell(script), &AtomicBool::new(false), SHORT)
            .map(|output| output.stdout)
            .map_err(|error| error.to_string())
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_is_taken_and_a_failure_has_its_complaint() {
        assert_eq!(run("echo a; echo b >&2"), Ok("a\n".to_owned()));
        let refused = run("echo no keyring >&2; exit 3").unwrap_err();
        assert_eq!(refused, "it failed with code 3: no keyring");
    }

    #[test]
    fn what_hangs_or_floods_is_killed_with_its_children() {
        let began = Instant::now();
        assert!(
            run("sleep 77.25 & sleep 77.25")
                .unwrap_err()
                .contains("after its timeout")
        );
        assert!(
            run("exec >&- 2>&-; sleep 77.25")
                .unwrap_err()
                .contains("after its timeout")
        );
        assert!(run("yes").unwrap_err().contains("more than 4096 bytes"));
        assert!(began.elapsed() < Duration::from_secs(10));
        let left = Command::new("pgrep")
            .args(["-f", "^sleep 77.25"])
            .output()
            .unwrap();
        assert!(left.stdout.is_empty(), "{left:?}");
    }

    #[test]
    fn a_stop_ends_it() {
        let stopped = output(shell("sleep 9"), &AtomicBool::new(true), SHORT);
        assert!(matches!(stopped, Err(ExecuteError::Stopped)), "{stopped:?}");
    }
}

//! Runs one command and returns its output, within limits of time and size.
//!
//! The command leads its own process group. At its end, in every case, that group is killed, and so is every other
//! process that the command has started, which a variable in its environment tells: only one that clears its environment
//! escapes. The command has a low priority, no standard input, and none of the agent's own variables.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal, setpriority_process,
};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
/// The variable that the processes of one command inherit: the agent's pid and the command's number.
const COMMAND: &str = "BENCHMESH_COMMAND";
/// Maximum number of searches for processes of a command: they may start others meanwhile.
const MAX_SEARCHES: usize = 8;

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

/// Kills all processes of the command when dropped.
struct ChildGroup {
    child: Child,
    /// [`COMMAND`] and its value, as in `/proc/PID/environ`.
    mark: Vec<u8>,
    /// Its processes have started since.
    began_ticks: u64,
}

impl Drop for ChildGroup {
    fn drop(&mut self) {
        if let Some(group) = pid(&self.child) {
            // Fails if all processes of the group have ended.
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.child.wait();
        for _ in 0..MAX_SEARCHES {
            if !self.kill_others() {
                break;
            }
        }
    }
}

impl ChildGroup {
    /// Kills processes of the command that left its group. Returns whether there was one.
    fn kill_others(&self) -> bool {
        let mut found = false;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let number = name.to_str().and_then(|name| name.parse().ok());
            let directory = entry.path();
            // Reading the environment of a process that is older would lock the memory of a storage daemon.
            let is_younger = || started_ticks(&directory) >= Some(self.began_ticks);
            let Some(pid) = number.and_then(Pid::from_raw).filter(|_| is_younger()) else {
                continue;
            };
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            let environment = fs::read(directory.join("environ")).unwrap_or_default();
            if environment
                .split(|byte| *byte == 0)
                .any(|one| one == self.mark)
            {
                found |= pidfd_send_signal(&process, Signal::KILL).is_ok();
            }
        }
        found
    }
}

/// When a process started, in the kernel's ticks since boot.
fn started_ticks(directory: &std::path::Path) -> Option<u64> {
    let stat = fs::read_to_string(directory.join("stat")).ok()?;
    // The fields after the name begin with the third of proc(5); the start is the 22nd.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

fn now_ticks() -> u64 {
    let since_boot = clock_gettime(ClockId::Boottime);
    let per_second = rustix::param::clock_ticks_per_second();
    let nanos = u64::try_from(since_boot.tv_nsec).unwrap_or(0);
    let seconds = u64::try_from(since_boot.tv_sec).unwrap_or(0);
    (seconds * per_second).saturating_add(nanos * per_second / 1_000_000_000)
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Runs a command and returns its standard output if it succeeded. Blocks.
///
/// # Errors
/// If the command cannot be started, fails or exceeds a limit.
pub fn output(
    mut command: Command,
    stop: &AtomicBool,
    limits: Limits,
) -> Result<String, ExecuteError> {
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
    static COMMANDS: AtomicU64 = AtomicU64::new(0);
    let number = COMMANDS.fetch_add(1, Ordering::Relaxed);
    let mark = format!("{}-{number}", std::process::id());
    command.env(COMMAND, &mark);
    let deadline = Instant::now() + limits.time;
    let began_ticks = now_ticks();
    let mut group = ChildGroup {
        child: command.spawn().map_err(ExecuteError::Start)?,
        mark: format!("{COMMAND}={mark}").into_bytes(),
        began_ticks,
    };
    let child = &mut group.child;
    if let Some(pid) = pid(child) {
        // Fails if the process has ended.
        let _ = setpriority_process(Some(pid), NICENESS);
    }
    let mut stdout = Pipe::new(child.stdout.take().map(OwnedFd::from));
    let mut stderr = Pipe::new(child.stderr.take().map(OwnedFd::from));
    let over = |now: Instant| match (stop.load(Ordering::Relaxed), now >= deadline) {
        (true, _) => Err(ExecuteError::Stopped),
        (false, true) => Err(ExecuteError::TooLong(limits.time)),
        (false, false) => Ok(()),
    };
    while stdout.is_open() || stderr.is_open() {
        over(Instant::now())?;
        read_ready(&mut stdout, &mut stderr, deadline).map_err(ExecuteError::Read)?;
        if stdout.taken.max(stderr.taken) > limits.bytes {
            return Err(ExecuteError::TooMuch(limits.bytes));
        }
        // Only the beginning is reported.
        stderr.read.truncate(MAX_COMPLAINT_BYTES);
    }
    let status = loop {
        match child.try_wait().map_err(ExecuteError::Read)? {
            Some(status) => break status,
            None => {
                over(Instant::now())?;
                std::thread::park_timeout(POLL_INTERVAL);
            }
        }
    };
    if status.success() {
        return Ok(String::from_utf8_lossy(&stdout.read).into_owned());
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

/// One output stream of a command.
struct Pipe {
    source: Option<File>,
    /// The bytes read from it that are kept.
    read: Vec<u8>,
    /// Number of all bytes read from it.
    taken: usize,
}

impl Pipe {
    fn new(source: Option<OwnedFd>) -> Self {
        Self {
            source: source.map(File::from),
            read: Vec::new(),
            taken: 0,
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
            Ok(count) => {
                self.taken = self.taken.saturating_add(count);
                self.read.extend(buffer.iter().take(count));
            }
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
        output(shell(script), &AtomicBool::new(false), SHORT).map_err(|error| error.to_string())
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
        assert!(run("yes >&2").unwrap_err().contains("more than 4096 bytes"));
        assert!(began.elapsed() < Duration::from_secs(10));
        assert_eq!(left("^sleep 77.25"), "");
    }

    /// The processes that are still there a while after they were killed.
    fn left(pattern: &str) -> String {
        let limit = Instant::now() + Duration::from_secs(5);
        loop {
            let found = Command::new("pgrep").args(["-f", pattern]).output();
            let found = String::from_utf8(found.unwrap().stdout).unwrap();
            if found.is_empty() || Instant::now() > limit {
                return found;
            }
        }
    }

    #[test]
    fn what_left_the_commands_group_ends_with_it() {
        let ended = run("setsid sleep 77.5 > /dev/null 2>&1 & echo done");
        assert_eq!(ended, Ok("done\n".to_owned()));
        assert_eq!(left("^sleep 77.5"), "");
        let hung = run("(setsid sh -c 'sleep 77.75; true' &) ; sleep 77.75");
        assert!(hung.unwrap_err().contains("after its timeout"));
        assert_eq!(left("^sleep 77.75"), "");
    }

    #[test]
    fn a_stop_ends_it() {
        let stopped = output(shell("sleep 9"), &AtomicBool::new(true), SHORT);
        assert!(matches!(stopped, Err(ExecuteError::Stopped)), "{stopped:?}");
    }
}

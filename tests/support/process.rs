//! A running process of the mesh with its own process group and a log file; it ends on drop.

use super::wait::try_until;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

/// Maximum size of the log shown when a test fails, in bytes.
const SHOWN: usize = 12_000;
/// Time limit for the end of a killed process.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A running program. Dropping it kills its process group, and shows its log if the test is failing.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with both its streams appended to `log`.
    pub fn start(name: &str, mut command: Command, log: &Path) -> Self {
        let out = File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap_or_else(|error| panic!("open {}: {error}", log.display()));
        command
            .stdin(Stdio::null())
            .stdout(out.try_clone().unwrap())
            .stderr(out)
            .process_group(0);
        // SAFETY: prctl is async-signal-safe and affects nothing that belongs to another thread of the parent.
        unsafe {
            command.pre_exec(|| {
                // It dies with the test's thread, so that a killed test leaves nothing running.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("start {name}: {error}"));
        Self {
            name: name.to_owned(),
            child,
            log: log.to_owned(),
            ended: None,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its whole log so far.
    pub fn log(&self) -> String {
        std::fs::read(&self.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The targets of its descriptors.
    pub fn open_files(&self) -> Vec<String> {
        let open = std::fs::read_dir(format!("/proc/{}/fd", self.pid())).unwrap();
        let links = open.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        links
            .map(|link| link.to_string_lossy().into_owned())
            .collect()
    }

    /// The numbers of its sockets.
    pub fn sockets(&self) -> BTreeSet<String> {
        let number = |file: &String| {
            let number = file.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(number.to_owned())
        };
        self.open_files().iter().filter_map(number).collect()
    }

    pub fn signal(&self, signal: i32) {
        let pid = i32::try_from(self.pid()).unwrap();
        // SAFETY: kill takes no pointers; the pid is our own child, which has not been waited for unless `ended` is
        // set.
        unsafe {
            if self.ended.is_none() {
                libc::kill(pid, signal);
            }
        }
    }

    /// Sends SIGKILL and waits for its end.
    pub fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.exit_within(Duration::from_secs(20));
    }

    /// Ends it with SIGINT and returns its exit status; panics if it does not end.
    pub fn interrupt(&mut self, limit: Duration) -> ExitStatus {
        self.signal(libc::SIGINT);
        let name = self.name.clone();
        self.exit_within(limit)
            .unwrap_or_else(|| panic!("{name} did not end within {} s of SIGINT", limit.as_secs()))
    }

    /// Its exit status, if it ends within `limit`.
    pub fn exit_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let child = &mut self.child;
            self.ended = try_until(limit, || child.try_wait().ok().flatten());
        }
        self.ended
    }

    pub fn is_running(&mut self) -> bool {
        self.exit_within(Duration::ZERO).is_none()
    }

    /// Lines of its log at WARN or ERROR.
    pub fn complaints(&self) -> Vec<String> {
        self.log()
            .lines()
            .filter(|line| is_complaint(line))
            .map(str::to_owned)
            .collect()
    }
}

/// Whether a line of a log has a level of WARN or above.
pub fn is_complaint(line: &str) -> bool {
    line.split_whitespace()
        .take(3)
        .any(|word| matches!(word.trim_end_matches(':'), "WARN" | "ERROR"))
        || line.contains("panicked at")
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended.is_none() {
            let group = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
            // SAFETY: kill takes no pointers; the group is our child's own, and the child has not been waited for.
            unsafe {
                libc::kill(-group, libc::SIGKILL);
            }
            // A process that hangs in a file system of the test ends when that is unmounted, which happens later.
            let _ = try_until(KILLED_WITHIN, || self.child.try_wait().ok().flatten());
        }
        if std::thread::panicking() {
            let log = self.log();
            let mut from = log.len().saturating_sub(SHOWN);
            while !log.is_char_boundary(from) {
                from += 1;
            }
            let _ = writeln!(
                std::io::stderr().lock(),
                "--- log of {} (ended: {:?})\n{}",
                self.name,
                self.ended,
                &log[from..]
            );
        }
    }
}

//! The processes of a local mesh: started, watched, ended in order, and never left behind.
//!
//! Each has its own process group, so that Ctrl-C reaches only this process, which then ends them in order. If this
//! process is killed, the kernel ends them.

use crate::interrupts::PARENT_VARIABLE;
use crate::logging;
use crate::output;
use anyhow::Context;
use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of log lines kept per child to explain its end.
const LINES_KEPT: usize = 30;

/// Time limit for a child's clean end: an agent removes the files that it laid out.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Interval of checks whether a child has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The child processes, in the order of their start.
#[derive(Debug, Default)]
pub struct Children {
    children: Vec<Child>,
}

#[derive(Debug)]
struct Child {
    name: String,
    process: std::process::Child,
    log: Arc<Mutex<VecDeque<String>>>,
    reader: Option<JoinHandle<()>>,
}

impl Children {
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts this program as a child process. Must be called on the main thread: the kernel ends the child when the
    /// thread that started it ends.
    pub fn start(
        &mut self,
        name: &str,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> anyhow::Result<()> {
        let what = || format!("start the {name}");
        let program = std::env::current_exe().with_context(what)?;
        let mut process = Command::new(program)
            .args(arguments)
            .arg("--end-with-parent")
            .env(PARENT_VARIABLE, std::process::id().to_string())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(what)?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let reader = process.stderr.take().map(|stderr| {
            let (name, log) = (name.to_owned(), Arc::clone(&log));
            std::thread::spawn(move || collect_log(&name, stderr, &log))
        });
        self.children.push(Child {
            name: name.to_owned(),
            process,
            log,
            reader,
        });
        Ok(())
    }

    /// Returns an error, with the child's log, as soon as a child has ended by itself.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for child in &mut self.children {
            if let Some(status) = child
                .process
                .try_wait()
                .with_context(|| format!("check the state of the {}", child.name))?
            {
                return Err(child.ended_early(status));
            }
        }
        Ok(())
    }

    /// Returns only when a child ends by itself. Cancel-safe.
    pub async fn failure(&mut self) -> anyhow::Error {
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Ends the children cleanly, the last started first: the collector stores what the agents still send.
    pub async fn end(&mut self) -> anyhow::Result<()> {
        let mut result = Ok(());
        // First all agents together, then the collector, which was started first.
        while let Some(last) = self.children.len().checked_sub(1) {
            let ending = self.children.split_off(last.min(1));
            for child in &ending {
                child.ask_to_end();
            }
            for mut child in ending {
                let ended = child.ended().await;
                result = result.and(ended);
            }
        }
        result
    }
}

impl Child {
    fn ask_to_end(&self) {
        if let Some(pid) = i32::try_from(self.process.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            // The child may have ended already, which `ended` detects.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }

    /// Waits for the child's end; kills it after a time limit.
    async fn ended(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + END_LIMIT;
        loop {
            match self
                .process
                .try_wait()
                .with_context(|| format!("end the {}", self.name))?
            {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(self.ended_early(status)),
                None if Instant::now() >= deadline => {
                    anyhow::bail!(
                        "the {} did not end within {} s and was killed; {}",
                        self.name,
                        END_LIMIT.as_secs(),
                        self.output()
                    )
                }
                None => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn ended_early(&mut self, status: ExitStatus) -> anyhow::Error {
        if let Some(reader) = self.reader.take() {
            // The child is gone, so its log ends too.
            let _ = reader.join();
        }
        anyhow::anyhow!(
            "the {} ended by itself ({status}); {}",
            self.name,
            self.output()
        )
    }

    fn output(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_empty() {
            return "it logged nothing".to_owned();
        }
        let lines: Vec<&str> = log.iter().map(String::as_str).collect();
        format!("its log:\n    {}", lines.join("\n    "))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            // Both fail only if the child has ended.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Keeps the last lines of a child's log; also prints them if logs were requested.
fn collect_log(name: &str, stderr: ChildStderr, log: &Mutex<VecDeque<String>>) {
    let shown = std::env::var_os(logging::VARIABLE).is_some_and(|wanted| !wanted.is_empty());
    for line in BufReader::new(stderr).split(b'\n') {
        let Ok(line) = line else { return };
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if shown {
            output::print_notice(&format!("{name}: {line}"));
        }
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.len() == LINES_KEPT {
            log.pop_front();
        }
        log.push_back(line);
    }
}

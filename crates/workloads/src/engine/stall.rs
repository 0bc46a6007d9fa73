//! Stalls: operations that neither end nor move a byte. Each is an event with its position; a second event follows when
//! the stall ends.
//!
//! A worker that waits for its instant has no operation in flight and does not stall. Callers decide about
//! consequences.

use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use std::fmt;

/// Reaction to an operation that makes no progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStall {
    /// Report it and wait for it.
    #[default]
    Continue,
    /// The task fails. The hanging worker's thread is abandoned: a thread within a system call cannot be ended.
    Abort,
}

/// The kind of work that stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskPhase {
    /// An operation of a worker.
    Operation { worker: u32, op: Op },
    /// Work before the start.
    Preparing,
    /// Work after the last operation.
    Finishing,
    /// A command on a target outside of any task, by name.
    Command(&'static str),
}

impl TaskPhase {
    /// Its name in events.
    pub const fn as_str(self) -> &'static str {
        match self {
            TaskPhase::Operation { op, .. } => op.as_str(),
            TaskPhase::Preparing => "prepare",
            TaskPhase::Finishing => "finish",
            TaskPhase::Command(word) => word,
        }
    }

    /// The worker of the operation.
    pub const fn worker(self) -> Option<u32> {
        match self {
            TaskPhase::Operation { worker, .. } => Some(worker),
            TaskPhase::Preparing | TaskPhase::Finishing | TaskPhase::Command(_) => None,
        }
    }
}

/// Work without progress for as long as the plan's `stall-after`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    pub phase: TaskPhase,
    /// The system call that has not returned, unless an operation stalls.
    pub call: Option<&'static str>,
    /// When it began, or last made progress.
    pub since: MonoNanos,
    /// Its path, if known.
    pub path: Option<String>,
    pub offset: Option<u64>,
    /// False while laid out data are being synced, which may take any time.
    pub hangs: bool,
}

/// The begin or the end of a stall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StallEvent {
    Begun(Stall),
    Over(Stall),
}

impl StallEvent {
    /// The reason if the task is no longer waited for; `None` otherwise.
    pub fn why_ended(&self, on_stall: OnStall, now: MonoNanos) -> Option<String> {
        match (on_stall, self) {
            (OnStall::Abort, StallEvent::Begun(stall)) if stall.hangs => Some(stall.why_ended(now)),
            _ => None,
        }
    }
}

impl Stall {
    pub(crate) fn why_ended(&self, now: MonoNanos) -> String {
        let seconds = now.since(self.since).as_secs();
        format!("{self} has made no progress for {seconds} s, and on-stall = \"abort\"")
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.phase, self.call) {
            (TaskPhase::Operation { worker, op }, _) => write!(f, "worker {worker}: {op}")?,
            (other, None) => write!(f, "{}", other.as_str())?,
            (other, Some(call)) => write!(f, "{}: {call}", other.as_str())?,
        }
        if let Some(path) = &self.path {
            write!(f, " {path}")?;
        }
        match self.offset {
            Some(offset) => write!(f, " at offset {offset}"),
            None => Ok(()),
        }
    }
}

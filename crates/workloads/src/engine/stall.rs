//! Stalls: operations that neither end nor move a byte. Each is an event with its place, and a second one when it ends
//! after all.
//!
//! A worker that waits for its instant has no operation in flight and does not stall. It knows nothing of what follows
//! from a stall.

use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use std::fmt;

/// What follows from an operation that neither ends nor gets any further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnStall {
    /// Report it and wait for it.
    #[default]
    Continue,
    /// The task fails. The worker that hangs is left behind: nothing can end a thread within a system call.
    Abort,
}

/// What does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskPhase {
    /// An operation of a worker.
    Operation { worker: u32, op: Op },
    /// What comes before the start.
    Preparing,
    /// What comes after the last operation.
    Finishing,
    /// A command on a target outside of any task, by its word.
    Command(&'static str),
}

impl TaskPhase {
    /// The word that events use.
    pub const fn as_str(self) -> &'static str {
        match self {
            TaskPhase::Operation { op, .. } => op.as_str(),
            TaskPhase::Preparing => "prepare",
            TaskPhase::Finishing => "finish",
            TaskPhase::Command(word) => word,
        }
    }

    /// Whose operation it is.
    pub const fn worker(self) -> Option<u32> {
        match self {
            TaskPhase::Operation { worker, .. } => Some(worker),
            TaskPhase::Preparing | TaskPhase::Finishing | TaskPhase::Command(_) => None,
        }
    }
}

/// Something that has made no progress for as long as a plan calls a stall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    pub phase: TaskPhase,
    /// The system call that has not returned, where it is not an operation's.
    pub call: Option<&'static str>,
    /// When it began, or was last seen to move on.
    pub since: MonoNanos,
    /// What it works on, where that is known.
    pub path: Option<String>,
    pub offset: Option<u64>,
    /// Whether it ought to have ended; bringing to stable storage what was laid out takes as long as it takes.
    pub hangs: bool,
}

/// That something has stalled, and that it has ended after all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StallEvent {
    Begun(Stall),
    Over(Stall),
}

impl StallEvent {
    /// Why a task is not waited for any longer; `None`: it is.
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

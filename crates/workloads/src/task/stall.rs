//! Operations that do not end: noticed, named, and told of again when they have ended after all.
//!
//! A worker that waits for its instant has no operation in flight and does not stall. It knows nothing of what follows
//! from a stall.

use super::OnStall;
use crate::clock::MonoNanos;
use crate::op::Op;
use crate::recorder::Taker;
use crate::workload::Load;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What does not end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// An operation of a worker.
    Operation { worker: u32, op: Op },
    /// What comes before the start.
    Preparing,
    /// What comes after the last operation.
    Finishing,
}

impl Doing {
    /// The word that events use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Doing::Operation { op, .. } => op.as_str(),
            Doing::Preparing => "prepare",
            Doing::Finishing => "finish",
        }
    }

    /// Whose operation it is.
    pub const fn worker(self) -> Option<u32> {
        match self {
            Doing::Operation { worker, .. } => Some(worker),
            Doing::Preparing | Doing::Finishing => None,
        }
    }
}

/// Something that has not ended for as long as a plan calls a stall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    pub doing: Doing,
    /// The system call that has not returned, where it is not an operation's.
    pub call: Option<&'static str>,
    pub since: MonoNanos,
    /// What it works on, where that is known.
    pub path: Option<String>,
    pub offset: Option<u64>,
    /// Whether it ought to have ended; bringing to stable storage what was laid out takes as long as it takes.
    pub hangs: bool,
}

/// That something has stalled, and that it has ended after all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StallNews {
    Begun(Stall),
    Over(Stall),
}

impl StallNews {
    /// Why a task is not waited for any longer; `None`: it is.
    pub fn why_ended(&self, on_stall: OnStall, now: MonoNanos) -> Option<String> {
        match (on_stall, self) {
            (OnStall::Abort, StallNews::Begun(stall)) if stall.hangs => Some(stall.why_ended(now)),
            _ => None,
        }
    }
}

impl Stall {
    pub(super) fn why_ended(&self, now: MonoNanos) -> String {
        let seconds = now.since(self.since).as_secs();
        format!("{self} has not ended for {seconds} s, and on-stall = \"abort\"")
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.doing, self.call) {
            (Doing::Operation { worker, op }, _) => write!(f, "worker {worker}: {op}")?,
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

/// Looks at what workers have in flight.
#[derive(Debug)]
pub(super) struct StallWatch {
    after: Duration,
    stalled: BTreeMap<u32, Stall>,
}

impl StallWatch {
    pub(super) fn new(after: Duration) -> StallWatch {
        StallWatch {
            after,
            stalled: BTreeMap::new(),
        }
    }

    /// What has changed since the last look.
    pub(super) fn look(
        &mut self,
        now: MonoNanos,
        takers: &[Taker],
        load: &dyn Load,
    ) -> Vec<StallNews> {
        let mut news = Vec::new();
        for (worker, taker) in (0_u32..).zip(takers) {
            let in_flight = taker.in_flight();
            let known = self.stalled.get(&worker);
            if let Some(known) = known
                && in_flight.is_some_and(|it| {
                    let doing = Doing::Operation { worker, op: it.op };
                    (doing, it.since) == (known.doing, known.since)
                })
            {
                continue;
            }
            news.extend(self.stalled.remove(&worker).map(StallNews::Over));
            if let Some(it) = in_flight.filter(|it| now.since(it.since) >= self.after) {
                let stall = Stall {
                    doing: Doing::Operation { worker, op: it.op },
                    call: None,
                    since: it.since,
                    path: it.file.and_then(|file| load.path_of(worker, file)),
                    offset: it.offset,
                    hangs: true,
                };
                news.push(StallNews::Begun(stall.clone()));
                self.stalled.insert(worker, stall);
            }
        }
        news
    }

    /// The stall that has lasted longest.
    pub(super) fn longest(&self) -> Option<&Stall> {
        self.stalled.values().min_by_key(|stall| stall.since)
    }
}

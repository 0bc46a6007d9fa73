//! Operations that do not end: noticed, named, and told of again when they have ended after all.
//!
//! A worker that waits for its instant has no operation in flight and does not stall. It knows nothing of what follows
//! from a stall.

use crate::clock::MonoNanos;
use crate::op::Op;
use crate::recorder::Taker;
use crate::workload::Load;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// An operation that has been in flight for as long as a plan calls a stall.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stall {
    pub worker: u32,
    pub op: Op,
    pub since: MonoNanos,
    /// What it works on, where the workload can tell.
    pub path: Option<String>,
    pub offset: Option<u64>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {}: {}", self.worker, self.op)?;
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

    /// Which operations have stalled since the last look, and which that had are over.
    pub(super) fn look(
        &mut self,
        now: MonoNanos,
        takers: &[Taker],
        load: &dyn Load,
    ) -> (Vec<Stall>, Vec<Stall>) {
        let (mut begun, mut over) = (Vec::new(), Vec::new());
        for (worker, taker) in (0_u32..).zip(takers) {
            let in_flight = taker.in_flight();
            let known = self.stalled.get(&worker);
            if let Some(known) = known
                && in_flight.is_some_and(|it| (it.op, it.since) == (known.op, known.since))
            {
                continue;
            }
            over.extend(self.stalled.remove(&worker));
            if let Some(it) = in_flight.filter(|it| now.since(it.since) >= self.after) {
                let stall = Stall {
                    worker,
                    op: it.op,
                    since: it.since,
                    path: it.file.and_then(|file| load.path_of(worker, file)),
                    offset: it.offset,
                };
                begun.push(stall.clone());
                self.stalled.insert(worker, stall);
            }
        }
        (begun, over)
    }

    /// The stall that has lasted longest.
    pub(super) fn longest(&self) -> Option<&Stall> {
        self.stalled.values().min_by_key(|stall| stall.since)
    }
}

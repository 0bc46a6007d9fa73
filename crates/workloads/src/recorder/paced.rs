//! A worker's way through its schedule.
//!
//! Invariants: an operation that is late is issued at once and keeps its instant; one whose instant is not before the end
//! of the runtime is not issued; a worker that waits sees a stop and hands over its intervals ten times a second.

use super::{Began, Recorder};
use crate::clock::MonoNanos;
use crate::op::Op;
use crate::pacing::{Change, Changed, Changes, Schedule, Until, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// The schedule and how its instants are waited for.
#[derive(Debug)]
pub(super) struct Pacer {
    schedule: Schedule,
    waiting: Waiting,
    changes: Arc<Changes>,
    /// The version of the change that was seen last.
    seen: u64,
    /// Seen, and not yet in effect.
    change: Option<Change>,
}

/// What ended a wait for an instant.
enum Waited {
    Due(MonoNanos),
    /// The instant may be another now.
    Changed,
}

impl Pacer {
    pub(super) fn new(schedule: Schedule, workers: u32, changes: Arc<Changes>) -> Pacer {
        Pacer {
            schedule,
            waiting: Waiting::among(workers),
            changes,
            seen: 0,
            change: None,
        }
    }

    /// The next instant, by the share that is in effect then.
    fn due(&mut self, bytes: u64) -> MonoNanos {
        if self.changes.is_newer(self.seen)
            && let Some((version, change)) = self.changes.newer(self.seen)
        {
            self.seen = version;
            self.change = Some(change);
        }
        self.change
            .take_if(|change| self.schedule.change(change, bytes) == Changed::Done);
        self.schedule.due(bytes)
    }

    pub(super) fn set_start(&mut self, start: MonoNanos) {
        self.schedule.set_start(start);
        Waiting::sharpen_timers();
    }
}

impl Recorder {
    /// When the next operation is due, which moves `bytes`, for an engine that keeps several in flight; `None` when the
    /// load is not paced. It may be past.
    pub fn due(&mut self, bytes: u64) -> Option<MonoNanos> {
        Some(self.pacer.as_mut()?.due(bytes))
    }

    /// The next operation's instant; `None` when the load is not paced.
    #[inline]
    pub(super) fn take_instant(&mut self, bytes: u64) -> Option<MonoNanos> {
        Some(self.pacer.as_mut()?.schedule.take(bytes))
    }

    /// The next operation of a load that knows by itself when each is due: waits for `due`, from which its response time
    /// runs, and issues one that is late at once. `None` when the load has to end.
    pub fn next_at(&mut self, op: Op, due: MonoNanos) -> Option<Began> {
        let waiting = self.own_instants.unwrap_or(Waiting::among(u32::MAX));
        let gap = due.since(self.last);
        loop {
            if let Waited::Due(at) = self.wait(due, waiting, gap)? {
                self.link.show(op, at);
                return Some(Began { at, intended: due });
            }
        }
    }

    #[inline(never)]
    pub(super) fn next_due(&mut self, op: Op, bytes: u64) -> Option<Began> {
        loop {
            let pacer = self.pacer.as_mut()?;
            let intended = pacer.due(bytes);
            let (waiting, mean_gap) = (pacer.waiting, pacer.schedule.mean_gap(bytes));
            if let Waited::Due(at) = self.wait(intended, waiting, mean_gap)? {
                self.take_instant(bytes);
                self.link.show(op, at);
                return Some(Began { at, intended });
            }
        }
    }

    /// Waits for an instant; `None` when the load has to end before it.
    fn wait(&mut self, due: MonoNanos, waiting: Waiting, mean_gap: Duration) -> Option<Waited> {
        loop {
            if self.should_stop() {
                return None;
            }
            let (now, is_due) = match waiting.wait(due.min(self.until), mean_gap) {
                Until::Due(now) => (now, true),
                Until::Look(now) => (now, false),
            };
            self.look(now);
            if is_due && !self.should_stop() {
                return Some(Waited::Due(now));
            }
            let changed = |pacer: &Pacer| pacer.changes.is_newer(pacer.seen);
            if self.pacer.as_deref().is_some_and(changed) {
                return Some(Waited::Changed);
            }
        }
    }
}

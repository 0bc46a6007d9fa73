//! Operations of a paced or limited worker.
//!
//! Invariants: a late operation is issued at once and keeps its instant; an operation that is due at or after the end
//! of the runtime is not issued; one that was due before the end of the load and was not issued counts in the response
//! times with its age (`ledger.rs`); a waiting worker checks for a stop and hands over its intervals ten times a
//! second.

use super::{Began, Recorder};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use crate::measure::pacing::{Changed, Changes, Schedule, ShareChange, WaitEnd, WaitMethod};
use std::sync::Arc;
use std::time::Duration;

/// Number of operations that are counted one by one when a load ends behind its schedule. Of more, several count with
/// the age of one: an hour's hang at a million operations per second must not take a minute to count.
const MAX_COUNTED: u64 = 1 << 20;

/// The schedule and how to wait for its instants.
#[derive(Debug)]
pub(super) struct Pacer {
    schedule: Schedule,
    /// Bytes of the operation that was asked for last.
    bytes: u64,
    /// Bytes of the last operation whose instants are not taken yet.
    rest: u64,
    waiting: WaitMethod,
    changes: Arc<Changes>,
    /// Version of the change that was seen last.
    seen: u64,
    /// A change that was seen but is not in effect yet.
    change: Option<ShareChange>,
}

/// Why a wait for an instant ended.
enum Waited {
    Due(MonoNanos),
    /// The instant may have changed.
    Changed,
}

impl Pacer {
    pub(super) fn new(schedule: Schedule, workers: u32, changes: Arc<Changes>) -> Pacer {
        Pacer {
            schedule,
            bytes: 0,
            rest: 0,
            waiting: WaitMethod::for_workers(workers),
            changes,
            seen: 0,
            change: None,
        }
    }

    /// The next instant, by the share in effect at that time.
    fn due(&mut self, bytes: u64) -> MonoNanos {
        self.bytes = bytes;
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

    /// The instant of the next operation, of `bytes`, of which `first` are a chunk that has it.
    fn due_in_chunks(&mut self, bytes: u64, first: u64) -> MonoNanos {
        // An operation that ended early delays the next one as if it had moved everything.
        self.take_rest();
        let due = self.due(first);
        self.bytes = bytes;
        due
    }

    /// Takes the instant of a chunk within an operation; returns it, and how to wait for it.
    pub(super) fn take_chunk(&mut self, bytes: u64) -> (MonoNanos, (WaitMethod, Duration)) {
        let of_operation = self.bytes;
        let due = self.due(bytes);
        self.bytes = of_operation;
        self.schedule.take(bytes);
        self.rest = self.rest.saturating_sub(bytes);
        (due, (self.waiting, self.schedule.mean_gap(bytes)))
    }

    /// Takes the instants of the chunks that the last operation did not move.
    fn take_rest(&mut self) {
        let rest = std::mem::take(&mut self.rest);
        if rest > 0 {
            self.schedule.take(rest);
        }
    }

    pub(super) fn set_start(&mut self, start: MonoNanos) {
        self.schedule.set_start(start);
        WaitMethod::minimize_timer_slack();
    }

    #[cfg(test)]
    pub(super) fn take(&mut self, bytes: u64) {
        self.schedule.take(bytes);
    }

    /// Takes all instants before `end`, and passes them to `sink`, each with a number of operations.
    pub(super) fn each_due(&mut self, end: MonoNanos, sink: &mut dyn FnMut(MonoNanos, u64)) {
        self.take_rest();
        let bytes = self.bytes;
        let gap_ns = self.schedule.mean_gap(bytes).as_nanos();
        // Operations without bytes are never late under a rate of bytes.
        if gap_ns == 0 {
            return;
        }
        let late_ns = u128::from(end.nanos_since(self.schedule.due(bytes)));
        let left = u64::try_from(late_ns / gap_ns).unwrap_or(u64::MAX);
        let stride = left / MAX_COUNTED + 1;
        loop {
            let due = self.schedule.due(bytes);
            if due >= end {
                return;
            }
            sink(due, stride);
            match stride {
                1 => {
                    self.schedule.take(bytes);
                }
                _ => self.schedule.skip(stride, bytes),
            }
        }
    }
}

/// What an engine that keeps several operations in flight does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// Submit the next operation.
    Now,
    /// Submit it at this instant.
    At(MonoNanos),
    /// Submit no more: the next operation is due after the end of the runtime.
    Over,
}

impl Recorder {
    /// When an engine that keeps several operations in flight may [submit](Recorder::submit) the next one, of `bytes`.
    /// Takes its slot within the limit as soon as the schedule lets it through, so that workers that ask at the same
    /// time get consecutive slots.
    #[inline]
    pub fn turn(&mut self, bytes: u64) -> Turn {
        match self.waits {
            true => self.turn_waited(bytes),
            false => Turn::Now,
        }
    }

    fn turn_waited(&mut self, bytes: u64) -> Turn {
        let now = self.now();
        let due = match self.is_paced {
            true => self
                .ledger
                .get()
                .pacer
                .as_mut()
                .map(|pacer| pacer.due(bytes)),
            false => None,
        };
        if let Some(due) = due.filter(|due| *due > now || *due >= self.until) {
            return self.turn_at(due);
        }
        if self.reserved.is_none() {
            self.reserved = self.limit.as_ref().map(|limit| limit.take(bytes, now));
        }
        match self.reserved.filter(|from| *from > now) {
            Some(from) => self.turn_at(from),
            None => Turn::Now,
        }
    }

    fn turn_at(&self, instant: MonoNanos) -> Turn {
        match instant >= self.until {
            true => Turn::Over,
            false => Turn::At(instant),
        }
    }

    /// When the next operation, of `bytes`, may begin, as far as it is known; it may be in the past. `None` if it need
    /// not wait.
    pub fn due(&mut self, bytes: u64) -> Option<MonoNanos> {
        let mut ledger = self.ledger.get();
        let due = ledger.pacer.as_mut().map(|pacer| pacer.due(bytes));
        drop(ledger);
        let allowed = self.limit.as_ref().map(|limit| limit.next());
        due.max(allowed)
    }

    /// Takes the next operation's instant, and its slot within the limit; `None` if the load is not paced.
    #[inline]
    pub(super) fn take_instant(&mut self, bytes: u64, now: MonoNanos) -> Option<MonoNanos> {
        if let Some(limit) = &self.limit
            && self.reserved.take().is_none()
        {
            limit.take(bytes, now);
        }
        if !self.is_paced {
            return None;
        }
        let mut ledger = self.ledger.get();
        Some(ledger.pacer.as_mut()?.schedule.take(bytes))
    }

    /// Begins the next operation of a load that supplies its own instants: waits for `due`, where its response time
    /// starts; issues it at once if it is late. `None` when the load has to end.
    pub fn next_at(&mut self, op: Op, due: MonoNanos, bytes: u64) -> Option<Began> {
        let waiting = self.own_instants.unwrap_or(WaitMethod::SLEEPING);
        let gap = due.since(self.last);
        self.ledger.get().issued = Some((op, due));
        loop {
            if let Waited::Due(at) = self.wait(due, waiting, gap)? {
                self.due_wait_ended = Some(at);
                let at = self.wait_for_limit(bytes, at)?;
                self.shared.show(op, at);
                return Some(Began { at, intended: due });
            }
        }
    }

    /// Begins the next operation of a load that is paced or has a limit on its bytes per second. It moves `bytes`, of
    /// which it may move `first` at once.
    #[inline(never)]
    pub(super) fn next_waited(&mut self, op: Op, bytes: u64, first: u64) -> Option<Began> {
        let began = match self.is_paced {
            true => self.next_due(op, bytes, first)?,
            false => self.next_allowed(op, first)?,
        };
        self.chunks.begin(bytes, first);
        Some(began)
    }

    fn next_allowed(&mut self, op: Op, first: u64) -> Option<Began> {
        let now = self.now();
        if self.should_stop() {
            return None;
        }
        let at = self.wait_for_limit(first, now)?;
        self.shared.show(op, at);
        Some(Began::at(at))
    }

    fn next_due(&mut self, op: Op, bytes: u64, first: u64) -> Option<Began> {
        let scheduled = self.chunks.scheduled(bytes, first);
        loop {
            let mut ledger = self.ledger.get();
            let pacer = ledger.pacer.as_mut()?;
            let intended = pacer.due_in_chunks(bytes, scheduled);
            let (waiting, mean_gap) = (pacer.waiting, pacer.schedule.mean_gap(scheduled));
            drop(ledger);
            if let Waited::Due(at) = self.wait(intended, waiting, mean_gap)? {
                self.due_wait_ended = Some(at);
                let mut ledger = self.ledger.get();
                if let Some(pacer) = &mut ledger.pacer {
                    pacer.schedule.take(scheduled);
                    pacer.rest = bytes - scheduled;
                }
                ledger.issued = Some((op, intended));
                drop(ledger);
                let at = self.wait_for_limit(first, at)?;
                self.shared.show(op, at);
                return Some(Began { at, intended });
            }
        }
    }

    /// The load ended before the operation that is due at `due` was issued. Returns whether it was due by then.
    pub fn not_issued(&mut self, op: Op, due: MonoNanos) -> bool {
        self.record_age(op, due, self.last)
    }

    /// Counts an operation that will not end with its age until `now` in the response times. Returns whether it was due
    /// before the load ended.
    pub(super) fn record_age(&mut self, op: Op, due: MonoNanos, now: MonoNanos) -> bool {
        let end = self.load_end();
        let mut ledger = self.ledger.get();
        if !ledger.is_settled {
            ledger.record_age(op, due, end, now, 1);
        }
        due < end
    }

    /// Waits until the limit lets this many bytes through, and returns when. `None` if the load has to end before that.
    fn wait_for_limit(&mut self, bytes: u64, now: MonoNanos) -> Option<MonoNanos> {
        let Some(limit) = &self.limit else {
            return Some(now);
        };
        let from = limit.take(bytes, now);
        let mut now = now;
        while now < from {
            let until = from.min(self.until);
            now = match WaitMethod::SLEEPING.wait(until, Duration::ZERO) {
                WaitEnd::Due(now) | WaitEnd::Poll(now) => now,
            };
            self.advance_to(now);
            if self.should_stop() {
                return None;
            }
        }
        Some(now)
    }

    /// Waits for an instant; `None` if the load has to end before it.
    fn wait(&mut self, due: MonoNanos, waiting: WaitMethod, mean_gap: Duration) -> Option<Waited> {
        loop {
            if self.should_stop() {
                return None;
            }
            let (now, is_due) = match waiting.wait(due.min(self.until), mean_gap) {
                WaitEnd::Due(now) => (now, true),
                WaitEnd::Poll(now) => (now, false),
            };
            self.advance_to(now);
            if is_due && !self.should_stop() {
                return Some(Waited::Due(now));
            }
            let changed = |pacer: &Pacer| pacer.changes.is_newer(pacer.seen);
            if self.ledger.get().pacer.as_deref().is_some_and(changed) {
                return Some(Waited::Changed);
            }
        }
    }
}

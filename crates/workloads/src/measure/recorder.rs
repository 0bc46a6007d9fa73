//! The recorder of a worker: two clock readings and a few stores per operation.
//!
//! A worker owns its [`Recorder`]; its hot path does not lock, allocate or format. It detects the end of a period by
//! the clock that it reads anyway, pushes the full [`Buffer`] to a bounded lock-free ring and takes a clean one. If
//! there is no clean one, the interval widens: no count is lost and the worker never waits. The [`Consumer`] at the
//! other end also sees the operations in flight, and takes the counts of a worker that hangs (`ledger.rs`). This module
//! does not know tasks, merged periods or the wire.
//!
//! Most workloads need three functions: [`Recorder::next`] begins an operation, [`Recorder::end`] records its success
//! and [`Recorder::error`] its failure; [`Recorder::set_file`] sets its file. Operations that can outlast a period call
//! [`Recorder::reached`] between chunks, so that bytes count when they are moved; operations that can move more than a
//! chunk use `next_in_chunks` and `next_chunk` (`chunks.rs`), so that rates hold within them. Other loads use other
//! functions:
//! engines with several operations in flight `submit` and `complete` (`flight.rs`), loads with their own instants
//! `next_at` (`paced.rs`), loops of short calls `next_back_to_back`, and work between operations `untimed`.

mod began;
mod buffer;
mod calibrate;
mod chunks;
mod errors;
mod flight;
mod ledger;
mod marker;
mod observed;
mod paced;
mod progress;
mod shared_value;
mod untimed;

pub use began::Began;
pub(crate) use buffer::memory_bytes;
pub use buffer::{Buffer, Consumer, InFlightOp, RecordedOps};
pub use calibrate::harness_ns_per_op;
pub(crate) use errors::merge as merge_errors;
pub use errors::{
    DEFAULT_ERRORS_LIMIT, ErrorCount, ErrorFacts, ErrorPolicy, MISMATCH, OnError, OpError,
    is_errors_limit,
};
pub use marker::Marker;
pub use paced::Turn;

use crate::measure::clock::{MonoNanos, Reader, sleep_until};
use crate::measure::interval::{PERIOD, Shift};
use crate::measure::mismatch::Mismatches;
use crate::measure::op::Op;
use crate::measure::pacing::{Changes, RateLimit, Schedule, WaitMethod};
use crate::measure::rt_priority::RtPriority;
use crate::measure::timing::{StopRequest, Timing};
use buffer::{BUFFERS, SeriesKind, SharedSlot};
use chunks::Chunks;
use errors::ErrorLog;
use flight::Flight;
use ledger::Ledger;
use paced::Pacer;
use progress::Credit;
use shared_value::Owner;
use std::sync::Arc;
use std::time::Duration;

/// Configuration of a recorder.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The operations that will be recorded. [`Recorder::begin`] shows the first one as in flight.
    pub ops: &'static [Op],
    pub timing: Timing,
    /// Width of an interval.
    pub period: Duration,
    /// How far the periods have moved.
    pub shift: Arc<Shift>,
    /// Set by others to end the load.
    pub stop: Arc<StopRequest>,
    /// When operations are due, and how many workers wait at the same time; `None`: back to back.
    pub schedule: Option<(Schedule, u32)>,
    /// Number of workers that wait for instants supplied by the load; `None`: the load supplies none.
    pub own_instants: Option<u32>,
    /// Publishes changes of the share of a step's rate.
    pub changes: Arc<Changes>,
    pub errors: ErrorPolicy,
    /// Limits the bytes per second of all loads that share it.
    pub limit: Option<Arc<RateLimit>>,
    /// Maximum operations in flight by [`Recorder::submit`]; 0: one at a time.
    pub depth: u16,
}

impl Settings {
    /// As fast as possible, in intervals of one second, until the load is done.
    pub fn of(ops: &'static [Op]) -> Settings {
        Settings {
            ops,
            timing: Timing::default(),
            period: PERIOD,
            shift: Arc::default(),
            stop: Arc::default(),
            schedule: None,
            own_instants: None,
            changes: Arc::default(),
            errors: ErrorPolicy::default(),
            limit: None,
            depth: 0,
        }
    }
}

/// Creates a recorder and its consumer. Allocates and touches all memory.
pub fn pair(settings: Settings) -> (Recorder, Consumer) {
    let kind = match (&settings.schedule, settings.own_instants) {
        (None, None) => SeriesKind::Unpaced,
        _ => SeriesKind::Paced,
    };
    let clean = || Box::new(Buffer::new(settings.ops, kind));
    let shared = Arc::new(SharedSlot::new(clean));
    let buffer = clean();
    let spare = settings.timing.ramp.map(|_| clean());
    let mut slots = [u8::MAX; Op::ALL.len()];
    for (slot, op) in (0_u8..).zip(settings.ops) {
        if let Some(entry) = slots.get_mut(op.ordinal()) {
            *entry = slot;
        }
    }
    let is_paced = settings.schedule.is_some();
    let schedule = settings.schedule.as_ref().map(|(schedule, _)| schedule);
    let chunks = Chunks::new(schedule, settings.limit.as_deref());
    let pacer = settings
        .schedule
        .map(|(schedule, workers)| Box::new(Pacer::new(schedule, workers, settings.changes)));
    let errors = ErrorLog::new(settings.errors);
    let flight = Flight::new(settings.depth);
    let (ledger, taker) = shared_value::shared(Ledger::new(buffer, errors, flight, pacer));
    let recorder = Recorder {
        clock: Reader::new(),
        boundary: MonoNanos(u64::MAX),
        last: MonoNanos(0),
        until: MonoNanos(u64::MAX),
        streak: 0,
        credit: Credit::default(),
        rolled: true,
        slots,
        first_op: settings.ops.first().copied().unwrap_or(Op::Null),
        ledger,
        shared: Arc::clone(&shared),
        stop: settings.stop,
        start: MonoNanos(0),
        ramp_end: MonoNanos(0),
        period_ns: u64::try_from(settings.period.as_nanos()).unwrap_or(u64::MAX),
        shift: settings.shift,
        timing: settings.timing,
        spare,
        is_paced,
        own_instants: settings.own_instants.map(WaitMethod::for_workers),
        waits: is_paced || settings.limit.is_some(),
        limit: settings.limit,
        reserved: None,
        chunks,
        rt_priority: None,
        first_issue: None,
        due_wait_ended: None,
        load_ended: None,
    };
    (recorder, Consumer::new(shared, taker))
}

/// Records the operations of one worker.
#[derive(Debug)]
pub struct Recorder {
    clock: Reader,
    /// When the buffer has to change next: at the end of its period or of the ramp.
    boundary: MonoNanos,
    last: MonoNanos,
    until: MonoNanos,
    /// Errors since the last success.
    streak: u64,
    /// Bytes of the operation in flight that are already counted.
    credit: Credit,
    /// The buffer has changed since the last clock reading.
    rolled: bool,
    slots: [u8; Op::ALL.len()],
    first_op: Op,
    ledger: Owner<Ledger>,
    shared: Arc<SharedSlot>,
    stop: Arc<StopRequest>,
    start: MonoNanos,
    ramp_end: MonoNanos,
    period_ns: u64,
    shift: Arc<Shift>,
    timing: Timing,
    /// Reserved for the end of the ramp, which no interval may span.
    spare: Option<Box<Buffer>>,
    /// Operations have a schedule.
    is_paced: bool,
    /// Limits the bytes per second of all loads that share it.
    limit: Option<Arc<RateLimit>>,
    /// The slot within the limit of the next operation, if it was taken before its submission.
    reserved: Option<MonoNanos>,
    /// How rate and limit divide the operation in flight.
    chunks: Chunks,
    /// Operations may have to wait before they begin.
    waits: bool,
    /// How to wait for the instants that the load passes to [`Recorder::next_at`].
    own_instants: Option<WaitMethod>,
    /// Held until the first operation has ended.
    rt_priority: Option<RtPriority>,
    /// See [`Recorder::first_issue`].
    first_issue: Option<MonoNanos>,
    /// When the last operation's wait for its due instant ended, before its wait for the limit.
    due_wait_ended: Option<MonoNanos>,
    /// When the load ended, if the worker now only waits for the peer's last report.
    load_ended: Option<MonoNanos>,
}

impl Recorder {
    /// Sets the planned start, to which periods, ramp and runtime refer. Call it once, before the first operation.
    pub fn set_start(&mut self, start: MonoNanos) {
        self.start = start;
        self.last = start;
        self.ramp_end = start.saturating_add(self.timing.ramp.unwrap_or_default());
        self.until = match self.timing.runtime {
            Some(runtime) => self.ramp_end.saturating_add(runtime),
            None => MonoNanos(u64::MAX),
        };
        let mut ledger = self.ledger.get();
        ledger.until = self.until;
        ledger.buffer.label(0, start < self.ramp_end);
        if let Some(pacer) = &mut ledger.pacer {
            pacer.set_start(start);
        }
        drop(ledger);
        self.set_boundary();
        if self.own_instants.is_some() {
            WaitMethod::minimize_timer_slack();
        }
    }

    /// Ends the load at this instant at the latest. Call it after [`set_start`](Self::set_start) and before the first
    /// operation.
    pub fn end_by(&mut self, end: Option<MonoNanos>) {
        if let Some(end) = end {
            self.until = self.until.min(end);
            self.ledger.get().until = self.until;
        }
    }

    /// Keeps the worker's real-time priority until its first operation has ended.
    pub(crate) fn rt_until_first_op(&mut self, rt_priority: RtPriority) {
        self.rt_priority = Some(rt_priority);
        self.set_boundary();
    }

    /// The start plus the time by which the first operation was issued after its due instant, without its wait for the
    /// limit unless several are in flight. `None` if operations have no due instants, or none has ended.
    pub(crate) fn first_issue(&self) -> Option<MonoNanos> {
        self.first_issue
    }

    /// Begins the next operation, which moves `bytes`: waits until it is due if the load is paced, starts its clock and
    /// shows it as in flight. `None` when the load has to end.
    #[inline(always)]
    pub fn next(&mut self, op: Op, bytes: u64) -> Option<Began> {
        if self.waits {
            return self.next_waited(op, bytes, bytes);
        }
        match self.should_stop() {
            true => None,
            false => Some(self.begin_as(op)),
        }
    }

    /// As [`Recorder::next`], for an operation that follows the previous one at once: see
    /// [`Recorder::begin_back_to_back`].
    #[inline(always)]
    pub fn next_back_to_back(&mut self, op: Op, bytes: u64) -> Option<Began> {
        if self.waits {
            return self.next_waited(op, bytes, bytes);
        }
        match self.should_stop() {
            true => None,
            false => Some(self.begin_back_to_back(op)),
        }
    }

    /// Starts the clock of an operation of the mode's first kind, ignoring the schedule.
    #[inline]
    pub fn begin(&mut self) -> Began {
        self.begin_as(self.first_op)
    }

    /// Starts the clock of an operation, and shows it as in flight.
    #[inline(always)]
    pub fn begin_as(&mut self, op: Op) -> Began {
        let now = self.now();
        self.shared.show(op, now);
        Began::at(now)
    }

    /// Reads the clock that times the worker's operations.
    #[inline(always)]
    pub fn now(&mut self) -> MonoNanos {
        self.clock.now()
    }

    /// Starts an operation's clock at the last clock reading, when the previous operation ended. One reading serves
    /// both, and the time to record the previous one (some 15 ns) counts for this one. Use it only if nothing else
    /// happens in between.
    #[inline(always)]
    pub fn begin_back_to_back(&mut self, op: Op) -> Began {
        if self.rolled {
            // Changing the buffer must not count as part of an operation.
            self.rolled = false;
            return self.begin_as(op);
        }
        self.shared.show(op, self.last);
        Began::at(self.last)
    }

    /// Records an operation that succeeded.
    #[inline(always)]
    pub fn end(&mut self, op: Op, began: Began, bytes: u64) {
        let now = self.now();
        self.end_at(now, op, began, bytes);
    }

    /// Records an operation that succeeded and ended at `now`; the time between `now` and this call does not count.
    #[inline(always)]
    pub fn end_at(&mut self, now: MonoNanos, op: Op, began: Began, bytes: u64) {
        self.shared.hide();
        self.count(now, op, began, bytes);
    }

    #[inline(always)]
    fn count(&mut self, now: MonoNanos, op: Op, began: Began, bytes: u64) {
        if now >= self.boundary {
            self.roll_ended(op, began, now, bytes);
        }
        self.last = now;
        self.streak = 0;
        let left = self.credit.take_rest(bytes);
        let began = match self.waits {
            true => self.without_waits(began),
            false => began,
        };
        let slot = self.slot(op);
        let mut ledger = self.ledger.get();
        let ledger = &mut *ledger;
        let series = series(&mut ledger.buffer, slot, op);
        series.bytes += left;
        series.service.record(now.nanos_since(began.at));
        if let Some(response) = &mut series.response {
            ledger.issued = None;
            if !ledger.is_settled {
                response.record(now.nanos_since(began.intended));
            }
        }
    }

    /// Records an operation that failed. Returns an error if the worker cannot go on: no space left, or no success for
    /// too long. All other failures are counted, and the load goes on.
    #[cold]
    #[inline(never)]
    pub fn error(&mut self, op: Op, began: Began, facts: &ErrorFacts<'_>) -> Result<(), OpError> {
        let now = self.now();
        self.failed_at(now, op, began);
        let mut ledger = self.ledger.get();
        ledger.errors.add(op, now, self.streak, facts)?;
        drop(ledger);
        self.back_off();
        Ok(())
    }

    /// Waits after many identical errors in a row; outside of any operation.
    pub(super) fn back_off(&mut self) {
        let Some(delay) = self.ledger.get().errors.delay() else {
            return;
        };
        if !self.is_stopped() {
            sleep_until(self.last.saturating_add(delay));
            let now = self.now();
            self.advance_to(now);
            // The next operation does not begin where this one ended.
            self.rolled = true;
        }
    }

    /// Records an operation that succeeded but read wrong data. It counts as one failed operation, and each wrong
    /// sector as one error of that kind.
    #[cold]
    #[inline(never)]
    pub fn mismatch(
        &mut self,
        op: Op,
        began: Began,
        path: &str,
        wrong: &Mismatches,
    ) -> Result<(), OpError> {
        let now = self.now();
        self.failed_at(now, op, began);
        self.add_mismatches(op, path, wrong)
    }

    /// Adds wrong data found by an operation that was just recorded as failed or cut off.
    pub fn add_mismatches(
        &mut self,
        op: Op,
        path: &str,
        wrong: &Mismatches,
    ) -> Result<(), OpError> {
        let mut ledger = self.ledger.get();
        ledger
            .errors
            .add_mismatches(op, self.last, self.streak, path, wrong)
    }

    fn failed_at(&mut self, now: MonoNanos, op: Op, began: Began) {
        self.shared.hide();
        self.count_failed(now, op, began);
    }

    fn count_failed(&mut self, now: MonoNanos, op: Op, began: Began) {
        if now >= self.boundary {
            self.roll(Some((op, began)), now);
        }
        self.credit = Credit::default();
        self.last = now;
        self.streak += 1;
        let slot = self.slot(op);
        let mut ledger = self.ledger.get();
        series(&mut ledger.buffer, slot, op).errors += 1;
        ledger.issued = None;
    }

    /// Cancels a [`begin`](Recorder::begin): records nothing but the bytes already reported. The time of its begin is
    /// kept. For work that is no operation use [`Recorder::untimed`].
    pub fn idle(&mut self) {
        self.shared.hide();
        self.credit = Credit::default();
        // An operation with a due instant that the end of the load cuts off counts with its age.
        if !self.should_stop() {
            self.ledger.get().issued = None;
        }
    }

    /// Whether the load has to end: it was stopped, or its runtime has passed by the last clock reading.
    #[inline]
    pub fn should_stop(&self) -> bool {
        self.last >= self.until || self.stop.is_set()
    }

    /// Whether the load was stopped, regardless of its runtime.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.is_set()
    }

    /// When the load ended, or will end at the latest.
    fn load_end(&self) -> MonoNanos {
        self.until.min(self.stop.at().unwrap_or(self.until))
    }

    /// The planned start.
    pub fn start(&self) -> MonoNanos {
        self.start
    }

    /// The end of the runtime; the largest instant if there is none.
    #[inline]
    pub fn until(&self) -> MonoNanos {
        self.until
    }

    /// Whether operations have a schedule, which [`Recorder::next`] waits for.
    pub fn is_paced(&self) -> bool {
        self.is_paced
    }

    /// Whether this load runs for a given time rather than through its data once.
    pub fn is_timed(&self) -> bool {
        self.timing.runtime.is_some()
    }

    /// Hands over the last, partial interval and returns the errors. What was due before the load was ended from
    /// outside, and was not done, counts in the response times.
    pub fn finish(mut self) -> Vec<ErrorCount> {
        self.shared.hide();
        let (end, now) = (self.load_end(), self.last);
        let is_cut = self.should_stop();
        let mut ledger = self.ledger.get();
        if is_cut {
            ledger.settle(end, now);
        }
        if !ledger.buffer.is_empty() {
            ledger.note_done();
            let none = Box::new(Buffer::new(&[], SeriesKind::Unpaced));
            self.shared
                .push_full(std::mem::replace(&mut ledger.buffer, none));
        }
        self.shared.hand_over(u64::MAX);
        ledger.error_counts()
    }

    #[inline(always)]
    fn slot(&self, op: Op) -> u8 {
        self.slots.get(op.ordinal()).copied().unwrap_or(u8::MAX)
    }

    /// The counts of one kind in the current interval.
    #[inline(always)]
    fn counts(&mut self, op: Op, change: impl FnOnce(&mut RecordedOps)) {
        let slot = self.slot(op);
        change(series(&mut self.ledger.get().buffer, slot, op));
    }

    /// Changes the buffer, because `now` is past its period. The operation that has just ended (its kind and start) is
    /// recorded after this.
    #[cold]
    #[inline(never)]
    fn roll(&mut self, ended: Option<(Op, Began)>, now: MonoNanos) {
        self.rolled = true;
        let end = self.period_end();
        if let Some((_, began)) = ended
            && self.rt_priority.take().is_some()
        {
            self.first_ended(began);
        }
        if now < end {
            return self.set_boundary();
        }
        // Periods may have moved, so `now` may still lie in the current one. It never counts in an earlier one.
        let index = self.shift.to_period_time(now).nanos_since(self.start) / self.period_ns;
        let ramp = now < self.ramp_end;
        let mut ledger = self.ledger.get();
        let index = index.max(ledger.buffer.last_index());
        let in_flight = ended.filter(|(_, began)| began.at < end).map(|(op, _)| op);
        let Ledger { buffer, flight, .. } = &mut *ledger;
        buffer.set_in_flight(in_flight);
        for (op, began) in flight.each() {
            if began.at < end {
                buffer.add_in_flight(op);
            }
        }
        let mut is_clean = buffer.is_empty();
        if !is_clean {
            let clean = self.shared.pop_clean().or_else(|| {
                let ramp_ends = ramp != buffer.ramp;
                self.spare.take_if(|_| ramp_ends)
            });
            if let Some(clean) = clean {
                ledger.note_done();
                self.shared
                    .push_full(std::mem::replace(&mut ledger.buffer, clean));
                is_clean = true;
            }
        }
        match is_clean {
            true => ledger.buffer.label(index, ramp),
            false => ledger.buffer.widen_to(index),
        }
        drop(ledger);
        if is_clean {
            self.shared.hand_over(index);
        }
        self.set_boundary();
    }

    /// Notes how late the first operation of a load with due instants was issued.
    fn first_ended(&mut self, began: Began) {
        if self.is_paced || self.own_instants.is_some() {
            let due = began.intended.max(self.start);
            let issued = self.due_wait_ended.unwrap_or(began.at);
            self.first_issue = Some(self.start.saturating_add(issued.since(due)));
        }
    }

    /// The next clock reading changes the buffer if it is past the period, or if the first operation has not ended.
    fn set_boundary(&mut self) {
        self.boundary = match self.rt_priority {
            Some(_) => MonoNanos(0),
            None => self.period_end(),
        };
    }

    /// The end of the current interval.
    fn period_end(&mut self) -> MonoNanos {
        let ledger = self.ledger.get();
        let buffer = &ledger.buffer;
        let end = (buffer.index + u64::from(buffer.periods))
            .saturating_mul(self.period_ns)
            .saturating_add(self.start.0);
        let end = self.shift.to_task_clock(MonoNanos(end));
        match buffer.ramp {
            true => end.min(self.ramp_end),
            false => end,
        }
    }
}

/// The counts of one kind in an interval.
#[inline(always)]
fn series(buffer: &mut Buffer, slot: u8, op: Op) -> &mut RecordedOps {
    match buffer.series.get_mut(usize::from(slot)) {
        Some(series) => series,
        None => unannounced(op),
    }
}

#[cold]
#[inline(never)]
fn unannounced(op: Op) -> ! {
    panic!("the mode records `{op}`, which is not in its list of operations")
}

const _: () = assert!(
    BUFFERS >= 2,
    "one to fill while the other is taken; more bridge a late consumer"
);

#[cfg(test)]
pub(crate) mod tests;

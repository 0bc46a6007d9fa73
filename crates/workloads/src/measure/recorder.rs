//! The recorder of a worker: two clock readings and a few stores per operation.
//!
//! A worker owns its [`Recorder`]; nothing in its hot path locks, allocates or formats. It notices the end of a period
//! by the clock that it reads anyway, pushes its full [`Buffer`] to a bounded lock-free ring and goes on with a clean
//! one. Where no clean one is there, the interval widens: a count is never lost and a worker never waits. The other end
//! is the [`Consumer`], which also sees what is in flight. Nothing is known here of tasks, periods merged, or the wire.
//!
//! Most workloads need three functions: [`Recorder::next`] begins an operation, [`Recorder::end`] records its success
//! and [`Recorder::error`] its failure, and [`Recorder::place`] names the file it is about. One that can outlast a
//! period calls [`Recorder::reached`] between its chunks, so that its bytes count when they are moved. Engines that
//! keep several operations in flight use `submit` and `complete` (`flight.rs`) in their place, loads with instants of
//! their own `next_at` (`paced.rs`), loops of short calls `next_back_to_back`, and work between operations `untimed`.

mod began;
mod buffer;
mod calibrate;
mod errors;
mod flight;
mod marker;
mod observed;
mod paced;
mod progress;
mod untimed;

pub use began::Began;
pub(crate) use buffer::memory_bytes;
pub use buffer::{Buffer, Consumer, InFlightOp, Series};
pub use calibrate::harness_ns_per_op;
pub(crate) use errors::merge as merge_errors;
pub use errors::{
    DEFAULT_ERRORS_LIMIT, ErrorCount, ErrorFacts, ErrorPolicy, MISMATCH, OnError, OpError,
    is_errors_limit,
};
pub use marker::Marker;

use crate::measure::clock::{MonoNanos, Reader, sleep_until};
use crate::measure::interval::{PERIOD, Shift};
use crate::measure::mismatch::Mismatches;
use crate::measure::op::Op;
use crate::measure::pacing::{Changes, RateLimit, Schedule, Waiting};
use crate::measure::rt_priority::RtPriority;
use crate::measure::timing::Timing;
use buffer::{BUFFERS, SeriesKind, SharedSlot};
use errors::ErrorLog;
use flight::Flight;
use paced::Pacer;
use progress::Credit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a recorder is made from.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The operations that will be recorded; the first is what [`Recorder::begin`] announces.
    pub ops: &'static [Op],
    pub timing: Timing,
    /// Width of an interval.
    pub period: Duration,
    /// Where the periods have moved to.
    pub shift: Arc<Shift>,
    /// Set from outside to end the load.
    pub stop: Arc<AtomicBool>,
    /// When the operations are due, and how many workers wait for theirs at the same time; `None`: one after the other.
    pub schedule: Option<(Schedule, u32)>,
    /// Number of workers waiting on instants that the load supplies; `None`: it supplies none.
    pub own_instants: Option<u32>,
    /// Publishes a change of the share of a step's rate.
    pub changes: Arc<Changes>,
    pub errors: ErrorPolicy,
    /// Bounds the bytes per second of all load that shares it.
    pub limit: Option<Arc<RateLimit>>,
    /// How many operations an engine keeps in flight by [`Recorder::submit`]; 0: one after the other.
    pub depth: u16,
}

impl Settings {
    /// As fast as possible, in intervals of one second, until it is done.
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

/// Makes a recorder and its other end. All memory is allocated and touched here.
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
        buffer,
        shared: Arc::clone(&shared),
        stop: settings.stop,
        start: MonoNanos(0),
        ramp_end: MonoNanos(0),
        period_ns: u64::try_from(settings.period.as_nanos()).unwrap_or(u64::MAX),
        shift: settings.shift,
        timing: settings.timing,
        spare,
        errors: ErrorLog::new(settings.errors),
        pacer: settings
            .schedule
            .map(|(schedule, workers)| Box::new(Pacer::new(schedule, workers, settings.changes))),
        own_instants: settings.own_instants.map(Waiting::among),
        waits: is_paced || settings.limit.is_some(),
        limit: settings.limit,
        flight: Flight::new(settings.depth),
        rt_priority: None,
        load_ended: None,
    };
    (recorder, Consumer::new(shared))
}

/// One worker's record of what it does.
#[derive(Debug)]
pub struct Recorder {
    clock: Reader,
    /// The next instant at which the buffer has to change: the end of its period, or of the ramp.
    boundary: MonoNanos,
    last: MonoNanos,
    until: MonoNanos,
    /// Errors since the last success.
    streak: u64,
    /// Bytes of the operation in flight that have counted.
    credit: Credit,
    /// The buffer has changed since the clock was read last.
    rolled: bool,
    slots: [u8; Op::ALL.len()],
    first_op: Op,
    buffer: Box<Buffer>,
    shared: Arc<SharedSlot>,
    stop: Arc<AtomicBool>,
    start: MonoNanos,
    ramp_end: MonoNanos,
    period_ns: u64,
    shift: Arc<Shift>,
    timing: Timing,
    /// Set aside for the end of the ramp, across which no interval may widen.
    spare: Option<Box<Buffer>>,
    errors: ErrorLog,
    /// `None` when the load is not paced.
    pacer: Option<Box<Pacer>>,
    /// Bounds the bytes per second of all load that shares it.
    limit: Option<Arc<RateLimit>>,
    /// Operations may have to wait before they begin.
    waits: bool,
    /// How instants are waited for where the load gives them to [`Recorder::next_at`].
    own_instants: Option<Waiting>,
    /// What is in flight of an engine that keeps several; empty otherwise.
    flight: Flight,
    /// Until the first operation has ended.
    rt_priority: Option<RtPriority>,
    /// The worker has ended its load, and waits for the other end's last report.
    load_ended: Option<MonoNanos>,
}

impl Recorder {
    /// Fixes the planned start, to which periods, ramp and runtime refer. Before the first operation, once.
    pub fn set_start(&mut self, start: MonoNanos) {
        self.start = start;
        self.last = start;
        self.ramp_end = start.saturating_add(self.timing.ramp.unwrap_or_default());
        self.until = match self.timing.runtime {
            Some(runtime) => self.ramp_end.saturating_add(runtime),
            None => MonoNanos(u64::MAX),
        };
        self.buffer.label(0, start < self.ramp_end);
        self.set_boundary();
        if let Some(pacer) = &mut self.pacer {
            pacer.set_start(start);
        }
        if self.own_instants.is_some() {
            Waiting::sharpen_timers();
        }
    }

    /// Ends the load at an instant at the latest. After [`set_start`](Self::set_start), before the first operation.
    pub fn end_by(&mut self, end: Option<MonoNanos>) {
        if let Some(end) = end {
            self.until = self.until.min(end);
        }
    }

    /// Keeps the worker's real-time priority until its first operation has ended. A paced one has a schedule to keep
    /// instead.
    pub(crate) fn rt_until_first_op(&mut self, rt_priority: RtPriority) {
        if self.pacer.is_none() && self.own_instants.is_none() {
            self.rt_priority = Some(rt_priority);
            self.boundary = MonoNanos(0);
        }
    }

    /// The next operation, which moves `bytes`: waits until it is due where the load is paced, starts its clock and
    /// shows it as in flight. `None` when the load has to end.
    #[inline(always)]
    pub fn next(&mut self, op: Op, bytes: u64) -> Option<Began> {
        if self.waits {
            return self.next_waited(op, bytes);
        }
        match self.should_stop() {
            true => None,
            false => Some(self.begin_as(op)),
        }
    }

    /// The same for an operation that follows the one before it at once: see [`Recorder::begin_back_to_back`].
    #[inline(always)]
    pub fn next_back_to_back(&mut self, op: Op, bytes: u64) -> Option<Began> {
        if self.waits {
            return self.next_waited(op, bytes);
        }
        match self.should_stop() {
            true => None,
            false => Some(self.begin_back_to_back(op)),
        }
    }

    /// Starts the clock of an operation of the mode's first kind, whatever the schedule.
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

    /// The clock, as the worker reads it for its operations.
    #[inline(always)]
    pub fn now(&mut self) -> MonoNanos {
        self.clock.now()
    }

    /// Starts the clock of an operation at the instant that the clock was read last, when the operation before it
    /// ended: one reading serves both, and what lies between the two (a record, some 15 ns) is a part of this one.
    /// Only where nothing else lies between.
    #[inline(always)]
    pub fn begin_back_to_back(&mut self, op: Op) -> Began {
        if self.rolled {
            // To change the buffer is no part of an operation.
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

    /// The same, seen at `now`: what comes between that and this call is no part of it.
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
        let series = self.series(op);
        series.bytes += left;
        series.service.record(now.nanos_since(began.at));
        if let Some(response) = &mut series.response {
            response.record(now.nanos_since(began.intended));
        }
    }

    /// Records an operation that failed. An error means that the worker cannot go on: no space is left, or nothing has
    /// succeeded for long. Everything else is counted, and the load goes on.
    #[cold]
    #[inline(never)]
    pub fn error(&mut self, op: Op, began: Began, facts: &ErrorFacts<'_>) -> Result<(), OpError> {
        let now = self.now();
        self.failed_at(now, op, began);
        self.errors.add(op, now, self.streak, facts)?;
        self.back_off();
        Ok(())
    }

    /// Waits after many identical errors in a row; outside of any operation.
    pub(super) fn back_off(&mut self) {
        let Some(delay) = self.errors.delay() else {
            return;
        };
        if !self.is_stopped() {
            sleep_until(self.last.saturating_add(delay));
            let now = self.now();
            self.look(now);
            // The next operation does not begin where this one ended.
            self.rolled = true;
        }
    }

    /// Records an operation that succeeded, and read what was not written there: one failed operation like any other,
    /// of which each wrong sector is an error of its kind.
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

    /// Counts what an operation has read that was not written there, and that was recorded as failed just now.
    pub fn add_mismatches(
        &mut self,
        op: Op,
        path: &str,
        wrong: &Mismatches,
    ) -> Result<(), OpError> {
        self.errors
            .add_mismatches(op, self.last, self.streak, path, wrong)
    }

    fn failed_at(&mut self, now: MonoNanos, op: Op, began: Began) {
        self.shared.hide();
        self.count_failed(now, op, began);
    }

    fn count_failed(&mut self, now: MonoNanos, op: Op, began: Began) {
        if now >= self.boundary {
            self.roll(Some((op, began.at)), now);
        }
        self.credit = Credit::default();
        self.last = now;
        self.streak += 1;
        self.series(op).errors += 1;
    }

    /// Takes back a [`begin`](Recorder::begin): the operation came to nothing, and nothing is recorded but the bytes
    /// that it has reported. That it began stays true; for what is no operation there is [`Recorder::untimed`].
    pub fn idle(&mut self) {
        self.shared.hide();
        self.credit = Credit::default();
    }

    /// Whether the load has to end: it was stopped, or its runtime is over by the clock that was read last.
    #[inline]
    pub fn should_stop(&self) -> bool {
        self.last >= self.until || self.stop.load(Ordering::Relaxed)
    }

    /// Whether it was stopped, whatever the time.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The planned start.
    pub fn start(&self) -> MonoNanos {
        self.start
    }

    /// The end of the runtime; beyond all time when there is none.
    #[inline]
    pub fn until(&self) -> MonoNanos {
        self.until
    }

    /// Whether operations have instants at which they are due, and [`Recorder::next`] waits for them.
    pub fn is_paced(&self) -> bool {
        self.pacer.is_some()
    }

    /// Whether this load runs for a time rather than through its data once.
    pub fn is_timed(&self) -> bool {
        self.timing.runtime.is_some()
    }

    /// Hands over the last, partial interval and says which errors there were.
    pub fn finish(mut self) -> Vec<ErrorCount> {
        self.shared.hide();
        if !self.buffer.is_empty() {
            let buffer = std::mem::replace(
                &mut self.buffer,
                Box::new(Buffer::new(&[], SeriesKind::Unpaced)),
            );
            self.shared.push_full(buffer);
        }
        self.shared.hand_over(u64::MAX);
        self.errors.into_counts()
    }

    #[inline(always)]
    fn series(&mut self, op: Op) -> &mut Series {
        let slot = self.slots.get(op.ordinal()).copied().unwrap_or(u8::MAX);
        match self.buffer.series.get_mut(usize::from(slot)) {
            Some(series) => series,
            None => unannounced(op),
        }
    }

    /// Changes the buffer: `now` is not within its period any more. The operation that has just ended (its kind and its
    /// start) is recorded after.
    #[cold]
    #[inline(never)]
    fn roll(&mut self, ended: Option<(Op, MonoNanos)>, now: MonoNanos) {
        self.rolled = true;
        if self.rt_priority.take().is_some() {
            self.set_boundary();
            if now < self.boundary {
                return;
            }
        }
        // Periods may have moved, and what ends now may still be the one in hand; never one before it.
        let index = self.shift.undone(now).nanos_since(self.start) / self.period_ns;
        let index = index.max(self.buffer.last_index());
        let ramp = now < self.ramp_end;
        let in_flight = ended
            .filter(|(_, began)| *began < self.boundary)
            .map(|(op, _)| op);
        self.buffer.set_in_flight(in_flight);
        for (op, began) in self.flight.each() {
            if began < self.boundary {
                self.buffer.add_in_flight(op);
            }
        }
        if !self.buffer.is_empty() {
            let clean = self.shared.pop_clean().or_else(|| {
                let ramp_ends = ramp != self.buffer.ramp;
                self.spare.take_if(|_| ramp_ends)
            });
            match clean {
                Some(clean) => {
                    let full = std::mem::replace(&mut self.buffer, clean);
                    self.shared.push_full(full);
                }
                None => {
                    self.buffer.widen_to(index);
                    self.set_boundary();
                    return;
                }
            }
        }
        self.buffer.label(index, ramp);
        self.shared.hand_over(index);
        self.set_boundary();
    }

    fn set_boundary(&mut self) {
        let end = (self.buffer.index + u64::from(self.buffer.periods))
            .saturating_mul(self.period_ns)
            .saturating_add(self.start.0);
        let end = self.shift.done(MonoNanos(end));
        self.boundary = match self.buffer.ramp {
            true => end.min(self.ramp_end),
            false => end,
        };
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

//! Merges the workers' intervals by period.
//!
//! A period is emitted once every worker has handed it over, or when it is late; later data are emitted as they come.
//! If a worker is late because it hangs, the period contains what it did before.
//! Operations in flight are counted in the first emission only. Every period from the start to the end of the last
//! worker is emitted, even if nothing ended in it.

use crate::measure::clock::MonoNanos;
use crate::measure::histogram::Histogram;
use crate::measure::interval::{Interval, Shift};
use crate::measure::op::Op;
use crate::measure::recorder::{Buffer, Consumer};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A running worker hands over at its next operation; this is the time it has for that.
const GRACE: Duration = Duration::from_millis(200);
/// A worker whose operation takes longer is not waited for.
const LATEST: Duration = Duration::from_secs(2);
/// Interval of checks for late workers.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Period, width in periods, ramp before result, and the kind.
type MergeKey = (u64, u32, bool, Op);

pub(super) struct Merge {
    start: MonoNanos,
    period: Duration,
    shift: Arc<Shift>,
    ramp_end: MonoNanos,
    pending: BTreeMap<MergeKey, Interval>,
    /// Every period before this one has been emitted.
    next: u64,
    /// Per worker: what it had handed over at the last collection, all of which is merged.
    handed_over: Vec<u64>,
    /// Per worker: the period after its last buffer, and what was in flight at the end of that buffer.
    in_flight: Vec<(u64, Vec<(Op, u32)>)>,
    /// Kind of the interval for a period without any operation.
    usual_op: Op,
    /// End (exclusive) of the last interval that spans several periods.
    covered: u64,
    next_poll_at: MonoNanos,
}

impl Merge {
    pub(super) fn new(
        start: MonoNanos,
        period: Duration,
        ramp: Option<Duration>,
        shift: Arc<Shift>,
        usual_op: Op,
    ) -> Merge {
        let mut merge = Merge {
            start,
            period,
            shift,
            ramp_end: start.saturating_add(ramp.unwrap_or_default()),
            pending: BTreeMap::new(),
            next: 0,
            handed_over: Vec::new(),
            in_flight: Vec::new(),
            usual_op,
            covered: 0,
            next_poll_at: start,
        };
        merge.next_poll_at = merge.end_of(0).saturating_add(GRACE);
        merge
    }

    /// When to collect and emit next.
    pub(super) fn next_poll(&self) -> MonoNanos {
        self.next_poll_at
    }

    pub(super) fn collect(&mut self, consumers: &[Consumer]) {
        self.handed_over.clear();
        self.handed_over
            .extend(consumers.iter().map(Consumer::handed_over));
        self.in_flight
            .resize_with(consumers.len(), Default::default);
        for (worker, consumer) in consumers.iter().enumerate() {
            consumer.take(&mut |buffer| self.add(worker, buffer));
        }
    }

    /// Emits every period that is complete, or late. Call it after [`Merge::collect`].
    pub(super) fn emit_due(
        &mut self,
        now: MonoNanos,
        consumers: &[Consumer],
        sink: &mut dyn FnMut(Interval),
    ) {
        self.emit_before(self.next, sink);
        if self.handed_over.iter().all(|count| *count == u64::MAX) {
            // The load is over; its duration is known once the last worker has closed its files.
            if let Some((index, ..)) = self.pending.last_key_value().map(|(key, _)| *key) {
                self.emit_to(index.saturating_add(1), sink);
            }
            self.next_poll_at = now.saturating_add(GRACE);
            return;
        }
        self.next_poll_at = loop {
            let end = self.end_of(self.next);
            let grace = end.saturating_add(GRACE);
            if now < grace {
                break grace;
            }
            let late: Vec<&Consumer> = consumers
                .iter()
                .zip(&self.handed_over)
                .filter(|(_, handed_over)| **handed_over <= self.next)
                .map(|(consumer, _)| consumer)
                .collect();
            let latest = end.saturating_add(LATEST);
            if !late.is_empty() && now < latest {
                break now.saturating_add(POLL_INTERVAL).min(latest);
            }
            for consumer in &late {
                consumer.take_unfinished(&mut |buffer| self.add_counts(buffer));
            }
            self.count_in_flight(&late);
            self.emit_to(self.next + 1, sink);
        };
    }

    /// Ends the load of the workers that have not ended since it was stopped at `stopped`: takes what they have done,
    /// and the age of what was due. Call it after [`Merge::collect`].
    pub(super) fn settle(&mut self, stopped: MonoNanos, now: MonoNanos, consumers: &[Consumer]) {
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        let index = self.shift.to_period_time(now).nanos_since(self.start) / period;
        let label = (index, now < self.ramp_end);
        let running = consumers.iter().zip(&self.handed_over);
        let running: Vec<&Consumer> = running
            .filter(|(_, handed_over)| **handed_over < u64::MAX)
            .map(|(consumer, _)| consumer)
            .collect();
        for consumer in running {
            consumer.settle(stopped, now, label, &mut |buffer| self.add_counts(buffer));
        }
    }

    /// Emits the rest: every period that ended by `until`, and all data recorded after. Call it after
    /// [`Merge::collect`].
    pub(super) fn emit_all(
        &mut self,
        until: MonoNanos,
        consumers: &[Consumer],
        sink: &mut dyn FnMut(Interval),
    ) {
        self.emit_before(self.next, sink);
        while self.end_of(self.next) <= until {
            let running = consumers.iter().zip(&self.handed_over);
            let running = running.filter(|(_, handed_over)| **handed_over <= self.next);
            let running: Vec<&Consumer> = running.map(|(consumer, _)| consumer).collect();
            self.count_in_flight(&running);
            self.emit_to(self.next + 1, sink);
        }
        self.emit_before(u64::MAX, sink);
    }

    /// Counts the operations of these workers that were in flight at the end of the next period.
    fn count_in_flight(&mut self, consumers: &[&Consumer]) {
        let end = self.end_of(self.next);
        for in_flight in consumers.iter().filter_map(|consumer| consumer.in_flight()) {
            if in_flight.since < end && !in_flight.is_untimed {
                let key = (self.next, 1, end <= self.ramp_end, in_flight.op);
                self.interval(key).in_flight += 1;
            }
        }
    }

    /// Emits the periods before `next`, each with at least one interval.
    fn emit_to(&mut self, next: u64, sink: &mut dyn FnMut(Interval)) {
        while self.next < next {
            self.count_stalled();
            let first = self.pending.first_key_value();
            let is_there = first.is_some_and(|((index, ..), _)| *index == self.next);
            if !is_there && self.next >= self.covered {
                let ramp = self.end_of(self.next) <= self.ramp_end;
                self.interval((self.next, 1, ramp, self.usual_op));
            }
            self.next += 1;
            self.emit_before(self.next, sink);
        }
    }

    fn emit_before(&mut self, next: u64, sink: &mut dyn FnMut(Interval)) {
        while let Some(entry) = self.pending.first_entry() {
            let (index, ..) = *entry.key();
            if index >= next {
                break;
            }
            sink(entry.remove());
        }
    }

    fn add(&mut self, worker: usize, buffer: &Buffer) {
        self.add_in_flight(worker, buffer);
        self.add_counts(buffer);
    }

    fn add_counts(&mut self, buffer: &Buffer) {
        if buffer.periods > 1 {
            let after = buffer.index.saturating_add(buffer.periods.into());
            self.covered = self.covered.max(after);
        }
        let emitted = buffer.index < self.next;
        for series in &buffer.series {
            let was_in_flight = series.in_flight > 0 && !emitted;
            if !series.has_counts() && !was_in_flight {
                continue;
            }
            let key = (buffer.index, buffer.periods, buffer.ramp, series.op);
            let interval = self.interval(key);
            interval.ops += series.ops();
            interval.bytes += series.bytes;
            interval.undated_bytes += series.undated_bytes;
            interval.errors += series.errors;
            interval.service.add(&series.service);
            if let Some(response) = &series.response {
                interval.response.get_or_insert_default().add(response);
            }
            if !emitted {
                interval.in_flight += series.in_flight;
            }
        }
    }

    /// Operations in flight at the end of a worker's last buffer stayed so until the first period of this one.
    fn add_in_flight(&mut self, worker: usize, buffer: &Buffer) {
        let Some(known) = self.in_flight.get_mut(worker) else {
            return;
        };
        let series = buffer.series.iter().filter(|series| series.in_flight > 0);
        let still = series.map(|series| (series.op, series.in_flight)).collect();
        let after = buffer.index.saturating_add(buffer.periods.into());
        let (from, ops) = std::mem::replace(known, (after, still));
        for index in from.max(self.next)..buffer.index {
            let ramp = self.end_of(index) <= self.ramp_end;
            for (op, count) in &ops {
                self.interval((index, 1, ramp, *op)).in_flight += count;
            }
        }
    }

    /// Counts operations that were in flight throughout the next period, of workers that have handed over later ones.
    fn count_stalled(&mut self) {
        let ramp = self.end_of(self.next) <= self.ramp_end;
        let stalled = self.in_flight.iter().zip(&self.handed_over);
        let stalled = stalled.filter(|((after, _), handed_over)| {
            *after <= self.next && **handed_over > self.next && **handed_over < u64::MAX
        });
        let ops: Vec<(Op, u32)> = stalled.flat_map(|((_, ops), _)| ops.clone()).collect();
        for (op, count) in ops {
            self.interval((self.next, 1, ramp, op)).in_flight += count;
        }
    }

    fn interval(&mut self, key: MergeKey) -> &mut Interval {
        let (index, periods, ramp, op) = key;
        self.pending.entry(key).or_insert_with(|| Interval {
            index,
            periods,
            op,
            ramp,
            ops: 0,
            bytes: 0,
            undated_bytes: 0,
            errors: 0,
            in_flight: 0,
            service: Histogram::new(),
            response: None,
        })
    }

    fn end_of(&self, index: u64) -> MonoNanos {
        let period = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        let after = index.saturating_add(1).saturating_mul(period);
        self.shift
            .to_task_clock(MonoNanos(self.start.0.saturating_add(after)))
    }
}

#[cfg(test)]
mod tests;

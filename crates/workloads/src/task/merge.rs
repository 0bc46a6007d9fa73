//! The workers' intervals put together, period by period.
//!
//! A period is emitted once, when every worker has handed it over or when it is late; what comes afterwards is emitted
//! as it comes. What is in flight is counted in the first emission only.

use crate::clock::MonoNanos;
use crate::histogram::Histogram;
use crate::interval::{Interval, Shift};
use crate::op::Op;
use crate::recorder::{Buffer, Taker};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A worker in the midst of its load hands over at its next operation; this is the time it has for it.
const GRACE: Duration = Duration::from_millis(200);
/// A worker whose operation takes longer is not waited for.
const LATEST: Duration = Duration::from_secs(2);
/// How often to look for a worker that is late.
const LOOK: Duration = Duration::from_millis(100);

/// Periods, then width, ramp before result, and the kind.
type Key = (u64, u32, bool, Op);

pub(super) struct Merge {
    start: MonoNanos,
    period: Duration,
    shift: Arc<Shift>,
    ramp_end: MonoNanos,
    pending: BTreeMap<Key, Interval>,
    /// Every period before this one has been emitted.
    next: u64,
    /// What each worker had handed over when it was last collected from: all of that is here.
    handed_over: Vec<u64>,
    look_at: MonoNanos,
}

impl Merge {
    pub(super) fn new(
        start: MonoNanos,
        period: Duration,
        ramp: Option<Duration>,
        shift: Arc<Shift>,
    ) -> Merge {
        let mut merge = Merge {
            start,
            period,
            shift,
            ramp_end: start.saturating_add(ramp.unwrap_or_default()),
            pending: BTreeMap::new(),
            next: 0,
            handed_over: Vec::new(),
            look_at: start,
        };
        merge.look_at = merge.end_of(0).saturating_add(GRACE);
        merge
    }

    /// When to collect and emit next.
    pub(super) fn next_look(&self) -> MonoNanos {
        self.look_at
    }

    pub(super) fn collect(&mut self, takers: &[Taker]) {
        self.handed_over.clear();
        self.handed_over
            .extend(takers.iter().map(Taker::handed_over));
        for taker in takers {
            taker.take(&mut |buffer| self.add(buffer));
        }
    }

    /// Emits every period that is complete, or late. Call it after [`Merge::collect`].
    pub(super) fn emit_due(
        &mut self,
        now: MonoNanos,
        takers: &[Taker],
        sink: &mut dyn FnMut(Interval),
    ) {
        self.emit_before(self.next, sink);
        self.look_at = loop {
            let end = self.end_of(self.next);
            let grace = end.saturating_add(GRACE);
            if now < grace {
                break grace;
            }
            let late: Vec<&Taker> = takers
                .iter()
                .zip(&self.handed_over)
                .filter(|(_, handed_over)| **handed_over <= self.next)
                .map(|(taker, _)| taker)
                .collect();
            let latest = end.saturating_add(LATEST);
            if !late.is_empty() && now < latest {
                break now.saturating_add(LOOK).min(latest);
            }
            for in_flight in late.iter().filter_map(|taker| taker.in_flight()) {
                if in_flight.since < end {
                    let ramp = end <= self.ramp_end;
                    let key = (self.next, 1, ramp, in_flight.op);
                    self.interval(key).in_flight += 1;
                }
            }
            self.next += 1;
            self.emit_before(self.next, sink);
        };
    }

    pub(super) fn emit_all(&mut self, sink: &mut dyn FnMut(Interval)) {
        self.emit_before(u64::MAX, sink);
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

    fn add(&mut self, buffer: &Buffer) {
        let emitted = buffer.index < self.next;
        for series in &buffer.series {
            if series.service.is_empty() && series.errors == 0 && series.in_flight == 0 {
                continue;
            }
            let key = (buffer.index, buffer.periods, buffer.ramp, series.op);
            let interval = self.interval(key);
            interval.ops += series.service.count();
            interval.bytes += series.bytes;
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

    fn interval(&mut self, key: Key) -> &mut Interval {
        let (index, periods, ramp, op) = key;
        self.pending.entry(key).or_insert_with(|| Interval {
            index,
            periods,
            op,
            ramp,
            ops: 0,
            bytes: 0,
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
            .done(MonoNanos(self.start.0.saturating_add(after)))
    }
}

#[cfg(test)]
mod tests;

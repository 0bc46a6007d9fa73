//! A worker's counts since its last hand-over, and the operations that its schedule still owes.
//!
//! The worker changes it with each operation. Another thread reads it when the worker hangs, so that nothing that
//! happened before a hang waits for its end, and when the load ends: an operation that was due before the end and has
//! not ended counts in the response times with its age, which is the least that it can take. Otherwise a target that
//! stands still until its load is stopped would show the response times of the time before.

use super::buffer::{Buffer, RecordedOps};
use super::errors::{ErrorCount, ErrorLog};
use super::flight::Flight;
use super::paced::Pacer;
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;

/// A worker's counts and debts.
#[derive(Debug)]
pub(super) struct Ledger {
    pub buffer: Box<Buffer>,
    pub errors: ErrorLog,
    /// Operations in flight of an engine that keeps several; empty otherwise.
    pub flight: Flight,
    /// `None` when the load is not paced.
    pub pacer: Option<Box<Pacer>>,
    /// The operation that has its instant and has not ended, of a worker that does one at a time by a schedule.
    pub issued: Option<(Op, MonoNanos)>,
    /// The end of the runtime.
    pub until: MonoNanos,
    /// Operations handed over, by kind: unissued operations are shared out in this proportion.
    done: Box<[u64]>,
    /// Response times are complete; operations that end later add nothing to them.
    pub is_settled: bool,
}

impl Ledger {
    pub(super) fn new(
        buffer: Box<Buffer>,
        errors: ErrorLog,
        flight: Flight,
        pacer: Option<Box<Pacer>>,
    ) -> Ledger {
        Ledger {
            done: vec![0; buffer.series.len()].into(),
            buffer,
            errors,
            flight,
            pacer,
            issued: None,
            until: MonoNanos(u64::MAX),
            is_settled: false,
        }
    }

    /// Notes the kinds of the operations in the buffer, which is about to be handed over.
    pub(super) fn note_done(&mut self) {
        for (done, series) in self.done.iter_mut().zip(&self.buffer.series) {
            *done = done.saturating_add(timed_ops(series));
        }
    }

    /// Passes the counts since the last hand-over to `sink`, and clears them.
    pub(super) fn take_counts(&mut self, sink: &mut dyn FnMut(&Buffer)) {
        if !self.buffer.is_empty() {
            self.note_done();
            sink(&self.buffer);
            self.buffer.clear();
        }
    }

    pub(super) fn error_counts(&self) -> Vec<ErrorCount> {
        self.errors.counts().to_vec()
    }

    /// Counts each operation that was due before `end` and has not ended by `now`: its age, in the response times.
    pub(super) fn settle(&mut self, end: MonoNanos, now: MonoNanos) {
        if std::mem::replace(&mut self.is_settled, true) {
            return;
        }
        let in_flight = self.flight.each().map(|(op, began)| (op, began.intended));
        let begun: Vec<_> = self.issued.take().into_iter().chain(in_flight).collect();
        for (op, due) in begun {
            self.record_age(op, due, end, now, 1);
        }
        let mut kinds = Shares::of(self);
        let Some(mut pacer) = self.pacer.take() else {
            return;
        };
        pacer.each_due(end, &mut |due, count| {
            self.record_age(kinds.next(), due, end, now, count);
        });
        self.pacer = Some(pacer);
    }

    /// Counts an operation that was due at `due` and has not ended by `now`, if it was due before `end`.
    pub(super) fn record_age(
        &mut self,
        op: Op,
        due: MonoNanos,
        end: MonoNanos,
        now: MonoNanos,
        count: u64,
    ) {
        if due >= end {
            return;
        }
        let series = self.buffer.series.iter_mut().find(|series| series.op == op);
        if let Some(response) = series.and_then(|series| series.response.as_mut()) {
            response.record_many(now.nanos_since(due), count);
        }
    }
}

fn timed_ops(series: &RecordedOps) -> u64 {
    match series.op.is_observed() {
        true => 0,
        false => series.service.count(),
    }
}

/// Deals out operations by kind, in the proportion in which they were done.
struct Shares(Vec<KindShare>);

struct KindShare {
    op: Op,
    share: f64,
    owed: f64,
}

impl Shares {
    fn of(ledger: &Ledger) -> Shares {
        let counts = ledger.done.iter().zip(&ledger.buffer.series);
        let counts: Vec<(Op, u64)> = counts
            .map(|(done, series)| (series.op, done.saturating_add(timed_ops(series))))
            .collect();
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        let kinds = counts.into_iter().map(|(op, count)| KindShare {
            op,
            share: count as f64 / total.max(1) as f64,
            owed: 0.0,
        });
        Shares(kinds.collect())
    }

    /// The kind that is furthest behind its share; the mode's first kind if nothing was done.
    fn next(&mut self) -> Op {
        self.0.iter_mut().for_each(|kind| kind.owed += kind.share);
        // The last one of equals, thus the first kind.
        let kinds = self.0.iter_mut().rev();
        let behind = kinds.max_by(|one, other| one.owed.total_cmp(&other.owed));
        behind.map_or(Op::Null, |kind| {
            kind.owed -= 1.0;
            kind.op
        })
    }
}

//! The interval that a worker fills, and the lock-free ring between the worker and its consumer.

use super::errors::ErrorCount;
use super::ledger::Ledger;
use super::shared_value::Taker;
use crate::measure::clock::MonoNanos;
use crate::measure::histogram::Histogram;
use crate::measure::op::Op;
use crossbeam_queue::ArrayQueue;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Buffers per worker: one in use, and clean ones for as many periods as the consumer may be late.
pub(super) const BUFFERS: usize = 4;
/// Plus the spare for the end of the ramp.
const RING: usize = BUFFERS + 1;

/// Memory of one worker's buffers for these operations, in bytes, with both histograms of a paced load.
pub(crate) fn memory_bytes(ops: &[Op]) -> u64 {
    let histograms = ops.len().saturating_mul(2).saturating_mul(RING + 1);
    u64::try_from(histograms.saturating_mul(Histogram::MEMORY_BYTES)).unwrap_or(u64::MAX)
}

/// Layout of the word that shows the operation in flight: its start shifted by this, below it the kind plus one, or 0
/// once it has ended.
const OP_BITS: u32 = 6;
const OP_MASK: u64 = (1 << OP_BITS) - 1;
const _: () = assert!(Op::ALL.len() < 1 << OP_BITS);

/// One worker's operations in one period, or in several when it was widened.
#[derive(Debug)]
pub struct Buffer {
    pub index: u64,
    pub periods: u32,
    pub ramp: bool,
    pub series: Box<[RecordedOps]>,
}

/// Operations of one kind.
#[derive(Debug)]
pub struct RecordedOps {
    pub op: Op,
    /// Counted as they were moved, also for operations that have not ended.
    pub bytes: u64,
    /// Bytes of operations that ended here and reported nothing for a whole period before their end.
    pub undated_bytes: u64,
    pub errors: u64,
    /// Operations counted without a duration.
    pub untimed: u64,
    /// Operations of this kind that were in flight at the end of the period.
    pub in_flight: u32,
    /// Issue to completion.
    pub service: Histogram,
    /// Intended instant to completion, or to the end of the load if it was not reached (`ledger.rs`); `None` when the
    /// load is not paced.
    pub response: Option<Histogram>,
}

impl RecordedOps {
    pub(crate) fn ops(&self) -> u64 {
        self.service.count() + self.untimed
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.has_counts() && self.in_flight == 0
    }

    pub(crate) fn has_counts(&self) -> bool {
        // Response times may contain operations that have not ended.
        let is_owed = self
            .response
            .as_ref()
            .is_some_and(|response| !response.is_empty());
        self.ops() > 0 || self.bytes > 0 || self.errors > 0 || is_owed
    }
}

/// Histograms that a buffer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeriesKind {
    Paced,
    Unpaced,
}

impl Buffer {
    pub(super) fn new(ops: &[Op], kind: SeriesKind) -> Buffer {
        let touched = || {
            let mut histogram = Histogram::new();
            histogram.touch();
            histogram
        };
        let series = ops.iter().map(|op| RecordedOps {
            op: *op,
            bytes: 0,
            undated_bytes: 0,
            errors: 0,
            untimed: 0,
            in_flight: 0,
            service: touched(),
            // Operations counted by the other end follow no schedule.
            response: (kind == SeriesKind::Paced && !op.is_observed()).then(touched),
        });
        Buffer {
            index: 0,
            periods: 1,
            ramp: false,
            series: series.collect(),
        }
    }

    pub(super) fn label(&mut self, index: u64, ramp: bool) {
        self.index = index;
        self.periods = 1;
        self.ramp = ramp;
    }

    /// The last period that it covers.
    pub(super) fn last_index(&self) -> u64 {
        self.index
            .saturating_add(u64::from(self.periods))
            .saturating_sub(1)
    }

    /// Widens the interval to the end of period `index`.
    pub(super) fn widen_to(&mut self, index: u64) {
        let periods = index.saturating_sub(self.index).saturating_add(1);
        self.periods = u32::try_from(periods).unwrap_or(u32::MAX);
    }

    pub(super) fn set_in_flight(&mut self, op: Option<Op>) {
        for series in &mut self.series {
            series.in_flight = u32::from(op == Some(series.op));
        }
    }

    pub(super) fn add_in_flight(&mut self, op: Op) {
        for series in self.series.iter_mut().filter(|series| series.op == op) {
            series.in_flight += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.series.iter().all(RecordedOps::is_empty)
    }

    pub(super) fn clear(&mut self) {
        for series in &mut self.series {
            series.bytes = 0;
            series.undated_bytes = 0;
            series.errors = 0;
            series.untimed = 0;
            series.in_flight = 0;
            series.service.clear();
            if let Some(response) = &mut series.response {
                response.clear();
            }
        }
    }
}

/// No file, or no offset in it.
pub(super) const NO_POSITION: u64 = u64::MAX;

fn position_of(value: &AtomicU64) -> Option<u64> {
    Some(value.load(Ordering::Relaxed)).filter(|value| *value != NO_POSITION)
}

/// State shared by both ends. Aligned so that a neighbour's stores do not slow a worker down (false sharing).
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct SharedSlot {
    in_flight: AtomicU64,
    /// The shown work is not a measured operation.
    is_untimed: AtomicBool,
    /// If several operations are in flight, when the newest began; else 0.
    newest: AtomicU64,
    /// File of the operation in flight: written by the worker, read if the operation takes too long.
    file: AtomicU64,
    offset: AtomicU64,
    /// Every interval before this index has been pushed.
    handed_over: AtomicU64,
    full: ArrayQueue<Box<Buffer>>,
    clean: ArrayQueue<Box<Buffer>>,
}

impl SharedSlot {
    pub(super) fn new(buffer: impl Fn() -> Box<Buffer>) -> SharedSlot {
        let clean = ArrayQueue::new(RING);
        for _ in 1..BUFFERS {
            clean.force_push(buffer());
        }
        SharedSlot {
            in_flight: AtomicU64::new(0),
            is_untimed: AtomicBool::new(false),
            newest: AtomicU64::new(0),
            file: AtomicU64::new(NO_POSITION),
            offset: AtomicU64::new(NO_POSITION),
            handed_over: AtomicU64::new(0),
            full: ArrayQueue::new(RING),
            clean,
        }
    }

    #[inline(always)]
    pub(super) fn show(&self, op: Op, since: MonoNanos) {
        let word = since.0 << OP_BITS | (op.ordinal() as u64 + 1);
        self.in_flight.store(word, Ordering::Relaxed);
    }

    /// Shows nothing as in flight; keeps when the last operation began. Only the worker writes the word.
    #[inline(always)]
    pub(super) fn hide(&self) {
        let word = self.in_flight.load(Ordering::Relaxed);
        self.in_flight.store(word & !OP_MASK, Ordering::Relaxed);
    }

    /// The shown operation, for [`SharedSlot::show_again`].
    pub(super) fn shown(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    pub(super) fn show_again(&self, shown: u64) {
        self.in_flight.store(shown, Ordering::Relaxed);
    }

    /// Shows `act` like an operation while it lasts, and then what was shown before.
    pub(super) fn untimed<T>(&self, op: Op, since: MonoNanos, act: impl FnOnce() -> T) -> T {
        let before = self.shown();
        self.is_untimed.store(true, Ordering::Relaxed);
        self.show(op, since);
        let done = act();
        self.show_again(before);
        self.is_untimed.store(false, Ordering::Relaxed);
        done
    }

    /// Another one of several operations in flight began.
    #[inline(always)]
    pub(super) fn submitted(&self, now: MonoNanos) {
        self.newest.store(now.0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn set_position(&self, file: u64, offset: u64) {
        self.file.store(file, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Relaxed);
    }

    /// Keeps the file, clears the offset.
    pub(super) fn clear_offset(&self) {
        self.offset.store(NO_POSITION, Ordering::Relaxed);
    }

    pub(super) fn pop_clean(&self) -> Option<Box<Buffer>> {
        self.clean.pop()
    }

    pub(super) fn push_full(&self, buffer: Box<Buffer>) {
        self.full
            .push(buffer)
            .expect("the ring holds every buffer that there is");
    }

    /// Release: a reader that sees the index also finds the buffers.
    pub(super) fn hand_over(&self, index: u64) {
        self.handed_over.store(index, Ordering::Release);
    }
}

/// An operation that has begun but not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InFlightOp {
    pub op: Op,
    pub since: MonoNanos,
    /// Set by [`Recorder::set_file`](super::Recorder::set_file). For an operation that has just begun it may be the
    /// file of the previous one.
    pub file: Option<u64>,
    pub offset: Option<u64>,
    /// Work before an operation or after the last one: it can hang, but counts for no operation.
    pub is_untimed: bool,
}

/// The consuming end of a recorder: takes full intervals and returns clean buffers.
#[derive(Debug, Clone)]
pub struct Consumer(Arc<SharedSlot>, Taker<Ledger>);

impl Consumer {
    pub(super) fn new(shared: Arc<SharedSlot>, ledger: Taker<Ledger>) -> Consumer {
        Consumer(shared, ledger)
    }

    /// Passes each full interval to `sink`, oldest first, and returns its buffer to the worker.
    pub fn take(&self, sink: &mut dyn FnMut(&Buffer)) {
        while let Some(mut buffer) = self.0.full.pop() {
            sink(&buffer);
            buffer.clear();
            self.0.clean.force_push(buffer);
        }
    }

    /// Passes the counts that a worker within a long operation has not handed over to `sink`, and clears them. They
    /// belong to the interval in which the operation began, or to the last one in which it reported progress.
    pub fn take_unfinished(&self, sink: &mut dyn FnMut(&Buffer)) {
        self.1.take(|ledger| ledger.take_counts(sink));
    }

    /// Ends a worker's load that was stopped at `stopped` and goes on in an operation: counts what was due and has not
    /// ended by `now` in interval `index`, and passes everything to `sink`. Later ends count nothing in response times.
    pub fn settle(
        &self,
        stopped: MonoNanos,
        now: MonoNanos,
        (index, ramp): (u64, bool),
        sink: &mut dyn FnMut(&Buffer),
    ) {
        self.1.take(|ledger| {
            ledger.take_counts(sink);
            let index = index.max(ledger.buffer.last_index());
            ledger.buffer.label(index, ramp);
            ledger.settle(ledger.until.min(stopped), now);
            ledger.take_counts(sink);
        });
    }

    /// The errors of the worker so far.
    pub(crate) fn errors(&self) -> Vec<ErrorCount> {
        self.1
            .take(|ledger| ledger.error_counts())
            .unwrap_or_default()
    }

    /// Every interval before this index can be taken; `u64::MAX` when the worker has finished.
    pub fn handed_over(&self) -> u64 {
        self.0.handed_over.load(Ordering::Acquire)
    }

    /// The operation in flight at this moment.
    pub fn in_flight(&self) -> Option<InFlightOp> {
        let word = self.0.in_flight.load(Ordering::Relaxed);
        let kind = word & OP_MASK;
        let op = Op::ALL
            .into_iter()
            .find(|op| op.ordinal() as u64 + 1 == kind)?;
        Some(InFlightOp {
            op,
            since: MonoNanos(word >> OP_BITS),
            file: position_of(&self.0.file),
            offset: position_of(&self.0.offset),
            is_untimed: self.0.is_untimed.load(Ordering::Relaxed),
        })
    }

    /// When the worker's last operation began, ended or not; `None`: none has begun.
    pub fn last_begun(&self) -> Option<MonoNanos> {
        let shown = self.0.in_flight.load(Ordering::Relaxed) >> OP_BITS;
        let newest = self.0.newest.load(Ordering::Relaxed);
        Some(MonoNanos(shown.max(newest))).filter(|at| at.0 > 0)
    }
}

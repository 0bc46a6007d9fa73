//! One task's operations of one kind in one period: what leaves this crate while a task runs.

use crate::measure::clock::MonoNanos;
use crate::measure::histogram::Histogram;
use crate::measure::op::Op;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The period of an interval. Periods are aligned to the planned start of the task.
pub const PERIOD: Duration = Duration::from_secs(1);

/// How much later on a task's own clock its periods lie than that clock alone would have them, in nanoseconds.
///
/// Two clocks part; a task of days whose periods are to be somebody else's seconds moves them now and then, each time
/// by much less than a period. A period that grows or shrinks with it is still one: every operation is counted in the
/// one in which it ended, and what is recorded under the same index on either side of a move is added.
#[derive(Debug, Default)]
pub struct Shift(AtomicI64);

impl Shift {
    /// Moves what has not ended yet.
    pub fn set(&self, ns: i64) {
        self.0.store(ns, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// An instant of the task's own clock, as it lies when nothing is moved.
    pub(crate) fn undone(&self, at: MonoNanos) -> MonoNanos {
        MonoNanos(at.0.saturating_add_signed(self.get().saturating_neg()))
    }

    /// An instant as it lies now.
    pub(crate) fn done(&self, at: MonoNanos) -> MonoNanos {
        MonoNanos(at.0.saturating_add_signed(self.get()))
    }
}

/// Counts and latencies of one kind of operation in one or more whole periods.
///
/// An operation belongs to the period in which it ended, its bytes to those in which they were moved as far as it
/// reports them. Several intervals may carry the same `index` and `op`: parts
/// that came late, and parts on either side of the end of `ramp_time`. They are added, never replaced.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Whole periods between the planned start and the beginning of this interval.
    pub index: u64,
    /// Width in periods; more than one when the load was not to be held up for a clean buffer.
    pub periods: u32,
    pub op: Op,
    /// The operations ended within `ramp_time`, and are not a part of the result.
    pub ramp: bool,
    pub ops: u64,
    pub bytes: u64,
    /// Bytes, here or in earlier intervals, of operations that ended here and were silent for a whole period before:
    /// when they were moved is unknown.
    pub undated_bytes: u64,
    pub errors: u64,
    /// Operations that had begun and not ended when the interval did.
    pub in_flight: u32,
    /// Issue to completion.
    pub service: Histogram,
    /// Intended instant to completion; `None` when the load is not paced.
    pub response: Option<Histogram>,
}

//! One task's operations of one kind in one period, as sent while a task runs.

use crate::measure::clock::MonoNanos;
use crate::measure::histogram::Histogram;
use crate::measure::op::Op;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// The period of an interval. Periods are aligned to the planned start of the task.
pub const PERIOD: Duration = Duration::from_secs(1);

/// How many nanoseconds the task's periods are shifted later on its own clock.
///
/// Two clocks drift apart. A task that runs for days and whose periods follow another host's seconds shifts them now
/// and then, each time by much less than a period. Such a shift shortens or lengthens one period. Every operation still
/// counts in the period in which it ended, and data recorded under the same index before and after a shift are added.
#[derive(Debug, Default)]
pub struct Shift(AtomicI64);

impl Shift {
    /// Shifts all periods that have not ended.
    pub fn set(&self, ns: i64) {
        self.0.store(ns, Ordering::Relaxed);
    }

    pub fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The instant on the unshifted line of periods that belongs to a reading of the task's clock.
    pub(crate) fn to_period_time(&self, at: MonoNanos) -> MonoNanos {
        MonoNanos(at.0.saturating_add_signed(self.get().saturating_neg()))
    }

    /// The reading of the task's clock at an instant of the unshifted line of periods.
    pub(crate) fn to_task_clock(&self, at: MonoNanos) -> MonoNanos {
        MonoNanos(at.0.saturating_add_signed(self.get()))
    }
}

/// Counts and latencies of one kind of operation in one or more whole periods.
///
/// An operation counts in the period in which it ended, its bytes in those in which they were moved, as far as it
/// reports that. Several intervals may carry the same `index` and `op`: parts that came late, and parts on either side
/// of the end of `ramp_time`. They are added, never replaced.
#[derive(Debug, Clone)]
pub struct Interval {
    /// Whole periods between the planned start and the beginning of this interval.
    pub index: u64,
    /// Width in periods; more than one if there was no clean buffer, so that the load did not have to wait.
    pub periods: u32,
    pub op: Op,
    /// The operations ended within `ramp_time` and are not part of the result.
    pub ramp: bool,
    pub ops: u64,
    pub bytes: u64,
    /// Bytes, here or in earlier intervals, of operations that ended here and reported nothing for a whole period
    /// before: when they were moved is unknown.
    pub undated_bytes: u64,
    pub errors: u64,
    /// Operations that had begun but not ended at the end of the interval.
    pub in_flight: u32,
    /// Issue to completion.
    pub service: Histogram,
    /// Intended instant to completion; `None` when the load is not paced.
    pub response: Option<Histogram>,
}

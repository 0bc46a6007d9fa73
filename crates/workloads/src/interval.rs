//! One task's operations of one kind in one period: what leaves this crate while a task runs.

use crate::histogram::Histogram;
use crate::op::Op;
use std::time::Duration;

/// The period of an interval. Periods are aligned to the planned start of the task.
pub const PERIOD: Duration = Duration::from_secs(1);

/// Counts and latencies of one kind of operation in one or more whole periods.
///
/// An operation belongs to the period in which it ended. Several intervals may carry the same `index` and `op`: parts
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
    pub errors: u64,
    /// Operations that had begun and not ended when the interval did.
    pub in_flight: u32,
    /// Issue to completion.
    pub service: Histogram,
    /// Intended instant to completion; `None` when the load is not paced.
    pub response: Option<Histogram>,
}

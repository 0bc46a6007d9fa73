//! The window in which all tasks of a step were active, and how much of an interval lies in it.

use super::facts::{IntervalFacts, TaskFacts};
use super::real;

/// When a task was at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The planned start.
    pub start_us: i64,
    /// Its last worker's start.
    pub last_start_us: i64,
    /// The end of its ramp; the planned start when it has none.
    pub measured_us: i64,
    /// The first moment that any of its workers had done.
    pub first_done_us: i64,
    pub ended_us: i64,
}

impl Activity {
    /// `None` for a task that never started. One that was lost ended where it was last heard of.
    pub fn of(task: &TaskFacts) -> Option<Self> {
        let start_us = task.start_us?;
        let ended_us = task.ended_us.or(task.last_interval_us)?.max(start_us);
        let last_start_us = start_us.saturating_add(task.skew_us.unwrap_or(0));
        Some(Self {
            start_us,
            last_start_us,
            measured_us: start_us.saturating_add(task.ramp_us),
            first_done_us: task.first_done_us.unwrap_or(ended_us).min(ended_us),
            ended_us,
        })
    }
}

/// A step's tasks together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    pub last_start_us: i64,
    /// When the first and the last task began to be measured.
    pub first_measured_us: i64,
    pub last_measured_us: i64,
    pub first_done_us: i64,
    /// When the first task had ended altogether.
    pub first_ended_us: i64,
    pub last_done_us: i64,
}

impl Together {
    /// `None` when no task started.
    pub fn of(activities: impl IntoIterator<Item = Activity>) -> Option<Self> {
        activities
            .into_iter()
            .map(|one| Self {
                last_start_us: one.last_start_us,
                first_measured_us: one.measured_us,
                last_measured_us: one.measured_us,
                first_done_us: one.first_done_us,
                first_ended_us: one.ended_us,
                last_done_us: one.ended_us,
            })
            .reduce(|a, b| Self {
                last_start_us: a.last_start_us.max(b.last_start_us),
                first_measured_us: a.first_measured_us.min(b.first_measured_us),
                last_measured_us: a.last_measured_us.max(b.last_measured_us),
                first_done_us: a.first_done_us.min(b.first_done_us),
                first_ended_us: a.first_ended_us.min(b.first_ended_us),
                last_done_us: a.last_done_us.max(b.last_done_us),
            })
    }

    /// Whether there was a moment at which every task was at work. Otherwise a sum would be of things that never were
    /// at once.
    pub fn overlap(&self) -> bool {
        self.last_start_us < self.first_ended_us
    }

    /// From the last start, and the end of the last ramp, to the first moment any worker had done.
    pub fn all_active(&self) -> Option<(i64, i64)> {
        let from = self.last_start_us.max(self.last_measured_us);
        (self.overlap() && from < self.first_done_us).then_some((from, self.first_done_us))
    }

    /// From the first that was measured to the last worker's end.
    pub fn measured_us(&self) -> i64 {
        self.last_done_us
            .saturating_sub(self.first_measured_us)
            .max(0)
    }
}

/// What of an interval lies in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    pub ops: f64,
    /// How far `ops` can be from the truth.
    pub ops_error: f64,
    pub bytes: f64,
    pub bytes_error: f64,
}

impl Share {
    pub fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.ops_error += other.ops_error;
        self.bytes += other.bytes;
        self.bytes_error += other.bytes_error;
    }
}

/// Shares an interval's operations linearly over its span, as far as its task was measured in it, and bounds the error: in a slice of time no more operations
/// can have completed than its workers could at the interval's least service time (plus the ones under way).
pub fn share(
    interval: &IntervalFacts,
    workers: u32,
    activity: Option<&Activity>,
    (from, until): (i64, i64),
) -> Share {
    let nominal = interval.at_us.saturating_add(interval.span_us);
    let begin = activity
        .map(|activity| activity.measured_us)
        .filter(|&measured| measured < nominal)
        .map_or(interval.at_us, |measured| measured.max(interval.at_us));
    let end = activity
        .map(|activity| activity.ended_us)
        .filter(|&ended| ended > begin)
        .map_or(nominal, |ended| ended.min(nominal));
    let inside = until.min(end).saturating_sub(from.max(begin)).max(0);
    let span = end - begin;
    if inside == 0 || span <= 0 {
        return Share::default();
    }
    let (ops, bytes) = (real(interval.ops), real(interval.bytes));
    if inside >= span {
        return Share {
            ops,
            bytes,
            ..Share::default()
        };
    }
    let part = real(inside) / real(span);
    let estimate = ops * part;
    let at_most = |slice: i64| capacity(interval, workers, span, slice).min(ops);
    let (most, least) = (at_most(inside), (ops - at_most(span - inside)).max(0.0));
    let ops_error = (most - estimate).max(estimate - least).max(0.0);
    let relative = if interval.ops > 0 {
        ops_error / ops
    } else {
        part.max(1.0 - part)
    };
    Share {
        ops: estimate,
        ops_error,
        bytes: bytes * part,
        bytes_error: bytes * relative,
    }
}

/// The most operations that can complete within `slice_us`: each of the operations that were under way at once completes
/// one already begun, and then one per least service time.
fn capacity(interval: &IntervalFacts, workers: u32, span_us: i64, slice_us: i64) -> f64 {
    let service = &interval.service;
    if service.is_empty() || service.min_ns() == 0 {
        return f64::INFINITY;
    }
    // By Little's law the mean number under way is the sum of the service times over the span.
    let mean_under_way = service.sum_ns() / (real(span_us) * 1e3);
    let at_once = f64::from(workers)
        .max(real(interval.in_flight))
        .max(mean_under_way.ceil())
        .max(1.0);
    let least_us = real(i64::try_from(service.min_ns()).unwrap_or(i64::MAX)) / 1e3;
    at_once * (1.0 + (real(slice_us) / least_us).floor())
}

//! The window in which all tasks of a step were active, and the part of an interval's work in it.

use super::facts::{IntervalFacts, TaskFacts};
use super::{PERIOD_US, real};
use serde::{Deserialize, Serialize};

/// The activity of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// The planned start.
    pub start_us: i64,
    /// Its last worker's start.
    pub last_start_us: i64,
    /// The end of its ramp, or the planned start without a ramp.
    pub measured_us: i64,
    /// The end of its first worker.
    pub first_done_us: i64,
    pub ended_us: i64,
}

impl Activity {
    /// Returns `None` for a task that never started. A lost task ended at its last evidence of activity.
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

/// The activity of a client: of its task, or of its parts if it was lost and rejoined the step.
#[derive(Clone, Debug)]
pub struct ClientActivity {
    /// From the start of the first part to the end of the last one.
    pub whole: Activity,
    /// Between its parts.
    pub gaps: Vec<(i64, i64)>,
}

impl ClientActivity {
    pub fn of(first: Activity) -> Self {
        Self {
            whole: first,
            gaps: Vec::new(),
        }
    }

    /// Adds the next part.
    pub fn rejoined(&mut self, next: &Activity) {
        let back_us = next.last_start_us.max(next.measured_us);
        self.gaps.push((self.whole.first_done_us, back_us));
        self.whole.first_done_us = self.whole.first_done_us.max(next.first_done_us);
        self.whole.ended_us = self.whole.ended_us.max(next.ended_us);
    }
}

/// The times in which clients of a step were away.
#[derive(Clone, Debug, Default)]
pub struct Gaps(Vec<(i64, i64)>);

impl Gaps {
    pub fn of<'c>(clients: impl IntoIterator<Item = &'c ClientActivity>) -> Self {
        let each = clients.into_iter().flat_map(|client| &client.gaps).copied();
        let mut sorted: Vec<(i64, i64)> = each.collect();
        sorted.sort_unstable();
        let mut apart: Vec<(i64, i64)> = Vec::new();
        for (from, until) in sorted {
            match apart.last_mut() {
                Some((_, end)) if from <= *end => *end = until.max(*end),
                _ => apart.push((from, until)),
            }
        }
        Self(apart)
    }

    /// The longest part of a window in which no client was away: a rate over a gap would be that of fewer clients.
    pub fn longest_between(&self, (from, until): (i64, i64)) -> (i64, i64) {
        let begins = std::iter::once(from).chain(self.0.iter().map(|(_, back)| *back));
        let ends = self.0.iter().map(|(away, _)| *away).chain([until]);
        begins
            .zip(ends)
            .map(|(begin, end)| (begin.max(from), end.min(until)))
            .max_by_key(|(begin, end)| (end - begin, -begin))
            .filter(|(begin, end)| begin < end)
            .unwrap_or((from, until))
    }
}

/// The combined activity of a step's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskOverlap {
    pub last_start_us: i64,
    /// When the first and the last task's measurement began.
    pub first_measured_us: i64,
    pub last_measured_us: i64,
    pub first_done_us: i64,
    /// The end of the first task.
    pub first_ended_us: i64,
    pub last_done_us: i64,
}

impl TaskOverlap {
    /// Returns `None` if no task started.
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

    /// Whether all tasks were active at some moment. Otherwise a sum would add loads that never ran at the same time.
    pub fn overlap(&self) -> bool {
        self.last_start_us < self.first_ended_us
    }

    /// From the last start, or the end of the last ramp, to the first end of any worker.
    pub fn all_active(&self) -> Option<(i64, i64)> {
        let from = self.last_start_us.max(self.last_measured_us);
        (self.overlap() && from < self.first_done_us).then_some((from, self.first_done_us))
    }

    /// From the start of the first measurement to the last worker's end.
    pub fn measured_us(&self) -> i64 {
        self.last_done_us
            .saturating_sub(self.first_measured_us)
            .max(0)
    }
}

/// Maximum rate of bytes in a part of an interval, relative to its mean: caches take bytes in bursts.
const MAX_BURST: f64 = 10.0;

/// The maximum share of an interval's bytes that lies on the wrong side of an edge which divides it at `part`, if only
/// its total is known.
fn displaced(part: f64) -> f64 {
    let shorter = part.min(1.0 - part).max(0.0);
    (1.0 - shorter).min(MAX_BURST * shorter)
}

/// The position of a time relative to a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    Within,
    Outside,
    /// The time contains an edge of the window.
    Across,
}

/// Upper bound of the time in which the work of intervals was done: operations begin before the interval that they end
/// in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extent {
    pub begun_us: i64,
    pub end_us: i64,
}

impl Extent {
    pub fn of(interval: &IntervalFacts) -> Self {
        let longest_us = interval.service.max_ns() / 1000;
        // Shorter operations are spread over the interval. The scale rounds up by less than a hundredth.
        let before = match longest_us < PERIOD_US.unsigned_abs() {
            true => 0,
            false => longest_us.saturating_add(longest_us / 100 + 1),
        };
        let before = i64::try_from(before).unwrap_or(i64::MAX);
        Self {
            begun_us: interval.at_us.saturating_sub(before),
            end_us: interval.at_us.saturating_add(interval.span_us),
        }
    }

    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self {
            begun_us: self.begun_us.min(other.begun_us),
            end_us: self.end_us.max(other.end_us),
        }
    }

    /// Inside the window all work counts, outside none does; [`share`] is only needed across an edge.
    pub fn position(self, (from, until): (i64, i64)) -> Position {
        match () {
            () if self.begun_us >= from && self.end_us <= until => Position::Within,
            () if self.end_us <= from || self.begun_us >= until => Position::Outside,
            () => Position::Across,
        }
    }
}

/// The part of an interval within a window.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WindowShare {
    pub ops: f64,
    /// Maximum error of `ops`.
    pub ops_error: f64,
    pub bytes: f64,
    pub bytes_error: f64,
    /// The part of the errors that comes from operations of a second and more: the time of these operations, or of
    /// their bytes, is unknown.
    pub long_ops_error: f64,
    pub undated_error: f64,
}

impl WindowShare {
    pub fn add(&mut self, other: Self) {
        self.ops += other.ops;
        self.ops_error += other.ops_error;
        self.bytes += other.bytes;
        self.bytes_error += other.bytes_error;
        self.long_ops_error += other.long_ops_error;
        self.undated_error += other.undated_error;
    }

    /// The part of the window's work that may lie outside of it because progress within operations is unknown.
    pub fn unknown_part(&self) -> f64 {
        let part = |error: f64, of: f64| {
            if error > 0.0 {
                error / of.max(error)
            } else {
                0.0
            }
        };
        match self.bytes + self.undated_error > 0.0 {
            true => part(self.undated_error, self.bytes),
            false => part(self.long_ops_error, self.ops),
        }
    }
}

/// The part of an interval's work within the window, and its possible error.
///
/// Bytes count when they were moved. They are spread linearly over the interval's span, as far as its task was measured
/// in it. The same holds for operations that took less than a second: in a slice of time no more can have completed
/// than the workers could do at the interval's minimum service time (plus the operations under way). A longer operation
/// took place during its service time before its end: its share is the part of that time within the window, even if it
/// ended after the window; the error comes from its end, which is somewhere in the interval. Bytes without a date are
/// treated like such operations. Bytes whose operations are not in the interval may lie on either side of the edge, but
/// moved at most [`MAX_BURST`] times as fast as the interval's mean.
pub fn share(
    interval: &IntervalFacts,
    workers: u32,
    activity: Option<&Activity>,
    window: (i64, i64),
) -> WindowShare {
    let (from, until) = window;
    let nominal = interval.at_us.saturating_add(interval.span_us);
    let begin = activity
        .map(|activity| activity.measured_us)
        .filter(|&measured| measured < nominal)
        .map_or(interval.at_us, |measured| measured.max(interval.at_us));
    let end = activity
        .map(|activity| activity.ended_us)
        .filter(|&ended| ended > begin)
        .map_or(nominal, |ended| ended.min(nominal));
    let span = end - begin;
    if span <= 0 {
        return WindowShare::default();
    }
    let inside = until.min(end).saturating_sub(from.max(begin)).max(0);
    let part = real(inside) / real(span);
    let started_us = activity.map_or(i64::MIN, |activity| activity.start_us);
    let long = LongOps::of(interval, (begin, end), started_us, window);
    let short = (real(interval.ops) - long.count).max(0.0);
    let (short_inside, short_error) = match inside {
        0 => (0.0, 0.0),
        _ if inside >= span => (short, 0.0),
        _ => {
            let estimate = short * part;
            let at_most = |slice: i64| capacity(interval, workers, span, slice).min(short);
            let (most, least) = (at_most(inside), (short - at_most(span - inside)).max(0.0));
            let error = (most - estimate).max(estimate - least).max(0.0);
            (estimate, error)
        }
    };
    let is_cut = inside > 0 && inside < span;
    let relative = match (is_cut, short > 0.0 && long.count == 0.0) {
        (false, _) => 0.0,
        (true, true) => short_error / short,
        (true, false) => displaced(part),
    };
    // Undated bytes that were counted at the end of their operations are spread over the operations' time.
    let undated = real(interval.undated_bytes);
    let counted_here = interval.undated_bytes <= interval.bytes && long.count > 0.0;
    let (spread, undated_error) = match counted_here {
        true => (undated, undated * long.error / long.count),
        false => (0.0, undated * long.displaced()),
    };
    let linear = real(interval.bytes) - spread;
    WindowShare {
        ops: short_inside + long.inside,
        ops_error: short_error + long.error,
        bytes: linear * part + spread * long.part(),
        bytes_error: linear * relative + undated_error,
        long_ops_error: long.error,
        undated_error,
    }
}

/// The operations of an interval that took a period or more.
#[derive(Debug, Default)]
struct LongOps {
    count: f64,
    inside: f64,
    error: f64,
}

impl LongOps {
    /// They ended in `ends`, and none began before its task did.
    fn of(interval: &IntervalFacts, ends: (i64, i64), started_us: i64, window: (i64, i64)) -> Self {
        let mut long = Self::default();
        let period_ns = PERIOD_US.unsigned_abs() * 1000;
        if interval.service.max_ns() < period_ns {
            return long;
        }
        let slots = interval.service.filled_slots();
        for slot in slots.filter(|slot| slot.highest_ns >= period_ns) {
            let middle = slot.lowest_ns.midpoint(slot.highest_ns) / 1000;
            let lasted = i64::try_from(middle).unwrap_or(i64::MAX).max(1);
            let (least, most) = part_inside(lasted, ends, started_us, window);
            let count = real(i64::try_from(slot.count).unwrap_or(i64::MAX));
            long.count += count;
            long.inside += count * least.midpoint(most);
            long.error += count * (most - least) / 2.0;
        }
        long
    }

    /// The part of their time within the window.
    fn part(&self) -> f64 {
        if self.count > 0.0 {
            self.inside / self.count
        } else {
            0.0
        }
    }

    /// The part of the bytes which were counted at an earlier time of an operation and may be on the wrong side of the
    /// window's edge; 0 if the whole operation is on one side.
    fn displaced(&self) -> f64 {
        displaced(self.part())
    }
}

/// The minimum and maximum part of an operation's time within the window, over all its possible ends.
fn part_inside(
    lasted: i64,
    (earliest, latest): (i64, i64),
    started_us: i64,
    (from, until): (i64, i64),
) -> (f64, f64) {
    let earliest = earliest.max(started_us.saturating_add(lasted)).min(latest);
    let part = |end: i64| {
        let began = end.saturating_sub(lasted).max(started_us).min(end - 1);
        let inside = end.min(until) - began.max(from);
        real(inside.max(0)) / real(end - began)
    };
    // Between the ends of the range, the part is largest where the operation or the window ends.
    [until, from.saturating_add(lasted)]
        .into_iter()
        .filter(|end| (earliest..=latest).contains(end))
        .chain([earliest, latest])
        .map(part)
        .fold((f64::INFINITY, 0.0), |(least, most), part| {
            (least.min(part), part.max(most))
        })
}

/// Maximum number of operations that can complete within `slice_us`: each of the operations under way at once
/// completes, and then one per least service time.
fn capacity(interval: &IntervalFacts, workers: u32, span_us: i64, slice_us: i64) -> f64 {
    let service = &interval.service;
    if service.is_empty() || service.min_ns() == 0 {
        return f64::INFINITY;
    }
    // By Little's law, the mean number under way is the sum of the service times divided by the span.
    let mean_under_way = service.sum_ns() / (real(span_us) * 1e3);
    let at_once = f64::from(workers)
        .max(real(interval.in_flight))
        .max(mean_under_way.ceil())
        .max(1.0);
    let least_us = real(i64::try_from(service.min_ns()).unwrap_or(i64::MAX)) / 1e3;
    at_once * (1.0 + (real(slice_us) / least_us).floor())
}

//! The last seconds of a running step. Pure.

use super::LiveInterval;
use crate::snapshot::LoadNow;
use benchmesh_model::mesh::{MeshMicros, TaskId};
use benchmesh_results::histogram_of;
use benchmesh_workloads::histogram::{Blob, Histogram};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

/// Displayed rates are means over this time.
const WINDOW_US: i64 = 3_000_000;
/// Limit of one task's intervals in the window: seconds times operations, with room to spare.
const MAX_INTERVALS: usize = 64;

/// Sums and rates of a running step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub load: LoadNow,
    /// Each task's rates over the last seconds.
    pub tasks: Vec<TaskRate>,
}

/// One task's part of the rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskRate {
    pub task: TaskId,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
}

#[derive(Debug, Default)]
pub(super) struct Window {
    tasks: HashMap<TaskId, Recent>,
    service: Latencies,
    response: Latencies,
    newest_us: i64,
}

/// Latencies by the second in which their intervals ended.
#[derive(Debug, Default)]
struct Latencies(BTreeMap<i64, Histogram>);

impl Latencies {
    fn add(&mut self, end_us: i64, blob: Option<&Blob>) {
        if let Some(blob) = blob
            && let Ok(histogram) = histogram_of(blob)
        {
            self.0
                .entry(end_us.div_euclid(1_000_000))
                .or_default()
                .add(&histogram);
        }
    }

    /// Drops seconds that ended before `oldest_us`, and sums up the others.
    fn since(&mut self, oldest_us: i64) -> Histogram {
        self.0
            .retain(|second, _| second.saturating_add(1).saturating_mul(1_000_000) > oldest_us);
        let mut sum = Histogram::new();
        for second in self.0.values() {
            sum.add(second);
        }
        sum
    }
}

/// One task's sums so far, and its last intervals.
#[derive(Debug, Default)]
struct Recent {
    ops: u64,
    bytes: u64,
    intervals: VecDeque<Interval>,
}

#[derive(Debug)]
struct Interval {
    at_us: i64,
    end_us: i64,
    ops: i64,
    bytes: i64,
}

impl Window {
    /// Adds an interval of any task; its service times only if it is one of `tasks`.
    pub fn add(&mut self, interval: &LiveInterval, tasks: &BTreeSet<TaskId>) {
        if !tasks.contains(&interval.task) {
            return;
        }
        let count = |count: i64| count.max(0).unsigned_abs();
        let MeshMicros(at_us) = interval.at;
        let end_us = at_us.saturating_add(interval.span_us);
        self.newest_us = self.newest_us.max(end_us);
        let recent = self.tasks.entry(interval.task).or_default();
        recent.ops = recent.ops.saturating_add(count(interval.ops));
        recent.bytes = recent.bytes.saturating_add(count(interval.bytes));
        recent.intervals.push_back(Interval {
            at_us,
            end_us,
            ops: interval.ops,
            bytes: interval.bytes,
        });
        if recent.intervals.len() > MAX_INTERVALS {
            recent.intervals.pop_front();
        }
        if end_us > self.newest_us.saturating_sub(WINDOW_US) {
            self.service.add(end_us, interval.service.as_ref());
            self.response.add(end_us, interval.response.as_ref());
        }
    }

    /// The figures of a step with these tasks. Drops intervals that belong to another step or are too old.
    pub fn figures(&mut self, tasks: &BTreeSet<TaskId>) -> Figures {
        self.tasks.retain(|task, _| tasks.contains(task));
        let oldest_us = self.newest_us.saturating_sub(WINDOW_US);
        let mut figures = Figures::default();
        for (task, recent) in &mut self.tasks {
            recent
                .intervals
                .retain(|interval| interval.end_us > oldest_us);
            recent.add_to(&mut figures, *task);
        }
        let (service, response) = (
            self.service.since(oldest_us),
            self.response.since(oldest_us),
        );
        // Histograms are recorded only while someone watches.
        let known = |of: &Histogram, q: f64| Some(ms(of.quantile(q))).filter(|ms| *ms > 0.0);
        figures.load.p50_ms = known(&service, 0.5);
        figures.load.p99_ms = known(&service, 0.99);
        figures.load.max_ms = known(&service, 1.0);
        figures.load.response_p99_ms = known(&response, 0.99);
        figures
    }
}

impl Recent {
    /// The step's rate is the sum over tasks of each task's mean rate.
    #[expect(clippy::cast_precision_loss, reason = "rates to look at")]
    fn add_to(&self, figures: &mut Figures, task: TaskId) {
        let load = &mut figures.load;
        load.ops = load.ops.saturating_add(self.ops);
        load.bytes = load.bytes.saturating_add(self.bytes);
        let mut rate = TaskRate {
            task,
            ops_per_s: 0.0,
            bytes_per_s: 0.0,
        };
        let from_us = self.intervals.iter().map(|interval| interval.at_us).min();
        let until_us = self.intervals.iter().map(|interval| interval.end_us).max();
        if let (Some(from_us), Some(until_us)) = (from_us, until_us) {
            let seconds = until_us.saturating_sub(from_us).max(1) as f64 / 1e6;
            for interval in &self.intervals {
                rate.ops_per_s += interval.ops as f64 / seconds;
                rate.bytes_per_s += interval.bytes as f64 / seconds;
            }
        }
        load.ops_per_s += rate.ops_per_s;
        load.bytes_per_s += rate.bytes_per_s;
        figures.tasks.push(rate);
    }
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds to look at")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(task: i64, second: i64, ops: i64) -> LiveInterval {
        LiveInterval {
            task: TaskId(task),
            at: MeshMicros(second * 1_000_000),
            span_us: 1_000_000,
            ops,
            bytes: ops * 4096,
            service: None,
            response: None,
        }
    }

    #[test]
    fn a_step_begins_without_the_rate_of_the_one_before_it() {
        let mut window = Window::default();
        let first = BTreeSet::from([TaskId(1), TaskId(2)]);
        window.add(&second(1, 10, 500), &first);
        window.add(&second(2, 10, 500), &first);
        assert_eq!(window.figures(&first).load.ops_per_s, 1000.0);
        let next = BTreeSet::from([TaskId(3), TaskId(4)]);
        window.add(&second(3, 11, 200), &next);
        let load = window.figures(&next).load;
        assert_eq!((load.ops_per_s, load.ops), (200.0, 200));
        window.add(&second(4, 11, 200), &next);
        // A late interval of the previous step.
        window.add(&second(1, 11, 500), &next);
        let load = window.figures(&next).load;
        assert_eq!((load.ops_per_s, load.ops), (400.0, 400));
    }

    #[test]
    fn the_rate_is_of_the_last_seconds_and_the_sums_are_of_the_whole_step() {
        let mut window = Window::default();
        let tasks = BTreeSet::from([TaskId(1)]);
        for at in 0..10 {
            window.add(&second(1, at, 1000), &tasks);
        }
        for at in 10..14 {
            window.add(&second(1, at, 100), &tasks);
        }
        let load = window.figures(&tasks).load;
        assert_eq!((load.ops_per_s, load.bytes_per_s), (100.0, 409_600.0));
        assert_eq!((load.ops, load.p99_ms), (10_400, None));
    }

    #[test]
    fn service_times_leave_the_window_with_their_seconds() {
        let mut window = Window::default();
        let tasks = BTreeSet::from([TaskId(1)]);
        let watched = |at, ns| {
            let mut histogram = Histogram::new();
            histogram.record(ns);
            LiveInterval {
                service: Some(histogram.to_blob()),
                ..second(1, at, 1)
            }
        };
        window.add(&watched(1, 80_000_000), &tasks);
        window.add(&watched(2, 1_000_000), &tasks);
        let p99_ms = |window: &mut Window| window.figures(&tasks).load.p99_ms.expect("watched");
        assert!(p99_ms(&mut window) > 79.0);
        window.add(&watched(6, 2_000_000), &tasks);
        assert!((1.9..2.1).contains(&p99_ms(&mut window)));
        assert_eq!(window.figures(&tasks).load.response_p99_ms, None);
        let paced = LiveInterval {
            response: watched(7, 90_000_000).service,
            ..watched(7, 2_000_000)
        };
        window.add(&paced, &tasks);
        let load = window.figures(&tasks).load;
        assert!(load.response_p99_ms > Some(89.0) && load.p99_ms < Some(2.1));
    }
}

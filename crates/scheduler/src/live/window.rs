//! The last seconds of a running step: their means, and each second by itself. Pure.
//!
//! Seconds are those of the step's [`Grid`], as the stored time line has them. A second is shown once every task has sent
//! later rows: then no client's part is missing, and it is not the fragment at the end of the load, which is sent with the
//! length of a second. One that a silent task delays is shown after [`LAG_US`].

use super::LiveInterval;
use crate::snapshot::{LoadNow, SecondNow};
use benchmesh_model::mesh::{MeshMicros, TaskId};
use benchmesh_results::{
    facts::IntervalFacts,
    grid::{Grid, OpenInterval, SLACK_US},
    histogram_of,
    seconds::whole_seconds,
};
use benchmesh_workloads::histogram::{Blob, Histogram};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Displayed rates are means over this time.
const WINDOW_S: u32 = 3;
const WINDOW_US: i64 = WINDOW_S as i64 * 1_000_000;
/// Limit of one task's intervals in the window: seconds times operations, with room to spare.
const MAX_INTERVALS: usize = 64;
/// Seconds are shown for this long, so that a viewer may miss some updates, and finds the beginning of a short step. The
/// time line of longer ones is stored earlier than that.
const KEPT_US: i64 = 15_000_000;
/// A second that this much newer rows have followed is shown without the tasks that have not sent it.
const LAG_US: i64 = 3_000_000;

/// Sums and rates of a running step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    pub load: LoadNow,
    /// Each task's rates over the last seconds.
    pub tasks: Vec<TaskRate>,
    /// The newest whole seconds, in the order of time.
    pub seconds: Vec<SecondNow>,
}

/// One task's part of the rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskRate {
    pub task: TaskId,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
}

#[derive(Debug)]
pub(super) struct Window {
    tasks: HashMap<TaskId, Recent>,
    /// The kept seconds of all operations together.
    grid: Grid,
    /// Earlier seconds are no longer in the grid.
    kept_from_us: i64,
    newest_us: i64,
}

/// One task's sums so far, and its last intervals.
#[derive(Debug, Default)]
struct Recent {
    ops: u64,
    bytes: u64,
    intervals: VecDeque<Interval>,
    /// The start of its newest interval.
    newest_at_us: i64,
}

#[derive(Debug)]
struct Interval {
    at_us: i64,
    end_us: i64,
    ops: i64,
    bytes: i64,
}

impl Window {
    /// Of a load with this planned start.
    pub fn new(start: MeshMicros) -> Self {
        Self {
            tasks: HashMap::new(),
            grid: Grid::new(start.0),
            kept_from_us: i64::MIN,
            newest_us: 0,
        }
    }

    /// Adds an interval, if it is of one of `tasks`.
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
        recent.newest_at_us = recent.newest_at_us.max(at_us);
        if at_us >= self.kept_from_us {
            self.grid.add(&facts(interval));
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
        let (mut service, mut response) = (Histogram::new(), Histogram::new());
        for second in self.grid.open() {
            if second.at_us.saturating_add(second.span_us) > oldest_us {
                service.add(second.service);
                if let Some(of_second) = second.response {
                    response.add(of_second);
                }
            }
        }
        figures.load.window_s = WINDOW_S;
        figures.load.p50_ms = known(&service, 0.5);
        figures.load.p99_ms = known(&service, 0.99);
        figures.load.max_ms = known(&service, 1.0);
        figures.load.response_p99_ms = known(&response, 0.99);
        figures.seconds = self.seconds(tasks);
        figures
    }

    /// The kept seconds after which every task has sent later rows. A fragment is not among them ([`whole_seconds`]).
    fn seconds(&mut self, tasks: &BTreeSet<TaskId>) -> Vec<SecondNow> {
        let kept_from_us = (self.grid).before_a_line(self.newest_us.saturating_sub(KEPT_US));
        if kept_from_us > self.kept_from_us {
            drop(self.grid.take_before(kept_from_us));
            self.kept_from_us = kept_from_us;
        }
        let sent_until = |task| {
            let recent = self.tasks.get(task);
            recent.map_or(i64::MIN, |recent| recent.newest_at_us)
        };
        let sent_by_all = tasks.iter().map(sent_until).min().unwrap_or(i64::MIN);
        let ready_us =
            (sent_by_all.saturating_add(SLACK_US)).max(self.newest_us.saturating_sub(LAG_US));
        let is_ready = |second: &OpenInterval<'_>| {
            whole_seconds(second.span_us) > 0
                && second.at_us.saturating_add(second.span_us) <= ready_us
        };
        let ready = self.grid.open().filter(is_ready);
        ready.map(|second| second_now(&second)).collect()
    }
}

/// The interval of one operation of a task as one of all operations together. Histograms are decoded once.
fn facts(interval: &LiveInterval) -> IntervalFacts {
    let decoded = |blob: Option<&Blob>| blob.and_then(|blob| histogram_of(blob).ok());
    IntervalFacts {
        task: interval.task,
        group: String::new(),
        at_us: interval.at.0,
        span_us: interval.span_us,
        op: String::new(),
        ramp: false,
        ops: interval.ops,
        bytes: interval.bytes,
        undated_bytes: 0,
        errors: 0,
        in_flight: 0,
        service: decoded(interval.service.as_ref()).unwrap_or_default(),
        response: decoded(interval.response.as_ref()),
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates to look at")]
fn second_now(second: &OpenInterval<'_>) -> SecondNow {
    let per_s = |count: i64| count as f64 * 1e6 / second.span_us as f64;
    SecondNow {
        at_us: second.at_us,
        span_us: second.span_us,
        ops_per_s: per_s(second.ops),
        bytes_per_s: per_s(second.bytes),
        p50_ms: known(second.service, 0.5),
        p99_ms: known(second.service, 0.99),
        max_ms: known(second.service, 1.0),
        response_p99_ms: second.response.and_then(|response| known(response, 0.99)),
    }
}

/// A quantile in milliseconds. Histograms are recorded only while someone watches.
fn known(of: &Histogram, q: f64) -> Option<f64> {
    Some(ms(of.quantile(q))).filter(|ms| *ms > 0.0)
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
        let mut window = Window::new(MeshMicros(0));
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
        let mut window = Window::new(MeshMicros(0));
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
        let mut window = Window::new(MeshMicros(0));
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

    /// The start and the rate of each shown second.
    fn rates(window: &mut Window, tasks: &BTreeSet<TaskId>) -> Vec<(i64, f64)> {
        let seconds = window.figures(tasks).seconds;
        let rates = seconds
            .iter()
            .map(|second| (second.at_us, second.ops_per_s));
        rates.collect()
    }

    #[test]
    fn each_second_has_its_own_rate_from_the_first_of_a_step() {
        const START: i64 = 1_500_000;
        let at = |task, number: i64, ops| LiveInterval {
            at: MeshMicros(START + number * 1_000_000),
            ..second(task, 0, ops)
        };
        let tasks = BTreeSet::from([TaskId(1), TaskId(2)]);
        let mut window = Window::new(MeshMicros(START));
        let all = [2209, 1247, 2256, 3609, 4172];
        for (number, ops) in (0..).zip(all) {
            window.add(&at(1, number, ops), &tasks);
            // The other client has not gone beyond the second before.
            let shown = usize::try_from(number).expect("small").saturating_sub(1);
            assert_eq!(rates(&mut window, &tasks).len(), shown);
            window.add(&at(2, number, 1000), &tasks);
        }
        // The fragment at the end of the load is sent as a second. It ends the last whole one, and has no rate itself.
        window.add(&at(1, 5, 1), &tasks);
        window.add(&at(2, 5, 1), &tasks);
        let expected: Vec<(i64, f64)> = (0..)
            .zip([3209.0, 2247.0, 3256.0, 4609.0, 5172.0])
            .map(|(number, rate)| (START + number * 1_000_000, rate))
            .collect();
        assert_eq!(rates(&mut window, &tasks), expected);
        // A late row corrects its second.
        window.add(&at(2, 1, 500), &tasks);
        let second = rates(&mut window, &tasks).get(1).copied();
        assert_eq!(second, Some((START + 1_000_000, 2747.0)));
    }

    #[test]
    fn a_silent_client_delays_a_second_and_an_old_second_is_left_out() {
        let tasks = BTreeSet::from([TaskId(1), TaskId(2)]);
        let mut window = Window::new(MeshMicros(0));
        window.add(&second(2, 0, 1), &tasks);
        for number in 0..5 {
            window.add(&second(1, number, 10), &tasks);
        }
        let shown = [(0, 11.0), (1_000_000, 10.0)];
        assert_eq!(rates(&mut window, &tasks), shown);
        for number in 5..40 {
            window.add(&second(1, number, 10), &tasks);
            window.add(&second(2, number, 10), &tasks);
        }
        let first = rates(&mut window, &tasks).first().copied();
        assert_eq!(first, Some((25_000_000, 20.0)));
        // Its second has been dropped: it would be a second of its own.
        window.add(&second(2, 1, 10), &tasks);
        assert_eq!(rates(&mut window, &tasks).first().copied(), first);
    }

    #[test]
    fn an_interval_of_several_seconds_is_one_point_with_its_mean() {
        let tasks = BTreeSet::from([TaskId(1), TaskId(2)]);
        let mut window = Window::new(MeshMicros(0));
        window.add(&second(1, 0, 10), &tasks);
        window.add(&second(1, 1, 10), &tasks);
        let wide = LiveInterval {
            span_us: 2_000_000,
            ..second(2, 0, 100)
        };
        window.add(&wide, &tasks);
        window.add(&second(1, 2, 10), &tasks);
        window.add(&second(2, 2, 10), &tasks);
        assert_eq!(rates(&mut window, &tasks), [(0, 60.0)]);
    }
}

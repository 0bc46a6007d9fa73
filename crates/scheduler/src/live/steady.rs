//! Judges whether the load of a running step is in steady state, from the seconds of all its tasks together, as their
//! intervals come.
//!
//! A second counts as soon as every task has sent later rows. A task that sends nothing delays it until its agent is
//! lost; late rows are added to their second.

use super::{Feed, LiveInterval, Viewer};
use benchmesh_analysis::steady::{Limit, ROUNDS_CHANGE, ROUNDS_RANGE, Rule, Window, window};
use benchmesh_model::mesh::{MeshMicros, TaskId};
use benchmesh_plan::{Steady, SteadyFigure};
use benchmesh_results::{histogram_of, real};
use benchmesh_store::clock::MeshClock;
use benchmesh_workloads::figures;
use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};

const SECOND_US: i64 = 1_000_000;
/// Rows come once a second.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of seconds without rows that are added at once. A row dated further ahead does not belong to the
/// step.
const MAX_GAP: usize = 86_400;

/// The judgement of the newest window.
#[derive(Clone, Debug, PartialEq)]
pub struct Steadiness {
    pub is_steady: bool,
    /// Time from the start of the step to the end of the window.
    pub after: Duration,
    pub steady: Steady,
    pub window: Window,
}

impl Steadiness {
    /// For example `mean 1,234 operations/s, range 31 % > 20 %, change 4.1 % <= 10 %`.
    pub fn in_words(&self) -> String {
        let Window {
            mean,
            range,
            deviation,
            slope,
            change,
        } = self.window;
        let percent = |value: f64| match mean > 0.0 {
            true => format!("{} %", figures::rate(value / mean * 100.0)),
            false => String::from("-"),
        };
        let shown = |value: f64| in_unit(self.steady.figure, value);
        let held = |value: f64, limit: Limit| {
            let (amount, value_shown, limit_shown) = match limit {
                Limit::Share(share) => (
                    share * mean,
                    percent(value),
                    format!("{} %", figures::rate(share * 100.0)),
                ),
                Limit::Amount(amount) => (amount, shown(value), shown(amount)),
            };
            let sign = match mean > 0.0 && value <= amount {
                true => "<=",
                false => ">",
            };
            format!("{value_shown} {sign} {limit_shown}")
        };
        let mean = format!("mean {}", shown(mean));
        match self.steady.rule {
            Rule::Rounds => format!(
                "{mean}, range {}, change of the fit {}",
                held(range, Limit::Share(ROUNDS_RANGE)),
                held(change, Limit::Share(ROUNDS_CHANGE))
            ),
            Rule::Deviation(limit) => format!(
                "{mean}, largest deviation {}, slope {} per second",
                held(deviation, limit),
                percent(slope)
            ),
            Rule::Slope(limit) => format!(
                "{mean}, slope per second {}, range {}",
                held(slope.abs(), limit),
                percent(range)
            ),
        }
    }
}

fn in_unit(figure: SteadyFigure, value: f64) -> String {
    match figure {
        SteadyFigure::Iops => format!("{} operations/s", figures::rate(value)),
        SteadyFigure::Bw => format!("{} MiB/s", figures::rate(value / 1_048_576.0)),
        SteadyFigure::Lat => format!("{} ms", figures::millis(value / 1e6)),
    }
}

/// The work done in one second.
#[derive(Clone, Copy, Debug, Default)]
struct SecondTotals {
    ops: f64,
    bytes: f64,
    service_ns: f64,
}

impl SecondTotals {
    fn add(&mut self, other: &Self, share: f64) {
        self.ops += other.ops * share;
        self.bytes += other.bytes * share;
        self.service_ns += other.service_ns * share;
    }

    fn value(&self, figure: SteadyFigure, seconds: f64) -> f64 {
        match figure {
            SteadyFigure::Iops => self.ops / seconds,
            SteadyFigure::Bw => self.bytes / seconds,
            SteadyFigure::Lat if self.ops > 0.0 => self.service_ns / self.ops,
            SteadyFigure::Lat => 0.0,
        }
    }
}

/// The seconds of one step.
#[derive(Debug)]
pub struct SteadyJudge {
    steady: Steady,
    start: MeshMicros,
    /// The end of each task's newest interval.
    tasks: BTreeMap<TaskId, i64>,
    /// How long to wait for a task that sends nothing.
    max_silence_us: i64,
    /// The seconds from number `first` on; number 0 is the first judged second.
    seconds: VecDeque<SecondTotals>,
    first: usize,
    /// Number of judged seconds.
    judged: usize,
}

impl SteadyJudge {
    pub fn new(
        steady: Steady,
        start: MeshMicros,
        tasks: impl IntoIterator<Item = TaskId>,
        max_silence: Duration,
    ) -> Self {
        Self {
            steady,
            start,
            tasks: tasks.into_iter().map(|task| (task, start.0)).collect(),
            max_silence_us: micros(max_silence),
            seconds: VecDeque::new(),
            first: 0,
            judged: 0,
        }
    }

    /// Windows begin at this instant or later.
    #[must_use]
    pub fn from(mut self, earliest: MeshMicros) -> Self {
        if earliest > self.start {
            self.forget(earliest);
        }
        self
    }

    /// The start of the first second that is judged.
    fn origin_us(&self) -> i64 {
        let ramp = micros(self.steady.ramp);
        let seconds = ramp.saturating_add(SECOND_US - 1) / SECOND_US;
        self.start
            .0
            .saturating_add(seconds.saturating_mul(SECOND_US))
    }

    fn needs_latencies(&self) -> bool {
        self.steady.figure == SteadyFigure::Lat
    }

    /// Discards all seconds up to and including the next one.
    fn forget(&mut self, now: MeshMicros) {
        let next = now.0.saturating_sub(self.origin_us()) / SECOND_US + 1;
        let next = usize::try_from(next).unwrap_or(0).max(self.first);
        self.seconds.clear();
        self.first = next;
        self.judged = self.judged.max(next);
    }

    /// Adds an interval; its operations are spread over its seconds.
    fn add(&mut self, interval: &LiveInterval) {
        let origin_us = self.origin_us();
        let Some(newest) = self.tasks.get_mut(&interval.task) else {
            return;
        };
        let end_us = interval.at.0.saturating_add(interval.span_us);
        *newest = end_us.max(*newest);
        let service = interval.service.as_ref().filter(|_| self.needs_latencies());
        let service = service.and_then(|blob| histogram_of(blob).ok());
        let whole = SecondTotals {
            ops: real(interval.ops),
            bytes: real(interval.bytes),
            service_ns: service.map_or(0.0, |histogram| histogram.sum_ns()),
        };
        let span_us = interval.span_us.max(1);
        let mut at_us = interval.at.0.max(origin_us);
        while at_us < end_us {
            let second = at_us.saturating_sub(origin_us) / SECOND_US;
            let until_us =
                origin_us.saturating_add(second.saturating_add(1).saturating_mul(SECOND_US));
            let until_us = until_us.min(end_us);
            let share = real(until_us.saturating_sub(at_us)) / real(span_us);
            if let Some(second) = usize::try_from(second).ok().and_then(|at| self.second(at)) {
                second.add(&whole, share);
            }
            at_us = until_us;
        }
    }

    fn second(&mut self, at: usize) -> Option<&mut SecondTotals> {
        let place = at.checked_sub(self.first)?;
        if place >= self.seconds.len() {
            if place - self.seconds.len() > MAX_GAP {
                return None;
            }
            self.seconds.resize(place + 1, SecondTotals::default());
        }
        self.seconds.get_mut(place)
    }

    /// Judges the newest complete window, each window once, up to the first that is steady.
    fn judge(&mut self, now: MeshMicros) -> Option<Steadiness> {
        let complete_us = self.tasks.values().copied().min()?;
        let newest_us = self.tasks.values().copied().max()?;
        let abandoned_until_us = now.0.saturating_sub(self.max_silence_us).min(newest_us);
        let complete_us = complete_us.max(abandoned_until_us);
        let complete = complete_us.saturating_sub(self.origin_us()) / SECOND_US;
        let complete = usize::try_from(complete).unwrap_or(0);
        let unit = self.steady.seconds_of_value();
        let mut newest = None;
        while self.judged < complete {
            self.judged += 1;
            if !self.judged.is_multiple_of(unit) {
                continue;
            }
            let judged = self.window_until(self.judged, unit);
            let is_steady = judged.as_ref().is_some_and(|judged| judged.is_steady);
            newest = judged.or(newest);
            if is_steady {
                break;
            }
        }
        // Late rows only affect the seconds of the last window.
        let kept = self.judged.saturating_sub(self.steady.seconds());
        while self.first < kept && self.seconds.pop_front().is_some() {
            self.first += 1;
        }
        newest
    }

    /// The window that ends after this number of seconds.
    fn window_until(&self, end: usize, unit: usize) -> Option<Steadiness> {
        let begin = end.checked_sub(self.steady.seconds())?;
        let begin = begin.checked_sub(self.first)?;
        let end_place = end.checked_sub(self.first)?;
        let seconds: Vec<SecondTotals> = (begin..end_place)
            .map(|at| self.seconds.get(at).copied().unwrap_or_default())
            .collect();
        let values: Vec<f64> = seconds
            .chunks(unit)
            .map(|seconds| {
                let mut sum = SecondTotals::default();
                for second in seconds {
                    sum.add(second, 1.0);
                }
                sum.value(self.steady.figure, benchmesh_analysis::real(seconds.len()))
            })
            .collect();
        let window = window(&values)?;
        let end_us = i64::try_from(end).ok()?.saturating_mul(SECOND_US);
        let after_us = self
            .origin_us()
            .saturating_add(end_us)
            .saturating_sub(self.start.0);
        Some(Steadiness {
            is_steady: self.steady.rule.holds(&window),
            after: Duration::from_micros(u64::try_from(after_us).unwrap_or(0)),
            steady: self.steady,
            window,
        })
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

/// Reports the judgement of each window of a step, until one is steady.
pub async fn judge<F>(
    feed: Feed,
    clock: Arc<MeshClock>,
    mut judge: SteadyJudge,
    on_judged: impl Fn(Steadiness) -> F,
) where
    F: Future<Output = ()>,
{
    let _latencies: Option<Viewer> = judge.needs_latencies().then(|| feed.viewer());
    let mut intervals = feed.subscribe();
    // The step was continued after a restart of the collector.
    let now = clock.now();
    if now > judge.start {
        judge.forget(now);
    }
    let mut poll_at = Instant::now() + POLL_INTERVAL;
    loop {
        tokio::select! {
            batch = intervals.recv() => match batch {
                Ok(batch) => batch.iter().for_each(|interval| judge.add(interval)),
                Err(RecvError::Lagged(_)) => judge.forget(clock.now()),
                Err(RecvError::Closed) => return,
            },
            () = sleep_until(poll_at) => {
                poll_at = Instant::now() + POLL_INTERVAL;
                if let Some(judged) = judge.judge(clock.now()) {
                    let is_steady = judged.is_steady;
                    on_judged(judged).await;
                    if is_steady {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_workloads::histogram::Histogram;

    const START: i64 = 50 * SECOND_US;

    fn steady(figure: SteadyFigure, rule: Rule, window: u64, ramp: u64) -> Steady {
        Steady {
            figure,
            rule,
            window: Duration::from_secs(window),
            ramp: Duration::from_secs(ramp),
        }
    }

    fn of(steady: Steady) -> SteadyJudge {
        SteadyJudge::new(
            steady,
            MeshMicros(START),
            [TaskId(1), TaskId(2)],
            Duration::from_secs(30),
        )
    }

    fn within(percent: f64) -> Rule {
        Rule::Deviation(Limit::Share(percent / 100.0))
    }

    fn row(task: i64, second: i64, ops: i64) -> LiveInterval {
        LiveInterval {
            task: TaskId(task),
            at: MeshMicros(START + second * SECOND_US),
            span_us: SECOND_US,
            ops,
            bytes: ops * 4096,
            service: None,
            response: None,
        }
    }

    fn at(second: i64) -> MeshMicros {
        MeshMicros(START + second * SECOND_US)
    }

    #[test]
    fn the_sum_of_all_tasks_is_judged_although_each_of_them_varies() {
        let mut judge = of(steady(SteadyFigure::Iops, within(5.0), 4, 2));
        for second in 0..6 {
            let one = if second % 2 == 0 { 900 } else { 100 };
            judge.add(&row(1, second, one));
            assert_eq!(judge.judge(at(second + 1)), None, "the other is awaited");
            // Seconds of the ramp do not count.
            let other = if second < 2 { 0 } else { 1000 - one };
            judge.add(&row(2, second, other));
            let judged = judge.judge(at(second + 1));
            assert_eq!(judged.is_some(), second == 5, "{second}");
            if let Some(judged) = judged {
                assert!(judged.is_steady);
                assert_eq!(judged.after, Duration::from_secs(6));
                assert_eq!((judged.window.mean, judged.window.range), (1000.0, 0.0));
                let words = judged.in_words();
                assert!(words.contains("mean 1,000 operations/s"), "{words}");
                assert!(words.contains("largest deviation 0 % <= 5.00 %"), "{words}");
            }
        }
    }

    #[test]
    fn what_is_beyond_its_limit_is_said() {
        let mut judge = of(steady(SteadyFigure::Bw, within(5.0), 3, 0));
        for second in 0..3 {
            judge.add(&row(1, second, 256 * (second + 1)));
            judge.add(&row(2, second, 0));
        }
        let judged = judge.judge(at(3)).unwrap();
        assert!(!judged.is_steady);
        let words = judged.in_words();
        assert!(words.contains("mean 2.00 MiB/s"), "{words}");
        assert!(
            words.contains("largest deviation 50.0 % > 5.00 %"),
            "{words}"
        );
    }

    #[test]
    fn rounds_are_judged_at_their_ends() {
        let mut judge = of(steady(SteadyFigure::Iops, Rule::Rounds, 10, 0));
        let mut judged = Vec::new();
        for second in 0..16 {
            // Seconds differ a lot, rounds of two seconds do not.
            let ops = if second % 2 == 0 { 1500 } else { 500 };
            let early = if second < 4 { 1000 } else { 0 };
            judge.add(&row(1, second, ops + early));
            judge.add(&row(2, second, 0));
            let looked = judge.judge(at(second + 1));
            judged.extend(looked.map(|it| (it.after.as_secs(), it.is_steady)));
        }
        assert_eq!(judged, [(10, false), (12, false), (14, true), (16, true)]);
    }

    #[test]
    fn a_silent_task_is_waited_for_until_it_is_lost_and_late_rows_count() {
        let rule = within(5.0);
        let mut judge = of(steady(SteadyFigure::Iops, rule, 3, 0));
        for second in 0..40 {
            judge.add(&row(1, second, 500));
        }
        for second in 0..2 {
            judge.add(&row(2, second, 500));
        }
        assert_eq!(judge.judge(at(29)), None);
        // At 33 s, rows have been missing for 30 s, since the third second.
        let judged = judge.judge(at(33)).unwrap();
        assert!(!judged.is_steady, "{judged:?}");
        for second in 2..6 {
            judge.add(&row(2, second, 500));
        }
        let judged = judge.judge(at(34)).unwrap();
        assert!(judged.is_steady, "{judged:?}");
        assert_eq!(judged.window.mean, 1000.0);
    }

    #[test]
    fn an_interval_of_several_seconds_is_spread_over_them() {
        let mut judge = of(steady(SteadyFigure::Iops, within(1.0), 4, 0));
        let mut long = row(1, 0, 4000);
        long.span_us = 4 * SECOND_US;
        judge.add(&long);
        judge.add(&LiveInterval {
            task: TaskId(2),
            ..long
        });
        let judged = judge.judge(at(4)).unwrap();
        assert!(
            judged.is_steady && judged.window.mean == 2000.0,
            "{judged:?}"
        );
    }

    #[test]
    fn latencies_are_means_of_a_second() {
        let rule = Rule::Deviation(Limit::Amount(100_000.0));
        let mut judge = of(steady(SteadyFigure::Lat, rule, 3, 0));
        for second in 0..3 {
            for task in 1..=2 {
                let mut histogram = Histogram::new();
                histogram.record_many(1_000_000, 10);
                let mut interval = row(task, second, 10);
                interval.service = Some(histogram.to_blob());
                judge.add(&interval);
            }
        }
        let judged = judge.judge(at(3)).unwrap();
        assert!(judged.is_steady, "{judged:?}");
        assert!((judged.window.mean - 1e6).abs() < 1.0, "{judged:?}");
        let words = judged.in_words();
        assert!(words.contains("<= 0.1"), "{words}");
    }

    #[test]
    fn after_a_gap_in_what_came_the_window_begins_anew() {
        let mut judge = of(steady(SteadyFigure::Iops, within(5.0), 3, 0));
        let both = |judge: &mut SteadyJudge, second| {
            judge.add(&row(1, second, 10));
            judge.add(&row(2, second, 10));
        };
        both(&mut judge, 0);
        both(&mut judge, 1);
        judge.forget(at(2));
        let mut judged = Vec::new();
        for second in 2..8 {
            both(&mut judge, second);
            judged.extend(judge.judge(at(second + 1)).map(|it| it.after.as_secs()));
        }
        assert_eq!(judged, [6, 7, 8]);
    }
}

//! How even a load was: the rates of its whole seconds in the all-active window, in constant memory.
//!
//! Pure. Seconds are the lines of the step's grid. A second in which no operation completed and no byte moved counts
//! with a rate of zero, whether it has an interval or not. An interval over several seconds counts as that many seconds
//! of its mean rate.

use super::interval::StepInterval;
use super::{PERIOD_US, real};

/// An edge second counts as whole if at most this part of it lies outside the window: workers start within
/// microseconds.
const SLACK_US: i64 = PERIOD_US / 20;

/// The rates of a step's seconds, of one operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Seconds {
    /// Whole seconds in the window.
    pub count: i64,
    /// Number of them in which no operation completed and no byte moved.
    pub zero: i64,
    /// Operations per second.
    pub ops: Spread,
    /// Bytes per second.
    pub bytes: Spread,
}

/// Statistics of the seconds' rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Sample standard deviation; 0 for a single second.
    pub stddev: f64,
    pub min: f64,
    pub max: f64,
}

/// The whole seconds of a window.
#[derive(Clone, Copy, Debug)]
pub struct WholeSeconds {
    from_us: i64,
    until_us: i64,
}

impl WholeSeconds {
    /// `None` if the window has no whole second on the grid that begins at `start_us`.
    pub fn of(start_us: i64, (from_us, until_us): (i64, i64)) -> Option<Self> {
        let after = |at_us: i64| at_us.saturating_sub(start_us);
        let first = after(from_us)
            .saturating_sub(SLACK_US)
            .saturating_add(PERIOD_US - 1)
            .div_euclid(PERIOD_US);
        let last = after(until_us)
            .saturating_add(SLACK_US)
            .div_euclid(PERIOD_US);
        let line = |line: i64| start_us.saturating_add(line.saturating_mul(PERIOD_US));
        (last > first).then(|| Self {
            from_us: line(first),
            until_us: line(last),
        })
    }

    fn count(self) -> i64 {
        (self.until_us - self.from_us) / PERIOD_US
    }

    fn has(self, interval: &StepInterval) -> bool {
        let end_us = interval.at_us.saturating_add(interval.span_us);
        interval.at_us >= self.from_us && end_us <= self.until_us.saturating_add(SLACK_US)
    }
}

/// Accumulates the seconds of one operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct SecondsSum {
    seen: i64,
    zero: i64,
    ops: Moments,
    bytes: Moments,
}

impl SecondsSum {
    /// Adds an interval outside of ramps, if it is in the window.
    pub fn add(&mut self, window: WholeSeconds, interval: &StepInterval) {
        if interval.ramp || !window.has(interval) {
            return;
        }
        let seconds = interval
            .span_us
            .saturating_add(PERIOD_US / 2)
            .div_euclid(PERIOD_US)
            .max(1);
        let per_second = |count: i64| real(count) * 1e6 / real(interval.span_us);
        self.seen += seconds;
        if interval.ops == 0 && interval.bytes == 0 {
            self.zero += seconds;
        }
        self.ops.add(per_second(interval.ops), seconds);
        self.bytes.add(per_second(interval.bytes), seconds);
    }

    /// The figures; seconds without an interval count as zero.
    pub fn finish(mut self, window: WholeSeconds) -> Seconds {
        let count = window.count();
        let missing = (count - self.seen).max(0);
        self.ops.add(0.0, missing);
        self.bytes.add(0.0, missing);
        Seconds {
            count: count.max(self.seen),
            zero: self.zero + missing,
            ops: self.ops.spread(),
            bytes: self.bytes.spread(),
        }
    }
}

/// Welford's running mean and sum of squared deviations, weighted, with the extremes.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    weight: i64,
    mean: f64,
    squares: f64,
    extremes: Option<(f64, f64)>,
}

impl Moments {
    fn add(&mut self, value: f64, weight: i64) {
        if weight <= 0 {
            return;
        }
        self.weight += weight;
        let apart = value - self.mean;
        self.mean += apart * real(weight) / real(self.weight);
        self.squares += real(weight) * apart * (value - self.mean);
        let (least, most) = self.extremes.unwrap_or((value, value));
        self.extremes = Some((least.min(value), most.max(value)));
    }

    fn spread(self) -> Spread {
        let (min, max) = self.extremes.unwrap_or_default();
        let stddev = match self.weight {
            ..=1 => 0.0,
            weight => (self.squares / real(weight - 1)).max(0.0).sqrt(),
        };
        Spread { stddev, min, max }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_workloads::histogram::Histogram;

    const S: i64 = PERIOD_US;

    fn interval(at_us: i64, span_us: i64, ops: i64) -> StepInterval {
        StepInterval {
            group: String::new(),
            at_us,
            span_us,
            op: "write".to_owned(),
            ramp: false,
            tasks: 1,
            ops,
            bytes: ops * 10,
            errors: 0,
            service: Histogram::new(),
            response: None,
        }
    }

    fn seconds(window: (i64, i64), intervals: &[StepInterval]) -> Option<Seconds> {
        let window = WholeSeconds::of(0, window)?;
        let mut sum = SecondsSum::default();
        for one in intervals {
            sum.add(window, one);
        }
        Some(sum.finish(window))
    }

    #[test]
    fn the_seconds_of_the_window_are_summed_up() {
        let mut all: Vec<StepInterval> = [4, 8, 0, 6]
            .into_iter()
            .zip(0..)
            .map(|(ops, at)| interval(at * S, S, ops))
            .collect();
        // The last second is not whole: the window ends in it.
        all.push(interval(4 * S, S, 1));
        let got = seconds((40, 4 * S + S / 2), &all).unwrap();
        assert_eq!((got.count, got.zero), (4, 1));
        // Python: statistics.stdev([4, 8, 0, 6])
        assert!(
            (got.ops.stddev - 3.415_650_255_319_866).abs() < 1e-12,
            "{got:?}"
        );
        assert_eq!((got.ops.min, got.ops.max, got.bytes.max), (0.0, 8.0, 80.0));
    }

    #[test]
    fn a_second_without_an_interval_is_zero_and_a_wide_interval_is_several() {
        let all = [interval(0, S, 6), interval(2 * S, 2 * S, 12)];
        let got = seconds((0, 4 * S), &all).unwrap();
        assert_eq!((got.count, got.zero), (4, 1));
        // Python: statistics.stdev([6, 0, 6, 6])
        assert!((got.ops.stddev - 3.0).abs() < 1e-12, "{got:?}");
    }

    #[test]
    fn a_ramp_and_a_window_without_a_whole_second_have_none() {
        assert_eq!(seconds((S / 2, S + S / 2), &[]), None);
        let ramp = StepInterval {
            ramp: true,
            ..interval(0, S, 5)
        };
        let got = seconds((0, S), &[ramp]).unwrap();
        assert_eq!((got.count, got.zero, got.ops.stddev), (1, 1, 0.0));
    }
}

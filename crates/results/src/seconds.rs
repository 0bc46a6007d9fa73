//! The evenness of a load: the rates of its whole seconds in the all-active window, in constant memory.
//!
//! Pure. This is the only definition of a second ([`whole_seconds`]): results, the time line, pictures, findings and
//! outages use it. Seconds are the lines of the step's grid. A second in which no operation completed and no byte moved
//! counts with a rate of zero, whether it has an interval or not. An interval over several seconds counts as that many
//! seconds of its mean rate. A fragment has operations and latencies but no rate, so its second is not counted; neither
//! is a second that shares an interval with time outside of the window.

use super::interval::StepInterval;
use super::window::Position;
use super::{PERIOD_US, real};
use serde::{Deserialize, Serialize};

/// An edge second counts as whole if at most this part of it lies outside the window: workers start within
/// microseconds.
const SLACK_US: i64 = PERIOD_US / 20;

/// Shorter rows of a time line are fragments.
pub const MIN_SECOND_US: i64 = PERIOD_US - SLACK_US;

/// The number of seconds that a row of a time line counts as; 0 for a fragment, whose operations divided by its span
/// would be a rate that no second ever had.
pub fn whole_seconds(span_us: i64) -> i64 {
    span_us.saturating_add(SLACK_US).div_euclid(PERIOD_US)
}

/// The rates of one operation in a step's seconds.
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

/// How unevenly a load runs: the standard deviation of its seconds' rates, in percent of its rate. `None` for less than
/// two seconds.
pub fn uneven_percent(rate: f64, stddev: f64, seconds: i64) -> Option<f64> {
    (rate > 0.0 && seconds > 1).then(|| 100.0 * stddev / rate)
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
    /// The position of an interval between two grid lines relative to the window.
    pub fn position(self, from_us: i64, until_us: i64) -> Position {
        match () {
            () if from_us >= self.from_us && until_us <= self.until_us => Position::Within,
            () if until_us <= self.from_us || from_us > self.until_us.saturating_add(SLACK_US) => {
                Position::Outside
            }
            () => Position::Across,
        }
    }

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
        interval.at_us >= self.from_us
            && interval.at_us < self.until_us
            && end_us <= self.until_us.saturating_add(SLACK_US)
    }

    /// The number of its seconds that an interval touches.
    fn touched_by(self, interval: &StepInterval) -> i64 {
        let end_us = interval.at_us.saturating_add(interval.span_us);
        touched(end_us.min(self.until_us) - interval.at_us.max(self.from_us))
    }
}

/// The number of seconds that a span beginning at a grid line touches.
fn touched(span_us: i64) -> i64 {
    span_us
        .max(0)
        .saturating_add(PERIOD_US - 1)
        .div_euclid(PERIOD_US)
}

/// Accumulates the seconds of one operation. Exact: the order and partition of the additions make no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondsSum {
    seen: i64,
    zero: i64,
    /// Seconds whose rate is unknown.
    cut: i64,
    ops: Moments<MICRO>,
    bytes: Moments<WHOLE>,
}

impl SecondsSum {
    /// Adds the part of an interval that is in the window.
    pub fn add(&mut self, window: WholeSeconds, interval: &StepInterval) {
        if window.has(interval) {
            self.add_any(interval);
        } else if !interval.ramp {
            self.cut += window.touched_by(interval);
        }
    }

    /// Adds an interval outside of ramps, wherever it is.
    pub fn add_any(&mut self, interval: &StepInterval) {
        if interval.ramp {
            return;
        }
        let seconds = whole_seconds(interval.span_us);
        self.cut += (touched(interval.span_us - SLACK_US).max(1) - seconds).max(0);
        self.seen += seconds;
        if interval.ops == 0 && interval.bytes == 0 {
            self.zero += seconds;
        }
        self.ops.add(interval.ops, interval.span_us, seconds);
        self.bytes.add(interval.bytes, interval.span_us, seconds);
    }

    /// Adds other seconds of the same operation.
    pub fn merge(&mut self, other: &Self) {
        self.seen += other.seen;
        self.zero += other.zero;
        self.cut += other.cut;
        self.ops.merge(&other.ops);
        self.bytes.merge(&other.bytes);
    }

    /// The figures; seconds without an interval count as zero. `None` if the rate of no second is known.
    pub fn finish(mut self, window: WholeSeconds) -> Option<Seconds> {
        let known = window.count().saturating_sub(self.cut);
        let missing = (known - self.seen).max(0);
        self.ops.add(0, PERIOD_US, missing);
        self.bytes.add(0, PERIOD_US, missing);
        let count = self.seen + missing;
        (count > 0).then(|| Seconds {
            count,
            zero: self.zero + missing,
            ops: self.ops.spread(),
            bytes: self.bytes.spread(),
        })
    }
}

/// Resolution of rates: parts of an operation, or of a byte, per second. The sum of the squares of a year's seconds
/// then fits into 127 bits, up to 10^9 operations and 10^15 bytes per second.
const MICRO: i64 = 1_000_000;
const WHOLE: i64 = 1;

/// Sums of rates and of their squares in parts of 1/`PARTS` per second, weighted, with the extremes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Moments<const PARTS: i64> {
    weight: i64,
    sum: i128,
    squares: i128,
    extremes: Option<(f64, f64)>,
}

impl<const PARTS: i64> Moments<PARTS> {
    /// Adds a count over a span that represents `weight` seconds.
    fn add(&mut self, count: i64, span_us: i64, weight: i64) {
        if weight <= 0 {
            return;
        }
        let (span, times) = (i128::from(span_us.max(1)), i128::from(weight));
        let scaled = i128::from(count) * i128::from(PARTS) * i128::from(PERIOD_US);
        let rate = (scaled + span / 2).div_euclid(span);
        self.sum = self.sum.saturating_add(times * rate);
        let squares = times.saturating_mul(rate.saturating_mul(rate));
        self.squares = self.squares.saturating_add(squares);
        self.weight += weight;
        let per_second = real(count) * 1e6 / real(span_us);
        self.widen((per_second, per_second));
    }

    fn merge(&mut self, other: &Self) {
        self.weight += other.weight;
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        if let Some(extremes) = other.extremes {
            self.widen(extremes);
        }
    }

    fn widen(&mut self, (low, high): (f64, f64)) {
        let (least, most) = self.extremes.unwrap_or((low, high));
        self.extremes = Some((least.min(low), most.max(high)));
    }

    fn spread(self) -> Spread {
        let (min, max) = self.extremes.unwrap_or_default();
        let stddev = match self.weight {
            ..=1 => 0.0,
            weight => {
                (self.squared_deviations() / real(weight - 1))
                    .max(0.0)
                    .sqrt()
                    / real(PARTS)
            }
        };
        Spread { stddev, min, max }
    }

    /// Computed around the rounded mean, which keeps every term within range, then corrected for the rounding.
    #[expect(
        clippy::cast_precision_loss,
        reason = "rounded once, from the exact sum"
    )]
    fn squared_deviations(self) -> f64 {
        let weight = i128::from(self.weight);
        let mean = self.sum.div_euclid(weight);
        let rest = self.sum - mean * weight;
        let around = self
            .squares
            .saturating_sub(mean.saturating_mul(2 * self.sum - mean * weight));
        around as f64 - (rest as f64).powi(2) / weight as f64
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
        sum.finish(window)
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
    fn a_fragment_has_no_rate_and_is_no_second() {
        // A load of 3 s whose last operations ended 120 us later: 4 operations in 120 us are not 33,333 per second.
        let all: Vec<StepInterval> = (0..3).map(|at| interval(at * S, S, 3000)).collect();
        let fragment = interval(3 * S, 120, 4);
        let got = seconds((40, 3 * S + 115), &[&all[..], &[fragment]].concat()).unwrap();
        assert_eq!((got.count, got.zero), (3, 0));
        assert_eq!(
            (got.ops.min, got.ops.max, got.ops.stddev),
            (3000.0, 3000.0, 0.0)
        );
        // Nor does it hide a second in which nothing happened.
        let all = [
            interval(0, S, 3000),
            interval(2 * S, S, 3000),
            interval(3 * S, 120, 4),
        ];
        let got = seconds((40, 3 * S + 115), &all).unwrap();
        assert_eq!((got.count, got.zero, got.ops.min), (3, 1, 0.0));
        // Nor is one within the window: no client was active in the rest of its second.
        let all = [
            interval(0, S, 10),
            interval(S, S / 2, 9),
            interval(2 * S, S, 10),
        ];
        let got = seconds((0, 3 * S), &all).unwrap();
        assert_eq!((got.count, got.zero, got.ops.max), (2, 0, 10.0));
        assert_eq!(seconds((0, S), &[interval(0, S / 2, 9)]), None);
        for (span_us, whole) in [
            (1, 0),
            (949_999, 0),
            (950_000, 1),
            (1_940_000, 1),
            (1_960_000, 2),
        ] {
            assert_eq!(whole_seconds(span_us), whole, "{span_us}");
            assert_eq!(span_us >= MIN_SECOND_US, whole > 0, "{span_us}");
        }
    }

    #[test]
    fn seconds_of_an_interval_across_an_edge_are_unknown_and_not_zero() {
        let all = [
            interval(0, S, 6),
            interval(S, S, 6),
            interval(2 * S, 3 * S, 18),
        ];
        let got = seconds((0, 4 * S + S / 2), &all).unwrap();
        assert_eq!((got.count, got.zero, got.ops.min), (2, 0, 6.0));
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

//! Usage of a process between two instants, from readings of its cumulative counters.
//!
//! A reading at the instant gives the exact value. Between two readings the value is interpolated linearly; the error
//! is bounded by the counter's movement between them, and by its maximum movement between the instant and the nearer
//! reading. A process that started within the time counts from zero at its start. Pure: no SQL, no clock.

use super::real;

/// Counters of CPU time and of a disk's busy time advance in steps of up to 10 ms. For a shorter time than this, a
/// share is NULL, and so is a rate over time: what a device completes at once is not what it does in a second.
pub const MIN_SPAN_US: i64 = 100_000;
/// A counter is at rest if it hardly moved for this long: the time contains two regular samples.
const AT_REST_US: i64 = 900_000;

/// One reading: an instant and the counter's value there.
pub type Point = (i64, i64);

/// A counter's value at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// The requested instant, or the nearest reading if it is outside of all readings.
    pub at_us: i64,
    pub value: i64,
    /// Maximum error of the value.
    pub error: i64,
}

/// The movement of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Used {
    pub from_us: i64,
    pub until_us: i64,
    pub amount: i64,
    /// Maximum error of the amount.
    pub error: i64,
}

/// The movement of a counter after an instant, until it rested or the samples ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    pub until_us: i64,
    pub amount: i64,
    /// The counter was at rest from `until_us` on.
    pub is_idle: bool,
}

/// The movement of the counter from `from_us` until it came to rest, that is, moved by at most `rest` per microsecond.
/// Movement after `limit_us` has another cause. Returns `None` if no reading is after the instant.
pub fn until_idle(points: &[Point], from_us: i64, limit_us: i64, rest: f64) -> Option<After> {
    let last_us = points.last().map(|(at, _)| *at)?.min(limit_us);
    let begin = value_at(points, from_us, None).filter(|begin| begin.at_us < last_us)?;
    let from_us = begin.at_us;
    let later = points.iter().map(|(at, _)| *at);
    let later = later.filter(|at| *at > from_us && *at < last_us);
    let amount_at = |at_us| {
        let value = value_at(points, at_us, None)?.value;
        value.checked_sub(begin.value).filter(|amount| *amount >= 0)
    };
    for at_us in std::iter::once(from_us).chain(later) {
        let rested_us = at_us.saturating_add(AT_REST_US);
        let next = points.iter().map(|(at, _)| *at);
        let Some(end_us) = next.filter(|at| *at >= rested_us).min() else {
            break;
        };
        if end_us > last_us {
            break;
        }
        let (amount, then) = (amount_at(at_us)?, amount_at(end_us)?);
        if real(then.saturating_sub(amount)) <= rest * real(end_us.saturating_sub(at_us)) {
            return Some(After {
                until_us: at_us,
                amount,
                is_idle: true,
            });
        }
    }
    Some(After {
        until_us: last_us,
        amount: amount_at(last_us)?,
        is_idle: false,
    })
}

/// The movement of a time counter in `span_us` as a percentage of the time of `of` units (CPUs, disks), at most 100.
/// `None` if the time is too short for the counter.
pub fn share_percent(moved_us: i64, span_us: i64, of: i64) -> Option<f64> {
    let whole = span_us.checked_mul(of).filter(|whole| *whole > 0)?;
    (span_us >= MIN_SPAN_US).then(|| (real(moved_us.max(0)) * 100.0 / real(whole)).min(100.0))
}

/// The value at `at_us`. `points` are in order of time, and the counter moves by at most `per_us` per microsecond
/// (`None`: unbounded). Returns `None` without points.
pub fn value_at(points: &[Point], at_us: i64, per_us: Option<i64>) -> Option<Estimate> {
    let next = points.partition_point(|(at, _)| *at < at_us);
    let exact = |&(at_us, value): &Point| Estimate {
        at_us,
        value,
        error: 0,
    };
    let after = points.get(next);
    let before = next.checked_sub(1).and_then(|last| points.get(last));
    match (before, after) {
        (_, Some(after)) if after.0 == at_us => Some(exact(after)),
        (Some(before), Some(after)) => Some(between_readings(*before, *after, at_us, per_us)),
        (Some(end), None) | (None, Some(end)) => Some(exact(end)),
        (None, None) => None,
    }
}

fn between_readings(before: Point, after: Point, at_us: i64, per_us: Option<i64>) -> Estimate {
    let span = i128::from(after.0) - i128::from(before.0);
    let part = i128::from(at_us) - i128::from(before.0);
    let moved = i128::from(after.1) - i128::from(before.1);
    // Adding half a unit rounds to the nearest.
    let share = (moved * part * 2 + span) / (span * 2).max(1);
    let share = i64::try_from(share).unwrap_or(0);
    let moved = i64::try_from(moved.abs()).unwrap_or(i64::MAX);
    let share_after = moved.saturating_sub(share.abs());
    // Maximum amount by which the value can be too low or too high, as each reading bounds it.
    let reach = |span: i64| per_us.map_or(i64::MAX, |per_us| span.saturating_mul(per_us));
    let [until, since] = [
        after.0.saturating_sub(at_us),
        at_us.saturating_sub(before.0),
    ]
    .map(reach);
    let too_high = share.abs().min(until.saturating_sub(share_after).max(0));
    let too_low = share_after.min(since.saturating_sub(share.abs()).max(0));
    Estimate {
        at_us,
        value: before.1.saturating_add(share),
        error: too_high.max(too_low),
    }
}

/// The movement of the counter between two instants, as far as readings cover them. Returns `None` if fewer than two
/// readings cover the time, or if the counter went backwards.
pub fn used(points: &[Point], from_us: i64, until_us: i64, per_us: Option<i64>) -> Option<Used> {
    let from = value_at(points, from_us, per_us)?;
    let until = value_at(points, until_us, per_us)?;
    let most = until.at_us.saturating_sub(from.at_us);
    let most = per_us.map_or(i64::MAX, |per_us| most.saturating_mul(per_us));
    // A clock and a counter are not read at the same instant.
    let amount = until.value.checked_sub(from.value)?.min(most);
    let error = from.error.saturating_add(until.error);
    // Nor can it have moved by more than from the reading before to the reading after.
    let outer =
        moved_around(points, from.at_us, until.at_us).map_or(i64::MAX, |moved| moved.max(0));
    let error = error.min(amount.max(outer.saturating_sub(amount)));
    let backwards = points
        .windows(2)
        .any(|pair| matches!(pair, [a, b] if b.1 < a.1));
    (from.at_us < until.at_us && amount >= 0 && !backwards).then_some(Used {
        from_us: from.at_us,
        until_us: until.at_us,
        amount,
        error,
    })
}

/// The movement from the last reading by `from_us` to the first one from `until_us` on.
fn moved_around(points: &[Point], from_us: i64, until_us: i64) -> Option<i64> {
    let before = points.iter().rev().find(|(at, _)| *at <= from_us)?;
    let after = points.iter().find(|(at, _)| *at >= until_us)?;
    after.1.checked_sub(before.1)
}

/// The reading nearest to an instant, for a gauge.
pub fn nearest(points: &[Point], at_us: i64) -> Option<i64> {
    points
        .iter()
        .min_by_key(|(at, _)| at.abs_diff(at_us))
        .map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_at_the_instant_is_exact_and_between_two_the_line_holds() {
        let points = [(0, 100), (10, 100), (20, 200), (30, 200)];
        let check = |at_us, value, error| {
            let expected = Estimate {
                at_us,
                value,
                error,
            };
            assert_eq!(value_at(&points, at_us, None), Some(expected), "{at_us}");
        };
        check(10, 100, 0);
        check(20, 200, 0);
        check(15, 150, 50);
        check(11, 110, 90);
        check(19, 190, 90);
        check(25, 200, 0);
        assert_eq!(value_at(&[], 5, None), None);
    }

    #[test]
    fn between_two_readings_the_error_is_at_most_their_distance() {
        // Both instants are between the same readings: 30 of 100, and anything from 0 to 100.
        let found = used(&[(0, 0), (100, 100)], 40, 70, None);
        assert_eq!(found.map(|used| (used.amount, used.error)), Some((30, 70)));
    }

    #[test]
    fn outside_of_all_readings_the_nearest_stands() {
        let points = [(10, 1), (20, 5)];
        assert_eq!(
            value_at(&points, 0, None).map(|e| (e.at_us, e.value)),
            Some((10, 1))
        );
        assert_eq!(
            value_at(&points, 90, None).map(|e| (e.at_us, e.value)),
            Some((20, 5))
        );
        let all = used(&points, 0, 90, None);
        assert_eq!(
            all,
            Some(Used {
                from_us: 10,
                until_us: 20,
                amount: 4,
                error: 0
            })
        );
    }

    #[test]
    fn a_birth_is_a_reading_of_zero() {
        // Found 3 s after its start, with 900 ms of CPU.
        let points = [(1_000_000, 0), (4_000_000, 900_000), (5_000_000, 1_000_000)];
        let all = used(&points, 0, 5_000_000, None);
        assert_eq!(
            all.map(|used| (used.from_us, used.amount, used.error)),
            Some((1_000_000, 1_000_000, 0))
        );
    }

    #[test]
    fn the_error_holds_whatever_happened_between_readings() {
        // The CPU time may have been used at any instant between the two readings.
        let points = [(0, 0), (1000, 700)];
        for jump in [1, 250, 500, 999] {
            for at in [1, 100, 250, 499, 750, 999] {
                let truth = if at >= jump { 700 } else { 0 };
                let Some(estimate) = value_at(&points, at, None) else {
                    panic!("no estimate at {at}");
                };
                assert!(
                    (estimate.value - truth).abs() <= estimate.error,
                    "{at} {jump}"
                );
            }
        }
    }

    /// A counter cannot move faster than all CPUs together: close to a reading the error is small, however much it
    /// moved.
    #[test]
    fn the_error_is_bounded_by_the_distance_to_a_reading() {
        let points = [(0, 0), (1_000_000, 600_000)];
        let error = |at, per_us| value_at(&points, at, per_us).map(|estimate| estimate.error);
        // 1 ms before a reading, on one CPU: between 599 and 600 ms; the estimate is 599.4.
        assert_eq!(error(999_000, Some(1)), Some(600));
        assert_eq!(error(999_000, Some(4)), Some(3_400));
        assert_eq!(error(1_000, Some(1)), Some(600));
        assert_eq!(error(999_000, None), Some(599_400));
        // In the middle, all of it may have been used before or after: 100 to 500 ms; the estimate is 300.
        assert_eq!(error(500_000, Some(1)), Some(200_000));
        assert_eq!(error(500_000, Some(9)), Some(300_000));
        for at in [1, 1_000, 250_000, 500_000, 999_999] {
            let Some(estimate) = value_at(&points, at, Some(1)) else {
                panic!("no estimate at {at}");
            };
            // The earliest and the latest possible use.
            for truth in [at.min(600_000), (at - 400_000).max(0)] {
                assert!((estimate.value - truth).abs() <= estimate.error, "{at}");
            }
        }
    }

    #[test]
    fn work_after_an_instant_counts_until_the_counter_rests() {
        // At 50 % for 2 s after the instant, at 1 % from then on.
        let points: Vec<Point> = (0..12)
            .map(|second: i64| {
                let busy = second.min(4) * 500_000;
                (second * 1_000_000, busy + (second - 4).max(0) * 10_000)
            })
            .collect();
        let after = |limit, rest| until_idle(&points, 2_000_000, limit, rest);
        let expected = |until_us, amount, is_idle| {
            Some(After {
                until_us,
                amount,
                is_idle,
            })
        };
        assert_eq!(after(9_000_000, 0.03), expected(4_000_000, 1_000_000, true));
        // It never comes to rest by this rule, or the limit comes first.
        assert_eq!(
            after(9_000_000, 0.001),
            expected(9_000_000, 1_050_000, false)
        );
        assert_eq!(after(3_500_000, 0.03), expected(3_500_000, 750_000, false));
        assert_eq!(
            after(4_500_000, 0.03),
            expected(4_500_000, 1_005_000, false)
        );
        // At rest immediately.
        assert_eq!(
            until_idle(&points, 6_000_000, 9_000_000, 0.03),
            expected(6_000_000, 0, true)
        );
        assert_eq!(until_idle(&points, 11_000_000, 16_000_000, 0.03), None);
        assert_eq!(until_idle(&[], 0, 9, 0.03), None);
    }

    #[test]
    fn a_share_is_of_long_enough_a_time_and_never_above_all_of_it() {
        assert_eq!(share_percent(50_000, 100_000, 1), Some(50.0));
        assert_eq!(share_percent(150_000, 100_000, 2), Some(75.0));
        assert_eq!(share_percent(110_000, 100_000, 1), Some(100.0));
        assert_eq!(share_percent(8_000, 8_000, 1), None);
        assert_eq!(share_percent(1, 100_000, 0), None);
        // 12 ms of one CPU in 8 ms: the readings were not simultaneous.
        let all = used(&[(0, 0), (8_000, 12_000)], 0, 8_000, Some(1));
        assert_eq!(all.map(|used| used.amount), Some(8_000));
    }

    #[test]
    fn one_reading_or_a_counter_that_went_backwards_gives_no_usage() {
        assert_eq!(used(&[(5, 1)], 0, 10, None), None);
        assert_eq!(used(&[(0, 9), (10, 3)], 0, 10, None), None);
        assert_eq!(used(&[(0, 1), (4, 0), (10, 3)], 0, 10, None), None);
        assert_eq!(nearest(&[(0, 1), (10, 3)], 6), Some(3));
        assert_eq!(nearest(&[], 6), None);
    }
}

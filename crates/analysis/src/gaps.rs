//! Gaps: consecutive seconds in which a load made almost no progress.

use super::start::median;

/// A second at or above this share of the usual rate is not part of a gap.
pub const NEAR_ZERO: f64 = 0.05;
/// Minimum rate: slower loads have seconds without an operation by chance.
pub const MIN_RATE: f64 = 20.0;

/// From one instant to another, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub from_us: i64,
    pub until_us: i64,
}

impl Gap {
    pub fn length_us(self) -> i64 {
        self.until_us - self.from_us
    }
}

/// The rate of a load while it worked, in operations per second: the median of the seconds that were not near zero,
/// however many were. `seconds` are pairs of operations and microseconds. 0 if nothing was done.
pub fn working_rate(seconds: impl IntoIterator<Item = (f64, f64)>) -> f64 {
    let mut seconds: Vec<(f64, f64)> = seconds
        .into_iter()
        .filter(|(ops, span_us)| *ops > 0.0 && *span_us > 0.0)
        .map(|(ops, span_us)| (ops * 1e6 / span_us, ops))
        .collect();
    seconds.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    // The rate at which the middle operation was done: neither idle seconds nor a fragment of one change it.
    let all: f64 = seconds.iter().map(|(_, ops)| ops).sum();
    let mut done = 0.0;
    let middle = seconds.iter().find(|(_, ops)| {
        done += ops;
        2.0 * done >= all
    });
    let least = NEAR_ZERO * middle.map_or(0.0, |(rate, _)| *rate);
    let worked: Vec<f64> = seconds
        .iter()
        .map(|(rate, _)| *rate)
        .filter(|rate| *rate >= least)
        .collect();
    median(&worked)
}

/// Joins consecutive seconds; they are in order of time.
pub fn gaps(seconds: impl IntoIterator<Item = Gap>) -> Vec<Gap> {
    let mut found: Vec<Gap> = Vec::new();
    for second in seconds {
        match found.last_mut() {
            Some(last) if second.from_us <= last.until_us => {
                last.until_us = last.until_us.max(second.until_us);
            }
            _ => found.push(second),
        }
    }
    found
}

/// Whether the lost seconds and the longest gap are enough for an outage.
pub fn is_outage(seconds: usize, longest_us: i64) -> bool {
    seconds >= MIN_SECONDS || longest_us >= MIN_GAP_US
}

/// Thresholds of an outage: near-zero seconds anywhere in a step, and the length of one gap.
const MIN_SECONDS: usize = 3;
const MIN_GAP_US: i64 = 2_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000;

    fn second(at: i64) -> Gap {
        Gap {
            from_us: at * S,
            until_us: (at + 1) * S,
        }
    }

    #[test]
    fn seconds_in_a_row_are_one_gap() {
        let found = gaps([3, 4, 5, 9].map(second));
        let lengths: Vec<(i64, i64)> = found
            .iter()
            .map(|gap| (gap.from_us / S, gap.length_us() / S))
            .collect();
        assert_eq!(lengths, [(3, 3), (9, 1)]);
        assert!(gaps([]).is_empty());
    }

    #[test]
    fn the_usual_rate_is_that_of_the_seconds_with_work() {
        let rate = |parts: &[(usize, f64, f64)]| {
            let all = parts
                .iter()
                .flat_map(|(count, ops, span_us)| vec![(*ops, *span_us); *count]);
            working_rate(all)
        };
        let second = 1e6;
        assert_eq!(rate(&[(40, 1000.0, second)]), 1000.0);
        // Most of the time it stood still, and nearly so.
        assert_eq!(rate(&[(17, 1000.0, second), (23, 0.0, second)]), 1000.0);
        assert_eq!(rate(&[(2, 1000.0, second), (98, 3.0, second)]), 1000.0);
        // Afterwards it caught up.
        assert_eq!(
            rate(&[(22, 1000.0, second), (18, 0.0, second), (2, 9000.0, second)]),
            1000.0
        );
        // Many operations in a fragment of a second.
        assert_eq!(rate(&[(10, 1000.0, second), (1, 64.0, 1.0)]), 1000.0);
        assert_eq!(rate(&[(3, 0.0, second)]), 0.0);
    }

    #[test]
    fn one_second_is_a_hiccup() {
        for (seconds, longest, expected) in [
            (0, 0, false),
            (1, S, false),
            (2, S, false),
            (2, 2 * S, true),
            (3, S, true),
        ] {
            assert_eq!(is_outage(seconds, longest), expected, "{seconds} {longest}");
        }
    }
}

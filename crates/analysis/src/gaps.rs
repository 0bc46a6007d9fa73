//! Gaps: consecutive seconds in which a load made almost no progress.

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

//! Loss of a load after an instant: its longest gap, its time of recovery, and the operations that were not done.
//!
//! Pure. The figures are times and counts: a percentile of the seconds around an outage hides it, because hardly any
//! operation ends during one. Rates are those of whole seconds ([`whole_seconds`]): a fragment at the end of a load
//! decides neither that it is back nor that it is not.

use super::real;
use super::seconds::whole_seconds;
use serde::{Deserialize, Serialize};

/// A second below this share of the previous rate belongs to the outage.
const BELOW_SHARE: f64 = 0.5;

/// Loss of a load after an instant, relative to its mean rate before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// The longest time without progress: consecutive seconds without a completed operation, or the slowest operation
    /// if that took longer.
    pub longest_gap_ms: f64,
    /// From the instant to the end of the last second below half of the previous rate; 0 if there was none. `None` if
    /// the rate was still below at the end.
    pub recovered_s: Option<f64>,
    /// Shortfall of operations against the previous rate, up to the recovery.
    pub ops_lost: f64,
    /// The slowest response, measured from the instant when it was due; `None` if the load is not paced.
    pub response_max_ms: Option<f64>,
}

/// One interval of a load, after the instant; fragments too, for their operations.
#[derive(Clone, Copy, Debug)]
pub struct LoadSecond {
    pub at_us: i64,
    pub until_us: i64,
    pub ops: i64,
    /// Slowest of the operations that ended in the interval.
    pub slowest_ns: Option<i64>,
    pub response_ns: Option<i64>,
}

/// `rate`: operations per second before the instant. Returns `None` if there is no whole second after it.
pub fn outage(from_us: i64, rate: f64, seconds: &[LoadSecond]) -> Option<Outage> {
    let is_whole = |second: &&LoadSecond| whole_seconds(second.until_us - second.at_us) > 0;
    let whole: Vec<&LoadSecond> = seconds.iter().filter(is_whole).collect();
    let last = whole.last()?;
    let span_s = |second: &LoadSecond| real(second.until_us - second.at_us) / 1e6;
    let is_below = |second: &LoadSecond| real(second.ops) < BELOW_SHARE * rate * span_s(second);
    let until = whole.iter().rposition(|second| is_below(second));
    let recovered_s = match until.and_then(|at| whole.get(at)) {
        None => Some(0.0),
        Some(low) if low.until_us < last.until_us => {
            Some(real(low.until_us - from_us).max(0.0) / 1e6)
        }
        Some(_) => None,
    };
    let lost = whole.iter().take(until.map_or(0, |at| at + 1));
    let ops_lost: f64 = lost
        .map(|second| rate * span_s(second) - real(second.ops))
        .sum();
    let slowest = seconds.iter().filter_map(|second| second.slowest_ns).max();
    let response = seconds.iter().filter_map(|second| second.response_ns).max();
    Some(Outage {
        longest_gap_ms: (longest_silence_us(seconds) / 1e3)
            .max(slowest.map_or(0.0, |ns| real(ns) / 1e6)),
        recovered_s,
        ops_lost: ops_lost.max(0.0),
        response_max_ms: response.map(|ns| real(ns) / 1e6),
    })
}

/// The longest run of seconds without a completed operation.
fn longest_silence_us(seconds: &[LoadSecond]) -> f64 {
    let (mut longest, mut current) = (0.0_f64, 0.0);
    for second in seconds {
        current = match second.ops {
            0 => current + real(second.until_us - second.at_us),
            _ => 0.0,
        };
        longest = longest.max(current);
    }
    longest
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    const S: i64 = 1_000_000;

    fn seconds(ops: &[i64], slowest_ms: &[i64]) -> Vec<LoadSecond> {
        let all = ops.iter().zip(slowest_ms).zip(0..);
        all.map(|((ops, slowest), at)| LoadSecond {
            at_us: at * S,
            until_us: (at + 1) * S,
            ops: *ops,
            slowest_ns: (*ops > 0).then_some(slowest * 1_000_000),
            response_ns: None,
        })
        .collect()
    }

    #[test]
    fn a_gap_is_told_though_hardly_any_operation_ends_in_it() {
        // 100 per second; the daemon was killed half a second after the first began.
        let told = outage(
            S / 2,
            100.0,
            &seconds(&[50, 0, 20, 100, 100], &[16, 0, 2270, 16, 16]),
        )
        .unwrap();
        assert_eq!(
            told,
            Outage {
                longest_gap_ms: 2270.0,
                recovered_s: Some(2.5),
                ops_lost: 230.0,
                response_max_ms: None,
            }
        );
    }

    #[test]
    fn seconds_without_an_operation_are_a_gap_however_fast_the_others_were() {
        let told = outage(0, 100.0, &seconds(&[100, 0, 0, 0, 100], &[1, 0, 0, 0, 1])).unwrap();
        assert_eq!((told.longest_gap_ms, told.ops_lost), (3000.0, 300.0));
        assert_eq!(told.recovered_s, Some(4.0));
    }

    #[test]
    fn a_load_that_was_not_disturbed_or_not_back_is_told_as_such() {
        let told = outage(0, 100.0, &seconds(&[90, 101, 99], &[5, 5, 7])).unwrap();
        assert_eq!(
            (told.longest_gap_ms, told.recovered_s, told.ops_lost),
            (7.0, Some(0.0), 0.0)
        );
        let told = outage(0, 100.0, &seconds(&[100, 0, 40], &[5, 0, 9])).unwrap();
        assert_eq!((told.recovered_s, told.ops_lost), (None, 160.0));
        assert_eq!(outage(0, 100.0, &[]), None);
    }

    #[test]
    fn a_last_fragment_decides_nothing() {
        let mut ended = seconds(&[100, 0, 100, 100], &[5, 0, 9, 5]);
        // The last 57 ms of the load, in which one operation ended that had begun before.
        ended.push(LoadSecond {
            at_us: 4 * S,
            until_us: 4 * S + 57_000,
            ops: 1,
            slowest_ns: Some(60_000_000),
            response_ns: None,
        });
        let told = outage(0, 100.0, &ended).unwrap();
        assert_eq!((told.recovered_s, told.ops_lost), (Some(2.0), 100.0));
        assert_eq!(told.longest_gap_ms, 1000.0);
        assert_eq!(outage(0, 100.0, &ended[4..]), None);
    }
}

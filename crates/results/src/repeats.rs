//! A figure of a load that was measured several times: its value, its scatter, and the repeats that count.
//!
//! Reports and comparisons use these functions alone, so that a load has the same figure in both. Operations of
//! different repeats are never put together: a percentile of all of them would be that of the worst repeat.

use super::flags::{Flag, VerdictEffect};
use serde::{Deserialize, Serialize};

/// A figure over the repeats of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatedFigure {
    /// Number of repeats that have it.
    pub n: u32,
    pub value: f64,
    /// The sample standard deviation of the repeats; `None` if there is only one.
    pub stddev: Option<f64>,
    pub min: f64,
    pub max: f64,
}

impl RepeatedFigure {
    /// A rate, time, latency or cost of each repeat with its run. The value is the geometric mean of the runs, each of
    /// which is that of its repeats; the arithmetic mean of the repeats if one is 0. `None` without repeats.
    pub fn level(repeats: &[(i64, f64)]) -> Option<Self> {
        let figure = Self::mean(repeats.iter().map(|(_, value)| *value))?;
        let level = match figure.min < figure.max {
            true => benchmesh_analysis::level(repeats.iter().copied()),
            // Logarithms would change its last digits.
            false => Some(figure.min),
        };
        Some(Self {
            value: level.unwrap_or(figure.value),
            ..figure
        })
    }

    /// A count of each repeat: the value is their arithmetic mean.
    pub fn mean(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let n = u32::try_from(values.clone().count()).ok();
        let n = n.filter(|n| *n > 0)?;
        let mean = values.clone().sum::<f64>() / f64::from(n);
        let squares: f64 = values.clone().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            n,
            value: mean,
            stddev: (n > 1).then(|| (squares / f64::from(n - 1)).sqrt()),
            min: values.clone().fold(f64::INFINITY, f64::min),
            max: values.fold(f64::NEG_INFINITY, f64::max),
        })
    }

    /// A maximum of each repeat: the value is the largest.
    pub fn largest(values: impl Iterator<Item = f64> + Clone) -> Option<Self> {
        let figure = Self::mean(values)?;
        Some(Self {
            value: figure.max,
            ..figure
        })
    }

    /// The standard deviation in percent of the value.
    pub fn spread_percent(&self) -> Option<f64> {
        let stddev = self.stddev.filter(|_| self.value > 0.0)?;
        Some(100.0 * stddev / self.value)
    }
}

/// Whether the rates of a step cover all its clients.
pub fn is_whole(partial: bool, flags: &[String]) -> bool {
    let excludes = |flag: &String| {
        Flag::row_of(flag).is_some_and(|row| {
            matches!(
                row.verdict,
                VerdictEffect::NotComparable | VerdictEffect::PerClient
            )
        })
    };
    !partial && !flags.iter().any(excludes)
}

/// The repeats that count: the whole ones with a rate; without any, those with a rate; otherwise all.
pub fn counted<R: Clone>(
    repeats: &[R],
    has_rate: impl Fn(&R) -> bool,
    is_whole: impl Fn(&R) -> bool,
) -> Vec<R> {
    let only = |counts: &dyn Fn(&R) -> bool| -> Vec<R> {
        let kept = repeats.iter().filter(|repeat| counts(repeat));
        kept.cloned().collect()
    };
    let whole = only(&|repeat| has_rate(repeat) && is_whole(repeat));
    if !whole.is_empty() {
        return whole;
    }
    let with_rate = only(&has_rate);
    match with_rate.is_empty() {
        true => repeats.to_vec(),
        false => with_rate,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_level_is_the_geometric_mean_and_one_bad_repeat_does_not_decide_it() {
        let figure = RepeatedFigure::level(&[(1, 1.0), (1, 1.0), (1, 64.0)]).unwrap();
        assert!((figure.value - 4.0).abs() < 1e-12, "{figure:?}");
        assert_eq!((figure.n, figure.min, figure.max), (3, 1.0, 64.0));
        // Python: statistics.stdev([1, 1, 64])
        let stddev = 36.373_066_958_946_424;
        assert!((figure.stddev.unwrap() - stddev).abs() < 1e-12);
        assert!((figure.spread_percent().unwrap() - 100.0 * stddev / 4.0).abs() < 1e-9);
        let with_zero = RepeatedFigure::level(&[(1, 0.0), (1, 3.0)]).unwrap();
        assert_eq!((with_zero.value, with_zero.n), (1.5, 2));
        let single = RepeatedFigure::level(&[(1, 7.0)]).unwrap();
        assert!((single.value - 7.0).abs() < 1e-12);
        assert_eq!((single.stddev, single.spread_percent()), (None, None));
        assert_eq!(RepeatedFigure::level(&[]), None);
        let counts = [1.0, 4.0];
        assert_eq!(
            RepeatedFigure::mean(counts.iter().copied()).unwrap().value,
            2.5
        );
        assert_eq!(
            RepeatedFigure::largest(counts.iter().copied())
                .unwrap()
                .value,
            4.0
        );
    }

    #[test]
    fn repeats_that_lost_a_client_count_only_if_none_is_whole() {
        let repeat = |rate: f64, flags: &[&str]| {
            let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
            (rate, flags)
        };
        let rates = |repeats: &[(f64, Vec<String>)]| -> Vec<f64> {
            let kept = counted(
                repeats,
                |(rate, _)| *rate > 0.0,
                |(_, flags)| is_whole(false, flags),
            );
            kept.into_iter().map(|(rate, _)| rate).collect()
        };
        let whole = repeat(3.0, &["tool-bound"]);
        let lost = repeat(2.0, &["partial"]);
        let idle = repeat(0.0, &[]);
        assert_eq!(rates(&[whole, lost.clone(), idle.clone()]), [3.0]);
        assert_eq!(rates(&[lost, idle.clone()]), [2.0]);
        assert_eq!(rates(std::slice::from_ref(&idle)), [0.0]);
        assert!(!is_whole(true, &[]));
    }
}

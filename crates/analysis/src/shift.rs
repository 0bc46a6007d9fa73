//! Finds where the level of a series within a run changed and stayed, although its values are autocorrelated.
//!
//! [`super::change`] tests values of different runs, which are exchangeable; neighbouring values of one series are not
//! independent. This test compares the largest cumulated deviation from the mean with a Brownian bridge, scaled by the
//! scatter around the two levels with its autocorrelation at the upper end of its interval. A series that a line
//! describes as well as a step has no change point: it drifts. Each part of a split is tested again (binary
//! segmentation).

use super::slope::inflation;
use super::{real, start};
use std::ops::Range;

/// Minimum share of a series, and minimum number of values, on either side of a change.
const MIN_SHARE: usize = 8;
const MIN_VALUES: usize = 6;
/// Minimum advantage of a step over a line: twice the difference of log-likelihoods.
const MIN_BETTER: f64 = 8.0;
/// The same minimum for a level that is left for a time and resumed.
const TWO_EDGES: f64 = 5.0;
/// Maximum distance of a value, in scatters, from the median of its neighbourhood: an outage is not a new level.
const CLIP: f64 = 4.0;
const NEIGHBOURS: usize = 4;

/// A new level begins at `at`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shift {
    pub at: usize,
    /// Medians since the previous shift and until the next one.
    pub before: f64,
    pub after: f64,
    pub p: f64,
}

/// All shifts that are significant at `level`, in order.
pub fn shifts(values: &[f64], level: f64) -> Vec<Shift> {
    let clipped = clipped(values);
    let least = (values.len() / MIN_SHARE).max(MIN_VALUES);
    let mut found = Vec::new();
    split(&clipped, 0..values.len(), least, level, &mut found);
    found.sort_by_key(|(at, _)| *at);
    let edges: Vec<usize> = std::iter::once(0)
        .chain(found.iter().map(|(at, _)| *at))
        .chain([values.len()])
        .collect();
    let medians: Vec<f64> = edges
        .windows(2)
        .map(|edge| match edge {
            [from, until] => start::median(values.get(*from..*until).unwrap_or_default()),
            _ => 0.0,
        })
        .collect();
    found
        .iter()
        .zip(medians.iter().zip(medians.iter().skip(1)))
        .map(|((at, p), (before, after))| Shift {
            at: *at,
            before: *before,
            after: *after,
            p: *p,
        })
        .collect()
}

fn split(
    values: &[f64],
    range: Range<usize>,
    least: usize,
    level: f64,
    found: &mut Vec<(usize, f64)>,
) {
    let part = values.get(range.clone()).unwrap_or_default();
    if part.len() < 2 * least {
        return;
    }
    let shown = |split: Split| {
        split
            .p(part)
            .filter(|p| *p <= level)
            .map(|p| (split.edges, p))
    };
    let best = shown(Split::in_two(part, least)).or_else(|| shown(Split::for_a_time(part, least)));
    let Some((edges, p)) = best else {
        return;
    };
    let mut from = range.start;
    for edge in edges.into_iter().map(|edge| range.start + edge) {
        found.push((edge, p));
        split(values, from..edge, least, level, found);
        from = edge;
    }
    split(values, from..range.end, least, level, found);
}

/// A split of values: into two levels, or into one level that is left for a time and resumed.
struct Split {
    edges: Vec<usize>,
    /// Largest cumulated deviation from the overall mean.
    deviation: f64,
}

impl Split {
    fn in_two(values: &[f64], least: usize) -> Self {
        let n = values.len();
        let sums = cumulated(values);
        let size = |at: usize| sum_at(&sums, at).abs() / (real(at) * real(n - at)).sqrt();
        let best = (least..=n - least).max_by(|a, b| size(*a).total_cmp(&size(*b)));
        Self {
            edges: best.into_iter().collect(),
            deviation: sums.iter().fold(0.0, |most, sum| sum.abs().max(most)),
        }
    }

    fn for_a_time(values: &[f64], least: usize) -> Self {
        let n = values.len();
        let sums = cumulated(values);
        let mut best = (0.0, Vec::new());
        for from in least..n {
            for until in from + least..=n - least {
                let inside = real(until - from);
                let sum = (sum_at(&sums, until) - sum_at(&sums, from)).abs();
                let size = sum / (inside * (real(n) - inside)).sqrt();
                if size > best.0 {
                    best = (size, vec![from, until]);
                }
            }
        }
        let most = sums.iter().copied().fold(0.0, f64::max);
        let least = sums.iter().copied().fold(0.0, f64::min);
        Self {
            edges: best.1,
            deviation: most - least,
        }
    }

    /// Returns `None` if a line describes the values as well.
    fn p(&self, values: &[f64]) -> Option<f64> {
        let (head, tail) = values.split_at_checked(*self.edges.first()?)?;
        let back = self.edges.get(1).map(|edge| edge - head.len());
        let (inside, after) = tail.split_at_checked(back.unwrap_or(tail.len()))?;
        let outside = [head, after].concat();
        let rest = match back {
            None => [around_mean(head), around_mean(tail)].concat(),
            Some(_) => {
                let outside = around_mean(&outside);
                let (head, after) = outside.split_at_checked(head.len())?;
                [head, &around_mean(inside), after].concat()
            }
        };
        let count = real(values.len());
        let squares: f64 = rest.iter().map(|value| value * value).sum();
        if squares <= 0.0 {
            return (self.deviation > 0.0).then_some(0.0);
        }
        let inflation = inflation(&rest);
        let better = count / inflation * (squares_around_line(values) / squares).ln();
        if better < MIN_BETTER * real(self.edges.len()) {
            return None;
        }
        let distance = self.deviation / (squares * inflation).sqrt();
        Some(match back {
            None => beyond_bridge(distance),
            // The rarer shape.
            Some(_) => TWO_EDGES * range_of_bridge(distance),
        })
    }
}

/// The cumulated deviations from the mean, up to and including each value.
fn cumulated(values: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let off = around_mean(values);
    off.iter()
        .map(|value| {
            sum += value;
            sum
        })
        .collect()
}

/// The sum of the first `count` values.
fn sum_at(sums: &[f64], count: usize) -> f64 {
    let last = count.checked_sub(1).and_then(|last| sums.get(last));
    last.copied().unwrap_or(0.0)
}

fn around_mean(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / real(values.len().max(1));
    values.iter().map(|value| value - mean).collect()
}

/// The probability that a Brownian bridge reaches further from 0 (Kolmogorov's distribution).
fn beyond_bridge(distance: f64) -> f64 {
    let terms = (1_u32..=50).map(|term| {
        let sign = if term % 2 == 1 { 2.0 } else { -2.0 };
        sign * (-2.0 * (f64::from(term) * distance).powi(2)).exp()
    });
    terms.sum::<f64>().clamp(0.0, 1.0)
}

/// The probability that the highest and lowest points of a Brownian bridge are further apart (Kuiper's distribution).
fn range_of_bridge(distance: f64) -> f64 {
    if distance < 0.5 {
        return 1.0;
    }
    let terms = (1_u32..=50).map(|term| {
        let square = (f64::from(term) * distance).powi(2);
        2.0 * (4.0 * square - 1.0) * (-2.0 * square).exp()
    });
    terms.sum::<f64>().clamp(0.0, 1.0)
}

fn squares_around_line(values: &[f64]) -> f64 {
    let count = real(values.len());
    let mean = values.iter().sum::<f64>() / count;
    let middle = (count - 1.0) / 2.0;
    let (mut both, mut own, mut all) = (0.0, 0.0, 0.0);
    for (place, value) in values.iter().enumerate() {
        let (x, y) = (real(place) - middle, value - mean);
        both += x * y;
        own += x * x;
        all += y * y;
    }
    all - both * both / own
}

fn clipped(values: &[f64]) -> Vec<f64> {
    let local: Vec<f64> = (0..values.len())
        .map(|at| {
            let until = (at + NEIGHBOURS + 1).min(values.len());
            let near = values.get(at.saturating_sub(NEIGHBOURS)..until);
            start::median(near.unwrap_or_default())
        })
        .collect();
    let off: Vec<f64> = values
        .iter()
        .zip(&local)
        .map(|(value, local)| (value - local).abs())
        .collect();
    let reach = CLIP * 1.4826 * start::median(&off);
    values
        .iter()
        .zip(&local)
        .map(|(value, local)| value.clamp(local - reach, local + reach))
        .collect()
}

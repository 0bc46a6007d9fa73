//! Change points in the history of a figure: where its level moved and stayed there.
//!
//! Hierarchical: find the split of a stretch with the largest standardised sum, test it twice, then repeat in both
//! halves. Ranks (Pettitt's statistic) are tested against their permutations: this assumes no distribution and
//! tolerates one outlier, but few values have too few permutations to show anything. The logarithms are tested against
//! normal values, which detects three values far below seven others. Each test gets half of the significance level.

use super::real;
use benchmesh_workloads::random::Random;
use std::ops::Range;

/// Minimum number of values on either side of a change.
const MIN_VALUES: usize = 3;
/// Minimum number of values for a change to be detectable.
pub const MIN_HISTORY: usize = 2 * MIN_VALUES;
/// Number of permutations of the ranks, and of draws of normal values.
const DRAWS: u32 = 1999;
/// Probability of a false change point in each tested stretch.
const LEVEL: f64 = 0.01;

/// A new level begins here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// Index of the first value of the new level.
    pub at: usize,
    /// Geometric means of the values back to the previous change and up to the next one.
    pub before: f64,
    pub after: f64,
    pub p: f64,
}

/// All changes, in order. Values must be positive.
pub fn changes(values: &[f64], seed: u64) -> Vec<Change> {
    let mut found = Vec::new();
    split(values, 0..values.len(), seed, &mut found);
    found.sort_by_key(|(at, _)| *at);
    let edges: Vec<usize> = std::iter::once(0)
        .chain(found.iter().map(|(at, _)| *at))
        .chain([values.len()])
        .collect();
    let level = |edge: usize| {
        let from = edges.get(edge).copied().unwrap_or(0);
        let until = edges.get(edge + 1).copied().unwrap_or(0);
        let part = values.get(from..until).unwrap_or_default();
        (part.iter().map(|value| value.ln()).sum::<f64>() / real(part.len().max(1))).exp()
    };
    let changes = found.iter().enumerate();
    changes
        .map(|(number, (at, p))| Change {
            at: *at,
            before: level(number),
            after: level(number + 1),
            p: *p,
        })
        .collect()
}

fn split(values: &[f64], range: Range<usize>, seed: u64, found: &mut Vec<(usize, f64)>) {
    if range.len() < MIN_HISTORY {
        return;
    }
    let stretch = values.get(range.clone()).unwrap_or_default();
    let mut random = Random::of(&[
        seed,
        u64::try_from(range.start).unwrap_or(0),
        u64::try_from(range.end).unwrap_or(0),
    ]);
    let by_rank = ranked(stretch, &mut random);
    let by_size = measured(stretch, &mut random);
    let (at, p) = if by_size.1 < by_rank.1 {
        by_size
    } else {
        by_rank
    };
    let p = (2.0 * p).min(1.0);
    if p > LEVEL {
        return;
    }
    let at = range.start + at;
    found.push((at, p));
    split(values, range.start..at, seed, found);
    split(values, at..range.end, seed, found);
}

/// Returns the strongest split by ranks, with its permutation p value.
fn ranked(values: &[f64], random: &mut Random) -> (usize, f64) {
    let mut ranks = ranks(values);
    let (at, statistic) = strongest(&ranks);
    let p = share(statistic, || {
        shuffle(&mut ranks, random);
        strongest(&ranks).1
    });
    (at, p)
}

/// The strongest split by logarithms, with its p value against normal values.
fn measured(values: &[f64], random: &mut Random) -> (usize, f64) {
    let (at, statistic) = strongest(&standardised(
        values.iter().map(|value| value.ln()).collect(),
    ));
    let p = share(statistic, || {
        let drawn = values.iter().map(|_| normal(random)).collect();
        strongest(&standardised(drawn)).1
    });
    (at, p)
}

/// Returns the share of draws that are at least as strong.
fn share(statistic: f64, mut draw: impl FnMut() -> f64) -> f64 {
    let as_strong = (0..DRAWS).filter(|_| draw() >= statistic - 1e-12).count();
    (real(as_strong) + 1.0) / (f64::from(DRAWS) + 1.0)
}

/// Scales the values to a mean of 0 and a sum of squares of 1.
fn standardised(values: Vec<f64>) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / real(values.len());
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let size = squares.sqrt();
    let is_flat = size <= FLAT * mean.abs();
    let of = |value: f64| if is_flat { 0.0 } else { (value - mean) / size };
    values.into_iter().map(of).collect()
}

/// Values with a smaller relative difference differ by rounding only.
const FLAT: f64 = 1e-12;

/// A value of the standard normal distribution (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let mut uniform =
        || (real(usize::try_from(random.below(1 << 32)).unwrap_or(0)) + 0.5) / 4_294_967_296.0;
    let radius = (-2.0 * uniform().ln()).sqrt();
    radius * (std::f64::consts::TAU * uniform()).cos()
}

/// Equal values share the mean of their ranks; the mean of all ranks is 0.
fn ranks(values: &[f64]) -> Vec<f64> {
    let middle = (real(values.len()) - 1.0) / 2.0;
    values
        .iter()
        .map(|value| {
            let below = values.iter().filter(|other| *other < value).count();
            let equal = values.iter().filter(|other| *other == value).count();
            real(below) + (real(equal) - 1.0) / 2.0 - middle
        })
        .collect()
}

/// The split with the largest rank sum for its position.
fn strongest(ranks: &[f64]) -> (usize, f64) {
    let n = ranks.len();
    let mut sum = 0.0_f64;
    let mut best = (0, 0.0);
    for (place, rank) in ranks.iter().enumerate() {
        sum += rank;
        let left = place + 1;
        if left < MIN_VALUES || n - left < MIN_VALUES {
            continue;
        }
        let statistic = sum.abs() / (real(left) * real(n - left)).sqrt();
        if statistic > best.1 {
            best = (left, statistic);
        }
    }
    best
}

fn shuffle(values: &mut [f64], random: &mut Random) {
    for last in (1..values.len()).rev() {
        let other = random.below(u64::try_from(last + 1).unwrap_or(1));
        values.swap(last, usize::try_from(other).unwrap_or(0));
    }
}

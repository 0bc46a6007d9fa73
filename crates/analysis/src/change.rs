//! Change points in the history of a figure: where its level moved and stayed.
//!
//! Hierarchical: the split of a stretch with the largest standardised rank sum (Pettitt's statistic, which one outlier does
//! not move), tested by permutations; then the same in both halves. Ranks ask nothing of the distribution of the figure.

use super::real;
use benchmesh_workloads::random::Random;
use std::ops::Range;

/// Values on either side of a change.
const LEAST_VALUES: usize = 3;
const PERMUTATIONS: u32 = 999;
/// Chance of a change point where there is none, in each stretch that is tested.
const LEVEL: f64 = 0.01;

/// The level is another one from here on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The first value of the new level.
    pub at: usize,
    /// Geometric means of the values up to the change before and after it.
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
    if range.len() < 2 * LEAST_VALUES {
        return;
    }
    let mut ranks = ranks(values.get(range.clone()).unwrap_or_default());
    let (at, statistic) = strongest(&ranks);
    let mut random = Random::of(&[
        seed,
        u64::try_from(range.start).unwrap_or(0),
        u64::try_from(range.end).unwrap_or(0),
    ]);
    let mut as_strong = 1.0;
    for _ in 0..PERMUTATIONS {
        shuffle(&mut ranks, &mut random);
        if strongest(&ranks).1 >= statistic - 1e-12 {
            as_strong += 1.0;
        }
    }
    let p = as_strong / (f64::from(PERMUTATIONS) + 1.0);
    if p > LEVEL {
        return;
    }
    let at = range.start + at;
    found.push((at, p));
    split(values, range.start..at, seed, found);
    split(values, at..range.end, seed, found);
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

/// The split with the largest rank sum for its place.
fn strongest(ranks: &[f64]) -> (usize, f64) {
    let n = ranks.len();
    let mut sum = 0.0_f64;
    let mut best = (0, 0.0);
    for (place, rank) in ranks.iter().enumerate() {
        sum += rank;
        let left = place + 1;
        if left < LEAST_VALUES || n - left < LEAST_VALUES {
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

//! Finds a value unlike its equals: a daemon that uses far more CPU than others of its name, or a slower client.
//!
//! A value is compared with the median of the others, in units of their scatter (the median deviation plus a share of
//! the median, so that tiny differences do not count among nearly equal values). With fewer than five others the
//! scatter is not reliable, and the value must be far from each of them instead.

use super::real;
use super::start::median;
use std::ops::Range;

/// Minimum number of others for a judgement, and for an estimate of their scatter.
const MIN_OTHERS: usize = 2;
const MIN_FOR_SCATTER: usize = 5;
/// Minimum distance from the median of the others, in scatters.
const APART: f64 = 4.0;
/// Lower bound of the scatter, as a share of the median.
const MIN_SCATTER: f64 = 0.05;
/// Minimum share of the remaining time, from the beginning of the difference, in which the value must be unlike its
/// equals.
const STAYS: f64 = 0.8;

/// Weight of an instant at which the value is like its equals, against one at which it is not.
const WEIGHT: i64 = 4;

/// The direction and the minimum factor of a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub factor: f64,
    /// The factor for only two others: relative to the nearest of them.
    pub factor_of_two: f64,
}

/// At least twice the CPU time.
pub const MORE: Rule = Rule {
    factor: 2.0,
    factor_of_two: 3.0,
};
/// At most seven tenths of the rate.
pub const LESS: Rule = Rule {
    factor: 0.7,
    factor_of_two: 0.5,
};

impl Rule {
    fn holds(self, value: f64, other: f64, factor: f64) -> bool {
        match self.factor > 1.0 {
            true => value >= factor * other,
            false => value <= factor * other,
        }
    }
}

/// Returns the median of the others if the value at `place` is unlike them by the rule.
pub fn unlike(values: &[f64], place: usize, rule: Rule) -> Option<f64> {
    let value = *values.get(place)?;
    let others: Vec<f64> = values
        .iter()
        .enumerate()
        .filter(|(at, _)| *at != place)
        .map(|(_, other)| *other)
        .collect();
    if others.len() < MIN_OTHERS {
        return None;
    }
    let usual = median(&others);
    let is_unlike = match others.len() < MIN_FOR_SCATTER {
        true => {
            let factor = match others.len() == MIN_OTHERS {
                true => rule.factor_of_two,
                false => rule.factor,
            };
            others.iter().all(|other| rule.holds(value, *other, factor))
        }
        false => {
            let off: Vec<f64> = others.iter().map(|other| (other - usual).abs()).collect();
            let scatter = 1.4826 * median(&off) + MIN_SCATTER * usual.abs();
            rule.holds(value, usual, rule.factor) && (value - usual).abs() >= APART * scatter
        }
    };
    is_unlike.then_some(usual)
}

/// A stretch of time in which a value is unlike its equals.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    pub range: Range<usize>,
    /// Medians over the stretch.
    pub value: f64,
    pub usual: f64,
}

/// Returns the longest stretch in which a value nearly always differs from its equals: each instant at which it does
/// not differ weighs [`WEIGHT`] times as much. `pairs` holds a value and the median of its equals, or `None` where they
/// do not differ or are unknown.
pub fn longest_stretch(pairs: &[Option<(f64, f64)>]) -> Option<Stretch> {
    let (mut from, mut score) = (0, 0_i64);
    let mut best: Option<(i64, Range<usize>)> = None;
    for (at, pair) in pairs.iter().enumerate() {
        if score <= 0 {
            (from, score) = (at, 0);
        }
        score += if pair.is_some() { 1 } else { -WEIGHT };
        if score > best.as_ref().map_or(0, |(most, _)| *most) {
            best = Some((score, from..at + 1));
        }
    }
    let (_, range) = best?;
    let inside = pairs.get(range.clone()).unwrap_or_default();
    let of = |part: fn(&(f64, f64)) -> f64| {
        let all: Vec<f64> = inside.iter().flatten().map(part).collect();
        median(&all)
    };
    Some(Stretch {
        value: of(|pair| pair.0),
        usual: of(|pair| pair.1),
        range,
    })
}

/// Returns the first position from which most of the remaining pairs (a value, the median of its equals) are at least
/// halfway to the rule's factor; `None` if there is no such position.
pub fn since(pairs: &[(f64, f64)], rule: Rule) -> Option<usize> {
    let halfway = (1.0 + rule.factor) / 2.0;
    let unlike: Vec<bool> = pairs
        .iter()
        .map(|(value, usual)| rule.holds(*value, *usual, halfway))
        .collect();
    (0..unlike.len()).find(|from| {
        let rest = unlike.get(*from..).unwrap_or_default();
        let count = rest.iter().filter(|unlike| **unlike).count();
        rest.first() == Some(&true) && real(count) >= STAYS * real(rest.len())
    })
}

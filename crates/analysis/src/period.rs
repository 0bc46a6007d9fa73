//! A disturbance that repeats with a constant period.
//!
//! The first half of a series proposes: the period with the highest autocorrelation at its multiples, and the place in
//! it that differs most from the rest. The second half tests the proposal: it counts the periods in which that place is
//! among the most disturbed tenth. The result therefore depends neither on how many periods were tried nor on the
//! distribution of the noise.

use super::{real, start};
use std::f64::consts::PI;

/// Shortest period, in values.
const MIN_PERIOD: usize = 5;
/// Number of periods to try, and of divisors to try for each: a multiple of the period correlates as well.
const PROPOSALS: usize = 6;
const PARTS: [usize; 6] = [1, 2, 3, 4, 5, 7];
/// Minimum number of periods in each half.
const MIN_CYCLES: usize = 4;
/// Number of multiples of a period to examine together.
const MULTIPLES: usize = 4;
/// A disturbance takes at most one in this many values of a period; anything wider is a swing.
const MAX_WIDTH: usize = 4;
/// Maximum number of values by which a disturbance may be early or late.
const SLACK: usize = 1;
/// The most disturbed share of a period, and the share of periods in which the proposed place belongs to it.
const TAIL: f64 = 0.1;
const MIN_HITS: f64 = 0.6;

/// A periodic disturbance: higher values than usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Period {
    /// In values.
    pub period: f64,
    /// Where the first disturbance begins, and how many values it takes.
    pub first: f64,
    pub width: usize,
    /// Mean of the disturbances minus the median of all other values.
    pub size: f64,
    /// Number of periods in the second half, and how many of them are disturbed at the proposed place.
    pub cycles: usize,
    pub hits: usize,
    pub p: f64,
}

impl Period {
    /// The first value of each disturbance.
    pub fn places(&self, length: usize) -> Vec<usize> {
        let places = (0..length).map(|number| whole(self.first + real(number) * self.period));
        places.take_while(|at| at + self.width <= length).collect()
    }
}

/// The strongest periodic disturbance of equally spaced values, if the second half confirms it at `level`.
pub fn period(values: &[f64], level: f64) -> Option<Period> {
    let half = values.len() / 2;
    let (head, _) = values.split_at(half);
    let correlations = autocorrelation(head);
    let proposed = proposed(&correlations, half / MIN_CYCLES);
    let tried = real(proposed.len());
    let judged = proposed.into_iter().filter_map(|rough| {
        let period = refined(&correlations, rough, half);
        let (first, width) = most_disturbed(head, period)?;
        let Held {
            cycles,
            hits,
            chance,
        } = held(values, half, period, first, width);
        let p = tried * at_least(hits, cycles, chance);
        let is_shown = cycles >= MIN_CYCLES && p <= level && real(hits) >= MIN_HITS * real(cycles);
        is_shown.then_some(Period {
            period,
            first,
            width,
            size: 0.0,
            cycles,
            hits,
            p,
        })
    });
    // Among equal candidates the shortest period wins: its multiples are less significant.
    let found = judged.min_by(|a, b| a.p.total_cmp(&b.p).then(a.period.total_cmp(&b.period)))?;
    Some(Period {
        size: size(values, &found),
        ..found
    })
}

fn size(values: &[f64], found: &Period) -> f64 {
    let mut is_disturbed = vec![false; values.len()];
    for place in found.places(values.len()) {
        for one in is_disturbed.iter_mut().skip(place).take(found.width) {
            *one = true;
        }
    }
    let of = |disturbed: bool| -> Vec<f64> {
        let both = values.iter().zip(&is_disturbed);
        both.filter(|(_, is)| **is == disturbed)
            .map(|(value, _)| *value)
            .collect()
    };
    let inside = of(true);
    inside.iter().sum::<f64>() / real(inside.len().max(1)) - start::median(&of(false))
}

/// The lags whose multiples correlate most, relative to the lags half a period away.
fn proposed(correlations: &[f64], longest: usize) -> Vec<usize> {
    let at = |lag: usize| correlations.get(lag).copied().unwrap_or(0.0);
    let near = |lag: usize| (lag - 1..=lag + 1).map(at).fold(f64::MIN, f64::max);
    let mut scores: Vec<(usize, f64)> = (MIN_PERIOD..=longest)
        .map(|lag| {
            let multiples = MULTIPLES.min((longest * MIN_CYCLES * 3 / 4 / lag).max(1));
            let score = (1..=multiples).map(|number| {
                let beside = lag * (2 * number - 1) / 2;
                near(number * lag) - at(beside).max(at(beside + 1))
            });
            // Neighbours of a peak score nearly the same; prefer the peak itself.
            (lag, score.sum::<f64>() / real(multiples) + 0.01 * at(lag))
        })
        .filter(|(_, score)| *score > 0.0)
        .collect();
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut chosen: Vec<usize> = Vec::new();
    for (lag, _) in scores {
        if chosen.len() == PROPOSALS {
            break;
        }
        if chosen.iter().all(|other| lag.abs_diff(*other) > 2) {
            chosen.push(lag);
        }
    }
    let parts = chosen
        .iter()
        .flat_map(|lag| PARTS.map(|part| lag.div_ceil(part)));
    let mut all: Vec<usize> = parts.filter(|lag| *lag >= MIN_PERIOD).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The period to a fraction of a value, from its multiples.
fn refined(correlations: &[f64], rough: usize, length: usize) -> f64 {
    let mut period = real(rough);
    let mut number = 1;
    while whole(period * real(number)) + 2 < length * 3 / 4 {
        let middle = whole((period * real(number)).round());
        let near = (middle.saturating_sub(2)..=middle + 2)
            .filter_map(|lag| Some((lag, *correlations.get(lag)?)));
        let Some((lag, _)) = near.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            break;
        };
        period = real(lag) / real(number);
        number *= 2;
    }
    period
}

/// Where in a period the mean over all periods is highest, and how many values wide this place is.
fn most_disturbed(values: &[f64], period: f64) -> Option<(f64, usize)> {
    let bins = whole(period.floor());
    let mut sums = vec![(0.0, 0.0); bins];
    for (place, value) in values.iter().enumerate() {
        let bin = whole(real(place) % period).min(bins.saturating_sub(1));
        let (sum, count) = sums.get_mut(bin)?;
        *sum += value;
        *count += 1.0;
    }
    let profile: Vec<f64> = sums
        .iter()
        .map(|(sum, count)| sum / f64::max(*count, 1.0))
        .collect();
    let usual = start::median(&profile);
    let mut best: Option<(f64, usize, usize)> = None;
    let mut width = 1;
    while width <= (bins / MAX_WIDTH).max(1) {
        let mut sum: f64 = profile.iter().take(width).map(|value| value - usual).sum();
        for from in 0..bins {
            let strength = sum / real(width).sqrt();
            if best.is_none_or(|(most, _, _)| strength > most) {
                best = Some((strength, from, width));
            }
            let leaving = profile.get(from)?;
            let coming = profile.get((from + width) % bins)?;
            sum += coming - leaving;
        }
        width = (width * 3 / 2).max(width + 1);
    }
    best.filter(|(strength, _, _)| *strength > 0.0)
        .map(|(_, from, width)| (real(from), width))
}

/// How often the proposed place is among the most disturbed of its period.
struct Held {
    cycles: usize,
    hits: usize,
    /// The probability of a hit without a periodic disturbance.
    chance: f64,
}

/// Judges the complete periods from `from` on, each with its disturbance in the middle.
fn held(values: &[f64], from: usize, period: f64, first: f64, width: usize) -> Held {
    let slack = 2 * SLACK + 1;
    let length = whole(period);
    let places = (length + 2).saturating_sub(width + slack);
    let most = whole(TAIL * real(places)).max(1);
    let middle = whole((0.5 * period).round()).saturating_sub(SLACK);
    let mut held = Held {
        cycles: 0,
        hits: 0,
        chance: real(most) / real(places.max(1)),
    };
    let mut number = ((real(from) - first) / period).ceil() + 0.5;
    loop {
        let begin = whole((first + number * period).round());
        let Some(cycle) = values.get(begin..begin + length) else {
            return held;
        };
        let sums = moving_sums(cycle, width);
        let highest = |near: &[f64]| near.iter().copied().fold(f64::MIN, f64::max);
        let sums: Vec<f64> = sums.windows(slack).map(highest).collect();
        if let Some(own) = sums.get(middle) {
            let above = sums.iter().filter(|other| *other > own).count();
            let equal = sums.iter().filter(|other| *other == own).count() - 1;
            held.cycles += 1;
            held.hits += usize::from(above + equal.div_ceil(2) < most);
        }
        number += 1.0;
    }
}

/// The sum of each `width` neighbours.
fn moving_sums(values: &[f64], width: usize) -> Vec<f64> {
    let Some((first, _)) = values.split_at_checked(width) else {
        return Vec::new();
    };
    let mut sum: f64 = first.iter().sum();
    let coming = values.iter().skip(width);
    let moves = values.iter().zip(coming).map(|(leaving, coming)| {
        sum += coming - leaving;
        sum
    });
    let moved: Vec<f64> = moves.collect();
    std::iter::once(first.iter().sum()).chain(moved).collect()
}

/// The probability of at least `hits` of `count`, each with probability `share`.
fn at_least(hits: usize, count: usize, share: f64) -> f64 {
    let odds = (share / (1.0 - share)).ln();
    let mut log = real(count) * (1.0 - share).ln();
    let mut sum = 0.0;
    for number in 0..=count {
        if number >= hits {
            sum += log.exp();
        }
        log += odds + (real(count - number) / real(number + 1)).ln();
    }
    sum.min(1.0)
}

/// The autocorrelation at each lag, computed from the power spectrum.
fn autocorrelation(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / real(values.len().max(1));
    let size = (2 * values.len()).next_power_of_two().max(2);
    let mut series: Vec<Complex> = values.iter().map(|value| (value - mean, 0.0)).collect();
    series.resize(size, (0.0, 0.0));
    transform(&mut series);
    for (re, im) in &mut series {
        (*re, *im) = (*re * *re + *im * *im, 0.0);
    }
    transform(&mut series);
    let all = series.first().map_or(0.0, |(re, _)| *re);
    if all <= 0.0 {
        return Vec::new();
    }
    let lags = series.iter().take(values.len());
    lags.map(|(re, _)| re / all).collect()
}

type Complex = (f64, f64);

/// The discrete Fourier transform of a power of two of values, in place (Cooley and Tukey).
fn transform(values: &mut [Complex]) {
    let n = values.len();
    let bits = n.trailing_zeros();
    for at in 0..n {
        let other = at.reverse_bits() >> (usize::BITS - bits);
        if other > at {
            values.swap(at, other);
        }
    }
    let mut length = 2;
    while length <= n {
        let half = length / 2;
        let turns: Vec<Complex> = (0..half)
            .map(|at| {
                let angle = -2.0 * PI * real(at) / real(length);
                (angle.cos(), angle.sin())
            })
            .collect();
        for block in values.chunks_exact_mut(length) {
            let (low, high) = block.split_at_mut(half);
            for ((one, other), turn) in low.iter_mut().zip(high).zip(&turns) {
                let turned = (
                    other.0 * turn.0 - other.1 * turn.1,
                    other.0 * turn.1 + other.1 * turn.0,
                );
                *other = (one.0 - turned.0, one.1 - turned.1);
                *one = (one.0 + turned.0, one.1 + turned.1);
            }
        }
        length *= 2;
    }
}

fn whole(value: f64) -> usize {
    super::blocks::whole(value)
}

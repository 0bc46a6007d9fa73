//! A disturbance that repeats with a constant period.
//!
//! The first half of a series proposes: the period with the highest autocorrelation at its multiples, and the place in
//! it that differs most from the rest. The second half tests the proposal: it counts the periods in which that place is
//! among the most disturbed tenth. The result therefore depends neither on how many periods were tried nor on the
//! distribution of the noise. The place follows the disturbance from one period to the next, because the first half
//! knows the period only to a fraction of a value.

use super::{real, start};
use std::f64::consts::PI;

/// Shortest period, in values: of a shorter one, the place and its neighbours are more than half.
const MIN_PERIOD: usize = 6;
/// Number of periods to try, and of divisors to try for each: a multiple of the period correlates as well.
const PROPOSALS: usize = 6;
const PARTS: [usize; 6] = [1, 2, 3, 4, 5, 7];
/// Minimum number of periods in each half.
const MIN_CYCLES: usize = 6;
/// Maximum number of periods in which the disturbed place is looked for.
const MAX_CYCLES: f64 = 128.0;
/// Number of multiples of a period to examine together.
const MULTIPLES: usize = 4;
/// A disturbance takes at most one in this many values of a period; anything wider is a swing.
const MAX_WIDTH: usize = 4;
/// Maximum number of values by which a disturbance may be early or late.
const SLACK: usize = 1;
/// The share of a value by which two tried periods differ at the end of the values.
const STEP: f64 = 0.25;
/// The part of a disturbance's distance from its expected place by which the next ones are expected later.
const FOLLOW: f64 = 0.3;
/// The most disturbed share of a period, and the share of periods, beyond that by chance, in which the proposed place
/// belongs to it.
const TAIL: f64 = 0.1;
const MIN_EXCESS: f64 = 0.55;
/// If only one of two periods in succession is disturbed, the true period is twice as long.
const MIN_EVEN: f64 = 0.5;
/// A part of the period is the true one if it is disturbed as often. Parts up to this are tried.
const MIN_ALIKE: f64 = 0.75;
const MAX_PART: usize = 12;

/// A periodic disturbance: higher values than usual.
#[derive(Clone, Debug, PartialEq)]
pub struct Period {
    /// In values.
    pub period: f64,
    /// The first value of each disturbance, and how many values it takes.
    pub places: Vec<usize>,
    pub width: usize,
    /// Mean of the disturbances minus the median of all other values.
    pub size: f64,
    /// Number of periods in the second half, and how many of them are disturbed at the proposed place.
    pub cycles: usize,
    pub hits: usize,
    pub p: f64,
}

/// The strongest periodic disturbance of equally spaced values, if the second half confirms it at `level`.
pub fn period(values: &[f64], level: f64) -> Option<Period> {
    let half = values.len() / 2;
    let (head, _) = values.split_at(half);
    let correlations = autocorrelation(head);
    let rough = proposed(&correlations, half / MIN_CYCLES).into_iter();
    let mut proposals: Vec<Proposal> = rough
        .filter_map(|rough| strongest_near(head, refined(&correlations, rough, half)))
        .collect();
    proposals.sort_by(|a, b| a.period.total_cmp(&b.period));
    // Less than one value apart at the end of the half.
    proposals.dedup_by(|a, b| (a.period - b.period).abs() * real(half) < a.period);
    let tried = real(proposals.len());
    let judged = |proposal: Proposal| {
        let held = count_hits(values, half, &proposal);
        let p = tried * at_least(held.hits, held.cycles, held.chance);
        let is_shown = p <= level && held.excess() >= MIN_EXCESS && held.is_even();
        is_shown.then_some((proposal, held, p))
    };
    let shown = proposals.into_iter().filter_map(judged);
    let best = shown.max_by(|(_, a, _), (_, b, _)| a.distance().total_cmp(&b.distance()))?;
    let longest = (whole(best.0.period) / MIN_PERIOD).min(MAX_PART);
    let part = (2..=longest).rev().find_map(|part| {
        let part = real(part);
        let (part, held, p) = judged(strongest_near(head, (best.0.period / part, 0.5 / part))?)?;
        (held.excess() >= MIN_ALIKE * best.1.excess()).then_some((part, held, p))
    });
    let (proposal, held, p) = part.unwrap_or(best);
    let size = size(values, &held.places, proposal.width);
    if is_multiple(values, &held, &proposal, size) {
        return None;
    }
    Some(Period {
        period: held.period(),
        size,
        places: held.places,
        width: proposal.width,
        cycles: held.cycles,
        hits: held.hits,
        p,
    })
}

/// Whether the values half or a third of the period later are as disturbed: the true period is too short to be judged.
fn is_multiple(values: &[f64], held: &HitCounts, proposal: &Proposal, size_at_places: f64) -> bool {
    (2..=3_u8).any(|part| {
        let later = proposal.period / f64::from(part);
        let size_at = |later: f64| {
            let places = held.places.iter().map(|place| place + whole(later));
            size(values, &places.collect::<Vec<_>>(), proposal.width)
        };
        // Between two values, each shows a part of it.
        let size_later = match later.fract() == 0.0 {
            true => size_at(later),
            false => size_at(later.floor()) + size_at(later.ceil()),
        };
        size_later >= MIN_ALIKE * size_at_places
    })
}

fn size(values: &[f64], places: &[usize], width: usize) -> f64 {
    let mut is_disturbed = vec![false; values.len()];
    for place in places {
        for one in is_disturbed.iter_mut().skip(*place).take(width) {
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

/// The period to a fraction of a value, from its multiples, and its possible error.
fn refined(correlations: &[f64], rough: usize, length: usize) -> (f64, f64) {
    let mut period = real(rough);
    let mut number = 1;
    let mut error = 2.0;
    while whole(period * real(number)) + 2 < length * 3 / 4 {
        let middle = whole((period * real(number)).round());
        let near = (middle.saturating_sub(2)..=middle + 2)
            .filter_map(|lag| Some((lag, *correlations.get(lag)?)));
        let Some((lag, _)) = near.max_by(|a, b| a.1.total_cmp(&b.1)) else {
            break;
        };
        period = real(lag) / real(number);
        error = 1.0 / real(number);
        number *= 2;
    }
    (period, error)
}

/// A period and the place in it that may be disturbed.
#[derive(Clone, Copy, Debug)]
struct Proposal {
    period: f64,
    /// The first value of a disturbance.
    first: f64,
    width: usize,
    /// How much the place differs from the rest.
    strength: f64,
}

/// The period within its error with the strongest disturbance.
fn strongest_near(head: &[f64], (period, error): (f64, f64)) -> Option<Proposal> {
    if period < real(MIN_PERIOD) {
        return None;
    }
    let examined = whole(MAX_CYCLES * period).min(head.len());
    let from = head.len() - examined;
    let values = head.get(from..)?;
    let step = STEP * period / real(examined);
    let reach = whole((error / step).ceil().min(4.0 / STEP));
    let tried = (0..=2 * reach).map(|at| period + step * (real(at) - real(reach)));
    let best = tried
        .filter(|period| *period >= real(MIN_PERIOD))
        .filter_map(|period| most_disturbed(values, period))
        .max_by(|a, b| a.strength.total_cmp(&b.strength))?;
    Some(Proposal {
        first: best.first + real(from),
        ..best
    })
}

/// Where in a period the mean over all periods is highest, and how many values wide this place is.
fn most_disturbed(values: &[f64], period: f64) -> Option<Proposal> {
    let bins = whole(period.floor());
    let mut sums = vec![(0.0, 0.0, 0.0); bins];
    for (place, value) in values.iter().enumerate() {
        let within = real(place) % period;
        let bin = whole(within * real(bins) / period).min(bins.saturating_sub(1));
        let (sum, count, places) = sums.get_mut(bin)?;
        *sum += value;
        *count += 1.0;
        *places += within;
    }
    let profile: Vec<f64> = sums
        .iter()
        .map(|(sum, count, _)| sum / f64::max(*count, 1.0))
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
    let (strength, from, width) = best.filter(|(strength, _, _)| *strength > 0.0)?;
    let (_, count, places) = sums.get(from)?;
    Some(Proposal {
        period,
        first: places / f64::max(*count, 1.0),
        width,
        strength,
    })
}

/// How often the proposed place is among the most disturbed of its period.
#[derive(Debug)]
struct HitCounts {
    cycles: usize,
    hits: usize,
    /// Cycles and hits of every other period.
    every_other: (usize, usize),
    /// The highest probability of a hit without a periodic disturbance.
    chance: f64,
    /// Where the disturbances of both halves begin.
    places: Vec<usize>,
}

impl HitCounts {
    /// The share of the periods that are disturbed at the place, beyond what chance explains.
    fn excess(&self) -> f64 {
        excess(self.hits, self.cycles, self.chance)
    }

    /// Whether the periods with an odd number are disturbed as the others are.
    fn is_even(&self) -> bool {
        let (cycles, hits) = self.every_other;
        let [one, other] = [
            excess(hits, cycles, self.chance),
            excess(self.hits - hits, self.cycles - cycles, self.chance),
        ];
        one.min(other) >= MIN_EVEN * one.max(other)
    }

    /// The distance of the disturbances: the slope of a line through their places.
    fn period(&self) -> f64 {
        let middle = (real(self.places.len()) - 1.0) / 2.0;
        let (mut both, mut own) = (0.0, 0.0);
        for (number, place) in self.places.iter().enumerate() {
            both += (real(number) - middle) * real(*place);
            own += (real(number) - middle).powi(2);
        }
        both / own
    }

    /// How far the number of hits is from that by chance, in standard deviations.
    fn distance(&self) -> f64 {
        let spread = (real(self.cycles) * self.chance * (1.0 - self.chance)).sqrt();
        (real(self.hits) - self.chance * real(self.cycles)) / spread
    }
}

fn excess(hits: usize, cycles: usize, chance: f64) -> f64 {
    (real(hits) / real(cycles.max(1)) - chance) / (1.0 - chance)
}

/// Judges the complete periods from `from` on.
fn count_hits(values: &[f64], from: usize, proposal: &Proposal) -> HitCounts {
    let places = (whole(proposal.period) + 1).saturating_sub(proposal.width);
    let near = 2 * SLACK + 1;
    let most = whole(TAIL * real(places) / real(near)).max(1);
    let mut earlier = cycles_of(values, proposal, most, -1.0);
    earlier.reverse();
    let later = cycles_of(values, proposal, most, 1.0);
    let judged = later.iter().filter(|one| one.begin >= from);
    let hits = |judged: &mut dyn Iterator<Item = &Cycle>| {
        let all: Vec<bool> = judged.map(|one| one.is_hit).collect();
        (all.len(), all.iter().filter(|is_hit| **is_hit).count())
    };
    let (cycles, hits_of_all) = hits(&mut judged.clone());
    HitCounts {
        cycles,
        hits: hits_of_all,
        every_other: hits(&mut judged.step_by(2)),
        chance: real(near * most) / real(places.max(1)),
        places: earlier.iter().chain(&later).map(|one| one.place).collect(),
    }
}

/// One period.
struct Cycle {
    begin: usize,
    /// Where its disturbance begins.
    place: usize,
    is_hit: bool,
}

/// The periods from the proposed place on, or (`direction` -1) before it, each with its disturbance in the middle. In a
/// hit, fewer than `most` other places are more disturbed than the expected one and its neighbours within [`SLACK`].
fn cycles_of(values: &[f64], proposal: &Proposal, most: usize, direction: f64) -> Vec<Cycle> {
    let length = whole(proposal.period);
    let before = length / 2;
    let middle = before.saturating_sub(SLACK);
    let mut cycles = Vec::new();
    let mut at = match direction < 0.0 {
        true => proposal.first - proposal.period,
        false => proposal.first,
    };
    if direction > 0.0 && at < real(before) {
        at += proposal.period;
    }
    while at >= real(before) {
        let begin = whole(at.round()) - before;
        let sums = values
            .get(begin..begin + length)
            .map(|cycle| moving_sums(cycle, proposal.width));
        let own = sums
            .as_ref()
            .and_then(|sums| sums.get(middle..=middle + 2 * SLACK));
        let highest = own.and_then(|own| {
            let own = own.iter().copied().enumerate();
            own.max_by(|a, b| a.1.total_cmp(&b.1))
        });
        let Some((sums, (place, own))) = sums.as_ref().zip(highest) else {
            break;
        };
        let above = sums.iter().filter(|other| **other > own).count();
        let equal = sums.iter().filter(|other| **other == own).count() - 1;
        let is_hit = above + equal.div_ceil(2) < most;
        cycles.push(Cycle {
            begin,
            place: begin + middle + place,
            is_hit,
        });
        if is_hit {
            at += FOLLOW * (real(place) - real(SLACK));
        }
        at += direction * proposal.period;
    }
    cycles
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

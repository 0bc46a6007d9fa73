//! Two sides of a load: their ratio, its uncertainty, and the noise behind it.
//!
//! The noise is taken between the largest repeated units: runs, if a side has several; otherwise the repeats of a run;
//! otherwise the seconds of two single runs. Smaller units are never counted as larger ones: repeats of one run share
//! its conditions, and noise within a repeat is part of the noise between repeats. Few units borrow strength from the
//! other loads of the family, whose variances moderate each other ([`super::noise`]). A side of one unit borrows the
//! noise of the other side's, but has at least the noise within itself.

use super::estimate::{ALPHA, Error, within};
use super::noise::{Prior, Variance};
use super::series::Figure;
use super::units::{
    Layout, Load, MIN_PAIRS, Noise, Observed, Side, UnitKey, centred, dependence, observed, squares,
};
use super::{real, student};
use std::collections::BTreeMap;

/// B relative to A.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contrast {
    /// Logarithm of the ratio.
    pub log: f64,
    /// `None`: the uncertainty is unknown.
    pub error: Option<Error>,
    pub noise: Noise,
    units: Option<Units>,
}

/// The noise of one unit on each side, and the number of units.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Units {
    squares: [f64; 2],
    counts: [f64; 2],
    degrees: f64,
    /// Degrees of freedom gained by one more unit on each side.
    gain: f64,
}

impl Contrast {
    /// P value of the ratio, not corrected for multiple comparisons.
    pub fn p(&self) -> Option<f64> {
        let error = self.error?;
        Some(match error.log > 0.0 {
            true => student::two_sided(self.log / error.log, error.degrees),
            false if self.log == 0.0 => 1.0,
            false => 0.0,
        })
    }

    /// The confidence interval of the ratio that matches a test at this level.
    pub fn interval(&self, level: f64) -> Option<(f64, f64)> {
        let error = self.error?;
        let reach = student::two_sided_quantile(level, error.degrees) * error.log;
        Some(((self.log - reach).exp(), (self.log + reach).exp()))
    }

    /// How many more units on each side would show a difference of this ratio at this level with a power of 80 %.
    /// `None`: more than [`MAX_MORE`], or the noise of the units is unknown.
    pub fn more(&self, ratio: f64, level: f64) -> Option<u32> {
        let units = self.units?;
        let [a, b] = units.squares;
        (0..=MAX_MORE).find(|more| {
            let more = f64::from(*more);
            let [n_a, n_b] = units.counts.map(|count| count + more);
            let error = (a / n_a + b / n_b).sqrt();
            let degrees = units.degrees + units.gain * more;
            let reach = student::two_sided_quantile(level, degrees) + FOUR_OF_FIVE;
            reach * error <= ratio.ln().abs()
        })
    }
}

/// Recommending more repeats than this is not useful.
pub const MAX_MORE: u32 = 50;
/// The quantile of the normal distribution at 80 %.
const FOUR_OF_FIVE: f64 = 0.8416;

/// The contrast of each load, in order. `None`: a side has no comparable value.
pub fn contrasts(figure: Figure, loads: &[Load<'_>], layout: Layout) -> Vec<Option<Contrast>> {
    let units: Vec<Option<Observed>> = loads.iter().map(|load| observed(load, layout)).collect();
    let mut families: BTreeMap<(usize, bool, bool), Vec<usize>> = BTreeMap::new();
    for (place, (load, units)) in loads.iter().zip(&units).enumerate() {
        if let Some(units) = units.as_ref().filter(|units| units.noise != Noise::Seconds) {
            let of_runs = units.noise == Noise::Runs;
            let key = (load.family, of_runs, units.pairs.len() >= MIN_PAIRS);
            families.entry(key).or_default().push(place);
        }
    }
    let mut contrasts: Vec<Option<Contrast>> = loads
        .iter()
        .zip(&units)
        .map(|(load, units)| single(figure, load, units.as_ref()?))
        .collect();
    for places in families.values() {
        let family: Vec<(&Observed, [Option<Error>; 2])> = places
            .iter()
            .filter_map(|place| {
                let (load, units) = (loads.get(*place)?, units.get(*place)?.as_ref()?);
                Some((units, noise_of_single_units(figure, load, units)))
            })
            .collect();
        for (place, contrast) in places.iter().zip(of_family(&family)) {
            if let Some(slot) = contrasts.get_mut(*place) {
                *slot = Some(contrast);
            }
        }
    }
    contrasts
}

/// A load whose noise comes from its seconds or is not known yet.
fn single(figure: Figure, load: &Load<'_>, units: &Observed) -> Option<Contrast> {
    let noise_of = |side: &Side<'_>, seed| -> Option<Error> {
        let repeat = side.repeats.first()?;
        let error = within(figure, repeat.series?, seed)?;
        Some(Error {
            log: error.log.hypot(units.floor.sqrt()),
            ..error
        })
    };
    let both = match units.noise {
        Noise::Seconds => noise_of(&load.a, 1).zip(noise_of(&load.b, 2)),
        _ => None,
    };
    Some(Contrast {
        log: units.log(),
        error: both.map(|(a, b)| welch([a, b])),
        noise: units.noise,
        units: None,
    })
}

/// The noise within a side that has one unit: of its repeats, if it is a run with several, otherwise of its seconds.
fn noise_of_single_units(figure: Figure, load: &Load<'_>, units: &Observed) -> [Option<Error>; 2] {
    let of_side = |side: &Side<'_>, of: &[(UnitKey, f64)], seed| -> Option<Error> {
        if of.len() > 1 {
            return None;
        }
        match side.repeats.as_slice() {
            [only] => within(figure, only.series?, seed),
            repeats => {
                let n = real(repeats.len());
                let logs = repeats.iter().map(|repeat| repeat.value.ln());
                Some(Error {
                    log: (squares(logs) / (n - 1.0) / n).sqrt(),
                    degrees: n - 1.0,
                })
            }
        }
    };
    [of_side(&load.a, &units.a, 1), of_side(&load.b, &units.b, 2)]
}

/// Combines two independent errors, with the degrees of freedom by Welch and Satterthwaite.
fn welch([a, b]: [Error; 2]) -> Error {
    let (square_a, square_b) = (a.log * a.log, b.log * b.log);
    let both = square_a + square_b;
    Error {
        log: both.sqrt(),
        degrees: both * both / (square_a * square_a / a.degrees + square_b * square_b / b.degrees),
    }
}

fn of_family(loads: &[(&Observed, [Option<Error>; 2])]) -> Vec<Contrast> {
    let units: Vec<&Observed> = loads.iter().map(|(units, _)| *units).collect();
    match move_together(&units) {
        true => paired(&units),
        false => unpaired(loads),
    }
}

/// Required excess of the share below, in standard deviations.
const MIN_EXCESS: f64 = 2.0;

/// Whether a repeat that is slow on one side is slow on the other too: the sums' share of the total variation of pairs
/// exceeds one half by more than chance. Otherwise pairing would only cost degrees of freedom.
fn move_together(loads: &[&Observed]) -> bool {
    let mut shares = Vec::with_capacity(loads.len());
    let mut variance = 0.0;
    for load in loads {
        if load.pairs.len() < MIN_PAIRS {
            return false;
        }
        let sums = squares(load.pairs.iter().map(|(_, a, b)| b + a));
        let differences = squares(load.pairs.iter().map(|(_, a, b)| b - a));
        let all = sums + differences;
        shares.push(if all > 0.0 { sums / all } else { 0.5 });
        variance += 1.0 / (4.0 * real(load.pairs.len()));
    }
    let n = real(shares.len());
    let share = shares.iter().sum::<f64>() / n;
    share - 0.5 > MIN_EXCESS * variance.sqrt() / n
}

fn paired(loads: &[&Observed]) -> Vec<Contrast> {
    let variances: Vec<Variance> = loads
        .iter()
        .map(|load| {
            let degrees = real(load.pairs.len()) - 1.0;
            let square = squares(load.pairs.iter().map(|(_, a, b)| b - a)) / degrees;
            Variance {
                square: square.max(2.0 * load.floor),
                degrees,
            }
        })
        .collect();
    let residuals = loads.iter().map(|load| {
        let units = load.pairs.iter().map(|(key, a, b)| (*key, b - a));
        centred(&units.collect::<Vec<_>>())
    });
    let dependence = dependence(&residuals.collect::<Vec<_>>());
    let prior = Prior::of(&variances, dependence);
    let each = loads.iter().zip(&variances);
    each.map(|(load, own)| {
        let variance = prior.moderate(*own);
        let n = real(load.pairs.len());
        Contrast {
            log: load.log_of_pairs(),
            error: Some(Error {
                log: (variance.square / n).max(2.0 * load.floor).sqrt(),
                degrees: variance.degrees,
            }),
            noise: Noise::Pairs,
            units: Some(Units {
                squares: [variance.square, 0.0],
                counts: [n, n],
                degrees: variance.degrees,
                gain: 1.0,
            }),
        }
    })
    .collect()
}

fn unpaired(loads: &[(&Observed, [Option<Error>; 2])]) -> Vec<Contrast> {
    // Both sides of a load are assumed to scatter alike: with as many units on either side the test is robust if they
    // do not, and a side with one unit has no estimate of the noise between units.
    let variances: Vec<Variance> = loads
        .iter()
        .map(|(load, _)| {
            let sides = [&load.a, &load.b];
            let degrees: f64 = sides.iter().map(|side| real(side.len()) - 1.0).sum();
            let squares = sides.map(|side| squares(side.iter().map(|(_, log)| *log)));
            Variance {
                square: (squares.iter().sum::<f64>() / degrees).max(load.floor),
                degrees,
            }
        })
        .collect();
    let residuals = loads
        .iter()
        .map(|(load, _)| [centred(&load.a), centred(&load.b)].concat());
    let dependence = dependence(&residuals.collect::<Vec<_>>());
    let prior = Prior::of(&variances, dependence);
    let each = loads.iter().zip(&variances);
    each.map(|((load, within), own)| {
        let variance = prior.moderate(*own);
        let counts = [real(load.a.len()), real(load.b.len())];
        let per_unit: f64 = counts.iter().map(|count| 1.0 / count).sum();
        let floor = (2.0 * load.floor).sqrt();
        let common = Error {
            log: (variance.square * per_unit).sqrt().max(floor),
            degrees: variance.degrees,
        };
        let noisier = |within: Option<Error>| within.filter(|one| one.log > variance.square.sqrt());
        let within = within.map(noisier);
        let of_side = |within: Option<Error>, count: f64| {
            within.unwrap_or(Error {
                log: (variance.square / count).sqrt(),
                degrees: variance.degrees,
            })
        };
        let [a, b] = within;
        let own = welch([of_side(a, counts[0]), of_side(b, counts[1])]);
        let own = Error {
            log: own.log.max(floor),
            ..own
        };
        // Seconds have many degrees of freedom: their larger error may make a narrower interval.
        let reach = |error: Error| student::two_sided_quantile(ALPHA, error.degrees) * error.log;
        let error = match within {
            [None, None] => common,
            _ if reach(common) > reach(own) => common,
            _ => own,
        };
        Contrast {
            log: load.log(),
            error: Some(error),
            noise: load.noise,
            units: Some(Units {
                squares: [a, b].map(|one| one.map_or(variance.square, |one| one.log * one.log)),
                counts,
                degrees: error.degrees,
                gain: 2.0,
            }),
        }
    })
    .collect()
}

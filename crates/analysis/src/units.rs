//! A load on both sides and its units: the repeated measurements, and how they are paired.

use super::real;
use super::series::Series;
use std::collections::{BTreeMap, BTreeSet};

/// One repeat of a load on one side.
#[derive(Clone, Copy, Debug)]
pub struct Repeat<'s> {
    pub run: i64,
    /// Repeats with the same number were measured back to back.
    pub number: i64,
    pub value: f64,
    /// The smallest relative change that its counts and clocks can resolve.
    pub resolution: f64,
    pub series: Option<&'s Series>,
}

#[derive(Clone, Debug)]
pub struct Side<'s> {
    pub repeats: Vec<Repeat<'s>>,
}

/// One load on both sides.
#[derive(Clone, Debug)]
pub struct Load<'s> {
    /// Loads of one family have similar noise.
    pub family: usize,
    pub a: Side<'s>,
    pub b: Side<'s>,
}

/// How the two sides were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In separate runs.
    Apart,
    /// Alternating, within each repeat of one run.
    InTurns,
}

/// The units that the noise was estimated from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noise {
    /// Runs; at least one side has several.
    Runs,
    Repeats,
    /// Repeats of both sides, measured alternately.
    Pairs,
    Seconds,
}

impl Noise {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Repeats => "repeats",
            Self::Pairs => "pairs",
            Self::Seconds => "seconds",
        }
    }
}

/// Minimum number of pairs for a variance.
pub(super) const MIN_PAIRS: usize = 2;

/// Identifies a unit: whether it belongs to side B, its run and its repeat.
pub(super) type UnitKey = (bool, i64, i64);

/// The units of one load, as logarithms.
#[derive(Clone, Debug)]
pub(super) struct Observed {
    pub(super) noise: Noise,
    pub(super) a: Vec<(UnitKey, f64)>,
    pub(super) b: Vec<(UnitKey, f64)>,
    /// Both sides of the same repeat.
    pub(super) pairs: Vec<(UnitKey, f64, f64)>,
    /// The minimum variance of a figure, regardless of the number of units.
    pub(super) floor: f64,
}

pub(super) fn observed(load: &Load<'_>, layout: Layout) -> Option<Observed> {
    let is_value = |value: f64| value > 0.0 && value.is_finite();
    let sides = [&load.a, &load.b];
    for side in sides {
        let all = side.repeats.iter().all(|repeat| is_value(repeat.value));
        if side.repeats.is_empty() || !all {
            return None;
        }
    }
    let runs = |side: &Side<'_>| -> usize {
        let runs: BTreeSet<i64> = side.repeats.iter().map(|repeat| repeat.run).collect();
        runs.len()
    };
    let many = sides.iter().any(|side| side.repeats.len() > 1);
    let noise = match (sides.iter().any(|side| runs(side) > 1), many) {
        (true, _) => Noise::Runs,
        (false, true) => Noise::Repeats,
        (false, false) => Noise::Seconds,
    };
    let units = |is_b: bool, side: &Side<'_>| -> Vec<(UnitKey, f64)> {
        let mut units: BTreeMap<UnitKey, Vec<f64>> = BTreeMap::new();
        for repeat in &side.repeats {
            let number = if noise == Noise::Runs {
                0
            } else {
                repeat.number
            };
            let unit = units.entry((is_b, repeat.run, number)).or_default();
            unit.push(repeat.value.ln());
        }
        units
            .into_iter()
            .map(|(key, logs)| (key, mean(logs.into_iter())))
            .collect()
    };
    let (a, b) = (units(false, &load.a), units(true, &load.b));
    let mut pairs = Vec::new();
    if layout == Layout::InTurns && noise == Noise::Repeats {
        for ((_, run, number), log) in &a {
            let same = b.iter().find(|((_, r, n), _)| (r, n) == (run, number));
            pairs.extend(same.map(|(_, other)| ((false, *run, *number), *log, *other)));
        }
    }
    let all = sides.iter().flat_map(|side| &side.repeats);
    let coarsest = all.map(|repeat| repeat.resolution).fold(0.0, f64::max);
    Some(Observed {
        noise,
        a,
        b,
        pairs,
        // The variance of a uniform distribution over the resolution.
        floor: (coarsest * coarsest / 12.0).max(MIN_SQUARE),
    })
}

impl Observed {
    /// The logarithm of the ratio of all units. Ratio and error come from the same values: a figure of all operations
    /// together would follow the worst unit, and the error of the units would not cover it.
    pub(super) fn log(&self) -> f64 {
        let side = |units: &[(UnitKey, f64)]| mean(units.iter().map(|(_, log)| *log));
        side(&self.b) - side(&self.a)
    }

    /// The same over the pairs, whose differences have a smaller error.
    pub(super) fn log_of_pairs(&self) -> f64 {
        mean(self.pairs.iter().map(|(_, a, b)| b - a))
    }
}

/// The level of a figure over its repeats, each with its run: the geometric mean of the runs, each of which is that of
/// its repeats. A comparison of such levels is the ratio of [`super::contrasts`]. `None` without a positive value.
pub fn level(repeats: impl Iterator<Item = (i64, f64)>) -> Option<f64> {
    let mut runs: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (run, value) in repeats {
        runs.entry(run).or_default().push(value.ln());
    }
    let level = mean(runs.into_values().map(|logs| mean(logs.into_iter()))).exp();
    (level > 0.0 && level.is_finite()).then_some(level)
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
    sum / real(count)
}

/// Lower bound of a variance of logarithms: no figure is accurate to a billionth.
const MIN_SQUARE: f64 = 1e-18;

/// The sum of squares around the mean.
pub(super) fn squares(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let n = real(values.clone().count());
    let mean = values.clone().sum::<f64>() / n;
    values.map(|value| (value - mean).powi(2)).sum()
}

pub(super) fn centred(units: &[(UnitKey, f64)]) -> Vec<(UnitKey, f64)> {
    let mean = units.iter().map(|(_, log)| log).sum::<f64>() / real(units.len());
    units.iter().map(|(key, log)| (*key, log - mean)).collect()
}

/// The square of the mean correlation between two loads over their common units: 1 if a unit is slow for all loads or
/// for none.
pub(super) fn dependence(loads: &[Vec<(UnitKey, f64)>]) -> f64 {
    let mut sums: BTreeMap<UnitKey, f64> = BTreeMap::new();
    let mut count = 0_usize;
    for load in loads {
        let size: f64 = load.iter().map(|(_, off)| off * off).sum::<f64>().sqrt();
        if size <= 0.0 {
            continue;
        }
        count += 1;
        for (key, off) in load {
            *sums.entry(*key).or_default() += off / size;
        }
    }
    if count < 2 {
        return 0.0;
    }
    let n = real(count);
    let together: f64 = sums.values().map(|sum| sum * sum).sum();
    let correlation = (together - n) / (n * (n - 1.0));
    correlation.clamp(0.0, 1.0).powi(2)
}

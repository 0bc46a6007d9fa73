//! Outliers among peers: which entity differs, when, and by how much, from a matrix of entities and windows of time.
//!
//! A value is compared with the median of the others in the same window, so that a change of the load has no effect.
//! The unit is their scatter (the median deviation plus a share of the median, so that tiny differences do not count
//! among nearly equal values). With fewer than five others the scatter is not reliable, and the value must be far from
//! each of them instead.

use super::real;
use super::start::median;
use std::ops::Range;

/// Minimum number of others for a judgement, and for an estimate of their scatter.
const MIN_OTHERS: usize = 2;
const MIN_FOR_SCATTER: usize = 5;
/// Minimum distance from the median of the others, in scatters.
const MIN_DISTANCE: f64 = 4.0;
/// Lower bound of the scatter, as a share of the median.
const MIN_SCATTER: f64 = 0.05;
/// In a stretch, weight of a window in which an entity is like its peers, against one in which it is not.
const WEIGHT: i64 = 4;

/// The direction and the minimum size of a difference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    pub factor: f64,
    /// The factor for only two others: relative to the nearest of them.
    pub factor_of_two: f64,
    /// Minimum difference to the median.
    pub difference: f64,
    /// Peers below this value do other work.
    pub min_peer: f64,
    /// Lower medians count as this one in a ratio.
    pub min_median: f64,
}

/// At least twice the CPU time.
pub const MORE: Rule = Rule {
    factor: 2.0,
    factor_of_two: 3.0,
    difference: 0.0,
    min_peer: 0.0,
    min_median: 0.0,
};
/// At most seven tenths of the rate.
pub const LESS: Rule = Rule {
    factor: 0.7,
    factor_of_two: 0.5,
    ..MORE
};

impl Rule {
    fn holds(&self, value: f64, other: f64, factor: f64) -> bool {
        match self.factor > 1.0 {
            true => value >= factor * other,
            false => value <= factor * other,
        }
    }
}

/// For how long an outlier differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// In half of the windows that have the entity.
    HalfOfWindows,
    /// In nearly all windows of a stretch with at least this many.
    Stretch(usize),
}

/// An entity that differs from its peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// Its row of the matrix.
    pub entity: usize,
    /// The stretch, or the window with the largest difference.
    pub windows: Range<usize>,
    /// Medians over these windows: its value, and the median of its peers.
    pub value: f64,
    pub usual: f64,
    /// The value divided by the median.
    pub ratio: f64,
    /// Maximum number of peers in these windows.
    pub peers: usize,
    /// Number of windows in which it differs, and of those that have it.
    pub differing: usize,
    pub judged: usize,
}

/// A value that differs in one window.
#[derive(Clone, Copy, Debug)]
struct Deviation {
    value: f64,
    usual: f64,
    peers: usize,
}

/// The outliers of a matrix, whose rows are entities and whose columns are windows; `None` if there is no value.
pub fn outliers(matrix: &[Vec<Option<f64>>], rule: &Rule, extent: Extent) -> Vec<Outlier> {
    let windows = matrix.iter().map(Vec::len).max().unwrap_or(0);
    let mut deviations: Vec<Vec<Option<Deviation>>> = vec![vec![None; windows]; matrix.len()];
    for at in 0..windows {
        let known = matrix.iter().enumerate();
        let (entities, values): (Vec<usize>, Vec<f64>) = known
            .filter_map(|(entity, row)| Some((entity, row.get(at).copied().flatten()?)))
            .unzip();
        for (place, entity) in entities.into_iter().enumerate() {
            let row = deviations.get_mut(entity);
            if let Some(cell) = row.and_then(|row| row.get_mut(at)) {
                *cell = unlike(&values, place, rule);
            }
        }
    }
    let rows = matrix.iter().zip(&deviations).enumerate();
    rows.filter_map(|(entity, (values, deviations))| {
        let differing = deviations.iter().flatten().count();
        let judged = values.iter().flatten().count();
        let windows = match extent {
            Extent::HalfOfWindows if differing * 2 < judged => None,
            Extent::HalfOfWindows => largest(deviations),
            Extent::Stretch(min) => longest(deviations).filter(|stretch| stretch.len() >= min),
        }?;
        let inside = deviations.get(windows.clone()).unwrap_or_default();
        let median_of = |part: fn(&Deviation) -> f64| {
            let all: Vec<f64> = inside.iter().flatten().map(part).collect();
            median(&all)
        };
        let value = median_of(|deviation| deviation.value);
        let usual = median_of(|deviation| deviation.usual);
        let peers = inside.iter().flatten().map(|deviation| deviation.peers);
        Some(Outlier {
            entity,
            windows,
            value,
            usual,
            ratio: value / usual.max(rule.min_median),
            peers: peers.max().unwrap_or(0),
            differing,
            judged,
        })
    })
    .collect()
}

/// Compares a value with the others of its window.
fn unlike(values: &[f64], place: usize, rule: &Rule) -> Option<Deviation> {
    let value = *values.get(place)?;
    let others = values.iter().enumerate().filter(|(at, _)| *at != place);
    let peers = others.map(|(_, other)| *other);
    let others: Vec<f64> = peers.filter(|other| *other >= rule.min_peer).collect();
    let factor = match others.len() == MIN_OTHERS {
        true => rule.factor_of_two,
        false => rule.factor,
    };
    let differing = others.iter();
    let differing = differing.filter(|other| rule.holds(value, **other, factor));
    let (differing, are_few) = (differing.count(), others.len() < MIN_FOR_SCATTER);
    // A value that differs from the median differs from at least half of the others. Most values do not.
    if others.len() < MIN_OTHERS || differing * 2 < others.len() {
        return None;
    }
    let usual = median(&others);
    let is_unlike = match are_few {
        true => differing == others.len(),
        false => {
            let off: Vec<f64> = others.iter().map(|other| (other - usual).abs()).collect();
            let scatter = 1.4826 * median(&off) + MIN_SCATTER * usual.abs();
            rule.holds(value, usual, factor) && (value - usual).abs() >= MIN_DISTANCE * scatter
        }
    };
    (is_unlike && (value - usual).abs() >= rule.difference).then_some(Deviation {
        value,
        usual,
        peers: others.len(),
    })
}

/// The window with the largest ratio of a value and the median of its peers.
fn largest(deviations: &[Option<Deviation>]) -> Option<Range<usize>> {
    let distance = |deviation: Deviation| (deviation.value / deviation.usual).ln().abs();
    let known = deviations.iter().enumerate();
    let known = known.filter_map(|(at, deviation)| Some((at, distance((*deviation)?))));
    let (at, _) = known.reduce(|most, one| if one.1 > most.1 { one } else { most })?;
    Some(at..at + 1)
}

/// The longest stretch in which an entity nearly always differs: a window in which it does not weighs [`WEIGHT`] times
/// as much as one in which it does.
fn longest(deviations: &[Option<Deviation>]) -> Option<Range<usize>> {
    let (mut from, mut score) = (0, 0_i64);
    let mut best = (0, None);
    for (at, deviation) in deviations.iter().enumerate() {
        if score <= 0 {
            (from, score) = (at, 0);
        }
        score += if deviation.is_some() { 1 } else { -WEIGHT };
        if score > best.0 {
            best = (score, Some(from..at + 1));
        }
    }
    best.1
}

/// A row of the matrix with at most about `windows` windows: the means of as many neighbouring ones.
pub fn coarser(row: &[Option<f64>], windows: usize) -> Vec<Option<f64>> {
    let of_one = row.len().div_ceil(windows.max(1)).max(1);
    let mean = |part: &[Option<f64>]| {
        let known: Vec<f64> = part.iter().copied().flatten().collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / real(known.len()))
    };
    row.chunks(of_one).map(mean).collect()
}

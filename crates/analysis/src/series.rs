//! The seconds of a measured load, stored so that sums over blocks of seconds are fast.
//!
//! Sums over any stretch of seconds are differences of prefix sums, also of the counts of each histogram slot. A long
//! series is first grouped into at most [`UNITS`] units of equal length, so that the cost does not grow with it.

use super::blocks::{Dependence, dependence, whole};
use super::start::startup;
use benchmesh_workloads::histogram::Slot;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of units for resampling.
pub const UNITS: usize = 512;
const MIN_BLOCKS: usize = 4;

/// A compared figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// Operations per second.
    Rate,
    /// Mean service time.
    Mean,
    P50,
    P90,
    P95,
    P99,
    P999,
}

impl Figure {
    pub const ALL: [Self; 7] = [
        Self::Rate,
        Self::Mean,
        Self::P50,
        Self::P90,
        Self::P95,
        Self::P99,
        Self::P999,
    ];

    /// `None` if it is no percentile.
    pub fn quantile(self) -> Option<f64> {
        match self {
            Self::Rate | Self::Mean => None,
            Self::P50 => Some(0.5),
            Self::P90 => Some(0.9),
            Self::P95 => Some(0.95),
            Self::P99 => Some(0.99),
            Self::P999 => Some(0.999),
        }
    }

    /// The resolution of a stored value, relative: a percentile is the end of a histogram's slot.
    pub fn resolution(self) -> f64 {
        match self.quantile() {
            Some(_) => 1.0 / 128.0,
            None => 0.0,
        }
    }
}

/// One second of a load.
#[derive(Clone, Debug, Default)]
pub struct Second {
    pub span_us: f64,
    pub ops: f64,
    /// Sum of all service times.
    pub sum_ns: f64,
    /// The non-empty slots of its histogram.
    pub latencies: Vec<Slot>,
}

/// Sums over a stretch of a load.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    span_us: f64,
    ops: f64,
    sum_ns: f64,
}

/// The seconds of one step, or of a part of it.
#[derive(Clone, Debug)]
pub struct Series {
    /// The rate of each unit.
    rates: Vec<f64>,
    means: Vec<f64>,
    /// Prefix sums: of the units before each, and of all.
    running: Vec<Sums>,
    /// The bounds of each non-empty slot.
    slots: Vec<(f64, f64)>,
    /// One row per unit plus a zero row: the number of values of all earlier units up to each slot.
    cumulative: Vec<Vec<u64>>,
    dependence: Dependence,
}

impl Series {
    /// Takes the seconds in order of time; start-up is left out.
    pub fn new(seconds: &[Second]) -> Self {
        let rates: Vec<f64> = seconds
            .iter()
            .map(|second| second.ops / second.span_us.max(1.0))
            .collect();
        let seconds = seconds.get(startup(&rates)..).unwrap_or_default();
        let per_unit = seconds.len().div_ceil(UNITS).max(1);
        let units: Vec<&[Second]> = seconds.chunks(per_unit).collect();
        let slots: BTreeMap<u64, u64> = seconds
            .iter()
            .flat_map(|second| &second.latencies)
            .map(|slot| (slot.lowest_ns, slot.highest_ns))
            .collect();
        let places: BTreeMap<u64, usize> = slots
            .keys()
            .enumerate()
            .map(|(place, lowest)| (*lowest, place))
            .collect();
        let mut series = Self {
            rates: Vec::with_capacity(units.len()),
            means: Vec::with_capacity(units.len()),
            running: vec![Sums::default()],
            slots: slots
                .iter()
                .map(|(lowest, highest)| (float(*lowest), float(*highest) + 1.0))
                .collect(),
            cumulative: vec![vec![0; slots.len()]],
            dependence: Dependence::NONE,
        };
        for unit in units {
            series.push(unit, &places);
        }
        let rates = dependence(&series.rates);
        let means = dependence(&series.means);
        // All figures share the blocks, so the more dependent one determines their length.
        series.dependence = Dependence {
            block: rates.block.max(means.block),
            inflation: rates.inflation.max(means.inflation),
            correction: rates.correction.max(means.correction),
        };
        series
    }

    fn push(&mut self, unit: &[Second], places: &BTreeMap<u64, usize>) {
        let mut own = Sums::default();
        let mut counts = vec![0_u64; self.slots.len()];
        for second in unit {
            own.span_us += second.span_us;
            own.ops += second.ops;
            own.sum_ns += second.sum_ns;
            for slot in &second.latencies {
                let place = places.get(&slot.lowest_ns).copied().unwrap_or(usize::MAX);
                if let Some(count) = counts.get_mut(place) {
                    *count += slot.count;
                }
            }
        }
        let mut below = 0;
        let mut row = self.cumulative.last().cloned().unwrap_or_default();
        for (sum, count) in row.iter_mut().zip(counts) {
            below += count;
            *sum += below;
        }
        self.cumulative.push(row);
        self.rates.push(own.ops / own.span_us.max(1.0) * 1e6);
        if own.ops > 0.0 {
            self.means.push(own.sum_ns / own.ops);
        }
        let before = self.running.last().copied().unwrap_or_default();
        self.running.push(Sums {
            span_us: before.span_us + own.span_us,
            ops: before.ops + own.ops,
            sum_ns: before.sum_ns + own.sum_ns,
        });
    }

    /// Number of units.
    pub fn len(&self) -> usize {
        self.rates.len()
    }

    pub fn is_empty(&self) -> bool {
        self.rates.is_empty()
    }

    /// The rate of each unit, per second.
    pub fn rates(&self) -> &[f64] {
        &self.rates
    }

    /// The mean service time of each unit in which an operation ended.
    pub fn means(&self) -> &[f64] {
        &self.means
    }

    /// Units in a block that is nearly independent of the next; at least four blocks are needed.
    pub fn block(&self) -> usize {
        whole(self.dependence.block.ceil()).clamp(1, (self.len() / MIN_BLOCKS).max(1))
    }

    pub fn dependence(&self) -> Dependence {
        self.dependence
    }

    /// The figure over stretches of units, each given by its first unit and its length; a stretch wraps around at the
    /// end of the series. `None` if it contains no operation.
    pub fn figure(&self, figure: Figure, stretches: &[(usize, usize)]) -> Option<f64> {
        match figure.quantile() {
            Some(quantile) => self.quantile(quantile, stretches),
            None => {
                let mut all = Sums::default();
                for (from, until) in self.parts(stretches) {
                    let (Some(from), Some(until)) =
                        (self.running.get(from), self.running.get(until))
                    else {
                        continue;
                    };
                    all.span_us += until.span_us - from.span_us;
                    all.ops += until.ops - from.ops;
                    all.sum_ns += until.sum_ns - from.sum_ns;
                }
                let value = match figure {
                    Figure::Rate => all.ops / all.span_us * 1e6,
                    _ => all.sum_ns / all.ops,
                };
                (value.is_finite() && value > 0.0).then_some(value)
            }
        }
    }

    /// Each stretch as the two prefix sums whose difference it is.
    fn parts<'s>(
        &'s self,
        stretches: &'s [(usize, usize)],
    ) -> impl Iterator<Item = (usize, usize)> + 's {
        let n = self.len();
        stretches.iter().flat_map(move |(first, length)| {
            let end = first + length;
            match end <= n {
                true => [(*first, end), (0, 0)],
                false => [(*first, n), (0, end - n)],
            }
        })
    }

    /// A percentile of the merged histograms, interpolated within its slot. It searches the prefix counts, so no
    /// histograms are added up.
    fn quantile(&self, quantile: f64, stretches: &[(usize, usize)]) -> Option<f64> {
        let parts: Vec<(&[u64], &[u64])> = self
            .parts(stretches)
            .filter(|(from, until)| from < until)
            .filter_map(|(from, until)| {
                Some((
                    self.cumulative.get(from)?.as_slice(),
                    self.cumulative.get(until)?.as_slice(),
                ))
            })
            .collect();
        let upto = |slot: usize| -> f64 {
            let count = parts.iter().map(|(from, until)| {
                let at = |row: &[u64]| row.get(slot).copied().unwrap_or(0);
                at(until) - at(from)
            });
            float(count.sum())
        };
        let last = self.slots.len().checked_sub(1)?;
        let all = upto(last);
        if all <= 0.0 {
            return None;
        }
        let wanted = quantile * all;
        let (mut low, mut high) = (0, last);
        while low < high {
            let middle = (low + high) / 2;
            match upto(middle) >= wanted {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        let below = low.checked_sub(1).map_or(0.0, upto);
        let (lowest, highest) = self.slots.get(low).copied()?;
        let inside = (wanted - below) / (upto(low) - below).max(1.0);
        Some(lowest + inside.clamp(0.0, 1.0) * (highest - lowest))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds far below 2^53"
)]
fn float(value: u64) -> f64 {
    value as f64
}

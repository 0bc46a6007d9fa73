//! The heat map of a run: histograms of its seconds, added up by time and latency.

use super::{Heat, seconds::Axis};
use benchmesh_workloads::histogram::Histogram;
use std::collections::BTreeMap;

/// Levels per factor of ten.
const LEVELS_PER_DECADE: f64 = 6.0;

/// Operations by time and latency.
pub(super) struct HeatMap {
    axis: Axis,
    counts: BTreeMap<(i64, i32), u64>,
}

impl HeatMap {
    pub(super) fn new(axis: Axis) -> Self {
        Self {
            axis,
            counts: BTreeMap::new(),
        }
    }

    /// An invalid blob is skipped, because this is only a picture and results are computed elsewhere.
    pub(super) fn add(&mut self, at_us: i64, blob: &[u8]) {
        let Ok(histogram) = Histogram::from_v2_deflate(blob) else {
            return;
        };
        let column = self.axis.bucket(at_us);
        for (ns, count) in histogram.slots() {
            *self.counts.entry((column, level(ns))).or_default() += count;
        }
    }

    pub(super) fn finish(self, one_of: i64) -> Option<Heat> {
        let least = self.counts.keys().map(|(_, level)| *level).min()?;
        let most = self.counts.keys().map(|(_, level)| *level).max()?;
        let cells = self
            .counts
            .into_iter()
            .filter_map(|((column, level), count)| {
                let column = u32::try_from(column).ok()?;
                Some((column, u32::try_from(level - least).ok()?, count))
            });
        Some(Heat {
            bucket_s: self.axis.bucket_s(),
            cells: cells.collect(),
            levels_ms: (least..=most)
                .map(|level| {
                    super::short(10_f64.powf(f64::from(level + 1) / LEVELS_PER_DECADE) / 1e6)
                })
                .collect(),
            one_of,
        })
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "the logarithm of 64 bits is a small number"
)]
fn level(ns: u64) -> i32 {
    ((ns.max(1) as f64).log10() * LEVELS_PER_DECADE).floor() as i32
}

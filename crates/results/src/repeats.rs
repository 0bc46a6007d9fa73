//! Merges the repeats of one load, as if they were a single measurement with their total duration.
//!
//! Reports, comparisons and files use the same rule. Percentiles are those of the merged histograms; rates are the work
//! of all repeats over the time of all repeats; figures per operation are weighted by operations.

use benchmesh_workloads::histogram::Histogram;
use std::borrow::Borrow;

/// The weighted mean of values: rates by time, figures of an operation by operations. If a weight is unknown, all have
/// the same weight.
pub fn weighted(parts: &[(f64, Option<f64>)]) -> Option<f64> {
    let known = parts
        .iter()
        .all(|(_, weight)| weight.is_some_and(|weight| weight > 0.0));
    let weight = |of: &(f64, Option<f64>)| of.1.filter(|_| known).unwrap_or(1.0);
    let all: f64 = parts.iter().map(weight).sum();
    let sum: f64 = parts.iter().map(|part| part.0 * weight(part)).sum();
    (!parts.is_empty()).then(|| sum / all)
}

/// A percentile of all histograms together, in nanoseconds. `None` if one of them is missing, as in imports.
pub fn percentile<H: Borrow<Histogram>>(
    histograms: impl Iterator<Item = Option<H>>,
    quantile: f64,
) -> Option<u64> {
    let mut merged = Histogram::new();
    for histogram in histograms {
        merged.add(histogram?.borrow());
    }
    (!merged.is_empty()).then(|| merged.quantile(quantile))
}

/// The geometric mean of values that have neither weights nor histograms.
pub fn geometric(values: &[f64]) -> f64 {
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    (logs / benchmesh_analysis::real(values.len())).exp()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn repeats_are_merged_as_one_measurement() {
        // 1000 operations in 1 s and 1000 in 4 s: 2000 in 5 s.
        assert_eq!(
            weighted(&[(1000.0, Some(1.0)), (250.0, Some(4.0))]),
            Some(400.0)
        );
        assert_eq!(weighted(&[(1.0, Some(1.0)), (3.0, None)]), Some(2.0));
        assert_eq!(weighted(&[]), None);
        let (mut fast, mut slow) = (Histogram::new(), Histogram::new());
        fast.record_many(1_000, 10_000);
        slow.record_many(30_000, 10);
        let both = [Some(&fast), Some(&slow)];
        let p99 = percentile(both.into_iter(), 0.99).unwrap();
        assert!(p99 < 1_010, "ten of ten thousand are no hundredth: {p99}");
        assert_eq!(percentile([Some(&fast), None].into_iter(), 0.99), None);
        assert!((geometric(&[1.0, 4.0]) - 2.0).abs() < 1e-12);
    }
}

//! A stored histogram with exact sums, for adding to it later: a blob rounds the sums to doubles.

use super::{DecodeError, Histogram};
use serde::{Deserialize, Serialize};

/// The non-empty slots, and the other fields unchanged.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Exact {
    slots: Vec<(usize, u64)>,
    sum: u128,
    sum_squares: u128,
    min: u64,
    max: u64,
    saturated: u64,
}

impl From<Histogram> for Exact {
    fn from(histogram: Histogram) -> Self {
        let slots = histogram.counts.iter().copied().enumerate();
        Self {
            slots: slots.filter(|(_, count)| *count > 0).collect(),
            sum: histogram.sum,
            sum_squares: histogram.sum_squares,
            min: histogram.min,
            max: histogram.max,
            saturated: histogram.saturated,
        }
    }
}

impl TryFrom<Exact> for Histogram {
    type Error = DecodeError;

    fn try_from(exact: Exact) -> Result<Self, DecodeError> {
        let mut histogram = Histogram::new();
        for (slot, count) in exact.slots {
            let place = histogram.counts.get_mut(slot);
            *place.ok_or(DecodeError::TooLarge)? = count;
            histogram.count = histogram.count.saturating_add(count);
        }
        histogram.sum = exact.sum;
        histogram.sum_squares = exact.sum_squares;
        histogram.min = exact.min;
        histogram.max = exact.max;
        histogram.saturated = exact.saturated;
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::histogram::HIGHEST_NS;

    #[test]
    fn what_is_kept_is_the_same_histogram() {
        let mut histogram = Histogram::new();
        for text in [0, 1] {
            let kept = serde_json::to_vec(&histogram).unwrap();
            let again: Histogram = serde_json::from_slice(&kept).unwrap();
            assert_eq!(again, histogram, "{text}");
            histogram.record_many(HIGHEST_NS - 1, u64::from(u32::MAX));
            histogram.record(7);
            histogram.record(2 * HIGHEST_NS);
        }
        let beyond =
            r#"{"slots":[[5000,1]],"sum":1,"sum_squares":1,"min":1,"max":1,"saturated":0}"#;
        assert!(serde_json::from_str::<Histogram>(beyond).is_err());
    }
}

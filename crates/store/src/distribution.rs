//! A distribution of durations as a row of intervals has it: the histogram with its exact sums, and percentiles of it.
//!
//! Percentiles are never sent: they are computed where a histogram is decoded anyway, which is when a batch is checked
//! and when rows are merged. So the columns always agree with the histogram beside them.

use benchmesh_results::histogram_of;
use benchmesh_workloads::histogram::{Blob, DecodeError, Histogram};

/// A histogram and its percentiles, which are 0 if it is empty.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    pub blob: Blob,
    pub p50_ns: u64,
    pub p99_ns: u64,
}

impl Distribution {
    /// Checks a sent or stored histogram.
    pub fn decode(blob: Blob) -> Result<Self, DecodeError> {
        let histogram = histogram_of(&blob)?;
        Ok(Self::with_blob(&histogram, blob))
    }

    /// This and another one added up.
    pub(crate) fn sum(&self, other: &Self) -> Result<Self, DecodeError> {
        let mut sum = histogram_of(&self.blob)?;
        sum.add(&histogram_of(&other.blob)?);
        Ok(Self::from(&sum))
    }

    fn with_blob(histogram: &Histogram, blob: Blob) -> Self {
        Self {
            blob,
            p50_ns: histogram.quantile(0.5),
            p99_ns: histogram.quantile(0.99),
        }
    }
}

impl From<&Histogram> for Distribution {
    fn from(histogram: &Histogram) -> Self {
        Self::with_blob(histogram, histogram.to_blob())
    }
}

//! Latencies of many operations: a histogram with exact count, sum, sum of squares, least and largest.
//!
//! Two are merged by adding. The stored form is hdrhistogram's V2 + DEFLATE, nanoseconds, two significant digits; what
//! comes from outside is unpacked within bounds and must agree with its own counts before it is believed.

use flate2::read::ZlibDecoder;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use std::io::Read;

/// The largest value that has a bucket of its own: one hour.
pub const LONGEST_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 2;
/// A full histogram of this range has some 5,000 buckets of at most 9 bytes each.
const UNPACKED_BYTES: u64 = 64 << 10;
const COMPRESSED_COOKIE: u32 = 0x1c84_9314;
const PLAIN_COOKIE: u32 = 0x1c84_9313;
/// Cookie and length before the deflated part.
const OUTER_HEADER: usize = 8;
/// Cookie, payload length, offset, digits, least, largest, ratio.
const INNER_HEADER: usize = 40;

/// Why bytes are no distribution.
#[derive(Debug, thiserror::Error)]
pub enum DistributionError {
    #[error("its histogram is not in the V2 format with DEFLATE")]
    Format,
    #[error("its histogram does not cover 1 ns to 1 h with {DIGITS} significant digits")]
    Shape,
    #[error("its histogram cannot be unpacked: {why}")]
    Damaged { why: String },
    #[error("its histogram holds {found} values and its count says {expected}")]
    Count { found: u64, expected: u64 },
    #[error("its sums are not finite, or its least value is above its largest")]
    Sums,
}

/// A distribution as it is sent, queued and stored: a kilobyte where the unpacked one has forty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Packed {
    /// V2 + DEFLATE; empty when nothing was recorded.
    pub histogram: Vec<u8>,
    pub count: u64,
    pub sum_ns: f64,
    pub sum_squares_ns2: f64,
    pub min_ns: u64,
    pub max_ns: u64,
    pub saturated: u64,
}

/// Latencies of many operations.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// `None` while nothing was recorded: empty intervals stay small.
    histogram: Option<Histogram<u64>>,
    count: u64,
    sum_ns: f64,
    sum_squares_ns2: f64,
    min_ns: u64,
    max_ns: u64,
    saturated: u64,
}

impl Distribution {
    /// Unpacks what was sent or stored, and holds it against its own counts.
    pub fn unpack(packed: &Packed) -> Result<Self, DistributionError> {
        if packed.count == 0 {
            return Ok(Self::default());
        }
        let sums = [packed.sum_ns, packed.sum_squares_ns2];
        if sums.iter().any(|sum| !sum.is_finite() || *sum < 0.0) || packed.min_ns > packed.max_ns {
            return Err(DistributionError::Sums);
        }
        let histogram = unpack(&packed.histogram)?;
        if histogram.len() != packed.count || packed.saturated > packed.count {
            return Err(DistributionError::Count {
                found: histogram.len(),
                expected: packed.count,
            });
        }
        Ok(Self {
            histogram: Some(histogram),
            count: packed.count,
            sum_ns: packed.sum_ns,
            sum_squares_ns2: packed.sum_squares_ns2,
            min_ns: packed.min_ns,
            max_ns: packed.max_ns,
            saturated: packed.saturated,
        })
    }

    /// As it is stored.
    pub fn pack(&self) -> Packed {
        Packed {
            histogram: self.to_v2_deflate().unwrap_or_default(),
            count: self.count,
            sum_ns: self.sum_ns,
            sum_squares_ns2: self.sum_squares_ns2,
            min_ns: self.min_ns,
            max_ns: self.max_ns,
            saturated: self.saturated,
        }
    }

    /// Adds one value; for tests and for what is made here. Workers have recorders of their own.
    pub fn record(&mut self, ns: u64) {
        let empty = self.count == 0;
        self.min_ns = if empty { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.saturated += u64::from(ns > LONGEST_NS);
        self.count += 1;
        self.sum_ns += as_f64(ns);
        self.sum_squares_ns2 += as_f64(ns) * as_f64(ns);
        self.histogram
            .get_or_insert_with(blank)
            .saturating_record(ns.clamp(1, LONGEST_NS));
    }

    /// Adds all values of `other`.
    pub fn add(&mut self, other: &Self) {
        let Some(theirs) = &other.histogram else {
            return;
        };
        match &mut self.histogram {
            None => {
                self.histogram = Some(theirs.clone());
                self.min_ns = other.min_ns;
            }
            Some(ours) => {
                ours.add(theirs)
                    .expect("both have the one shape that unpacking lets in");
                self.min_ns = self.min_ns.min(other.min_ns);
            }
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count = self.count.saturating_add(other.count);
        self.saturated = self.saturated.saturating_add(other.saturated);
        self.sum_ns += other.sum_ns;
        self.sum_squares_ns2 += other.sum_squares_ns2;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    pub fn sum_ns(&self) -> f64 {
        self.sum_ns
    }

    pub fn sum_squares_ns2(&self) -> f64 {
        self.sum_squares_ns2
    }

    /// The exact least value.
    pub fn min_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.min_ns)
    }

    /// The exact largest value.
    pub fn max_ns(&self) -> Option<u64> {
        (self.count > 0).then_some(self.max_ns)
    }

    /// From the exact sum.
    pub fn mean_ns(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns / as_f64(self.count))
    }

    /// Of all values, from the exact sums: sqrt(E[x^2] - E[x]^2).
    pub fn stddev_ns(&self) -> Option<f64> {
        let mean = self.mean_ns()?;
        let variance = self.sum_squares_ns2 / as_f64(self.count) - mean * mean;
        Some(variance.max(0.0).sqrt())
    }

    /// The least bucket that `q` (0..=1) of the values do not exceed, never outside the exact least and largest.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let histogram = self.histogram.as_ref()?;
        Some(
            histogram
                .value_at_quantile(q)
                .clamp(self.min_ns, self.max_ns),
        )
    }

    /// V2 + DEFLATE; `None` when nothing was recorded.
    pub fn to_v2_deflate(&self) -> Option<Vec<u8>> {
        let histogram = self.histogram.as_ref()?;
        let mut bytes = Vec::with_capacity(512);
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .expect("a vector takes what is written to it");
        Some(bytes)
    }
}

fn blank() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, DIGITS).expect("the bounds are valid")
}

/// Bounded before it is believed: hdrhistogram's own reader makes a buffer as long as the header says.
fn unpack(bytes: &[u8]) -> Result<Histogram<u64>, DistributionError> {
    let damaged = |why: String| DistributionError::Damaged { why };
    let (header, deflated) = bytes
        .split_at_checked(OUTER_HEADER)
        .ok_or(DistributionError::Format)?;
    if number(header, 0) != Some(COMPRESSED_COOKIE) {
        return Err(DistributionError::Format);
    }
    let mut plain = Vec::with_capacity(1024);
    ZlibDecoder::new(deflated)
        .take(UNPACKED_BYTES)
        .read_to_end(&mut plain)
        .map_err(|error| damaged(error.to_string()))?;
    if number(&plain, 0) != Some(PLAIN_COOKIE) {
        return Err(DistributionError::Format);
    }
    let payload = number(&plain, 4).and_then(|length| usize::try_from(length).ok());
    if payload != plain.len().checked_sub(INNER_HEADER) {
        return Err(damaged("its length is not what its header says".to_owned()));
    }
    // The reader allocates whatever range the header asks for, so the shape is checked before.
    if plain.get(12..32) != Some(shape().as_slice()) {
        return Err(DistributionError::Shape);
    }
    Deserializer::new()
        .deserialize(&mut plain.as_slice())
        .map_err(|error| damaged(error.to_string()))
}

/// Digits, least and largest as the header has them.
fn shape() -> [u8; 20] {
    let mut bytes = [0; 20];
    let (digits, bounds) = bytes.split_at_mut(4);
    let (least, largest) = bounds.split_at_mut(8);
    digits.copy_from_slice(&u32::from(DIGITS).to_be_bytes());
    least.copy_from_slice(&1_u64.to_be_bytes());
    largest.copy_from_slice(&LONGEST_NS.to_be_bytes());
    bytes
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at.checked_add(4)?)?;
    four.try_into().ok().map(u32::from_be_bytes)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "statistics are taken in floating point; 53 bits are 104 days in nanoseconds"
)]
fn as_f64(value: u64) -> f64 {
    value as f64
}

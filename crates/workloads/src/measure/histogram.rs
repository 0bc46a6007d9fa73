//! Latencies of many operations in constant memory: counts on HDR's log-linear scale, with exact sums beside them.
//!
//! The scale is hdrhistogram's for 2 significant digits from 1 ns to 1 h. Every count lands in the slot that
//! hdrhistogram would choose, so that blobs convert both ways without loss. Longer values are counted in the last slot
//! and in `saturated`. Count, sum, sum of squares, minimum and maximum are exact for all values. This module does not
//! know operations, intervals or the wire.

mod codec;
mod exact;

pub use codec::{Blob, DecodeError};
use serde::{Deserialize, Serialize};

/// Longest value with a slot of its own: one hour.
pub const HIGHEST_NS: u64 = 3_600_000_000_000;

/// 256 slots of 1 ns, then 128 for each doubling up to 2^42, the first power of two above an hour.
const SLOTS: usize = 4608;
const SUB_BITS: u32 = 8;
const HALF_BITS: u32 = SUB_BITS - 1;

/// Slots that a search for a quantile skips in one step, which the compiler turns into few instructions. A collector
/// searches for two in each row of intervals.
const SUMMED_AT_ONCE: usize = 64;

/// A log-linear histogram of nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "exact::Exact", try_from = "exact::Exact")]
pub struct Histogram {
    counts: Box<[u64; SLOTS]>,
    count: u64,
    sum: u128,
    sum_squares: u128,
    min: u64,
    max: u64,
    saturated: u64,
}

/// One range of values of the scale, and how many were recorded in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub lowest_ns: u64,
    pub highest_ns: u64,
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// Memory of its counts.
    pub(crate) const MEMORY_BYTES: usize = SLOTS * size_of::<u64>();

    /// An empty histogram. No other function allocates.
    pub fn new() -> Histogram {
        Histogram {
            counts: Box::new([0; SLOTS]),
            count: 0,
            sum: 0,
            sum_squares: 0,
            min: u64::MAX,
            max: 0,
            saturated: 0,
        }
    }

    /// Adds one value.
    #[inline(always)]
    pub fn record(&mut self, ns: u64) {
        let slot = if ns <= HIGHEST_NS {
            slot_of(ns)
        } else {
            self.saturated += 1;
            slot_of(HIGHEST_NS)
        };
        if let Some(count) = self.counts.get_mut(slot) {
            *count += 1;
        }
        self.count += 1;
        self.sum += u128::from(ns);
        self.sum_squares += u128::from(ns) * u128::from(ns);
        if ns < self.min || ns > self.max {
            self.widen(ns);
        }
    }

    /// Adds one value `count` times.
    pub fn record_many(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        if ns > HIGHEST_NS {
            self.saturated += count;
        }
        if let Some(slot) = self.counts.get_mut(slot_of(ns.min(HIGHEST_NS))) {
            *slot += count;
        }
        self.count += count;
        self.sum += u128::from(ns) * u128::from(count);
        self.sum_squares += u128::from(ns) * u128::from(ns) * u128::from(count);
        self.widen(ns);
    }

    /// Rare, so kept out of the hot path.
    #[cold]
    #[inline(never)]
    fn widen(&mut self, ns: u64) {
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds every value of `other`.
    pub fn add(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        let used = other.used_slots();
        let ours = self.counts.get_mut(used.clone());
        if let (Some(ours), Some(theirs)) = (ours, other.counts.get(used)) {
            for (ours, theirs) in ours.iter_mut().zip(theirs) {
                *ours = ours.saturating_add(*theirs);
            }
        }
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.sum_squares = self.sum_squares.saturating_add(other.sum_squares);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.saturated = self.saturated.saturating_add(other.saturated);
    }

    /// Makes it empty again.
    pub fn clear(&mut self) {
        if self.count > 0 {
            let used = self.used_slots();
            self.counts.get_mut(used).unwrap_or_default().fill(0);
        }
        self.count = 0;
        self.sum = 0;
        self.sum_squares = 0;
        self.min = u64::MAX;
        self.max = 0;
        self.saturated = 0;
    }

    /// Makes the kernel back every page of it, so that no later record takes a page fault.
    pub fn touch(&mut self) {
        for slot in std::hint::black_box(&mut self.counts).iter_mut() {
            *slot = std::hint::black_box(*slot);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    /// Values above one hour.
    pub fn saturated(&self) -> u64 {
        self.saturated
    }

    /// The least value; 0 when empty.
    pub fn min_ns(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The greatest value, exact even above one hour; 0 when empty.
    pub fn max_ns(&self) -> u64 {
        self.max
    }

    /// The exact sum, rounded to a double only here.
    pub fn sum_ns(&self) -> f64 {
        self.sum as f64
    }

    /// The exact sum of squares, rounded to a double only here.
    pub fn sum_squares_ns2(&self) -> f64 {
        self.sum_squares as f64
    }

    /// The mean; 0 when empty.
    pub fn mean_ns(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.sum as f64 / self.count as f64
    }

    /// The population's standard deviation, from the exact sums; 0 when empty.
    pub fn stddev_ns(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.mean_ns();
        let variance = self.sum_squares as f64 / self.count as f64 - mean * mean;
        variance.max(0.0).sqrt()
    }

    /// The non-empty slots: the highest value of each, and its count.
    pub fn slots(&self) -> impl Iterator<Item = (u64, u64)> {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(slot, count)| (highest_of(slot), *count))
    }

    /// The value that a share `q` (0 to 1) of all values do not exceed. Like every HDR reader it returns the upper end
    /// of a slot, but never outside the exact minimum and maximum. At most 0.79 % above the exact answer, never below
    /// it (except for values above an hour). 0 when empty.
    pub fn quantile(&self, q: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0);
        if rank >= self.count as f64 {
            return self.max;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a whole number from 1 up to the count"
        )]
        let rank = rank as u64;
        let used = self.used_slots();
        let counts = self.counts.get(used.clone()).unwrap_or_default();
        let (mut seen, mut first) = (0_u64, used.start);
        for block in counts.chunks(SUMMED_AT_ONCE) {
            let sum = block
                .iter()
                .fold(0_u64, |sum, count| sum.wrapping_add(*count));
            if seen.saturating_add(sum) < rank {
                seen = seen.saturating_add(sum);
                first += block.len();
                continue;
            }
            for (slot, count) in (first..).zip(block) {
                seen = seen.saturating_add(*count);
                if seen >= rank {
                    return highest_of(slot).clamp(self.min, self.max);
                }
            }
            first += block.len();
        }
        self.max
    }

    /// The non-empty slots, in the order of their values.
    pub fn filled_slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let filled = self.counts.iter().enumerate();
        filled
            .filter(|(_, count)| **count > 0)
            .map(|(slot, count)| Slot {
                lowest_ns: lowest_of(slot),
                highest_ns: highest_of(slot),
                count: *count,
            })
    }

    /// From the slot of the minimum to the slot of the maximum.
    fn used_slots(&self) -> std::ops::Range<usize> {
        slot_of(self.min.min(HIGHEST_NS))..slot_of(self.max.min(HIGHEST_NS)) + 1
    }
}

/// The slot of a value up to [`HIGHEST_NS`].
#[inline(always)]
fn slot_of(ns: u64) -> usize {
    // The bucket is the number of doublings beyond the 256 exact slots; within it, the value's top 8 bits decide.
    let bucket = (u64::BITS - SUB_BITS) - (ns | 0xff).leading_zeros();
    let slot = (u64::from(bucket) << HALF_BITS) + (ns >> bucket);
    usize::try_from(slot).unwrap_or(SLOTS)
}

/// The least value that lands in `slot`.
fn lowest_of(slot: usize) -> u64 {
    slot.checked_sub(1)
        .map_or(0, |before| highest_of(before) + 1)
}

/// The greatest value that lands in `slot`.
fn highest_of(slot: usize) -> u64 {
    let slot = slot as u64;
    let bucket = (slot >> HALF_BITS).saturating_sub(1);
    let top_bits = slot - (bucket << HALF_BITS);
    ((top_bits + 1) << bucket) - 1
}

#[cfg(test)]
mod tests;

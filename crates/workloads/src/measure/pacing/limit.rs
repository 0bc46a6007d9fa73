//! A limit on the bytes per second of all loads that share it, whatever rate the plan asks for.
//!
//! Transfers get consecutive slots on one time line, each as long as its bytes may take; a caller waits until its slot
//! begins. Invariants: over any span, no more than the limit plus [`CREDIT`] is let through; taking a slot is one
//! atomic exchange, without a lock.

use crate::measure::clock::MonoNanos;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Unused time is credited up to this, so that a late wake-up does not lower the rate.
const CREDIT: Duration = Duration::from_millis(10);

/// The size of a chunk is the bytes that may be moved in this part of a second, so that the rate holds in each second.
const CHUNKS_PER_SECOND: u64 = 16;
/// Bounds of a chunk. The smallest one is what O_DIRECT requires of lengths.
const CHUNK_BYTES: (u64, u64) = (4 << 10, 8 << 20);

/// Bytes that may be moved at once at this rate: a power of two.
pub(crate) fn chunk_bytes(bytes_per_s: u64) -> u64 {
    let (least, most) = CHUNK_BYTES;
    let chunk = (bytes_per_s / CHUNKS_PER_SECOND).clamp(least, most);
    // The largest power of two that is not larger.
    1 << chunk.ilog2()
}

/// The limit and its time line.
#[derive(Debug)]
pub struct RateLimit {
    bytes_per_s: u64,
    /// CLOCK_MONOTONIC nanoseconds from which slots are free.
    free_from: AtomicU64,
}

impl RateLimit {
    /// At least one byte per second.
    #[must_use]
    pub fn new(bytes_per_s: u64) -> RateLimit {
        RateLimit {
            bytes_per_s: bytes_per_s.max(1),
            free_from: AtomicU64::new(0),
        }
    }

    /// Takes a slot for this many bytes and returns when it begins, which may be in the past.
    pub(crate) fn take(&self, bytes: u64, now: MonoNanos) -> MonoNanos {
        let least = now.saturating_sub(CREDIT).0;
        let takes = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_s);
        let takes = u64::try_from(takes).unwrap_or(u64::MAX);
        let next = |free_from: u64| Some(free_from.max(least).saturating_add(takes));
        let taken = self
            .free_from
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        MonoNanos(taken.unwrap_or(least).max(least))
    }

    /// When the next slot begins, which may be in the past.
    pub(crate) fn next(&self) -> MonoNanos {
        MonoNanos(self.free_from.load(Ordering::Relaxed))
    }

    /// Bytes that may be moved at once.
    pub(crate) fn chunk_bytes(&self) -> u64 {
        chunk_bytes(self.bytes_per_s)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    const START: MonoNanos = MonoNanos(1_000_000_000_000);

    #[test]
    fn places_follow_each_other_and_idle_time_is_not_saved_up() {
        let limit = RateLimit::new(1000);
        let after = |millis: u64| START.saturating_add(Duration::from_millis(millis));
        let credit = START.saturating_sub(CREDIT);
        assert_eq!(limit.take(100, START), credit);
        assert_eq!(
            limit.take(100, START),
            credit.saturating_add(Duration::from_millis(100))
        );
        assert_eq!(
            limit.take(0, START),
            credit.saturating_add(Duration::from_millis(200))
        );
        // The credit is the same after an hour.
        let later = after(3_600_000);
        assert_eq!(limit.take(500, later), later.saturating_sub(CREDIT));
        let next = later
            .saturating_sub(CREDIT)
            .saturating_add(Duration::from_millis(500));
        assert_eq!(limit.next(), next);
    }

    #[test]
    fn a_chunk_is_a_small_part_of_a_second_and_fits_o_direct() {
        for (bytes_per_s, chunk) in [
            (1, 4096),
            (100_000, 4096),
            (1 << 20, 64 << 10),
            (40 << 20, 2 << 20),
            (u64::MAX, 8 << 20),
        ] {
            assert_eq!(chunk_bytes(bytes_per_s), chunk, "{bytes_per_s}");
        }
    }

    proptest! {
        /// The limit and its credit hold for any number of threads and any sizes.
        #[test]
        fn the_limit_holds(sizes in proptest::collection::vec(0_u64..100_000, 1..200)) {
            let limit = RateLimit::new(1_000_000);
            let mut last = 0;
            let mut bytes = 0_u64;
            for size in sizes {
                let at = limit.take(size, START).0;
                prop_assert!(at >= last);
                last = at;
                let allowed = u128::from(at + 10_000_000 - START.0) * 1_000_000 / 1_000_000_000;
                // Each slot is rounded down by less than the time of one byte.
                prop_assert!(u128::from(bytes) <= allowed + 200);
                bytes += size;
            }
        }
    }
}

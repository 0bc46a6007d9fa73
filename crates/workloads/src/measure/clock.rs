//! The one clock of the load: CLOCK_MONOTONIC in nanoseconds.
//!
//! Every instant in this crate is a [`MonoNanos`]; mesh time and wall time do not occur. A task starts at an instant of
//! this clock, which workers reach by [`sleep_until`] and then [`spin_until`]. Workers time operations with a
//! [`Reader`] of their own.

mod reader;

pub use reader::Reader;

use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::time::Duration;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// An instant of this host's CLOCK_MONOTONIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MonoNanos(pub u64);

impl MonoNanos {
    /// Reads the clock (20 to 25 ns through the vDSO).
    #[inline]
    pub fn now() -> MonoNanos {
        let now = clock_gettime(ClockId::Monotonic);
        MonoNanos(
            now.tv_sec
                .cast_unsigned()
                .wrapping_mul(NANOS_PER_SECOND)
                .wrapping_add(now.tv_nsec.cast_unsigned()),
        )
    }

    /// Nanoseconds since `earlier`; zero when `earlier` is later.
    #[inline]
    pub fn nanos_since(self, earlier: MonoNanos) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Time since `earlier`; zero when `earlier` is later.
    pub fn since(self, earlier: MonoNanos) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// The instant `span` later, or `None` on overflow.
    pub fn checked_add(self, span: Duration) -> Option<MonoNanos> {
        let span = u64::try_from(span.as_nanos()).ok()?;
        self.0.checked_add(span).map(MonoNanos)
    }

    /// The instant `span` later, or the largest instant.
    pub fn saturating_add(self, span: Duration) -> MonoNanos {
        self.checked_add(span).unwrap_or(MonoNanos(u64::MAX))
    }

    /// The instant `span` earlier, or instant 0.
    pub fn saturating_sub(self, span: Duration) -> MonoNanos {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        MonoNanos(self.0.saturating_sub(span))
    }
}

/// Sleeps on an absolute timer until `at`; returns at once if `at` is past. Signals do not shorten the sleep.
pub fn sleep_until(at: MonoNanos) {
    let (Ok(tv_sec), Ok(tv_nsec)) = (
        i64::try_from(at.0 / NANOS_PER_SECOND),
        i64::try_from(at.0 % NANOS_PER_SECOND),
    ) else {
        return;
    };
    let request = Timespec { tv_sec, tv_nsec };
    while clock_nanosleep_absolute(rustix::thread::ClockId::Monotonic, &request)
        == Err(rustix::io::Errno::INTR)
    {}
}

/// Spins until `at`, and returns the first reading at or after it.
pub fn spin_until(at: MonoNanos) -> MonoNanos {
    loop {
        let now = MonoNanos::now();
        if now >= at {
            return now;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeping_and_spinning_reach_the_instant() {
        let at = MonoNanos::now().saturating_add(Duration::from_millis(2));
        sleep_until(at.saturating_sub(Duration::from_millis(1)));
        let reached = spin_until(at);
        assert!(reached >= at);
        sleep_until(MonoNanos(0));
    }

    #[test]
    fn arithmetic_stays_within_the_clock() {
        let second = Duration::from_secs(1);
        assert_eq!(
            MonoNanos(5).saturating_add(second),
            MonoNanos(1_000_000_005)
        );
        assert_eq!(MonoNanos(5).saturating_sub(second), MonoNanos(0));
        assert_eq!(MonoNanos(u64::MAX).checked_add(second), None);
        assert_eq!(MonoNanos(3).nanos_since(MonoNanos(7)), 0);
    }
}

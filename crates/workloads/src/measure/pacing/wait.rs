//! Waiting for an instant: sleeps on an absolute timer and, where that is affordable, spins for the last stretch.
//!
//! A timer wakes a thread up to 0.1 ms late, and every response time would include that. Spinning avoids it but uses a
//! CPU. So a worker spins for a small share of its time only, and only if each worker of the task can have a CPU.
//! Invariant: a waiting worker checks for a stop ten times a second.

use crate::measure::clock::{MonoNanos, sleep_until, spin_until};
use std::num::NonZeroU64;
use std::time::Duration;

/// How often a waiting worker checks whether to go on.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Timers on an idle CPU are rarely later than this (halted virtual CPUs included).
const MAX_SPIN: Duration = Duration::from_micros(100);
/// A worker may spin for one part in this many of its time.
const SPIN_SHARE: u32 = 5;

/// Why a wait returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// The instant has come; the first clock reading at or after it.
    Due(MonoNanos),
    /// Time to check for a stop; the current clock reading.
    Poll(MonoNanos),
}

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitMethod {
    may_spin: bool,
}

impl WaitMethod {
    /// Never spins.
    pub(crate) const SLEEPING: WaitMethod = WaitMethod { may_spin: false };

    /// For one of `workers` that wait at the same time.
    pub(crate) fn for_workers(workers: u32) -> WaitMethod {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        WaitMethod {
            may_spin: usize::try_from(workers).is_ok_and(|workers| workers <= cpus),
        }
    }

    /// Asks the kernel to wake the calling thread as exactly as it can, instead of coalescing timers over 50 us.
    pub(crate) fn minimize_timer_slack() {
        // Failure costs accuracy only, and that shows in the response times.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }

    /// Waits until `due`, for a tenth of a second at most. Operations are `mean_gap` apart.
    pub(crate) fn wait(self, due: MonoNanos, mean_gap: Duration) -> WaitEnd {
        let now = MonoNanos::now();
        if due <= now {
            return WaitEnd::Due(now);
        }
        let poll_at = now.saturating_add(POLL_INTERVAL);
        if poll_at < due {
            sleep_until(poll_at);
            return WaitEnd::Poll(MonoNanos::now());
        }
        let spin = match self.may_spin {
            true => MAX_SPIN.min(mean_gap / SPIN_SHARE),
            false => Duration::ZERO,
        };
        let wake = due.saturating_sub(spin);
        if wake > now {
            sleep_until(wake);
        }
        WaitEnd::Due(spin_until(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instant_is_never_missed_early_and_long_waits_are_looked_up_from() {
        for workers in [1, 100_000] {
            let waiting = WaitMethod::for_workers(workers);
            assert_eq!(waiting.may_spin, workers == 1);
            let due = MonoNanos::now().saturating_add(Duration::from_millis(2));
            let WaitEnd::Due(at) = waiting.wait(due, Duration::from_millis(2)) else {
                panic!("two milliseconds are no long wait")
            };
            assert!(at >= due);
            assert!(matches!(
                waiting.wait(due, Duration::ZERO),
                WaitEnd::Due(now) if now >= at
            ));
        }
        let far = MonoNanos::now().saturating_add(Duration::from_secs(3600));
        let before = MonoNanos::now();
        let WaitEnd::Poll(now) = WaitMethod::for_workers(1).wait(far, Duration::ZERO) else {
            panic!("an hour has not passed")
        };
        assert!(now.since(before) >= POLL_INTERVAL && now < far);
    }
}

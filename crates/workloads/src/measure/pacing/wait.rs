//! Waiting for an instant: on an absolute timer, and spinning the last stretch where that is honest.
//!
//! A timer wakes a thread up to 0.1 ms late, which would stand in every response time. Spinning hides that, but takes a
//! CPU: it is done for a small share of the time only, and only where each worker of the task can have a CPU.
//! Invariant: whoever waits looks up ten times a second.

use crate::measure::clock::{MonoNanos, sleep_until, spin_until};
use std::num::NonZeroU64;
use std::time::Duration;

/// How often one who waits looks whether to go on waiting.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Later than this a timer hardly comes on an idle CPU (halted virtual CPUs included).
const MAX_SPIN: Duration = Duration::from_micros(100);
/// Of a worker's time that it may spin: one in so many.
const SPIN_SHARE: u32 = 5;

/// What ended a stretch of waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The instant, and the reading of the clock that was not before it.
    Due(MonoNanos),
    /// It is time to look up; the clock stands here.
    Look(MonoNanos),
}

/// How a worker waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    may_spin: bool,
}

impl Waiting {
    /// Never spins.
    pub(crate) const SLEEPING: Waiting = Waiting { may_spin: false };

    /// For one of so many workers that wait at once.
    pub(crate) fn among(workers: u32) -> Waiting {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Waiting {
            may_spin: usize::try_from(workers).is_ok_and(|workers| workers <= cpus),
        }
    }

    /// Makes the kernel wake the calling thread as exactly as it can, instead of gathering timers over 50 us.
    pub(crate) fn sharpen_timers() {
        // What cannot be had costs accuracy only, and it shows in the response times.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }

    /// Waits until `due`, but for a tenth of a second at most. Operations are `mean_gap` apart.
    pub(crate) fn wait(self, due: MonoNanos, mean_gap: Duration) -> Until {
        let now = MonoNanos::now();
        if due <= now {
            return Until::Due(now);
        }
        let look = now.saturating_add(POLL_INTERVAL);
        if look < due {
            sleep_until(look);
            return Until::Look(MonoNanos::now());
        }
        let spin = match self.may_spin {
            true => MAX_SPIN.min(mean_gap / SPIN_SHARE),
            false => Duration::ZERO,
        };
        let wake = due.saturating_sub(spin);
        if wake > now {
            sleep_until(wake);
        }
        Until::Due(spin_until(due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instant_is_never_missed_early_and_long_waits_are_looked_up_from() {
        for workers in [1, 100_000] {
            let waiting = Waiting::among(workers);
            assert_eq!(waiting.may_spin, workers == 1);
            let due = MonoNanos::now().saturating_add(Duration::from_millis(2));
            let Until::Due(at) = waiting.wait(due, Duration::from_millis(2)) else {
                panic!("two milliseconds are no long wait")
            };
            assert!(at >= due);
            assert!(matches!(
                waiting.wait(due, Duration::ZERO),
                Until::Due(now) if now >= at
            ));
        }
        let far = MonoNanos::now().saturating_add(Duration::from_secs(3600));
        let before = MonoNanos::now();
        let Until::Look(now) = Waiting::among(1).wait(far, Duration::ZERO) else {
            panic!("an hour has not passed")
        };
        assert!(now.since(before) >= POLL_INTERVAL && now < far);
    }
}

//! How far ahead the start instant of a step is chosen. The lead follows the duration of recent confirmations, and the
//! round trips and clock errors of the step's own agents.

use std::{collections::VecDeque, ops::RangeInclusive, time::Duration};

const MIN_LEAD: Duration = Duration::from_millis(10);
const MAX_LEAD: Duration = Duration::from_secs(20);
/// Assumed for an agent that has not measured its round trip yet.
pub(super) const UNKNOWN_ROUND_TRIP: Duration = Duration::from_millis(20);
/// The collector's own work per agent, while all agents are armed at once.
const PER_TASK: Duration = Duration::from_millis(1);
const MIN_GUARD: Duration = Duration::from_millis(5);
/// Until a confirmation was measured, the answers to `Prepare` estimate its duration, within these bounds. After one
/// measured confirmation half of the estimate is assumed, after two a quarter.
const FIRST_DELAY: RangeInclusive<Duration> =
    Duration::from_millis(20)..=Duration::from_millis(150);
/// Upper limit of the delay assumed for a confirmation that came too late.
pub(super) const LATE_DELAY: Duration = Duration::from_millis(300);
/// The lead doubles with each attempt of a step, at most this many times.
const DOUBLINGS: u32 = 3;
/// The lead is this multiple of the longest delay: on a loaded host one confirmation takes three times as long as
/// another.
pub(super) const DELAY_FACTOR: u32 = 3;
/// Number of steps over which the longest delay is taken.
const DELAYS: usize = 16;

/// How often a step is prepared again because it could not be armed in time.
pub(super) const ARM_TRIES: u32 = 6;

/// How long it took recently from the choice of an instant until the last agent had it.
#[derive(Clone, Debug)]
pub(super) struct LeadEstimate {
    /// The delays of the last steps.
    delays: VecDeque<Duration>,
    /// Assumed while few delays were measured.
    first: Duration,
}

impl Default for LeadEstimate {
    fn default() -> Self {
        Self {
            delays: VecDeque::new(),
            first: *FIRST_DELAY.end(),
        }
    }
}

impl LeadEstimate {
    pub(super) fn measured(&mut self, delay: Duration) {
        self.delays.push_back(delay);
        if self.delays.len() > DELAYS {
            self.delays.pop_front();
        }
    }

    /// `time` is how long the slowest agent took to prepare its task.
    pub(super) fn prepared_within(&mut self, time: Duration) {
        if self.delays.is_empty() {
            self.first = time.clamp(*FIRST_DELAY.start(), *FIRST_DELAY.end());
        }
    }

    pub(super) fn delay(&self) -> Duration {
        let halvings = u32::try_from(self.delays.len()).unwrap_or(u32::MAX).min(20);
        let assumed = self.first / (1 << halvings);
        self.delays
            .iter()
            .max()
            .copied()
            .unwrap_or_default()
            .max(assumed)
    }
}

/// The lead on the `attempt`th attempt (from 0), and the guard: how long before the instant all must have confirmed.
/// `delay` is the duration of the slowest of the last confirmations.
pub(super) fn lead(
    round_trip: Duration,
    clock_error: Duration,
    delay: Duration,
    tasks: usize,
    attempt: u32,
) -> (Duration, Duration) {
    let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
    let guard = (round_trip * 2 + clock_error).max(MIN_GUARD);
    let lead = guard + round_trip * 2 + delay * DELAY_FACTOR + PER_TASK.saturating_mul(tasks);
    let lead = lead
        .max(MIN_LEAD)
        .saturating_mul(1 << attempt.min(DOUBLINGS))
        .min(MAX_LEAD);
    (lead, guard.min(lead / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_lead_covers_the_slowest_confirmation() {
        let none = Duration::ZERO;
        assert_eq!(lead(MS(0), none, MS(0), 1, 0), (MS(10), MS(5)));
        assert_eq!(lead(MS(1), none, MS(2), 3, 0), (MS(16), MS(5)));
        assert_eq!(lead(MS(1), none, MS(150), 3, 0), (MS(460), MS(5)));
        assert_eq!(lead(MS(100), MS(20), none, 10, 0), (MS(430), MS(215)));
        assert_eq!(lead(MS(1), none, MS(2), 3, 2), (MS(64), MS(5)));
        assert_eq!(lead(MS(1), none, MS(2), 3, 10).0, MS(128));
        assert_eq!(lead(MS(8000), none, MS(2), 3, 0).0, MAX_LEAD);
    }

    #[test]
    fn the_slowest_of_the_last_steps_counts() {
        let mut estimate = LeadEstimate::default();
        assert_eq!(estimate.delay(), MS(150));
        for (prepared, assumed) in [(3, 20), (50, 50), (9000, 150)] {
            estimate.prepared_within(MS(prepared));
            assert_eq!(estimate.delay(), MS(assumed));
        }
        estimate.measured(MS(70));
        for _ in 0..DELAYS - 1 {
            estimate.measured(MS(3));
        }
        assert_eq!(estimate.delay(), MS(70));
        estimate.measured(MS(3));
        assert_eq!(estimate.delay(), MS(3));
    }

    #[test]
    fn the_guard_is_shorter_than_the_lead() {
        for round_trip in [0, 1, 50, 1000, 60_000] {
            for attempt in 0..ARM_TRIES {
                let (lead, guard) = lead(MS(round_trip), MS(round_trip), MS(0), 100, attempt);
                assert!(guard < lead, "{round_trip} {attempt}");
            }
        }
    }
}

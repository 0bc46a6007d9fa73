//! The agent's only backoff: exponential, full jitter, capped, without a limit on attempts.
//!
//! It uses neither a clock nor a socket: it only computes the delay before the next attempt.

use rand::Rng;
use std::time::Duration;

/// Upper bound of the first delay.
const FIRST: Duration = Duration::from_millis(250);
/// Maximum delay: an agent reattaches within 3 s after its collector is back.
const CAP: Duration = Duration::from_secs(3);
/// Minimum delay, so that a draw of zero does not cause a busy loop.
const MIN_DELAY: Duration = Duration::from_millis(20);

/// Attempts since the last success.
#[derive(Debug, Default)]
pub struct Backoff {
    tries: u32,
}

impl Backoff {
    /// The delay before the next attempt: uniform between zero and a bound that doubles with each attempt up to
    /// [`CAP`].
    pub fn next(&mut self, random: &mut impl Rng) -> Duration {
        let span = self.span();
        self.tries = self.tries.saturating_add(1);
        random.random_range(MIN_DELAY..=span)
    }

    /// Resets to the first bound.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// Upper bound of the next delay.
    fn span(&self) -> Duration {
        FIRST
            .saturating_mul(2_u32.saturating_pow(self.tries))
            .min(CAP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn spans_double_to_the_cap_and_stay_there() {
        let mut random = StdRng::seed_from_u64(1);
        let mut backoff = Backoff::default();
        let mut spans = Vec::new();
        for _ in 0..8 {
            spans.push(backoff.span().as_millis());
            backoff.next(&mut random);
        }
        assert_eq!(spans, [250, 500, 1000, 2000, 3000, 3000, 3000, 3000]);
        backoff.tries = u32::MAX;
        assert_eq!(backoff.span(), CAP);
        backoff.next(&mut random);
        backoff.reset();
        assert_eq!(backoff.span(), FIRST);
    }

    #[test]
    fn delays_are_spread_over_the_whole_span() {
        let mut random = StdRng::seed_from_u64(7);
        let draws: Vec<Duration> = (0..2000)
            .map(|_| Backoff { tries: 40 }.next(&mut random))
            .collect();
        assert!(draws.iter().all(|delay| (MIN_DELAY..=CAP).contains(delay)));
        for tenth in 0..10_u32 {
            let (from, until) = (CAP * tenth / 10, CAP * (tenth + 1) / 10);
            let within = draws
                .iter()
                .filter(|delay| (from..until).contains(*delay))
                .count();
            assert!(
                (120..=280).contains(&within),
                "{within} draws in {from:?}..{until:?}"
            );
        }
    }
}

//! The bytes that each agent may have stored within an hour: a token bucket for each name in a certificate, because a
//! new uid costs nothing.
//!
//! The bucket holds an hour's bytes and is refilled evenly. The batches of an agent that exceeds it wait until half of
//! it is free again; meanwhile its data are in its spool. Bytes count when they arrive, whatever the dates of their
//! rows. Pure: the clock is a parameter.

use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

/// Bytes that exceed the limit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Flood {
    pub limit_bytes: u64,
    /// Until batches of the agent are accepted again.
    pub wait: Duration,
    /// Whether earlier bytes had not exceeded it yet.
    pub begins: bool,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    /// When the bucket is full again. It is empty if this is an hour ahead.
    full_at: Instant,
    is_refused: bool,
}

/// Accounts by agent name.
#[derive(Debug)]
pub(super) struct HourlyBytes {
    limit: u64,
    accounts: HashMap<String, Account>,
}

impl Default for HourlyBytes {
    fn default() -> Self {
        Self::new(u64::MAX)
    }
}

impl HourlyBytes {
    pub fn new(limit: u64) -> Self {
        Self {
            limit,
            accounts: HashMap::new(),
        }
    }

    /// Takes these bytes from the agent's bucket.
    pub fn spend(&mut self, name: &str, bytes: u64, now: Instant) -> Result<(), Flood> {
        let refill = self.refill(bytes);
        if !self.accounts.contains_key(name) {
            self.accounts.retain(|_, account| account.full_at > now);
        }
        let account = self.accounts.entry(name.to_owned()).or_insert(Account {
            full_at: now,
            is_refused: false,
        });
        let flood = |full_at: Instant, begins: bool| Flood {
            limit_bytes: self.limit,
            wait: full_at.saturating_duration_since(now + HOUR / 2),
            begins,
        };
        if account.is_refused && account.full_at > now + HOUR / 2 {
            return Err(flood(account.full_at, false));
        }
        let full_at = account.full_at.max(now) + refill;
        account.is_refused = full_at > now + HOUR;
        account.full_at = full_at.min(now + HOUR);
        match account.is_refused {
            true => Err(flood(account.full_at, true)),
            false => Ok(()),
        }
    }

    /// The time in which the bucket is refilled by these bytes, at most just over an hour.
    fn refill(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * HOUR.as_nanos() / u128::from(self.limit.max(1));
        let most = HOUR + Duration::from_nanos(1);
        u64::try_from(nanos).map_or(most, |nanos| Duration::from_nanos(nanos).min(most))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMIT: u64 = 64 << 20;

    #[test]
    fn a_flood_is_reported_once_and_accepted_again_when_half_is_free() {
        let (mut hourly, start) = (HourlyBytes::new(LIMIT), Instant::now());
        hourly.spend("a", LIMIT, start).unwrap();
        let flood = |wait: Duration, begins: bool| {
            Err(Flood {
                limit_bytes: LIMIT,
                wait,
                begins,
            })
        };
        assert_eq!(hourly.spend("a", 1, start), flood(HOUR / 2, true));
        let again = hourly.spend("a", 1, start + HOUR / 4);
        assert_eq!(again, flood(HOUR / 4, false));
        assert_eq!(hourly.spend("b", LIMIT, start), Ok(()));
        let later = start + HOUR / 2;
        assert_eq!(hourly.spend("a", LIMIT / 2, later), Ok(()));
        assert_eq!(hourly.spend("a", 1, later), flood(HOUR / 2, true));
    }

    #[test]
    fn small_amounts_at_short_intervals_are_refilled() {
        // The second pause has a fraction of a millisecond, in which 268 bytes are refilled.
        for (limit, pause) in [
            (LIMIT, Duration::from_millis(100)),
            (1 << 30, Duration::from_micros(1900)),
        ] {
            let (mut hourly, mut now) = (HourlyBytes::new(limit), Instant::now());
            hourly.spend("a", limit * 9 / 10, now).unwrap();
            // Half an hour at nine tenths of the limit.
            let all = u128::from(limit) * pause.as_nanos() / HOUR.as_nanos();
            let sent = u64::try_from(all).unwrap() * 9 / 10;
            for _ in 0..(HOUR / 2).as_nanos() / pause.as_nanos() {
                now += pause;
                assert_eq!(hourly.spend("a", sent, now), Ok(()));
            }
            // An hour of silence frees everything and no more.
            now += HOUR * 5;
            hourly.spend("a", limit, now).unwrap();
            assert!(hourly.spend("a", 1, now).is_err());
            // The account is forgotten when it is empty.
            hourly.spend("b", 1, now + HOUR).unwrap();
            assert_eq!(hourly.accounts.len(), 1);
        }
    }
}

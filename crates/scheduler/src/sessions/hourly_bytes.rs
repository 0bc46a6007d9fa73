//! The bytes that each agent may have stored within an hour: a token bucket for each name in a certificate, because a
//! new uid costs nothing.
//!
//! The bucket holds an hour's bytes and is refilled evenly. An agent that exceeds it is refused until half of it is
//! free again; meanwhile its data wait in its spool. Bytes count when they arrive, whatever the dates of their rows.
//! Pure: the clock is a parameter.

use benchmesh_workloads::figures::bytes;
use std::{collections::HashMap, time::Duration};
use tokio::time::Instant;

const HOUR: Duration = Duration::from_secs(3600);

/// An agent that has exceeded the limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the agent `{name}` has sent more than {} within an hour, the limit of each agent: its data wait in its spool, and \
     the collector accepts them again in {minutes} min",
    bytes(*limit_bytes)
)]
pub struct Flood {
    pub name: String,
    pub limit_bytes: u64,
    pub minutes: u64,
}

/// The reason why bytes are refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FloodRefusal {
    /// These bytes exceed the limit.
    Begins(Flood),
    /// Earlier bytes exceeded the limit.
    GoesOn(Flood),
}

#[derive(Clone, Copy, Debug)]
struct Account {
    used: u64,
    /// The instant up to which `used` has been reduced.
    refilled: Instant,
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
    pub fn spend(&mut self, name: &str, bytes: u64, now: Instant) -> Result<(), FloodRefusal> {
        self.check(name, now).map_err(FloodRefusal::GoesOn)?;
        let limit = self.limit;
        if !self.accounts.contains_key(name) {
            self.accounts
                .retain(|_, account| account.used_at(now, limit) > 0);
        }
        let account = self.accounts.entry(name.to_owned()).or_insert(Account {
            used: 0,
            refilled: now,
            is_refused: false,
        });
        let used = account.used_at(now, limit);
        // A shorter time would be rounded to no refill.
        if used < account.used || used == 0 {
            (account.used, account.refilled) = (used, now);
        }
        account.is_refused = account.used.saturating_add(bytes) > limit;
        if !account.is_refused {
            account.used += bytes;
            return Ok(());
        }
        account.used = limit;
        self.check(name, now).map_err(FloodRefusal::Begins)
    }

    /// Whether data of an agent are accepted.
    pub fn check(&self, name: &str, now: Instant) -> Result<(), Flood> {
        let Some(account) = self.accounts.get(name).filter(|account| account.is_refused) else {
            return Ok(());
        };
        let over = account
            .used_at(now, self.limit)
            .saturating_sub(self.limit / 2);
        if over == 0 {
            return Ok(());
        }
        let minutes = (u128::from(over) * 60).div_ceil(u128::from(self.limit));
        Err(Flood {
            name: name.to_owned(),
            limit_bytes: self.limit,
            minutes: u64::try_from(minutes).unwrap_or(u64::MAX),
        })
    }
}

impl Account {
    fn used_at(&self, now: Instant, limit: u64) -> u64 {
        let passed = now.saturating_duration_since(self.refilled);
        let refilled = u128::from(limit) * passed.as_millis() / HOUR.as_millis();
        let refilled = u64::try_from(refilled).unwrap_or(u64::MAX);
        self.used.saturating_sub(refilled)
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
        let Err(FloodRefusal::Begins(flood)) = hourly.spend("a", 1, start) else {
            panic!("it is accepted");
        };
        assert_eq!((flood.limit_bytes, flood.minutes), (LIMIT, 30));
        let again = hourly.spend("a", 1, start + HOUR / 4);
        assert!(
            matches!(&again, Err(FloodRefusal::GoesOn(flood)) if flood.minutes == 15),
            "{again:?}"
        );
        assert!(hourly.check("a", start + HOUR / 4).is_err());
        assert_eq!(hourly.spend("b", LIMIT, start), Ok(()));
        let later = start + HOUR / 2;
        assert_eq!(hourly.check("a", later), Ok(()));
        assert_eq!(hourly.spend("a", LIMIT / 2, later), Ok(()));
        let again = hourly.spend("a", 1, later);
        assert!(matches!(again, Err(FloodRefusal::Begins(_))), "{again:?}");
    }

    #[test]
    fn small_amounts_at_short_intervals_are_refilled() {
        let (mut hourly, mut now) = (HourlyBytes::new(LIMIT), Instant::now());
        // Two hours at nine tenths of the limit.
        for _ in 0..72_000 {
            now += Duration::from_millis(100);
            let sent = hourly.spend("a", LIMIT / 40_000, now);
            assert_eq!(sent, Ok(()));
        }
        // An hour of silence frees everything and no more.
        now += HOUR * 5;
        hourly.spend("a", LIMIT, now).unwrap();
        assert!(hourly.spend("a", 1, now).is_err());
        // The account is forgotten when it is empty.
        hourly.spend("b", 1, now + HOUR).unwrap();
        assert_eq!(hourly.accounts.len(), 1);
    }
}

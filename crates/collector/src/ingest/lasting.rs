//! Rows that stay for as long as the database: each new daemon, disk or interface is one. How many an agent may add.
//!
//! By the agents' names, which their certificates hold: a uid is made in a moment. Pure but for the clock, which is given.
//! What was taken in a transaction that is rolled back is given back.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an agent may add at once, and again within [`REFILL`]. The largest hosts have some thousands of daemons; a server that
/// forks for each client adds some thousands an hour.
pub(super) const MOST_ROWS: u32 = 65_536;
const REFILL: Duration = Duration::from_secs(3600);
/// How often an agent's event tells what was left out.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Accounts beyond are looked through for idle ones.
const MANY_ACCOUNTS: usize = 4096;

/// Of an agent, since the event before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// New daemons, disks and interfaces beyond the limit.
    pub rows: u64,
    /// Samples of daemons that are not in the table.
    pub samples: u64,
}

#[derive(Debug)]
struct Account {
    spent: u32,
    /// Up to when `spent` was reduced.
    refilled: Instant,
    left_out: LeftOut,
    /// The last event.
    told: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct LastingRows {
    accounts: HashMap<Arc<str>, Account>,
    /// Whose each row of this transaction is.
    taken: Vec<Arc<str>>,
    is_anything_left_out: bool,
}

impl LastingRows {
    /// Room for one row more; `false`: it has to be left out, which is counted.
    pub fn take(&mut self, name: &str, now: Instant) -> bool {
        let (name, account) = self.account(name, now);
        account.refill(now);
        if account.spent >= MOST_ROWS {
            account.left_out.rows = account.left_out.rows.saturating_add(1);
            self.is_anything_left_out = true;
            return false;
        }
        account.spent += 1;
        self.taken.push(name);
        true
    }

    /// Counts samples of daemons that are not in the table.
    pub fn leave_out_samples(&mut self, name: &str, samples: usize, now: Instant) {
        let samples = u64::try_from(samples).unwrap_or(u64::MAX);
        let (_, account) = self.account(name, now);
        account.left_out.samples = account.left_out.samples.saturating_add(samples);
        self.is_anything_left_out = true;
    }

    /// Whether anything of any agent was left out.
    pub fn is_anything_left_out(&self) -> bool {
        self.is_anything_left_out
    }

    /// What was left out since this was last asked, if there is anything and it is time to tell it.
    pub fn take_left_out(&mut self, name: &str, now: Instant) -> Option<LeftOut> {
        let account = self.accounts.get_mut(name)?;
        let told = account.told;
        if told.is_some_and(|told| now.duration_since(told) < TELL_EVERY)
            || account.left_out == LeftOut::default()
        {
            return None;
        }
        account.told = Some(now);
        Some(std::mem::take(&mut account.left_out))
    }

    fn account(&mut self, name: &str, now: Instant) -> (Arc<str>, &mut Account) {
        if self.accounts.len() > MANY_ACCOUNTS {
            self.accounts.retain(|_, account| {
                account.refill(now);
                account.spent > 0
                    || account.told.is_some()
                    || account.left_out != LeftOut::default()
            });
        }
        let name = match self.accounts.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let account = self.accounts.entry(Arc::clone(&name)).or_insert(Account {
            spent: 0,
            refilled: now,
            left_out: LeftOut::default(),
            told: None,
        });
        (name, account)
    }

    pub fn mark(&self) -> usize {
        self.taken.len()
    }

    pub fn undo_to(&mut self, mark: usize) {
        for name in self.taken.drain(mark.min(self.taken.len())..) {
            if let Some(account) = self.accounts.get_mut(&name) {
                account.spent = account.spent.saturating_sub(1);
            }
        }
    }

    pub fn commit(&mut self) {
        self.taken.clear();
    }
}

impl Account {
    fn refill(&mut self, now: Instant) {
        let passed = now.duration_since(self.refilled).as_millis();
        let rows = passed * u128::from(MOST_ROWS) / REFILL.as_millis();
        if rows > 0 {
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            self.spent = self.spent.saturating_sub(rows);
            self.refilled = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(rows: &mut LastingRows, name: &str, wanted: u32, now: Instant) -> u32 {
        let taken = (0..wanted).filter(|_| rows.take(name, now)).count();
        rows.commit();
        u32::try_from(taken).unwrap_or(u32::MAX)
    }

    #[test]
    fn an_agent_adds_so_many_at_once_and_again_within_an_hour() {
        let (mut rows, start) = (LastingRows::default(), Instant::now());
        assert_eq!(taken(&mut rows, "a", MOST_ROWS + 10, start), MOST_ROWS);
        assert_eq!(taken(&mut rows, "b", 10, start), 10);
        assert_eq!(rows.take_left_out("b", start), None);
        let later = start + REFILL / 2;
        assert_eq!(taken(&mut rows, "a", MOST_ROWS, later), MOST_ROWS / 2);
        assert_eq!(taken(&mut rows, "a", MOST_ROWS, later + REFILL), MOST_ROWS);
    }

    #[test]
    fn what_is_left_out_is_told_once_a_minute() {
        let (mut rows, start) = (LastingRows::default(), Instant::now());
        taken(&mut rows, "a", MOST_ROWS, start);
        assert_eq!(rows.take_left_out("a", start), None);
        taken(&mut rows, "a", 7, start);
        rows.leave_out_samples("a", 2, start);
        assert_eq!(
            rows.take_left_out("a", start),
            Some(LeftOut {
                rows: 7,
                samples: 2
            })
        );
        taken(&mut rows, "a", 3, start);
        assert_eq!(rows.take_left_out("a", start), None);
        assert_eq!(
            rows.take_left_out("a", start + TELL_EVERY),
            Some(LeftOut {
                rows: 3,
                samples: 0
            })
        );
        assert_eq!(rows.take_left_out("a", start + TELL_EVERY * 2), None);
    }

    #[test]
    fn a_rolled_back_transaction_costs_nothing() {
        let (mut rows, start) = (LastingRows::default(), Instant::now());
        for _ in 0..5 {
            let mark = rows.mark();
            assert!((0..MOST_ROWS).all(|_| rows.take("a", start)));
            rows.undo_to(mark);
        }
        assert_eq!(taken(&mut rows, "a", MOST_ROWS, start), MOST_ROWS);
    }
}

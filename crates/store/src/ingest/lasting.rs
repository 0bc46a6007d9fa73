//! Limits for rows that are never deleted: every new daemon, disk, interface or target adds one.
//!
//! Agents are identified by the names in their certificates, because a new uid costs nothing. Pure: the clock is a
//! parameter. Changes made in a transaction that is rolled back are undone, because the transaction is attempted
//! again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of rows that an agent may add at once, and again within [`REFILL`]. The largest hosts have some thousands
/// of daemons; a server that forks for each client adds some thousands an hour.
pub(super) const MAX_ROWS: u32 = 65_536;
const REFILL: Duration = Duration::from_secs(3600);
/// Minimum time between two events of one agent.
const EVENT_INTERVAL: Duration = Duration::from_secs(60);
/// Above this number of accounts, idle ones are removed.
const MANY_ACCOUNTS: usize = 4096;

/// Rows of an agent left out since the last event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeftOut {
    /// Descriptions of new daemons and samples of new disks, interfaces and targets, beyond the limit. Left-out devices
    /// are not stored, so each of their samples counts.
    pub rows: u64,
    /// Samples of daemons that are not in the table.
    pub samples: u64,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    spent: u32,
    /// The instant up to which `spent` has been reduced.
    refilled: Instant,
    left_out: LeftOut,
    last_event: Option<Instant>,
}

#[derive(Debug, Default)]
pub(super) struct LastingRows {
    accounts: HashMap<Arc<str>, Account>,
    /// The accounts that this transaction has changed, each with its previous state.
    before: Vec<(Arc<str>, Account)>,
    is_anything_left_out: bool,
}

impl LastingRows {
    /// Reserves one more row. Returns `false` if the limit is reached: the row must be left out and is counted.
    pub fn take(&mut self, name: &str, now: Instant) -> bool {
        let account = self.change(name, now);
        if account.spent >= MAX_ROWS {
            account.left_out.rows = account.left_out.rows.saturating_add(1);
            self.is_anything_left_out = true;
            return false;
        }
        account.spent += 1;
        true
    }

    /// Counts samples of daemons that are not in the table.
    pub fn leave_out_samples(&mut self, name: &str, samples: usize, now: Instant) {
        let samples = u64::try_from(samples).unwrap_or(u64::MAX);
        let account = self.change(name, now);
        account.left_out.samples = account.left_out.samples.saturating_add(samples);
        self.is_anything_left_out = true;
    }

    /// Whether rows of any agent were left out.
    pub fn is_anything_left_out(&self) -> bool {
        self.is_anything_left_out
    }

    /// The rows left out since the last event, if there are any and an event is due.
    pub fn take_left_out(&mut self, name: &str, now: Instant) -> Option<LeftOut> {
        let Account {
            left_out,
            last_event,
            ..
        } = *self.accounts.get(name)?;
        if last_event.is_some_and(|last| now.duration_since(last) < EVENT_INTERVAL)
            || left_out == LeftOut::default()
        {
            return None;
        }
        let account = self.change(name, now);
        account.last_event = Some(now);
        account.left_out = LeftOut::default();
        Some(left_out)
    }

    pub fn mark(&self) -> usize {
        self.before.len()
    }

    pub fn undo_to(&mut self, mark: usize) {
        while self.before.len() > mark
            && let Some((name, account)) = self.before.pop()
        {
            self.accounts.insert(name, account);
        }
    }

    pub fn commit(&mut self) {
        self.before.clear();
        if self.accounts.len() > MANY_ACCOUNTS {
            let now = Instant::now();
            self.accounts.retain(|_, account| {
                account.refill(now);
                account.is_in_use(now)
            });
        }
    }

    /// Saves the account's state, refills it and returns it.
    fn change(&mut self, name: &str, now: Instant) -> &mut Account {
        let name = match self.accounts.get_key_value(name) {
            Some((name, _)) => Arc::clone(name),
            None => Arc::from(name),
        };
        let account = self.accounts.entry(Arc::clone(&name)).or_insert(Account {
            spent: 0,
            refilled: now,
            left_out: LeftOut::default(),
            last_event: None,
        });
        self.before.push((name, *account));
        account.refill(now);
        account
    }
}

impl Account {
    /// Whether it differs from a new account.
    fn is_in_use(&self, now: Instant) -> bool {
        let has_event = |last| now.duration_since(last) < EVENT_INTERVAL;
        self.spent > 0
            || self.left_out != LeftOut::default()
            || self.last_event.is_some_and(has_event)
    }

    fn refill(&mut self, now: Instant) {
        let passed = now.duration_since(self.refilled).as_millis();
        let rows = passed * u128::from(MAX_ROWS) / REFILL.as_millis();
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
        assert_eq!(taken(&mut rows, "a", MAX_ROWS + 10, start), MAX_ROWS);
        assert_eq!(taken(&mut rows, "b", 10, start), 10);
        assert_eq!(rows.take_left_out("b", start), None);
        let later = start + REFILL / 2;
        assert_eq!(taken(&mut rows, "a", MAX_ROWS, later), MAX_ROWS / 2);
        assert_eq!(taken(&mut rows, "a", MAX_ROWS, later + REFILL), MAX_ROWS);
    }

    #[test]
    fn one_event_a_minute() {
        let (mut rows, start) = (LastingRows::default(), Instant::now());
        taken(&mut rows, "a", MAX_ROWS, start);
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
            rows.take_left_out("a", start + EVENT_INTERVAL),
            Some(LeftOut {
                rows: 3,
                samples: 0
            })
        );
        assert_eq!(rows.take_left_out("a", start + EVENT_INTERVAL * 2), None);
    }

    #[test]
    fn a_rolled_back_transaction_costs_nothing() {
        let (mut rows, start) = (LastingRows::default(), Instant::now());
        for _ in 0..5 {
            let mark = rows.mark();
            assert!((0..MAX_ROWS).all(|_| rows.take("a", start)));
            rows.undo_to(mark);
        }
        assert_eq!(taken(&mut rows, "a", MAX_ROWS, start), MAX_ROWS);
    }

    #[test]
    fn a_rolled_back_transaction_counts_nothing_and_records_no_event() {
        let (mut rows, start) = (LastingRows::default(), Instant::now());
        taken(&mut rows, "a", MAX_ROWS, start);
        let expected = Some(LeftOut {
            rows: 1,
            samples: 3,
        });
        for _ in 0..3 {
            let mark = rows.mark();
            assert!(!rows.take("a", start));
            rows.leave_out_samples("a", 3, start);
            assert_eq!(rows.take_left_out("a", start), expected);
            rows.undo_to(mark);
        }
        assert_eq!(rows.take_left_out("a", start), None);
    }
}

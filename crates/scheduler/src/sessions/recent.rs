//! Activity of each agent within a minute or an hour: an agent that keeps attaching must fill neither the log nor the
//! database.

use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// Limit of attachments per minute. An agent without a connection retries with growing pauses, and restarts take
/// seconds.
const MAX_ATTACHES: u32 = 120;

/// Limit of recorded outages of an agent's disk per minute.
const MAX_SPOOL_OUTAGES: u32 = 10;

const HOUR: Duration = Duration::from_secs(3600);
/// Limit of attachments per hour with a new uid or another description: each leaves a row forever. An agent without a
/// persistent state directory has a new uid after each restart.
pub(super) const MAX_CHANGES: u32 = 100;

#[derive(Debug)]
struct Minute {
    began: Instant,
    attaches: u32,
    has_claimed: bool,
    has_shown_foreign_uid: bool,
    has_sent_rows_of_others: bool,
    spool_outages: u32,
}

#[derive(Debug)]
struct Hour {
    began: Instant,
    changes: u32,
}

/// By name.
#[derive(Debug, Default)]
pub(super) struct Recent {
    minutes: HashMap<String, Minute>,
    /// Agents that attached with a new uid or another description.
    hours: HashMap<String, Hour>,
}

impl Recent {
    fn minute(&mut self, name: &str, now: Instant) -> &mut Minute {
        self.minutes
            .retain(|_, minute| now.duration_since(minute.began) < MINUTE);
        self.minutes.entry(name.to_owned()).or_insert(Minute {
            began: now,
            attaches: 0,
            has_claimed: false,
            has_shown_foreign_uid: false,
            has_sent_rows_of_others: false,
            spool_outages: 0,
        })
    }

    /// Counts an attachment; `false` if it exceeds the limit.
    pub fn attach(&mut self, name: &str, now: Instant) -> bool {
        let minute = self.minute(name, now);
        minute.attaches = minute.attaches.saturating_add(1);
        minute.attaches <= MAX_ATTACHES
    }

    /// Counts an attachment with a new uid or another description; `false` if it exceeds the limit.
    pub fn change(&mut self, name: &str, now: Instant) -> bool {
        self.hours
            .retain(|_, hour| now.duration_since(hour.began) < HOUR);
        let hour = self.hours.entry(name.to_owned()).or_insert(Hour {
            began: now,
            changes: 0,
        });
        hour.changes = hour.changes.saturating_add(1);
        hour.changes <= MAX_CHANGES
    }

    /// Undoes the count of a change that was refused or could not be stored.
    pub fn undo_change(&mut self, name: &str) {
        if let Some(hour) = self.hours.get_mut(name) {
            hour.changes = hour.changes.saturating_sub(1);
        }
    }

    /// Whether this claim of other agents' tasks is the first of the minute.
    pub fn is_first_claim(&mut self, name: &str, now: Instant) -> bool {
        !std::mem::replace(&mut self.minute(name, now).has_claimed, true)
    }

    /// Whether these rows about another agent's host are the first of the minute.
    pub fn is_first_of_others(&mut self, name: &str, now: Instant) -> bool {
        !std::mem::replace(&mut self.minute(name, now).has_sent_rows_of_others, true)
    }

    /// Counts an outage of the agent's disk; `false` if it exceeds the limit.
    pub fn spool_outage(&mut self, name: &str, now: Instant) -> bool {
        let minute = self.minute(name, now);
        minute.spool_outages = minute.spool_outages.saturating_add(1);
        minute.spool_outages <= MAX_SPOOL_OUTAGES
    }

    /// Whether this uid of another name is the first of the minute.
    pub fn is_first_foreign_uid(&mut self, name: &str, now: Instant) -> bool {
        !std::mem::replace(&mut self.minute(name, now).has_shown_foreign_uid, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_an_hour_are_bounded() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let changes = |recent: &mut Recent, now| {
            let taken = (0..1000).filter(|_| recent.change("a", now));
            taken.count()
        };
        assert_eq!(changes(&mut recent, now), MAX_CHANGES as usize);
        assert_eq!(changes(&mut recent, now + MINUTE), 0);
        assert!(recent.change("b", now));
        assert_eq!(changes(&mut recent, now + HOUR), MAX_CHANGES as usize);
    }

    #[test]
    fn attachments_and_claims_of_a_minute_are_bounded() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let taken = (0..1000).filter(|_| recent.attach("a", now)).count();
        assert_eq!(taken, MAX_ATTACHES as usize);
        assert!(recent.attach("b", now));
        assert!(recent.attach("a", now + MINUTE));
        let outages = (0..1000).filter(|_| recent.spool_outage("a", now + MINUTE));
        assert_eq!(outages.count(), MAX_SPOOL_OUTAGES as usize);
        assert!(recent.is_first_claim("a", now + MINUTE));
        assert!(!recent.is_first_claim("a", now + MINUTE));
        assert!(recent.is_first_claim("a", now + MINUTE * 2));
    }
}

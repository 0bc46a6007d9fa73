//! What each agent has done within a minute: an agent that attaches without end gets neither the log nor the database.

use std::collections::HashMap;
use std::time::Duration;
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// One that has lost its connection tries again with growing pauses, and restarts take seconds.
const MAX_ATTACHES: u32 = 120;

/// Events of one agent that are stored; each is a row for ever. A soak in which every worker stalls sends some tens.
const MAX_EVENTS: usize = 2000;

#[derive(Debug)]
struct Minute {
    began: Instant,
    attaches: u32,
    has_claimed: bool,
    has_shown_foreign_uid: bool,
    events: usize,
    has_left_out: bool,
}

/// How many events of a batch are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventRoom {
    pub stored: usize,
    /// The first ones of this minute are left out.
    pub begins_to_leave_out: bool,
}

/// By name.
#[derive(Debug, Default)]
pub(super) struct Recent(HashMap<String, Minute>);

impl Recent {
    fn minute(&mut self, name: &str, now: Instant) -> &mut Minute {
        self.0
            .retain(|_, minute| now.duration_since(minute.began) < MINUTE);
        self.0.entry(name.to_owned()).or_insert(Minute {
            began: now,
            attaches: 0,
            has_claimed: false,
            has_shown_foreign_uid: false,
            events: 0,
            has_left_out: false,
        })
    }

    /// Counts an attachment; `false`: it is one too many.
    pub fn attach(&mut self, name: &str, now: Instant) -> bool {
        let minute = self.minute(name, now);
        minute.attaches = minute.attaches.saturating_add(1);
        minute.attaches <= MAX_ATTACHES
    }

    /// Room for events of a batch.
    pub fn room_for(&mut self, name: &str, events: usize, now: Instant) -> EventRoom {
        let minute = self.minute(name, now);
        let stored = events.min(MAX_EVENTS.saturating_sub(minute.events));
        minute.events = minute.events.saturating_add(stored);
        let leaves_out = stored < events;
        let had = minute.has_left_out;
        minute.has_left_out |= leaves_out;
        EventRoom {
            stored,
            begins_to_leave_out: leaves_out && !had,
        }
    }

    /// Whether this claim of tasks of others is the first of the minute.
    pub fn is_first_claim(&mut self, name: &str, now: Instant) -> bool {
        !std::mem::replace(&mut self.minute(name, now).has_claimed, true)
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
    fn events_without_end_are_left_out_until_the_minute_is_over() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let room = |stored, begins_to_leave_out| EventRoom {
            stored,
            begins_to_leave_out,
        };
        assert_eq!(recent.room_for("a", 1500, now), room(1500, false));
        assert_eq!(recent.room_for("a", 1500, now), room(500, true));
        assert_eq!(recent.room_for("a", 10_000, now), room(0, false));
        assert_eq!(recent.room_for("b", 10, now), room(10, false));
        assert_eq!(recent.room_for("a", 10, now + MINUTE), room(10, false));
    }

    #[test]
    fn attachments_and_claims_of_a_minute_are_bounded() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        let taken = (0..1000).filter(|_| recent.attach("a", now)).count();
        assert_eq!(taken, MAX_ATTACHES as usize);
        assert!(recent.attach("b", now));
        assert!(recent.attach("a", now + MINUTE));
        assert!(recent.is_first_claim("a", now + MINUTE));
        assert!(!recent.is_first_claim("a", now + MINUTE));
        assert!(recent.is_first_claim("a", now + MINUTE * 2));
    }
}

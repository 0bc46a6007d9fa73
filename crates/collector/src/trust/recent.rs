//! Counts the certificates issued to each holder within the last minute. A client that keeps requesting must not keep
//! the disk busy or fill the log and the database. Pure: the caller supplies the time.

use super::registry::{Holder, MAX_PER_MINUTE};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

const MINUTE: Duration = Duration::from_secs(60);

#[derive(Debug)]
struct Minute {
    began: Instant,
    given: u32,
}

/// By holder; holders without a request for a minute are dropped.
#[derive(Debug, Default)]
pub(super) struct RecentCertificates(HashMap<Holder, Minute>);

impl RecentCertificates {
    /// Whether another certificate may be issued to the holder.
    pub fn has_room(&self, holder: &Holder, now: Instant) -> bool {
        let minute = self.0.get(holder).filter(|minute| minute.goes_on(now));
        minute.is_none_or(|minute| minute.given < MAX_PER_MINUTE)
    }

    /// Counts an issued certificate.
    pub fn count(&mut self, holder: Holder, now: Instant) {
        self.0.retain(|_, minute| minute.goes_on(now));
        let minute = self.0.entry(holder).or_insert(Minute {
            began: now,
            given: 0,
        });
        minute.given = minute.given.saturating_add(1);
    }
}

impl Minute {
    fn goes_on(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.began) < MINUTE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_trust::Role;

    #[test]
    fn certificates_of_a_minute_are_bounded() {
        let (mut recent, now) = (RecentCertificates::default(), Instant::now());
        let holder = |name: &str| Holder {
            role: Role::Agent,
            name: name.to_owned(),
        };
        let given = |recent: &mut RecentCertificates, now| {
            let mut given = 0;
            while recent.has_room(&holder("a"), now) {
                recent.count(holder("a"), now);
                given += 1;
            }
            given
        };
        assert_eq!(given(&mut recent, now), MAX_PER_MINUTE);
        assert_eq!(given(&mut recent, now + MINUTE / 2), 0);
        assert!(recent.has_room(&holder("b"), now));
        let operator = Holder {
            role: Role::Operator,
            ..holder("a")
        };
        assert!(recent.has_room(&operator, now));
        assert_eq!(given(&mut recent, now + MINUTE), MAX_PER_MINUTE);
        assert_eq!(recent.0.len(), 1);
    }
}

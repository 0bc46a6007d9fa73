//! Limits by owner: places for connections, of which the newest keep theirs, and open calls over all connections.
//!
//! An owner is the holder of a certificate; all clients without a valid one are one owner together. Whoever opens more
//! connections than its owner may have closes that owner's oldest one, and nobody else's. An agent needs some
//! milliseconds to authenticate, so it gets through even while strangers open connections without end.

use crate::trust::Holder;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// `None`: clients without a valid certificate.
type Owner = Option<Holder>;

#[derive(Debug, Default)]
pub(super) struct Places(Mutex<OpenConnections>);

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    by_owner: HashMap<Owner, OfOwner>,
}

#[derive(Debug)]
struct OfOwner {
    /// In order of arrival.
    connections: BTreeMap<u64, CancellationToken>,
    calls: Arc<Semaphore>,
}

/// What one owner may have at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerLimits {
    pub connections: usize,
    /// Calls that take much memory.
    pub calls: usize,
}

/// One place; it is released on drop.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    owner: Owner,
    number: u64,
    /// The free calls of its owner.
    pub calls: Arc<Semaphore>,
    /// Signals that the connection has to end.
    pub ended: CancellationToken,
}

impl Places {
    fn open(&self) -> MutexGuard<'_, OpenConnections> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a place of an owner with these limits; `ended` is cancelled if it is lost. Returns it, and whether the
    /// owner's oldest connection was closed for it.
    pub fn enter(
        self: &Arc<Self>,
        owner: Owner,
        limits: OwnerLimits,
        ended: CancellationToken,
    ) -> (Place, bool) {
        let mut open = self.open();
        let number = open.next;
        open.next = number.wrapping_add(1);
        let own = open.by_owner.entry(owner.clone()).or_insert(OfOwner {
            connections: BTreeMap::new(),
            calls: Arc::new(Semaphore::new(limits.calls)),
        });
        let is_full = own.connections.len() >= limits.connections.max(1);
        if is_full && let Some((_, oldest)) = own.connections.pop_first() {
            oldest.cancel();
        }
        own.connections.insert(number, ended.clone());
        let calls = Arc::clone(&own.calls);
        let place = Place {
            places: Arc::clone(self),
            owner,
            number,
            calls,
            ended,
        };
        (place, is_full)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.places.open();
        if let Some(own) = open.by_owner.get_mut(&self.owner) {
            own.connections.remove(&self.number);
            if own.connections.is_empty() {
                open.by_owner.remove(&self.owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_trust::Role;

    #[test]
    fn the_newest_of_each_owner_keep_their_places() {
        let places = Arc::new(Places::default());
        let limits = OwnerLimits {
            connections: 2,
            calls: 1,
        };
        let enter = |owner: &Owner| places.enter(owner.clone(), limits, CancellationToken::new());
        let agent = |name: &str| {
            Some(Holder {
                role: Role::Agent,
                name: name.to_owned(),
            })
        };
        let (strangers, rogue, other) = (None, agent("rogue"), agent("other"));
        let (of_other, _) = enter(&other);
        for owner in [&strangers, &rogue] {
            let (first, full) = enter(owner);
            let (second, _) = enter(owner);
            assert!(!full && !first.ended.is_cancelled());
            let (third, full) = enter(owner);
            assert!(full && first.ended.is_cancelled());
            assert!(Arc::ptr_eq(&first.calls, &third.calls));
            assert!(!Arc::ptr_eq(&first.calls, &of_other.calls));
            assert!(!second.ended.is_cancelled() && !third.ended.is_cancelled());
            drop(third);
            let (_fourth, full) = enter(owner);
            assert!(!full && !second.ended.is_cancelled());
            // A connection that was closed before does not release another one's place.
            drop(first);
            assert!(enter(owner).1 && second.ended.is_cancelled());
        }
        assert!(!of_other.ended.is_cancelled());
        drop(of_other);
        assert!(places.open().by_owner.is_empty());
    }
}

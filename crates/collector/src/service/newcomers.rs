//! Places for connections without a valid certificate: the newest ones keep theirs.
//!
//! A client that opens many unfinished connections evicts its own older ones. An agent needs some milliseconds to
//! authenticate, so it gets through even then.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio_util::sync::CancellationToken;

#[derive(Debug)]
pub(super) struct Newcomers {
    most: usize,
    waiting: Mutex<WaitingNewcomers>,
}

/// Ordered by arrival.
#[derive(Debug, Default)]
struct WaitingNewcomers {
    next: u64,
    pushed_out: BTreeMap<u64, CancellationToken>,
}

/// One place; it is released on drop.
#[derive(Debug)]
pub(super) struct NewcomerPlace {
    room: Arc<Newcomers>,
    number: u64,
    /// Signals that another connection has taken this place.
    pub pushed_out: CancellationToken,
}

impl Newcomers {
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            waiting: Mutex::default(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingNewcomers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a place. Returns it, and whether the oldest connection was evicted for it.
    pub fn enter(self: &Arc<Self>) -> (NewcomerPlace, bool) {
        let mut waiting = self.waiting();
        let is_full = waiting.pushed_out.len() >= self.most;
        if is_full && let Some((_, oldest)) = waiting.pushed_out.pop_first() {
            oldest.cancel();
        }
        let number = waiting.next;
        waiting.next = number.wrapping_add(1);
        let pushed_out = CancellationToken::new();
        waiting.pushed_out.insert(number, pushed_out.clone());
        let place = NewcomerPlace {
            room: Arc::clone(self),
            number,
            pushed_out,
        };
        (place, is_full)
    }
}

impl Drop for NewcomerPlace {
    fn drop(&mut self) {
        self.room.waiting().pushed_out.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_have_the_room() {
        let room = Arc::new(Newcomers::new(2));
        let (first, full) = room.enter();
        let (second, _) = room.enter();
        assert!(!full && !first.pushed_out.is_cancelled());
        let (third, full) = room.enter();
        assert!(full && first.pushed_out.is_cancelled());
        assert!(!second.pushed_out.is_cancelled() && !third.pushed_out.is_cancelled());
        drop(third);
        let (_fourth, full) = room.enter();
        assert!(!full && !second.pushed_out.is_cancelled());
        // A connection that was evicted before does not release another one's place.
        drop(first);
        assert!(room.enter().1 && second.pushed_out.is_cancelled());
    }
}

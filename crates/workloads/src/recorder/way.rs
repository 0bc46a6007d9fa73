//! What a worker does on the way to an operation, or after its last one, and what is no part of any.
//!
//! It can hang like an operation, so it is shown like one while it lasts. Then the word from before is put back: when the
//! last operation began is told by operations alone.

use super::buffer::Link;
use super::{Began, Recorder};
use crate::clock::MonoNanos;
use crate::op::Op;
use std::sync::Arc;

impl Recorder {
    /// Carries out what stands before an `op`; nothing is recorded.
    pub fn on_the_way<T>(&self, op: Op, act: impl FnOnce() -> T) -> T {
        self.on_the_way_since(op, act).1
    }

    /// The same, and says since when, for who records that it failed.
    pub fn on_the_way_since<T>(&self, op: Op, act: impl FnOnce() -> T) -> (Began, T) {
        let before = self.link.shown();
        let now = MonoNanos::now();
        self.link.show(op, now);
        let done = act();
        self.link.show_again(before);
        (Began::at(now), done)
    }

    /// For what is left to be done when the recorder has finished.
    pub(crate) fn leaving(&self) -> Leaving {
        Leaving(Arc::clone(&self.link))
    }
}

/// A worker that has done its last operation, and closes what it had open.
#[derive(Debug)]
pub(crate) struct Leaving(Arc<Link>);

impl Leaving {
    /// Carries it out, shown as a close of what the worker was at last.
    pub(crate) fn during<T>(self, act: impl FnOnce() -> T) -> T {
        let Leaving(link) = self;
        let before = link.shown();
        link.leave_offset();
        link.show(Op::Close, MonoNanos::now());
        let done = act();
        link.show_again(before);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, pair};
    use super::*;

    #[test]
    fn a_worker_that_leaves_is_seen_where_it_was_last() {
        let (mut recorder, taker) = pair(Settings::of(&[Op::Read]));
        recorder.set_start(MonoNanos::now());
        recorder.place_at(7, 4096);
        let began = recorder.begin_as(Op::Read);
        recorder.end(Op::Read, began, 0);
        let leaving = recorder.leaving();
        recorder.finish();
        let seen = leaving.during(|| taker.in_flight());
        assert_eq!(
            seen.map(|seen| (seen.op, seen.file, seen.offset)),
            Some((Op::Close, Some(7), None))
        );
        assert_eq!(taker.in_flight(), None);
        assert_eq!(taker.last_begun(), Some(began.at));
        assert_eq!(taker.handed_over(), u64::MAX);
    }
}

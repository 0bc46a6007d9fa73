//! Untimed work: what a worker does before an operation, or after its last one, and is part of none.
//!
//! It can hang like an operation, so it is shown as in flight while it lasts. Then the earlier state is put back,
//! because only operations count for when the last one began.

use super::buffer::SharedSlot;
use super::{Began, Recorder};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use std::sync::Arc;

impl Recorder {
    /// Carries out what stands before an `op`; nothing is recorded.
    pub fn untimed<T>(&self, op: Op, act: impl FnOnce() -> T) -> T {
        self.untimed_since(op, act).1
    }

    /// The same, and says since when, for who records that it failed.
    pub fn untimed_since<T>(&self, op: Op, act: impl FnOnce() -> T) -> (Began, T) {
        let before = self.shared.shown();
        let now = MonoNanos::now();
        self.shared.show(op, now);
        let done = act();
        self.shared.show_again(before);
        (Began::at(now), done)
    }

    /// For what is left to be done when the recorder has finished.
    pub(crate) fn leaving(&self) -> Leaving {
        Leaving(Arc::clone(&self.shared))
    }
}

/// A worker that has done its last operation, and closes what it had open.
#[derive(Debug)]
pub(crate) struct Leaving(Arc<SharedSlot>);

impl Leaving {
    /// Carries it out, shown as a close of what the worker was at last.
    pub(crate) fn during<T>(self, act: impl FnOnce() -> T) -> T {
        let Leaving(shared) = self;
        let before = shared.shown();
        shared.leave_offset();
        shared.show(Op::Close, MonoNanos::now());
        let done = act();
        shared.show_again(before);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, pair};
    use super::*;

    #[test]
    fn a_worker_that_leaves_is_seen_where_it_was_last() {
        let (mut recorder, consumer) = pair(Settings::of(&[Op::Read]));
        recorder.set_start(MonoNanos::now());
        recorder.place_at(7, 4096);
        let began = recorder.begin_as(Op::Read);
        recorder.end(Op::Read, began, 0);
        let leaving = recorder.leaving();
        recorder.finish();
        let seen = leaving.during(|| consumer.in_flight());
        assert_eq!(
            seen.map(|seen| (seen.op, seen.file, seen.offset)),
            Some((Op::Close, Some(7), None))
        );
        assert_eq!(consumer.in_flight(), None);
        assert_eq!(consumer.last_begun(), Some(began.at));
        assert_eq!(consumer.handed_over(), u64::MAX);
    }
}

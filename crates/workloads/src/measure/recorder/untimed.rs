//! Untimed work of a worker before an operation or after its last one, which counts for no operation.
//!
//! It can hang like an operation, so it is shown as in flight while it lasts. Then the earlier state is restored,
//! because only operations count for the time of the last begin.

use super::buffer::SharedSlot;
use super::{Began, Recorder};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use std::sync::Arc;

impl Recorder {
    /// Does the work before an `op`, and records nothing.
    pub fn untimed<T>(&self, op: Op, act: impl FnOnce() -> T) -> T {
        self.untimed_since(op, act).1
    }

    /// As [`Recorder::untimed`], and returns when it began, for recording a failure.
    pub fn untimed_since<T>(&self, op: Op, act: impl FnOnce() -> T) -> (Began, T) {
        let now = MonoNanos::now();
        (Began::at(now), self.shared.untimed(op, now, act))
    }

    /// For work that remains when the recorder has finished.
    pub(crate) fn close_guard(&self) -> CloseGuard {
        CloseGuard(Arc::clone(&self.shared))
    }
}

/// A worker that has done its last operation and closes its files.
#[derive(Debug)]
pub(crate) struct CloseGuard(Arc<SharedSlot>);

impl CloseGuard {
    /// Runs `act`, shown as a close of the file that the worker used last.
    pub(crate) fn run<T>(self, act: impl FnOnce() -> T) -> T {
        let CloseGuard(shared) = self;
        shared.clear_offset();
        shared.untimed(Op::Close, MonoNanos::now(), act)
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
        recorder.set_position(7, 4096);
        let began = recorder.begin_as(Op::Read);
        recorder.end(Op::Read, began, 0);
        let close_guard = recorder.close_guard();
        recorder.finish();
        let seen = close_guard.run(|| consumer.in_flight());
        assert_eq!(
            seen.map(|seen| (seen.op, seen.file, seen.offset)),
            Some((Op::Close, Some(7), None))
        );
        assert_eq!(consumer.in_flight(), None);
        assert_eq!(consumer.last_begun(), Some(began.at));
        assert_eq!(consumer.handed_over(), u64::MAX);
    }
}

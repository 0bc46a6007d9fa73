//! What a worker does on the way to an operation, or after its last one, and what is no part of any.
//!
//! It can hang like an operation, so it is shown like one while it lasts. Then the word from before is put back: when the
//! last operation began is told by operations alone.

use super::{Began, Recorder};
use crate::clock::MonoNanos;
use crate::op::Op;

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
}

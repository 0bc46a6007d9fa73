//! Where an operation's two clocks start.

use crate::measure::clock::MonoNanos;

/// An operation that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    /// When it was issued: service time runs from here.
    pub at: MonoNanos,
    /// When it was due: response time runs from here. The same as `at` when the load is not paced.
    pub intended: MonoNanos,
}

impl Began {
    /// Issued when it was due.
    #[inline(always)]
    pub fn at(now: MonoNanos) -> Began {
        Began {
            at: now,
            intended: now,
        }
    }
}

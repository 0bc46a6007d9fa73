//! The start of an operation's service and response times.

use crate::measure::clock::MonoNanos;

/// An operation that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Began {
    /// When it was issued; service time starts here.
    pub at: MonoNanos,
    /// When it was due; response time starts here. Same as `at` if the load is not paced.
    pub intended: MonoNanos,
}

impl Began {
    /// An operation issued when it was due.
    #[inline(always)]
    pub fn at(now: MonoNanos) -> Began {
        Began {
            at: now,
            intended: now,
        }
    }
}

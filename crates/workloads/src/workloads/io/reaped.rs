//! Completions that were taken from a ring, each with the clock reading that was taken with it.
//!
//! Invariant: a completion is dated after it happened, and before anything that the worker does with those beside it.

use super::ring::Ring;
use crate::engine::author::*;
use std::collections::VecDeque;

/// Where completions come from.
pub(super) trait Completions {
    /// How many there are now.
    fn ended(&mut self) -> usize;
    /// The slot of one of them, and what a system call would have returned.
    fn reap(&mut self) -> Option<(u16, i32)>;
}

impl Completions for Ring {
    #[inline]
    fn ended(&mut self) -> usize {
        Ring::ended(self)
    }

    #[inline]
    fn reap(&mut self) -> Option<(u16, i32)> {
        Ring::reap(self)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Completion {
    pub slot: u16,
    /// What a system call would have returned.
    pub result: i32,
    /// When it was seen, or has happened where that is known.
    pub at: MonoNanos,
}

/// In the order in which they came.
#[derive(Debug)]
pub(super) struct Reaped(VecDeque<Completion>);

impl Reaped {
    /// With room for each slot, which has one entry with the kernel at most.
    pub(super) fn new(depth: u16) -> Reaped {
        Reaped(VecDeque::with_capacity(depth.into()))
    }

    /// Takes what is there, with one reading of the clock. One that comes after the reading is left for the next.
    #[inline]
    pub(super) fn take_from(
        &mut self,
        ring: &mut impl Completions,
        now: impl FnOnce() -> MonoNanos,
    ) {
        let ended = ring.ended();
        if ended == 0 {
            return;
        }
        let at = now();
        let there = std::iter::from_fn(|| ring.reap()).take(ended);
        self.0
            .extend(there.map(|(slot, result)| Completion { slot, result, at }));
    }

    /// Adds one that bears its own date.
    #[inline]
    pub(super) fn push(&mut self, completion: Completion) {
        self.0.push_back(completion);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline]
    pub(super) fn next(&mut self) -> Option<Completion> {
        self.0.pop_front()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;
    use std::cell::Cell;
    use std::time::Duration;

    /// A ring whose operations end at known instants, in the order of their slots.
    struct Device<'a> {
        clock: &'a Cell<MonoNanos>,
        ends: VecDeque<MonoNanos>,
        next: u16,
    }

    impl Completions for Device<'_> {
        fn ended(&mut self) -> usize {
            let now = self.clock.get();
            self.ends.iter().take_while(|at| **at <= now).count()
        }

        fn reap(&mut self) -> Option<(u16, i32)> {
            let now = self.clock.get();
            self.ends.front().filter(|at| **at <= now)?;
            self.ends.pop_front();
            self.next += 1;
            Some((self.next - 1, 0))
        }
    }

    fn pass(clock: &Cell<MonoNanos>, nanos: u64) -> MonoNanos {
        let now = clock.get().saturating_add(Duration::from_nanos(nanos));
        clock.set(now);
        now
    }

    proptest! {
        /// Reading the clock takes 20 ns, and checking a piece of a block 5 us: no completion is dated before it
        /// happened, or later than a piece after it.
        #[test]
        fn what_is_done_with_one_completion_dates_no_other(
            gaps in proptest::collection::vec(0_u64..20_000, 1..64),
            pieces in 0_u64..16,
        ) {
            let clock = Cell::new(MonoNanos(1));
            let mut at = MonoNanos(1);
            let ends: Vec<MonoNanos> = gaps
                .iter()
                .map(|gap| {
                    at = at.saturating_add(Duration::from_nanos(*gap));
                    at
                })
                .collect();
            let mut device = Device { clock: &clock, ends: ends.clone().into(), next: 0 };
            let mut reaped = Reaped::new(64);
            let mut dates = Vec::new();
            while dates.len() < ends.len() {
                pass(&clock, 1_000);
                reaped.take_from(&mut device, || pass(&clock, 20));
                while let Some(completion) = reaped.next() {
                    for _ in 0..pieces {
                        pass(&clock, 5_000);
                        reaped.take_from(&mut device, || pass(&clock, 20));
                    }
                    dates.push(completion);
                }
            }
            for (end, (slot, seen)) in ends.iter().zip((0_u16..).zip(&dates)) {
                prop_assert_eq!(seen.slot, slot);
                prop_assert!(*end <= seen.at, "{end:?} {seen:?}");
                prop_assert!(seen.at.nanos_since(*end) <= 5_040, "{end:?} {seen:?}");
            }
        }
    }
}

//! Completions reaped from a ring, each with the clock reading that was taken with it.
//!
//! Invariant: a completion is dated after it happened, and before the worker handles any completion reaped with it.

use super::ring::Ring;
use crate::engine::author::*;
use std::collections::VecDeque;

/// A source of completions.
pub(super) trait Completions {
    /// Completions available now.
    fn ended(&mut self) -> usize;
    /// Slot of one completion, and the result in the form of a system call's.
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
    /// The result in the form of a system call's.
    pub result: i32,
    /// When it happened if that is known, otherwise when it was seen.
    pub at: MonoNanos,
}

/// Completions in the order of arrival.
#[derive(Debug)]
pub(super) struct Reaped(VecDeque<Completion>);

impl Reaped {
    /// Allocates room for one completion per slot, the most that the kernel can hold.
    pub(super) fn new(depth: u16) -> Reaped {
        Reaped(VecDeque::with_capacity(depth.into()))
    }

    /// Takes the available completions with one clock reading; later ones are left for the next call.
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

    /// Adds a completion that is already dated.
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
        /// Reading the clock takes 20 ns, and checking a piece of a block 5 us. A completion is dated at most one piece
        /// late, and never before it happened.
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

//! Selects the daemons for a whole reading at each sample. A brief reading costs a third. If many daemons are awake,
//! each one is read whole every few samples: next are those after the last pid that was. Pure bookkeeping, without
//! files.
//!
//! Each of n daemons is read whole at least once in n / [`WHOLE_PER_SAMPLE`] samples, rounded up. At a mark all are
//! read whole, in a burst none.

use super::ticker::Trigger;

/// A host with at most this many awake daemons has all figures of each at every sample.
pub(crate) const WHOLE_PER_SAMPLE: usize = 40;

#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    /// The last pid that was read whole.
    last: i32,
    left: usize,
}

impl RoundRobin {
    /// Starts a sample. Returns the pid after which to begin; lower pids come last.
    pub(crate) fn begin(&mut self, trigger: Trigger) -> i32 {
        self.left = match trigger {
            Trigger::Burst => 0,
            Trigger::Tick => WHOLE_PER_SAMPLE,
            Trigger::Mark => usize::MAX,
        };
        self.last
    }

    /// Takes a turn for this pid. Returns whether one was left.
    pub(crate) fn take(&mut self, pid: i32) -> bool {
        let Some(left) = self.left.checked_sub(1) else {
            return false;
        };
        self.left = left;
        self.last = pid;
        true
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// One sample over ascending pids; returns those that were read whole.
    fn ticker(
        round_robin: &mut RoundRobin,
        pids: &BTreeSet<i32>,
        trigger: Trigger,
    ) -> BTreeSet<i32> {
        let last = round_robin.begin(trigger);
        let after = pids.range(last.saturating_add(1)..);
        let around = after.chain(pids.range(..=last));
        around
            .copied()
            .filter(|pid| round_robin.take(*pid))
            .collect()
    }

    #[test]
    fn few_have_it_at_every_beat() {
        let mut round_robin = RoundRobin::default();
        let pids: BTreeSet<i32> = (1..=40).collect();
        for _ in 0..5 {
            assert_eq!(ticker(&mut round_robin, &pids, Trigger::Tick), pids);
        }
    }

    #[test]
    fn many_have_it_in_turn_and_all_at_a_mark() {
        let mut round_robin = RoundRobin::default();
        let pids: BTreeSet<i32> = (1..=200).collect();
        let fifth = |number: i32| (number * 40 + 1..=number * 40 + 40).collect::<BTreeSet<i32>>();
        for number in [0, 1, 2, 3, 4, 0, 1] {
            assert_eq!(
                ticker(&mut round_robin, &pids, Trigger::Tick),
                fifth(number)
            );
        }
        assert_eq!(ticker(&mut round_robin, &pids, Trigger::Mark), pids);
    }

    proptest! {
        /// A daemon that stays is read whole again within the bound, however others come and go.
        #[test]
        fn the_wait_is_bounded(
            stays in 1i32..1000,
            others in prop::collection::vec(prop::collection::btree_set(1i32..1000, 0..300), 5..40),
        ) {
            let mut round_robin = RoundRobin::default();
            let mut waited = 0;
            for mut pids in others {
                pids.insert(stays);
                let had = ticker(&mut round_robin, &pids, Trigger::Tick);
                prop_assert!(had.len() == pids.len().min(WHOLE_PER_SAMPLE));
                waited = if had.contains(&stays) { 0 } else { waited + 1 };
                // Each sample advances by at least this many of the thousand possible pids.
                prop_assert!(waited <= 1000 / WHOLE_PER_SAMPLE, "waited for {waited} beats");
            }
        }
    }
}

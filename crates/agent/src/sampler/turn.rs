//! Who is read whole at a beat. A brief reading costs a third, so with many daemons awake each has its turn every few beats:
//! the ones after the last that had theirs, by pid. Pure bookkeeping; it knows nothing of files.
//!
//! Of n that want it, each gets it at least once in n / [`WHOLE_PER_BEAT`] beats, rounded up. A mark is everybody's turn.

use super::beat::Call;

/// A host with no more daemons awake has all figures of each at every beat.
pub(crate) const WHOLE_PER_BEAT: usize = 40;

#[derive(Debug, Default)]
pub(crate) struct Turn {
    /// The last pid that had its turn.
    last: i32,
    left: usize,
}

impl Turn {
    /// Begins a beat; returns the pid after which to begin, to go on with the lowest ones in the end.
    pub(crate) fn begin(&mut self, call: Call) -> i32 {
        self.left = match call {
            Call::Tick => WHOLE_PER_BEAT,
            Call::Mark => usize::MAX,
        };
        self.last
    }

    /// Takes the turn of a pid that wants it, if there is one left.
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

    /// One beat over ascending pids that all want it; returns who got it.
    fn beat(turn: &mut Turn, pids: &BTreeSet<i32>, call: Call) -> BTreeSet<i32> {
        let last = turn.begin(call);
        let after = pids.range(last.saturating_add(1)..);
        let around = after.chain(pids.range(..=last));
        around.copied().filter(|pid| turn.take(*pid)).collect()
    }

    #[test]
    fn few_have_it_at_every_beat() {
        let mut turn = Turn::default();
        let pids: BTreeSet<i32> = (1..=40).collect();
        for _ in 0..5 {
            assert_eq!(beat(&mut turn, &pids, Call::Tick), pids);
        }
    }

    #[test]
    fn many_have_it_in_turn_and_all_at_a_mark() {
        let mut turn = Turn::default();
        let pids: BTreeSet<i32> = (1..=200).collect();
        let fifth = |number: i32| (number * 40 + 1..=number * 40 + 40).collect::<BTreeSet<i32>>();
        for number in [0, 1, 2, 3, 4, 0, 1] {
            assert_eq!(beat(&mut turn, &pids, Call::Tick), fifth(number));
        }
        assert_eq!(beat(&mut turn, &pids, Call::Mark), pids);
    }

    proptest! {
        /// Whoever stays has it again in time, however others come and go.
        #[test]
        fn nobody_waits_longer(
            stays in 1i32..1000,
            others in prop::collection::vec(prop::collection::btree_set(1i32..1000, 0..300), 5..40),
        ) {
            let mut turn = Turn::default();
            let mut waited = 0;
            for mut pids in others {
                pids.insert(stays);
                let had = beat(&mut turn, &pids, Call::Tick);
                prop_assert!(had.len() == pids.len().min(WHOLE_PER_BEAT));
                waited = if had.contains(&stays) { 0 } else { waited + 1 };
                // Each beat goes on by at least so many of the thousand pids that there are.
                prop_assert!(waited <= 1000 / WHOLE_PER_BEAT, "waited for {waited} beats");
            }
        }
    }
}

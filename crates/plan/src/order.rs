//! The order of cells within a repeat: as written in the plan, with the targets in turns, or random from a seed.
//!
//! Pure: a seed always gives the same order, so that a resumed run continues in its original order. The cells of all
//! phases are shuffled together. The targets of a cell stay adjacent, so that two compared targets are measured close
//! in time; their order within the cell is random too.

use benchmesh_workloads::random::Random;

/// The order in which the cells of each repeat are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As written in the plan.
    #[default]
    Plan,
    /// As written in the plan, but the targets of a cell in reverse in every second repeat: what changes steadily with
    /// time then affects all of them alike.
    Alternate,
    /// Random, with a new order for each repeat. With `None`, the seed is drawn when the run is queued.
    Random { seed: Option<u32> },
}

impl Order {
    /// The seed of a random order, if it has one.
    pub fn seed(self) -> Option<u32> {
        match self {
            Self::Plan | Self::Alternate => None,
            Self::Random { seed } => seed,
        }
    }

    /// Adds the seed to a random order that has none.
    #[must_use]
    pub fn drawn(self, draw: impl FnOnce() -> u32) -> Self {
        match self {
            Self::Random { seed: None } => Self::Random { seed: Some(draw()) },
            other => other,
        }
    }

    /// The random source for the order of the `repeat`th repeat. A plan that is only shown has no seed and uses 0.
    pub(super) fn of_repeat(self, repeat: u32) -> Draw {
        match self {
            Self::Plan => Draw::AsWritten,
            Self::Alternate if repeat.is_multiple_of(2) => Draw::TargetsReversed,
            Self::Alternate => Draw::AsWritten,
            Self::Random { seed } => Draw::Random(Random::of(&[
                u64::from(seed.unwrap_or(0)),
                u64::from(repeat),
            ])),
        }
    }
}

/// The order of one repeat.
pub(super) enum Draw {
    AsWritten,
    TargetsReversed,
    Random(Random),
}

impl Draw {
    /// Orders the cells of the repeat.
    pub(super) fn order_cells<T>(&mut self, cells: &mut [T]) {
        if let Self::Random(random) = self {
            shuffle(random, cells);
        }
    }

    /// Orders the targets of a cell.
    pub(super) fn order_targets<T>(&mut self, targets: &mut [T]) {
        match self {
            Self::AsWritten => {}
            Self::TargetsReversed => targets.reverse(),
            Self::Random(random) => shuffle(random, targets),
        }
    }
}

/// Fisher and Yates' shuffle, from the end.
fn shuffle<T>(random: &mut Random, things: &mut [T]) {
    for left in (2..=things.len()).rev() {
        let bound = u64::try_from(left).unwrap_or(u64::MAX);
        let chosen = usize::try_from(random.below(bound)).unwrap_or(0);
        things.swap(left - 1, chosen);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(order: Order, repeat: u32, count: u32) -> Vec<u32> {
        let mut things: Vec<u32> = (0..count).collect();
        order.of_repeat(repeat).order_cells(&mut things);
        things
    }

    #[test]
    fn a_seed_is_an_order() {
        let seven = Order::Random { seed: Some(7) };
        // Fixed values: runs of earlier versions must resume in the order in which they began.
        assert_eq!(shuffled(seven, 1, 6), [1, 5, 4, 2, 0, 3]);
        assert_eq!(shuffled(seven, 1, 6), shuffled(seven, 1, 6));
        assert_ne!(shuffled(seven, 1, 20), shuffled(seven, 2, 20));
        let eight = Order::Random { seed: Some(8) };
        assert_ne!(shuffled(seven, 1, 20), shuffled(eight, 1, 20));
        assert_eq!(shuffled(Order::Plan, 1, 4), [0, 1, 2, 3]);
        for count in 0..3 {
            let mut all = shuffled(seven, 1, count);
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>());
        }
    }

    #[test]
    fn targets_alternate() {
        let targets = |repeat| {
            let mut targets = ["a", "b", "c"];
            Order::Alternate
                .of_repeat(repeat)
                .order_targets(&mut targets);
            targets
        };
        assert_eq!(targets(1), ["a", "b", "c"]);
        assert_eq!(targets(2), ["c", "b", "a"]);
        assert_eq!(targets(3), ["a", "b", "c"]);
        assert_eq!(shuffled(Order::Alternate, 2, 4), [0, 1, 2, 3]);
    }

    #[test]
    fn every_order_is_as_likely() {
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..6000 {
            let order = Order::Random { seed: Some(seed) };
            *seen.entry(shuffled(order, 1, 3)).or_insert(0_u32) += 1;
        }
        assert_eq!(seen.len(), 6);
        assert!(
            seen.values().all(|count| (850..1150).contains(count)),
            "{seen:?}"
        );
    }
}

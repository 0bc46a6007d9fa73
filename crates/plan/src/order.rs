//! The order of cells within a repeat: as the plan writes them, or at random from a seed.
//!
//! Pure: one seed gives one order for ever, so that a run that is taken up again goes on in the order it began with.
//! Cells of all phases are drawn together, each cell's targets beside each other, so that a comparison of two targets
//! stays one of neighbours in time; which of them comes first is drawn too.

use benchmesh_workloads::random::Random;

/// In which order the cells of each repeat are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As the plan writes them.
    #[default]
    Plan,
    /// At random, each repeat in an order of its own; `None`: the seed is drawn when the run is queued.
    Random { seed: Option<u32> },
}

impl Order {
    /// The seed that it goes by, if it is random and has one.
    pub fn seed(self) -> Option<u32> {
        match self {
            Self::Plan => None,
            Self::Random { seed } => seed,
        }
    }

    /// The same with a seed, when it is random and has none.
    #[must_use]
    pub fn drawn(self, draw: impl FnOnce() -> u32) -> Self {
        match self {
            Self::Random { seed: None } => Self::Random { seed: Some(draw()) },
            other => other,
        }
    }

    /// What the `repeat`th repeat draws its order with. Without a seed that is seed 0: a plan that is only shown.
    pub(super) fn of_repeat(self, repeat: u32) -> Draw {
        Draw(match self {
            Self::Plan => None,
            Self::Random { seed } => Some(Random::of(&[
                u64::from(seed.unwrap_or(0)),
                u64::from(repeat),
            ])),
        })
    }
}

/// One repeat's draws.
pub(super) struct Draw(Option<Random>);

impl Draw {
    /// Fisher and Yates' shuffle, from the end.
    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        let Some(random) = &mut self.0 else { return };
        for left in (2..=things.len()).rev() {
            let bound = u64::try_from(left).unwrap_or(u64::MAX);
            let chosen = usize::try_from(random.below(bound)).unwrap_or(0);
            things.swap(left - 1, chosen);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(order: Order, repeat: u32, count: u32) -> Vec<u32> {
        let mut things: Vec<u32> = (0..count).collect();
        order.of_repeat(repeat).shuffle(&mut things);
        things
    }

    #[test]
    fn a_seed_is_an_order() {
        let seven = Order::Random { seed: Some(7) };
        // Written down once: runs of earlier versions are taken up in the order they began with.
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

//! In which order the blocks of a file come.

use crate::random::Random;
use crate::shuffle::Shuffle;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Sequential,
    /// Random, each block once per pass.
    EachOnce,
    /// Random, each draw independent of the others.
    Uniform,
}

/// The numbers of the blocks, pass by pass, in constant memory.
#[derive(Debug)]
pub(super) struct Blocks {
    order: Order,
    count: u64,
    /// Blocks of this pass that have come.
    done: u64,
    random: Random,
    shuffle: Shuffle,
}

impl Blocks {
    pub(super) fn new(order: Order, count: u64, mut random: Random) -> Blocks {
        let shuffle = Shuffle::new(count, &mut random);
        Blocks {
            order,
            count,
            done: 0,
            random,
            shuffle,
        }
    }

    /// The next block of this pass; `None` at its end, after which the next pass begins.
    #[inline]
    pub(super) fn next_of_pass(&mut self) -> Option<u64> {
        if self.done == self.count {
            self.done = 0;
            self.shuffle = Shuffle::new(self.count, &mut self.random);
            return None;
        }
        let position = self.done;
        self.done += 1;
        Some(match self.order {
            Order::Sequential => position,
            Order::EachOnce => self.shuffle.place_of(position),
            Order::Uniform => self.random.below(self.count),
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    fn pass(blocks: &mut Blocks) -> Vec<u64> {
        std::iter::from_fn(|| blocks.next_of_pass()).collect()
    }

    proptest! {
        #[test]
        fn each_block_comes_once_per_pass(count in 1_u64..5000, seed: u64) {
            let mut blocks = Blocks::new(Order::EachOnce, count, Random::new(seed));
            for _ in 0..2 {
                let mut seen = pass(&mut blocks);
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..count).collect::<Vec<_>>());
            }
        }

        #[test]
        fn uniform_blocks_are_within_the_file(count in 1_u64..5000, seed: u64) {
            let mut blocks = Blocks::new(Order::Uniform, count, Random::new(seed));
            let seen = pass(&mut blocks);
            prop_assert_eq!(seen.len() as u64, count);
            prop_assert!(seen.iter().all(|block| *block < count));
        }
    }

    #[test]
    fn the_order_is_random() {
        let count = 100_000;
        let mut blocks = Blocks::new(Order::EachOnce, count, Random::new(1));
        let (first, second) = (pass(&mut blocks), pass(&mut blocks));
        assert_ne!(first, second);
        // The distance of two independent uniform numbers is a third of the range on average.
        let distance: u64 = first
            .iter()
            .zip(first.iter().skip(1))
            .map(|(a, b)| a.abs_diff(*b))
            .sum();
        let mean = distance as f64 / count as f64 / count as f64;
        assert!((mean - 1.0 / 3.0).abs() < 0.01, "{mean}");
        let in_order = first
            .iter()
            .zip(first.iter().skip(1))
            .filter(|(a, b)| *a + 1 == **b);
        assert!(in_order.count() < 20);
    }

    #[test]
    fn huge_files_have_an_order_too() {
        let shuffle = Shuffle::new(1 << 40, &mut Random::new(3));
        assert!((0..1000).all(|position| shuffle.place_of(position) < 1 << 40));
        let all = Shuffle::new(u64::MAX, &mut Random::new(3));
        assert!(all.place_of(5) < u64::MAX);
    }
}

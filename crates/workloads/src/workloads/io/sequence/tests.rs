#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::params::KeyValue;
use proptest::prelude::*;

fn pattern(order: BlockOrder, blocks: u64) -> Pattern {
    Pattern {
        direction: Direction::Read,
        order,
        sizes: Sizes::one(512),
        offset: 1024,
        region: blocks * 512,
        passes: Some(1),
        io_size: None,
    }
}

fn all(pattern: &Pattern, seed: u64) -> Vec<NextIo> {
    shard(pattern, Shard::ONLY, seed)
}

fn shard(pattern: &Pattern, shard: Shard, seed: u64) -> Vec<NextIo> {
    let mut sequence = Sequence::new(pattern, shard, Random::new(seed));
    std::iter::from_fn(|| sequence.next()).collect()
}

/// Block numbers, for operations of one size.
fn blocks(next: &[NextIo]) -> Vec<u64> {
    next.iter().map(|next| (next.offset - 1024) / 512).collect()
}

fn mixed_sizes() -> Sizes {
    Sizes::read(&"512/50:1024/30:4096/20".into()).unwrap()
}

const ORDERS: [BlockOrder; 7] = [
    BlockOrder::Forward,
    BlockOrder::Backward,
    BlockOrder::Strided(3),
    BlockOrder::Same,
    BlockOrder::EachOnce,
    BlockOrder::Drawn(Distribution::Even),
    BlockOrder::Drawn(Distribution::Zipf(1.1)),
];

#[test]
fn orders_are_what_they_say() {
    let check = |order, expected: &[u64]| {
        assert_eq!(blocks(&all(&pattern(order, 7), 1)), expected, "{order:?}");
    };
    check(BlockOrder::Forward, &[0, 1, 2, 3, 4, 5, 6]);
    check(BlockOrder::Backward, &[6, 5, 4, 3, 2, 1, 0]);
    check(BlockOrder::Strided(3), &[0, 3, 6, 1, 4, 2, 5]);
    check(BlockOrder::Strided(100), &[0, 1, 2, 3, 4, 5, 6]);
    check(BlockOrder::Same, &[0; 7]);
}

proptest! {
    #[test]
    fn each_block_comes_once_per_pass(count in 1_u64..3000, stride in 2_u64..50, seed: u64) {
        for order in [BlockOrder::Forward, BlockOrder::Backward, BlockOrder::Strided(stride), BlockOrder::EachOnce] {
            let twice = Pattern { passes: Some(2), ..pattern(order, count) };
            let come = blocks(&all(&twice, seed));
            prop_assert_eq!(come.len() as u64, 2 * count);
            for pass in come.chunks(usize::try_from(count).unwrap()) {
                let mut seen = pass.to_vec();
                seen.sort_unstable();
                prop_assert_eq!(seen, (0..count).collect::<Vec<_>>(), "{:?}", order);
            }
        }
    }

    #[test]
    fn a_pass_moves_its_region_and_stays_within(
        count in 8_u64..3000, percent in 0_u32..=100, passes in 1_u64..4, seed: u64,
    ) {
        for order in ORDERS {
            for sizes in [Sizes::one(512), mixed_sizes()] {
                if sizes.is_mix() && matches!(order, BlockOrder::EachOnce | BlockOrder::Strided(_) | BlockOrder::Same) {
                    continue;
                }
                let pattern = Pattern {
                    direction: Direction::Mixed(percent),
                    sizes,
                    passes: Some(passes),
                    ..pattern(order, count)
                };
                let next = all(&pattern, seed);
                let bytes: u64 = next.iter().map(|next| next.bytes).sum();
                prop_assert_eq!(bytes, pattern.region * passes);
                for next in &next {
                    prop_assert!(next.bytes > 0 && next.bytes % 512 == 0 && next.offset % 512 == 0);
                    prop_assert!(next.offset >= 1024);
                    prop_assert!(next.offset + next.bytes <= 1024 + pattern.region);
                    prop_assert!(percent != 0 || next.writes);
                    prop_assert!(percent != 100 || !next.writes);
                }
            }
        }
    }

    #[test]
    fn threads_that_share_a_sequence_do_it_together(count in 8_u64..500, of in 2_u32..9, seed: u64) {
        for order in ORDERS {
            let pattern = Pattern {
                direction: Direction::Mixed(40),
                passes: Some(2),
                ..pattern(order, count)
            };
            let whole = all(&pattern, seed);
            let mut shards: Vec<_> = (0..of)
                .map(|index| shard(&pattern, Shard { index, of }, seed).into_iter())
                .collect();
            let mut together = Vec::new();
            let mut turn = 0;
            while let Some(next) = shards[turn].next() {
                together.push(next);
                turn = (turn + 1) % shards.len();
            }
            prop_assert_eq!(together, whole);
        }
    }

    #[test]
    fn an_amount_ends_it_within_a_pass_and_after_several(count in 8_u64..500, amount in 1_u64..2000) {
        let pattern = Pattern {
            passes: None,
            io_size: Some(amount * 512),
            ..pattern(BlockOrder::Forward, count)
        };
        let next = all(&pattern, 1);
        let expected: Vec<u64> = (0..amount).map(|block| block % count).collect();
        prop_assert_eq!(blocks(&next), expected);
    }
}

#[test]
fn the_order_is_random() {
    let count = 100_000;
    let twice = Pattern {
        passes: Some(2),
        ..pattern(BlockOrder::EachOnce, count)
    };
    let come = blocks(&all(&twice, 1));
    let (first, second) = come.split_at(come.len() / 2);
    assert_ne!(first, second);
    // Two independent uniform numbers differ by a third of the range on average.
    let pairs = || first.iter().zip(first.iter().skip(1));
    let distance: u64 = pairs().map(|(a, b)| a.abs_diff(*b)).sum();
    let mean = distance as f64 / count as f64 / count as f64;
    assert!((mean - 1.0 / 3.0).abs() < 0.01, "{mean}");
    assert!(pairs().filter(|(a, b)| *a + 1 == **b).count() < 20);
}

#[test]
fn a_mix_reads_its_share_and_each_direction_goes_on_by_itself() {
    let mixed = Pattern {
        direction: Direction::Mixed(70),
        ..pattern(BlockOrder::Forward, 100_000)
    };
    let next = all(&mixed, 5);
    let (writes, reads): (Vec<NextIo>, Vec<NextIo>) = next.iter().partition(|next| next.writes);
    assert!((69_000..71_000).contains(&reads.len()), "{}", reads.len());
    for direction in [writes, reads] {
        let come = blocks(&direction);
        assert_eq!(come, (0..come.len() as u64).collect::<Vec<_>>());
    }
}

#[test]
fn few_blocks_get_most_under_zipf_and_they_are_spread() {
    let zipf = Pattern {
        passes: Some(20),
        ..pattern(BlockOrder::Drawn(Distribution::Zipf(1.1)), 10_000)
    };
    let mut times = vec![0_u32; 10_000];
    for block in blocks(&all(&zipf, 5)) {
        times[usize::try_from(block).unwrap()] += 1;
    }
    let mut ranked: Vec<usize> = (0..times.len()).collect();
    ranked.sort_by_key(|block| std::cmp::Reverse(times[*block]));
    let hot: u32 = ranked[..100].iter().map(|block| times[*block]).sum();
    // The first 1 % of 10000 ranks has 64.8 % of the weight at 1.1.
    assert!(
        (0.635..0.66).contains(&(f64::from(hot) / 200_000.0)),
        "{hot}"
    );
    let halves = ranked[..100].iter().filter(|block| **block < 5000).count();
    assert!((30..70).contains(&halves), "{halves}");
}

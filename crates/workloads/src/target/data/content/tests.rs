#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::target::data::{FoundData, Mismatch};
use flate2::{Compression, write::ZlibEncoder};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io::Write;

fn content(params: &Value, seed: u64) -> Content {
    Content::new(DataSpec::of(params.as_object().unwrap()).unwrap(), seed)
}

/// Consecutive blocks of one file, in the order in which a load writes them.
fn blocks(content: &Content, bytes: usize, count: u64) -> Vec<Vec<u8>> {
    let mut block = vec![1; bytes];
    content.fill(&mut block);
    (0..count)
        .map(|number| {
            content.place(&mut block, 3, number * bytes as u64, 1);
            block.clone()
        })
        .collect()
}

/// All mismatches of a block of this file and offset.
fn checked(
    content: &Content,
    block: &[u8],
    (file, offset): (u64, u64),
    generations: RangeInclusive<u64>,
) -> Mismatches {
    let mut wrong = Mismatches::default();
    let mut generations = generations;
    content.check(block, file, offset, &mut generations, &mut wrong);
    wrong
}

/// The share of a block that remains when it is compressed alone.
fn left(block: &[u8]) -> f64 {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(block).unwrap();
    encoder.finish().unwrap().len() as f64 / block.len() as f64
}

#[test]
fn blocks_compress_as_far_as_asked() {
    for compress in [0, 30, 50, 90, 100] {
        let expected = 1.0 - f64::from(compress) / 100.0;
        for verify in [false, true] {
            let content = content(
                &json!({"data": {"compress": compress}, "verify": verify}),
                1,
            );
            for bytes in [4096, 64 << 10] {
                for block in blocks(&content, bytes, 4) {
                    let left = left(&block);
                    assert!(
                        (left - expected).abs() < 0.03,
                        "{compress} {verify} {bytes}: {left}"
                    );
                }
            }
        }
    }
    assert!(left(&blocks(&content(&json!({}), 1), 4096, 1)[0]) > 0.99);
    assert!(left(&blocks(&content(&json!({"data": "zero"}), 1), 1 << 16, 1)[0]) < 0.01);
}

#[test]
fn a_pattern_begins_with_each_block() {
    for (pattern, bytes, expected) in [
        ("0xff", 3, vec![0xff, 0xff, 0xff]),
        ("0x55aa", 5, vec![0x55, 0xaa, 0x55, 0xaa, 0x55]),
        ("0x01020304", 6, vec![1, 2, 3, 4, 1, 2]),
    ] {
        let content = content(&json!({"data": {"pattern": pattern}}), 1);
        assert!(!content.verifies());
        for block in blocks(&content, bytes, 3) {
            assert_eq!(block, expected, "{pattern}");
        }
        let large = &blocks(&content, 64 << 10, 2)[1];
        assert!(large.chunks(8).all(|part| part == &large[..8]), "{pattern}");
    }
}

#[test]
fn as_many_blocks_as_asked_are_equal_to_another() {
    for dedupe in [0, 20, 75, 100] {
        let content = content(&json!({"data": {"dedupe": dedupe}}), 9);
        let count = 5000;
        let distinct: HashSet<Vec<u8>> = blocks(&content, 8192, count).into_iter().collect();
        let saved = 1.0 - distinct.len() as f64 / count as f64;
        // Three standard deviations of 5000 draws are 2 %.
        assert!(
            (saved * 100.0 - f64::from(dedupe)).abs() < 2.0,
            "{dedupe}: {saved}"
        );
    }
}

#[test]
fn random_and_verified_blocks_are_all_different_in_every_sector() {
    for verify in [false, true] {
        let content = content(&json!({"verify": verify}), 2);
        let mut sectors = HashSet::new();
        for block in blocks(&content, 16 << 10, 200) {
            for sector in block.chunks(4096) {
                assert!(sectors.insert(sector.to_vec()));
            }
        }
    }
}

#[test]
fn what_was_written_elsewhere_or_never_is_told_as_such() {
    let content = content(&json!({"verify": true}), 5);
    let block = |file, offset, generation| {
        let mut block = vec![0; 8192];
        content.place(&mut block, file, offset, generation);
        block
    };
    let all_found = |block: &[u8]| checked(&content, block, (1, 8192), 1..=4);
    let found = |block: &[u8]| all_found(block).first()[0];
    let (file, offset, generation) = (1, 8192, 3);
    assert!(all_found(&block(1, 8192, 3)).is_empty());
    for (file, offset, generation) in [(2, 8192, 3), (1, 0, 3), (1, 8192, 5)] {
        let other = FoundData::Other {
            file,
            offset,
            generation,
        };
        let expected = Mismatch {
            offset: 8192,
            found: other,
        };
        assert_eq!(found(&block(file, offset, generation)), expected);
    }
    // Half of a newer block, half of an older one: torn.
    let mut torn = block(file, offset, generation);
    torn[4096..].copy_from_slice(&block(1, 8192, 2)[4096..]);
    let other = FoundData::Other {
        file,
        offset: 12288,
        generation: 2,
    };
    assert_eq!(
        found(&torn),
        Mismatch {
            offset: 12288,
            found: other
        }
    );
    let mut hole = block(file, offset, generation);
    hole[4096..].fill(0);
    assert_eq!(
        found(&hole),
        Mismatch {
            offset: 12288,
            found: FoundData::Zeros
        }
    );
    // A block of another seed is not recognised.
    let mut strange = vec![0; 8192];
    Content::new(
        DataSpec {
            verify: true,
            ..DataSpec::default()
        },
        6,
    )
    .place(&mut strange, 1, 8192, 3);
    assert!(matches!(found(&strange).found, FoundData::Byte { .. }));
}

proptest! {
    #[test]
    fn every_flipped_bit_is_found_where_it_is(
        bytes in prop_oneof![1_usize..200, Just(512), Just(4096), 4000_usize..13_000],
        at: prop::sample::Index, bit in 0_u8..8, compress in prop_oneof![Just(0), Just(60)],
        offset in 0_u64..1 << 40, generation in 1_u64..5,
    ) {
        let content = content(&json!({"verify": true, "data": {"compress": compress}}), 1);
        let mut block = vec![0; bytes];
        content.place(&mut block, 77, offset, generation);
        prop_assert!(checked(&content, &block, (77, offset), 1..=4).is_empty());
        let at = at.index(bytes);
        let expected = block[at];
        block[at] ^= 1 << bit;
        let found = FoundData::Byte { expected, found: block[at] };
        let mismatches = checked(&content, &block, (77, offset), 1..=4);
        prop_assert_eq!(mismatches.first(), [Mismatch { offset: offset + at as u64, found }]);
    }

    #[test]
    fn every_wrong_sector_of_a_block_counts_once_at_its_first_difference(
        bytes in prop_oneof![Just(4096), 4000_usize..40_000],
        flips in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        generation in 1_u64..5,
    ) {
        let content = content(&json!({"verify": true}), 1);
        let mut block = vec![0; bytes];
        content.place(&mut block, 77, 8192, generation);
        // A remainder too short for a header belongs to the sector before.
        let sectors = (bytes + SECTOR_BYTES - 32) / SECTOR_BYTES;
        let mut wrong = BTreeMap::new();
        let flips: BTreeSet<usize> = flips.into_iter().map(|flip| flip.index(bytes)).collect();
        for at in flips {
            block[at] ^= 0x40;
            wrong.entry((at / SECTOR_BYTES).min(sectors - 1)).or_insert(8192 + at as u64);
        }
        let mismatches = checked(&content, &block, (77, 8192), generation..=generation);
        prop_assert_eq!(mismatches.count(), wrong.len() as u64);
        let offsets: Vec<u64> = mismatches.first().iter().map(|it| it.offset).collect();
        prop_assert_eq!(offsets, wrong.into_values().take(3).collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn a_part_of_a_block_is_right_as_it_was_written_and_wrong_with_any_bit_changed(
        bytes in 1_usize..20_000,
        offset in 0_u64..10_000,
        from: usize,
        until: usize,
        bit in 0_u8..8,
        at: usize,
    ) {
        let content = content(&json!({"verify": true, "data": {"compress": 30}}), 4);
        let written = Written { file: 7, offset, bytes: bytes as u64, generation: 5 };
        let mut block = vec![1; bytes];
        content.fill(&mut block);
        content.place(&mut block, 7, offset, 5);
        let (from, until) = (from % bytes, until % bytes);
        let (first, last) = (from.min(until), from.max(until));
        let begin = offset + first as u64;
        let found = |block: &[u8]| {
            let mut wrong = Mismatches::default();
            content.check_part(&block[first..=last], begin, &written, &mut wrong);
            wrong.first().iter().map(|it| it.offset).collect::<Vec<_>>()
        };
        prop_assert_eq!(found(&block), [0_u64; 0]);
        let wrong = first + at % (last - first + 1);
        block[wrong] ^= 1 << bit;
        prop_assert_eq!(found(&block), [offset + wrong as u64]);
    }
}

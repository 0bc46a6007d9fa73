//! Fast random numbers and incompressible data. Seeded, so that a run can be repeated; not cryptographic.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// An independent generator for several numbers, such as seed, task and worker.
    pub fn of(numbers: &[u64]) -> Random {
        let mut random = Random(GOLDEN);
        for number in numbers {
            random.0 ^= *number;
            random.0 = random.next_u64();
        }
        random
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// Uniform in `0..bound` (Lemire's multiplication; its bias is below `bound` / 2^64); 0 when `bound` is.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        let wide = u128::from(self.next_u64()) * u128::from(bound);
        u64::try_from(wide >> 64).unwrap_or(0)
    }

    /// Fills a buffer with data that no storage can compress.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        fill(buffer, self.next_u64());
    }
}

/// Word `number` of the endless sequence of `key` (Wang Yi's wyrand, 2019, by counter): one wide multiplication, and no
/// word depends on the previous one.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the two halves are taken apart"
)]
pub(crate) const fn word(key: u64, number: u64) -> u64 {
    let place = key.wrapping_add(number.wrapping_mul(0xa076_1d64_78bd_642f));
    let wide = (place as u128).wrapping_mul((place ^ 0xe703_7ed1_a0b4_28db) as u128);
    (wide >> 64) as u64 ^ wide as u64
}

/// Fills a buffer with the words of `key`, in order, so that no storage can compress it.
pub(crate) fn fill(buffer: &mut [u8], key: u64) {
    let (words, rest) = buffer.as_chunks_mut::<8>();
    let mut number = 0;
    for to in words {
        *to = word(key, number).to_le_bytes();
        number += 1;
    }
    for (to, from) in rest.iter_mut().zip(word(key, number).to_le_bytes()) {
        *to = from;
    }
}

/// Where a buffer first differs from the output of [`fill`].
pub(crate) fn first_difference(buffer: &[u8], key: u64) -> Option<usize> {
    /// Words made and compared at once; they stay in the L1 cache.
    const STRIDE: usize = 64;
    let mut expected = [[0; 8]; STRIDE];
    let (words, rest) = buffer.as_chunks::<8>();
    let mut number = 0;
    for stride in words.chunks(STRIDE) {
        let first = number;
        for to in expected.iter_mut().take(stride.len()) {
            *to = word(key, number).to_le_bytes();
            number += 1;
        }
        if expected.get(..stride.len()) != Some(stride) {
            let at = usize::try_from(first * 8).unwrap_or(usize::MAX);
            return differing_byte(stride.as_flattened(), key, first).map(|byte| at + byte);
        }
    }
    let at = words.as_flattened().len();
    differing_byte(rest, key, number).map(|byte| at + byte)
}

fn differing_byte(held: &[u8], key: u64, first: u64) -> Option<usize> {
    let expected = (first..).flat_map(|number| word(key, number).to_le_bytes());
    held.iter()
        .zip(expected)
        .position(|(held, expected)| *held != expected)
}

/// Makes each 4 KiB of a block unique by 8 of its bytes, so that nothing deduplicates. Increments `stamp` for each.
#[inline]
pub fn stamp(block: &mut [u8], stamp: &mut u64) {
    for page in block.chunks_mut(4096) {
        if let Some(head) = page.first_chunk_mut::<8>() {
            *head = stamp.to_le_bytes();
        }
        *stamp = stamp.wrapping_add(GOLDEN);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use std::collections::HashSet;
    use std::io::Write;

    #[test]
    fn data_do_not_compress() {
        let mut data = vec![0; 1 << 16];
        Random::new(1).fill(&mut data);
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&data).unwrap();
        assert!(encoder.finish().unwrap().len() >= data.len());
    }

    #[test]
    fn each_bit_is_set_half_of_the_time() {
        let mut data = vec![0; 1 << 20];
        fill(&mut data, 7);
        let (words, _) = data.as_chunks::<8>();
        for bit in 0..64 {
            let set = words
                .iter()
                .filter(|word| u64::from_le_bytes(**word) >> bit & 1 == 1)
                .count();
            // Four standard deviations of 131 072 coin tosses.
            assert!(set.abs_diff(words.len() / 2) < 725, "bit {bit}: {set}");
        }
        let distinct: HashSet<_> = words.iter().collect();
        assert_eq!(distinct.len(), words.len());
    }

    #[test]
    fn every_byte_that_differs_is_found() {
        for length in [1, 7, 8, 9, 512, 513, 5003] {
            let mut data = vec![0; length];
            fill(&mut data, 3);
            assert_eq!(first_difference(&data, 3), None);
            assert!(first_difference(&data, 4).is_some_and(|at| at < 8));
            for at in 0..length {
                data[at] ^= 0x10;
                assert_eq!(first_difference(&data, 3), Some(at));
                data[at] ^= 0x10;
            }
        }
    }

    #[test]
    fn numbers_are_within_bounds_and_spread() {
        let mut random = Random::of(&[7, 0, 3]);
        let mut seen = [0_u32; 10];
        for _ in 0..10_000 {
            seen[usize::try_from(random.below(10)).unwrap()] += 1;
        }
        assert!(
            seen.iter().all(|count| (800..1200).contains(count)),
            "{seen:?}"
        );
        assert_eq!(random.below(0), 0);
        assert_ne!(
            Random::of(&[1, 2]).next_u64(),
            Random::of(&[2, 1]).next_u64()
        );
    }

    #[test]
    fn no_two_pages_are_alike() {
        let mut block = vec![0; 3 * 4096 + 100];
        let mut next = 5;
        let mut seen = HashSet::new();
        for _ in 0..10 {
            stamp(&mut block, &mut next);
            for page in block.chunks(4096) {
                assert!(seen.insert(page[..8].to_vec()));
            }
        }
    }
}

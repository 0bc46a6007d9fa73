//! Fast random numbers and incompressible data. Seeded, so that a run can be repeated; not for secrets.

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Random(u64);

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    pub const fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// A generator of its own for each of several numbers, such as seed, task and worker.
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
        for chunk in buffer.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }
}

/// Makes each 4 KiB of a block unlike any other by 8 bytes of it, so that nothing deduplicates: `stamp` goes on with each.
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

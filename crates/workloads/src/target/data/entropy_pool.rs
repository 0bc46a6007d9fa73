//! Chooses where in a buffer the block for a file offset lies.
//!
//! Random blocks that are not verified differ by their stamps only, which is enough to prevent deduplication.
//! Compression looks at everything that it stores as one unit. Small blocks are therefore cut from a longer stretch in
//! which nothing repeats, each from the place that its own offset has in it, whatever the order of writes.

use super::{Content, SECTOR_BYTES};

/// Default compression units are no longer: 128 KiB in btrfs and ZFS, 64 KiB in BlueStore.
pub(crate) const VARIETY_BYTES: usize = 256 << 10;
/// Blocks begin at multiples of the smallest sector size, as direct I/O requires.
const STEP_BYTES: usize = 512;

#[derive(Debug, Clone, Copy)]
pub(crate) struct EntropyPool {
    largest: usize,
    /// Mask for positions in the stretch; 0: the same block for all.
    mask: u64,
}

impl EntropyPool {
    /// For blocks of up to `largest` bytes.
    pub(crate) fn of(content: &Content, largest: usize) -> EntropyPool {
        EntropyPool::with_variety(content, largest, VARIETY_BYTES)
    }

    /// As [`EntropyPool::of`], with `variety` bytes of positions, a power of two.
    pub(crate) fn with_variety(content: &Content, largest: usize, variety: usize) -> EntropyPool {
        let mask = match content.repeats() && largest < VARIETY_BYTES {
            true => variety.max(VARIETY_BYTES).next_power_of_two() - STEP_BYTES,
            false => 0,
        };
        EntropyPool {
            largest,
            mask: u64::try_from(mask).unwrap_or(0),
        }
    }

    /// Whether all offsets get the same block.
    pub(crate) fn is_one(&self) -> bool {
        self.mask == 0
    }

    /// Length of the buffer that the blocks are cut from.
    pub(crate) fn length(&self) -> usize {
        usize::try_from(self.mask).unwrap_or(0) + self.largest
    }

    /// Fills that buffer.
    pub(crate) fn fill(&self, content: &Content, buffer: &mut [u8]) {
        if self.is_one() {
            return content.fill(buffer);
        }
        // Blocks smaller than a sector have to compress by themselves, too.
        let unit = match self.largest < SECTOR_BYTES {
            true => STEP_BYTES,
            false => SECTOR_BYTES,
        };
        for (number, part) in (0..).zip(buffer.chunks_mut(unit)) {
            let length = part.len().min(self.largest);
            content.fill_as(number, part.get_mut(..length).unwrap_or_default());
        }
    }

    /// Where the block for this file and offset begins.
    #[inline]
    pub(crate) fn at(&self, file: u64, offset: u64) -> usize {
        // The first blocks of files lie at different positions.
        let place = file.wrapping_mul(SECTOR_BYTES as u64).wrapping_add(offset);
        usize::try_from(place & self.mask).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::target::data::DataSpec;
    use serde_json::json;
    use std::collections::HashSet;

    fn content(params: &serde_json::Value) -> Content {
        Content::new(DataSpec::of(params.as_object().unwrap()).unwrap(), 5)
    }

    /// Compressors need less than 64 bytes to find a match. The order of writes makes no difference.
    #[test]
    fn nothing_repeats_within_what_is_compressed_in_one_piece() {
        let content = content(&json!({}));
        for bytes in [512, 4096, 5000, 16 << 10, 100_000, 128 << 10] {
            let pool = EntropyPool::of(&content, bytes);
            let mut buffer = vec![0; pool.length()];
            pool.fill(&content, &mut buffer);
            let mut written = Vec::new();
            while written.len() < 1 << 20 {
                let offset = written.len() as u64;
                let from = pool.at(3, offset);
                let block = &mut buffer[from..from + bytes];
                content.place(block, 3, offset, 0);
                written.extend_from_slice(block);
            }
            for piece in written.chunks(128 << 10) {
                let mut seen = HashSet::new();
                assert!(piece.chunks_exact(64).all(|it| seen.insert(it)), "{bytes}");
            }
        }
    }

    #[test]
    fn blocks_lie_within_the_buffer_at_whole_sectors() {
        let content = content(&json!({"data": {"compress": 50}}));
        for largest in [1, 4096, 5000, 16384, 60 << 10] {
            let pool = EntropyPool::of(&content, largest);
            for place in 0..10_000 {
                let from = pool.at(place % 7, place * 1111);
                assert!(from.is_multiple_of(STEP_BYTES) && from + largest <= pool.length());
            }
        }
        let large = [256 << 10, 1 << 20].map(|bytes| EntropyPool::of(&content, bytes));
        assert!(
            large
                .iter()
                .all(|pool| pool.is_one() && pool.at(3, 4096) == 0)
        );
    }

    /// Each block by itself, however small it is.
    #[test]
    fn compress_sets_the_random_share_of_each_block() {
        let content = content(&json!({"data": {"compress": 50}}));
        for bytes in [100, 512, 4096, 12_288] {
            let pool = EntropyPool::of(&content, bytes);
            let mut buffer = vec![0; pool.length()];
            pool.fill(&content, &mut buffer);
            for file in 0..20 {
                let from = pool.at(file, 0);
                let zeros = buffer[from..from + bytes].iter().filter(|byte| **byte == 0);
                let share = zeros.count() as f64 / bytes as f64;
                assert!((share - 0.5).abs() < 0.04, "{bytes}: {share}");
            }
        }
    }

    #[test]
    fn content_made_per_block_needs_no_pool() {
        for params in [
            json!({"verify": true}),
            json!({"data": "zero"}),
            json!({"data": {"dedupe": 20}}),
        ] {
            let pool = EntropyPool::of(&content(&params), 4096);
            assert_eq!((pool.length(), pool.at(1, 4096)), (4096, 0));
        }
    }
}

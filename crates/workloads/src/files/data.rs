//! What is written into files: random bytes that neither compress nor deduplicate.
//!
//! It knows nothing of files. One buffer is filled once and used for all; every 4 KiB of what is handed out begins with
//! a stamp of its own (file and position), so that no two such pages that were ever written are equal.

use super::size::mix;

/// Each stretch of this many bytes gets its own stamp: the unit in which storage deduplicates, at the least.
const STAMP_EVERY: usize = 4096;

#[derive(Debug)]
pub(crate) struct Data {
    buffer: Vec<u8>,
    seed: u64,
}

impl Data {
    /// A buffer for writes of up to `bytes`, filled, and so in memory.
    pub(crate) fn new(bytes: usize, seed: u64) -> Self {
        let mut buffer = vec![0_u8; bytes];
        for (word, index) in buffer.chunks_mut(8).zip(0_u64..) {
            let random = mix(seed, index).to_ne_bytes();
            for (byte, value) in word.iter_mut().zip(random) {
                *byte = value;
            }
        }
        Self { buffer, seed }
    }

    /// The first `length` bytes, stamped for file `file` at `offset`; fewer when the buffer is smaller.
    #[inline]
    pub(crate) fn stamped(&mut self, file: u64, offset: u64, length: usize) -> &[u8] {
        let length = length.min(self.buffer.len());
        let base = mix(self.seed ^ offset, file);
        let Some(block) = self.buffer.get_mut(..length) else {
            return &[];
        };
        for (page, index) in block.chunks_mut(STAMP_EVERY).zip(0_u64..) {
            if let Some(stamp) = page.first_chunk_mut::<8>() {
                *stamp = base.wrapping_add(index).to_ne_bytes();
            }
        }
        block
    }

    /// The largest write that the buffer holds.
    pub(crate) fn capacity(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_pages_are_equal() {
        let mut data = Data::new(64 << 10, 1);
        let mut pages = HashSet::new();
        for file in 0..20 {
            for offset in [0, 64 << 10] {
                for page in data.stamped(file, offset, 64 << 10).chunks(STAMP_EVERY) {
                    assert!(pages.insert(page.to_vec()), "file {file} repeats a page");
                }
            }
        }
    }

    #[test]
    fn the_same_place_gets_the_same_bytes() {
        let first = Data::new(8192, 5).stamped(3, 8192, 5000).to_vec();
        let again = Data::new(8192, 5).stamped(3, 8192, 5000).to_vec();
        assert_eq!(first, again);
        assert_eq!(first.len(), 5000);
        assert_eq!(Data::new(16, 5).stamped(0, 0, 100).len(), 16);
        assert!(Data::new(0, 5).stamped(0, 0, 100).is_empty());
    }
}

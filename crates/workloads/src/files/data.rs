//! What is written into files: random bytes that neither compress nor deduplicate.
//!
//! It knows nothing of files. One buffer is filled once and used for all; every 4 KiB of what is handed out begins with
//! a stamp of its own (file and position), so that no two such pages that were ever written are equal.

use crate::random::{self, Random};

#[derive(Debug)]
pub(crate) struct Data {
    buffer: Vec<u8>,
    seed: u64,
}

impl Data {
    /// A buffer for writes of up to `bytes`, filled, and so in memory.
    pub(crate) fn new(bytes: usize, seed: u64) -> Self {
        let mut buffer = vec![0_u8; bytes];
        Random::new(seed).fill(&mut buffer);
        Self { buffer, seed }
    }

    /// The first `length` bytes, stamped for file `file` at `offset`; fewer when the buffer is smaller.
    #[inline]
    pub(crate) fn stamped(&mut self, file: u64, offset: u64, length: usize) -> &[u8] {
        let length = length.min(self.buffer.len());
        let mut stamp = Random::of(&[self.seed, file, offset]).next_u64();
        let Some(block) = self.buffer.get_mut(..length) else {
            return &[];
        };
        random::stamp(block, &mut stamp);
        block
    }

    /// The bytes themselves, without a stamp.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.buffer
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
                for page in data.stamped(file, offset, 64 << 10).chunks(4096) {
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

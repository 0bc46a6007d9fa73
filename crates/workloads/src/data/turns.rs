//! Where in a buffer the next block to be written lies.
//!
//! Random blocks that nobody checks differ from each other by their stamps alone, which is enough that nothing
//! deduplicates. What compresses looks further, at all that it stores in one piece: small blocks are therefore cut, one
//! after the other, from a stretch in which nothing repeats.

use super::Content;

/// What storage compresses in one piece is no longer by default: 128 KiB of btrfs and ZFS, 64 KiB of BlueStore.
const VARIETY_BYTES: usize = 256 << 10;
/// Blocks begin at whole sectors of the smallest kind, as direct I/O wants it.
const STEP_BYTES: usize = 512;

#[derive(Debug, Clone)]
pub(crate) struct Turns {
    at: usize,
    /// From one block to the next, however short they are.
    step: usize,
    length: usize,
}

impl Turns {
    /// For blocks of up to `largest` bytes.
    pub(crate) fn of(content: &Content, largest: usize) -> Turns {
        let step = largest.next_multiple_of(STEP_BYTES);
        let length = match Turns::needed(content, largest) {
            0 | 1 => largest,
            needed => needed * step,
        };
        Turns {
            at: 0,
            step,
            length,
        }
    }

    /// How many blocks of up to `largest` bytes come in turn.
    pub(crate) fn needed(content: &Content, largest: usize) -> usize {
        let block = largest.next_multiple_of(STEP_BYTES);
        match content.repeats() && largest > 0 {
            true => VARIETY_BYTES.div_ceil(block),
            false => 1,
        }
    }

    /// Bytes of the buffer that the blocks are cut from.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Where the next block begins.
    #[inline]
    pub(crate) fn next(&mut self) -> usize {
        let from = self.at;
        let next = from + self.step;
        self.at = if next < self.length { next } else { 0 };
        from
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;
    use crate::data::DataSpec;
    use serde_json::json;
    use std::collections::HashSet;

    fn content(params: serde_json::Value) -> Content {
        Content::new(DataSpec::of(params.as_object().unwrap()).unwrap(), 5)
    }

    /// 64 bytes are more than any compressor needs to find.
    #[test]
    fn nothing_repeats_within_what_is_compressed_in_one_piece() {
        let content = content(json!({}));
        for bytes in [512, 4096, 5000, 16 << 10, 100_000, 128 << 10] {
            let mut turns = Turns::of(&content, bytes);
            let mut buffer = vec![0; turns.length()];
            content.fill(&mut buffer);
            let mut written = Vec::new();
            while written.len() < 1 << 20 {
                let from = turns.next();
                let block = &mut buffer[from..from + bytes];
                content.place(block, 1, written.len() as u64, 0);
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
        let content = content(json!({"data": {"compress": 50}}));
        for largest in [1, 4096, 5000, 60 << 10, 300 << 10] {
            let mut turns = Turns::of(&content, largest);
            for _ in 0..1000 {
                let from = turns.next();
                assert!(from.is_multiple_of(STEP_BYTES) && from + largest <= turns.length());
            }
        }
        let needed = [512, 4096, 5000, 256 << 10, 1 << 20].map(|it| Turns::needed(&content, it));
        assert_eq!(needed, [512, 64, 52, 1, 1]);
    }

    #[test]
    fn what_is_made_anew_needs_one_block() {
        for params in [json!({"verify": true}), json!({"data": "zero"})] {
            let mut turns = Turns::of(&content(params), 4096);
            assert_eq!(turns.length(), 4096);
            assert_eq!((turns.next(), turns.next()), (0, 0));
        }
    }
}

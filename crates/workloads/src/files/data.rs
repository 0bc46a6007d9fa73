//! A buffer of what is written into files, made for each place as it is asked for.
//!
//! It knows nothing of files; what stands where is [`crate::data`]'s affair. A stamp is made in an operation's time; the time
//! for more than that is kept, to be taken out of it.

use crate::clock::MonoNanos;
use crate::data::{Content, DataSpec, Turns};
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct Data {
    content: Content,
    buffer: Vec<u8>,
    turns: Turns,
    /// Of the largest block.
    largest: usize,
    /// Where the block that was made last begins.
    from: usize,
    /// What it took to make blocks from their first byte to their last.
    apart: Duration,
}

impl Data {
    /// Random bytes that neither compress nor deduplicate, in writes of up to `bytes`.
    pub(crate) fn new(bytes: usize, seed: u64) -> Self {
        Self::of(Content::new(DataSpec::default(), seed), bytes)
    }

    /// A buffer for writes of up to `bytes`, filled, and so in memory.
    pub(crate) fn of(content: Content, bytes: usize) -> Self {
        let turns = Turns::of(&content, bytes);
        let mut buffer = vec![0_u8; turns.length()];
        turns.fill(&content, &mut buffer);
        Self {
            content,
            buffer,
            turns,
            largest: bytes,
            from: 0,
            apart: Duration::ZERO,
        }
    }

    /// The first `length` bytes, as they belong in file `file` at `offset`; fewer when the buffer is smaller.
    #[inline]
    pub(crate) fn stamped(&mut self, file: u64, offset: u64, length: usize) -> &[u8] {
        if !self.content.is_made_anew() {
            return self.written_as(0, file, offset, length);
        }
        let began = MonoNanos::now();
        self.written_as(0, file, offset, length);
        self.apart += MonoNanos::now().since(began);
        self.current(length)
    }

    /// What [`Data::stamped`] took since this was asked last and is no part of an operation.
    #[inline]
    pub(crate) fn take_apart(&mut self) -> Duration {
        std::mem::take(&mut self.apart)
    }

    /// The same in one of several writings of the file.
    #[inline]
    pub(crate) fn written_as(
        &mut self,
        generation: u64,
        file: u64,
        offset: u64,
        length: usize,
    ) -> &[u8] {
        let length = length.min(self.largest);
        self.from = self.turns.at(file, offset);
        let Some(block) = self.buffer.get_mut(self.from..self.from + length) else {
            return &[];
        };
        self.content.place(block, file, offset, generation);
        block
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Bytes of the largest block.
    pub(crate) fn len(&self) -> usize {
        self.largest
    }

    /// The first `length` bytes of the block that was made or read last, as they are.
    pub(crate) fn current(&self, length: usize) -> &[u8] {
        let end = self.from + length.min(self.largest);
        self.buffer.get(self.from..end).unwrap_or_default()
    }

    /// A block to be read into.
    pub(crate) fn current_mut(&mut self, length: usize) -> &mut [u8] {
        self.from = 0;
        let length = length.min(self.largest);
        self.buffer.get_mut(..length).unwrap_or_default()
    }

    /// The bytes of one block, without a place.
    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.buffer.truncate(self.largest);
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

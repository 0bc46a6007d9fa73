//! A buffer of data to write, generated for each file offset on request.
//!
//! Does not know files; [`crate::target::data`] decides the content. Stamping a block is part of the operation's time.
//! The time for generating a whole block is recorded, to be subtracted from it.

use crate::measure::clock::MonoNanos;
use crate::target::data::{Content, DataSpec, EntropyPool};
use crate::target::memory::AlignedBytes;
use std::time::Duration;

#[derive(Debug)]
pub(crate) struct WriteBuffer {
    content: Content,
    buffer: AlignedBytes,
    pool: EntropyPool,
    /// Length of the largest block.
    largest: usize,
    /// Where the last block begins.
    from: usize,
    /// Time spent on generating whole blocks.
    excluded: Duration,
}

impl WriteBuffer {
    /// Random bytes that neither compress nor deduplicate, in writes of up to `bytes`.
    pub(crate) fn new(bytes: usize, seed: u64) -> Self {
        Self::of(Content::new(DataSpec::default(), seed), bytes)
    }

    /// A buffer for writes of up to `bytes`, filled and therefore backed by memory.
    pub(crate) fn of(content: Content, bytes: usize) -> Self {
        let pool = EntropyPool::of(&content, bytes);
        let mut buffer = AlignedBytes::new(0, pool.length());
        pool.fill(&content, &mut buffer);
        Self {
            content,
            buffer,
            pool,
            largest: bytes,
            from: 0,
            excluded: Duration::ZERO,
        }
    }

    /// The first `length` bytes of file `file` at `offset`; fewer if the buffer is smaller.
    #[inline]
    pub(crate) fn stamped(&mut self, file: u64, offset: u64, length: usize) -> &[u8] {
        if !self.content.is_made_anew() {
            return self.written_as(0, file, offset, length);
        }
        let began = MonoNanos::now();
        self.written_as(0, file, offset, length);
        self.excluded += MonoNanos::now().since(began);
        self.current(length)
    }

    /// Returns and resets the time of [`WriteBuffer::stamped`] that is not part of an operation.
    #[inline]
    pub(crate) fn take_excluded_time(&mut self) -> Duration {
        std::mem::take(&mut self.excluded)
    }

    /// As [`WriteBuffer::stamped`], for one generation of the file.
    #[inline]
    pub(crate) fn written_as(
        &mut self,
        generation: u64,
        file: u64,
        offset: u64,
        length: usize,
    ) -> &[u8] {
        let length = length.min(self.largest);
        self.from = self.pool.at(file, offset);
        let Some(block) = self.buffer.get_mut(self.from..self.from + length) else {
            return &[];
        };
        self.content.place(block, file, offset, generation);
        block
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Length of the largest block.
    pub(crate) fn len(&self) -> usize {
        self.largest
    }

    /// The first `length` bytes of the last block made or read, unchanged.
    pub(crate) fn current(&self, length: usize) -> &[u8] {
        let end = self.from + length.min(self.largest);
        self.buffer.get(self.from..end).unwrap_or_default()
    }

    /// A block to read into.
    pub(crate) fn current_mut(&mut self, length: usize) -> &mut [u8] {
        self.from = 0;
        let length = length.min(self.largest);
        self.buffer.get_mut(..length).unwrap_or_default()
    }

    /// The bytes of one block, without an offset.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.buffer.get(..self.largest).unwrap_or_default().to_vec()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_pages_are_equal() {
        let mut data = WriteBuffer::new(64 << 10, 1);
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
        let first = WriteBuffer::new(8192, 5).stamped(3, 8192, 5000).to_vec();
        let again = WriteBuffer::new(8192, 5).stamped(3, 8192, 5000).to_vec();
        assert_eq!(first, again);
        assert_eq!(first.len(), 5000);
        assert_eq!(WriteBuffer::new(16, 5).stamped(0, 0, 100).len(), 16);
        assert!(WriteBuffer::new(0, 5).stamped(0, 0, 100).is_empty());
    }
}

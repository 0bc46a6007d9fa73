//! What a worker may find in its file where blocks know their place, and what it writes there.
//!
//! Modes cut a file into blocks of different sizes, so each sector is looked at by itself: the one before it may be of
//! another generation.

use crate::engine::author::*;

#[derive(Debug)]
pub(super) struct Expected {
    pub content: Content,
    pub file: u64,
    pub generations: Generations,
    /// What is written over what was read.
    pub fresh: WriteBuffer,
}

impl Expected {
    /// Has the block at hand that is to stand at `offset`.
    pub(super) fn renew(&mut self, offset: u64, length: usize) {
        let newest = self.generations.newest;
        self.fresh.written_as(newest, self.file, offset, length);
    }

    /// What was read and may not stand there.
    pub(super) fn check(&self, block: &[u8], offset: u64) -> Mismatches {
        let mut wrong = Mismatches::default();
        let generations = self.generations.range();
        self.content
            .check_sectors(block, self.file, offset, &generations, &mut wrong);
        wrong
    }
}

//! What a worker writes into its blocks, and what it may find there.

use super::sequence::{Lane, Next, Sequence};
use super::{IoLoad, generations::Generations};
use crate::data::{Content, Mismatch};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

#[derive(Debug)]
pub(super) struct Writing {
    pub content: Content,
    /// An operation has failed: what stands in its block is not known.
    pub failed: bool,
    file: u64,
    generations: Generations,
    /// Makes a block that is written again another one, where generations are not kept.
    next: u64,
    through: Arc<AtomicU32>,
}

impl Writing {
    pub(super) fn of(load: &IoLoad, file: u32, lane: Lane) -> Writing {
        Writing {
            content: load.content(),
            failed: false,
            file: load.file_id(file),
            generations: *load.generations(),
            // Beyond what any worker writes.
            next: u64::from(lane.index) << 48,
            through: Arc::clone(&load.through),
        }
    }

    /// Makes `block` what is written next.
    #[inline]
    pub(super) fn place(&mut self, block: &mut [u8], next: Next) {
        let generation = match self.content.verifies() {
            true => self.generations.newest,
            false => {
                self.next += 1;
                self.next
            }
        };
        self.content
            .place(block, self.file, next.offset, generation);
    }

    /// Whether what was read may stand there.
    #[inline]
    pub(super) fn check(&self, block: &[u8], next: Next) -> Result<(), Mismatch> {
        let generations = self.generations.range();
        let found = self
            .content
            .check(block, self.file, next.offset, generations);
        found.map(|_| ())
    }

    /// The worker is at its end.
    pub(super) fn ended(&self, sequence: &Sequence) {
        if sequence.has_written_all() && !self.failed {
            self.through.fetch_add(1, Ordering::Relaxed);
        }
    }
}

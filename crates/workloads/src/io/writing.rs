//! What a worker writes into its blocks, and what it may find there.

use super::IoLoad;
use super::sequence::{Lane, Next, Sequence};
use crate::clock::MonoNanos;
use crate::data::{Content, DataSpec, Generations, Mismatches};
use crate::random::{Random, stamp};
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
    /// Random data that nobody checks: another stamp is all that a block needs.
    only_stamps: bool,
    through: Arc<AtomicU32>,
}

impl Writing {
    pub(super) fn of(load: &IoLoad, file: u32, lane: Lane) -> Writing {
        Writing {
            content: load.content(),
            failed: false,
            file: load.file_id(file),
            generations: *load.generations(),
            // No two modes of a cell may write the same blocks.
            next: Random::of(&[MonoNanos::now().0, load.file_id(file), lane.index.into()])
                .next_u64(),
            only_stamps: load.job.data == DataSpec::default(),
            through: Arc::clone(&load.through),
        }
    }

    /// Makes `block` what is written next.
    #[inline]
    pub(super) fn place(&mut self, block: &mut [u8], next: Next) {
        if self.only_stamps {
            return stamp(block, &mut self.next);
        }
        let generation = match self.content.verifies() {
            true => self.generations.newest,
            false => {
                self.next = self.next.wrapping_add(1);
                self.next
            }
        };
        self.content
            .place(block, self.file, next.offset, generation);
    }

    /// What was read and may not stand there.
    #[inline]
    pub(super) fn check(&self, block: &[u8], next: Next) -> Mismatches {
        let mut wrong = Mismatches::default();
        let generations = self.generations.range();
        self.content
            .check(block, self.file, next.offset, generations, &mut wrong);
        wrong
    }

    /// The worker is at its end.
    pub(super) fn ended(&self, sequence: &Sequence) {
        if sequence.has_written_all() && !self.failed {
            self.through.fetch_add(1, Ordering::Relaxed);
        }
    }
}

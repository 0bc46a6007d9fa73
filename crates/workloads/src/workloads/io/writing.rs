//! The content that a worker writes into its blocks and expects when it reads them.

use super::IoLoad;
use super::sequence::{NextIo, Sequence, Shard};
use crate::engine::author::*;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Progress of a task's workers through its files.
#[derive(Debug, Default)]
pub(super) struct WriteProgress {
    /// Workers that have written every block without an error.
    through: AtomicU32,
    /// Workers without a failed write.
    sound: AtomicU32,
    /// Workers that have written every block up to their last one.
    gapless: AtomicU32,
}

impl WriteProgress {
    pub(super) fn through(&self) -> u32 {
        self.through.load(Ordering::Relaxed)
    }

    pub(super) fn sound(&self) -> u32 {
        self.sound.load(Ordering::Relaxed)
    }

    pub(super) fn gapless(&self) -> u32 {
        self.gapless.load(Ordering::Relaxed)
    }
}

/// Verification state of a block that is checked piece by piece.
#[derive(Debug)]
pub(super) struct Checked {
    pub wrong: Mismatches,
    /// The generations that the next sector may have.
    allowed: RangeInclusive<u64>,
}

#[derive(Debug)]
pub(super) struct Writing {
    pub content: Content,
    /// A write has failed, so the content of its block is unknown.
    pub failed: bool,
    file: u64,
    generations: Generations,
    /// Varies blocks that are written again, if generations are not kept.
    next: u64,
    /// The data is random and not verified: a new stamp per block is enough.
    only_stamps: bool,
    /// A block may be read with another size than it was written with.
    is_cut_anew: bool,
    is_alone: bool,
    progress: Arc<WriteProgress>,
}

impl Writing {
    pub(super) fn of(load: &IoLoad, file: u32, shard: Shard) -> Writing {
        Writing {
            content: load.content(),
            failed: false,
            file: load.file_id(file),
            generations: *load.generations(),
            // Modes of a cell must never write identical blocks.
            next: Random::of(&[MonoNanos::now().0, load.file_id(file), shard.index.into()])
                .next_u64(),
            only_stamps: load.job.data == DataSpec::default(),
            is_cut_anew: load.job.pattern.sizes.is_mix() || load.job.stdio.is_some(),
            is_alone: shard.of == 1,
            progress: Arc::clone(&load.progress),
        }
    }

    /// Fills `block` with the content to write next.
    #[inline]
    pub(super) fn place(&mut self, block: &mut [u8], next: NextIo) {
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

    /// Returns the mismatches of a block that was read.
    #[inline]
    pub(super) fn check(&self, block: &[u8], next: NextIo) -> Mismatches {
        let mut checked = self.checking();
        self.check_piece(block, next.offset, &mut checked);
        checked.wrong
    }

    /// Starts the verification of a block.
    #[inline]
    pub(super) fn checking(&self) -> Checked {
        Checked {
            allowed: self.generations.range(),
            wrong: Mismatches::default(),
        }
    }

    /// Verifies the next piece, whole sectors read at `offset`.
    #[inline]
    pub(super) fn check_piece(&self, piece: &[u8], offset: u64, checked: &mut Checked) {
        let Checked { allowed, wrong } = checked;
        match self.is_cut_anew || self.generations.torn || self.failed {
            false => self.content.check(piece, self.file, offset, allowed, wrong),
            true => self
                .content
                .check_sectors(piece, self.file, offset, allowed, wrong),
        }
    }

    /// Called when the worker has ended.
    pub(super) fn ended(&self, sequence: &Sequence) {
        if self.failed {
            return;
        }
        self.progress.sound.fetch_add(1, Ordering::Relaxed);
        let is_through = sequence.has_written_all();
        if is_through {
            self.progress.through.fetch_add(1, Ordering::Relaxed);
        }
        // Threads that share a file each stop at a different block.
        if is_through || self.is_alone {
            self.progress.gapless.fetch_add(1, Ordering::Relaxed);
        }
    }
}

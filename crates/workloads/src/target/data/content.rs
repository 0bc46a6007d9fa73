//! Makes any block of any file in place.
//!
//! Without `verify`, a buffer is filled once and each block differs from all others by 8 bytes in every 4 KiB. That is
//! enough to prevent deduplication, and costs almost nothing; for compression see [`super::EntropyPool`]. With
//! `verify`, and if blocks are to be equal to others, each block is generated in full.

use super::pattern::{Pattern, Written};
use super::spec::random_bytes;
use super::{DataKind, DataSpec, SECTOR_BYTES};
use crate::measure::mismatch::Mismatches;
use crate::measure::random::{self, Random};
use std::ops::RangeInclusive;

/// Duplicated blocks are copies of one of this many.
const COMMON_BLOCKS: u64 = 16;
/// Separates the choice of duplicated blocks from the stamps.
const DEDUPE: u64 = 0x6465_6475_7065;

/// Content of each block of each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    seed: u64,
    kind: DataKind,
    pattern: Option<Pattern>,
}

impl Content {
    /// The same spec and seed give the same content.
    pub fn new(spec: DataSpec, seed: u64) -> Content {
        let kind = spec.kind;
        Content {
            seed,
            kind,
            pattern: spec.verify.then_some(Pattern { seed, kind }),
        }
    }

    /// Whether blocks can be checked.
    #[inline]
    pub fn verifies(&self) -> bool {
        self.pattern.is_some()
    }

    /// Whether each block is generated in full instead of being stamped only.
    #[inline]
    pub(crate) fn is_made_anew(&self) -> bool {
        let has_twins = matches!(self.kind, DataKind::Reducible { dedupe, .. } if dedupe > 0);
        self.pattern.is_some() || has_twins
    }

    /// Whether blocks differ by their stamps only.
    pub(super) fn repeats(&self) -> bool {
        !self.is_made_anew() && self.kind.repeated().is_none()
    }

    /// Fills a buffer for the blocks to come; once, before the load.
    pub fn fill(&self, buffer: &mut [u8]) {
        self.fill_as(0, buffer);
    }

    /// As [`Content::fill`], for one of several different buffers.
    pub(super) fn fill_as(&self, number: u64, buffer: &mut [u8]) {
        if let Some(bytes) = self.kind.repeated() {
            for (to, from) in buffer.iter_mut().zip(bytes.iter().cycle()) {
                *to = *from;
            }
            return;
        }
        buffer.fill(0);
        let mut random = Random::of(&[self.seed, number]);
        for sector in buffer.chunks_mut(SECTOR_BYTES) {
            let bytes = random_bytes(self.kind, sector.len());
            random.fill(sector.get_mut(..bytes).unwrap_or_default());
        }
    }

    /// Turns a filled buffer into the block of `file` at `offset`. `generation` distinguishes repeated writes of it.
    #[inline]
    pub fn place(&self, block: &mut [u8], file: u64, offset: u64, generation: u64) {
        if let Some(pattern) = &self.pattern {
            return pattern.place(block, file, offset, generation);
        }
        if self.kind.repeated().is_some() {
            return;
        }
        let mut draw = Random::of(&[self.seed, file, offset, generation]);
        let mut stamp = draw.next_u64();
        let dedupe = match self.kind {
            DataKind::Reducible { dedupe, .. } if dedupe > 0 => dedupe,
            _ => return random::stamp(block, &mut stamp),
        };
        if draw.below(100) < dedupe.into() {
            stamp = Random::of(&[self.seed, DEDUPE, draw.below(COMMON_BLOCKS)]).next_u64();
        }
        let mut random = Random::new(stamp);
        for sector in block.chunks_mut(SECTOR_BYTES) {
            let bytes = random_bytes(self.kind, sector.len());
            random.fill(sector.get_mut(..bytes).unwrap_or_default());
        }
    }

    /// Checks that a block is that of `file` at `offset`, in one of the `allowed` generations, and adds each wrong
    /// sector to `wrong`. Without `verify` every block is right. All sectors of a block have the same generation, so
    /// `allowed` is narrowed to that of the sectors checked.
    #[inline]
    pub fn check(
        &self,
        block: &[u8],
        file: u64,
        offset: u64,
        allowed: &mut RangeInclusive<u64>,
        wrong: &mut Mismatches,
    ) {
        if let Some(pattern) = &self.pattern {
            pattern.check(block, file, offset, allowed, wrong);
        }
    }
}

impl Content {
    /// As [`Content::check`], for data that were not written in one call: checks each sector by itself, since
    /// generations may differ between sectors.
    pub(crate) fn check_sectors(
        &self,
        read: &[u8],
        file: u64,
        offset: u64,
        generations: &RangeInclusive<u64>,
        wrong: &mut Mismatches,
    ) {
        let Some(pattern) = &self.pattern else {
            return;
        };
        let mut at = offset;
        for sector in read.chunks(SECTOR_BYTES) {
            pattern.check(sector, file, at, &mut generations.clone(), wrong);
            at = at.saturating_add(sector.len() as u64);
        }
    }

    /// As [`Content::check`], for a part of a block, which was read at `offset`.
    pub(crate) fn check_part(
        &self,
        part: &[u8],
        offset: u64,
        written: &Written,
        wrong: &mut Mismatches,
    ) {
        if let Some(pattern) = &self.pattern {
            pattern.check_part(part, offset, written, wrong);
        }
    }
}

#[cfg(test)]
mod tests;

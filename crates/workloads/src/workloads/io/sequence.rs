//! The operations of a worker on its file: offset, size and direction of each.
//!
//! The same seed gives the same sequence, in constant memory. A pass moves as many bytes as the region has. If several
//! threads share a file, each takes every n-th operation of one sequence, so that together they do what one thread
//! would.

use super::shared::Placement;
use super::sizes::Sizes;
use super::zipf::{Distribution, Zipf};
use crate::engine::author::*;

/// Order of the blocks within a pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum BlockOrder {
    Forward,
    Backward,
    /// Distance in blocks between the starts of consecutive operations. At the end of the file it wraps to the first
    /// block not used yet.
    Strided(u64),
    /// Always the first block.
    Same,
    /// Random, each block once per pass.
    EachOnce,
    /// Random, each draw independent of the others.
    Drawn(Distribution),
}

/// Whether blocks are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// Written into a new file.
    WriteNew,
    WriteOver,
    Read,
    /// This percentage is read, the rest is written.
    Mixed(u32),
}

impl Direction {
    pub(super) fn writes(self) -> bool {
        self != Direction::Read
    }
}

/// Parameters of a sequence.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pattern {
    pub direction: Direction,
    pub order: BlockOrder,
    pub sizes: Sizes,
    /// Start of the region.
    pub offset: u64,
    /// Length of the region: a multiple of the smallest size.
    pub region: u64,
    /// Passes over the region; `None`: unlimited.
    pub passes: Option<u64>,
    /// Limit on the bytes moved in all.
    pub io_size: Option<u64>,
}

/// One thread of several that share a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shard {
    pub index: u32,
    pub of: u32,
}

impl Shard {
    pub(super) const ONLY: Shard = Shard { index: 0, of: 1 };
}

/// One operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NextIo {
    pub offset: u64,
    pub bytes: u64,
    pub writes: bool,
}

impl NextIo {
    #[inline(always)]
    pub(super) fn op(&self) -> Op {
        match self.writes {
            true => Op::Write,
            false => Op::Read,
        }
    }
}

/// The operations of one worker.
#[derive(Debug)]
pub(super) struct Sequence {
    order: BlockOrder,
    read_percent: u64,
    sizes: Sizes,
    /// The only size, or the smallest.
    unit: u64,
    is_mix: bool,
    offset: u64,
    placement: Placement,
    region: u64,
    /// Whole blocks in the region.
    blocks: u64,
    /// Bytes left in this pass, bytes of this pass, and bytes left after it.
    left: u64,
    pass: u64,
    left_in_all: u64,
    passes_left: u64,
    /// Progress of each direction through the region, in bytes: writes, reads.
    come: [u64; 2],
    passes_done: u64,
    /// The next block of a strided order.
    strided: u64,
    /// Blocks drawn in this pass of a shuffled order.
    drawn_in_pass: u64,
    /// Operations of other threads to skip before the next one of this thread.
    skip: u32,
    shards: u32,
    random: Random,
    shuffle: Shuffle,
    zipf: Option<Zipf>,
}

impl Sequence {
    pub(super) fn new(pattern: &Pattern, shard: Shard, mut random: Random) -> Sequence {
        let unit = pattern.sizes.smallest();
        let blocks = pattern.region / unit;
        let shuffle = Shuffle::new(blocks, &mut random);
        let in_all = pattern.io_size.unwrap_or(u64::MAX);
        let pass = pattern.region.min(in_all);
        Sequence {
            order: pattern.order,
            read_percent: match pattern.direction {
                Direction::Read => 100,
                Direction::Mixed(percent) => percent.into(),
                Direction::WriteNew | Direction::WriteOver => 0,
            },
            sizes: pattern.sizes.clone(),
            unit,
            is_mix: pattern.sizes.is_mix(),
            offset: pattern.offset,
            placement: Placement::OWN_FILE,
            region: pattern.region,
            blocks,
            left: pass,
            pass,
            left_in_all: in_all - pass,
            passes_left: pattern.passes.unwrap_or(u64::MAX),
            come: [0, 0],
            passes_done: 0,
            strided: 0,
            drawn_in_pass: 0,
            skip: shard.index,
            shards: shard.of,
            random,
            shuffle,
            zipf: match pattern.order {
                BlockOrder::Drawn(Distribution::Zipf(theta)) => Some(Zipf::new(theta, blocks)),
                _ => None,
            },
        }
    }

    /// The same sequence, placed in a shared file.
    pub(super) fn placed(self, placement: Placement) -> Sequence {
        Sequence { placement, ..self }
    }

    /// Whether the sequence has written every block so far.
    pub(super) fn has_written_all(&self) -> bool {
        let each = matches!(self.order, BlockOrder::Forward | BlockOrder::EachOnce);
        each && self.read_percent == 0 && self.passes_done > 0
    }

    /// Whether computing the next operation takes negligible time.
    pub(super) fn is_cheap(&self) -> bool {
        self.shards == 1 && self.zipf.is_none()
    }

    /// The next operation of this thread; `None` at the end.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<NextIo> {
        if self.shards > 1 {
            self.skip_others()?;
        }
        self.next_of_all()
    }

    #[inline(never)]
    fn skip_others(&mut self) -> Option<()> {
        for _ in 0..self.skip {
            self.next_of_all()?;
        }
        self.skip = self.shards - 1;
        Some(())
    }

    #[inline(always)]
    fn next_of_all(&mut self) -> Option<NextIo> {
        if self.left == 0 && !self.begins_pass() {
            return None;
        }
        let reads = self.is_read();
        let bytes = match self.is_mix {
            false => self.unit,
            true => self.sizes.draw(&mut self.random),
        };
        let bytes = bytes.min(self.left);
        self.left -= bytes;
        let at = match self.order {
            BlockOrder::Forward => self.advance(reads, bytes),
            BlockOrder::Backward => self.region - self.advance(reads, bytes) - bytes,
            BlockOrder::Same => 0,
            BlockOrder::Strided(stride) => self.next_strided(stride) * self.unit,
            BlockOrder::EachOnce => self.next_each_once() * self.unit,
            BlockOrder::Drawn(_) => self.drawn(bytes),
        };
        Some(NextIo {
            offset: self.placement.base + (self.offset + at) * self.placement.factor,
            bytes,
            writes: !reads,
        })
    }

    #[inline(always)]
    fn is_read(&mut self) -> bool {
        match self.read_percent {
            0 => false,
            100 => true,
            percent => self.random.below(100) < percent,
        }
    }

    /// Reads and writes advance through the region separately, as in fio.
    #[inline(always)]
    fn advance(&mut self, reads: bool, bytes: u64) -> u64 {
        let [writes_come, reads_come] = &mut self.come;
        let come = if reads { reads_come } else { writes_come };
        let at = *come;
        *come += bytes;
        at
    }

    #[inline(always)]
    fn next_each_once(&mut self) -> u64 {
        let place = self.shuffle.place_of(self.drawn_in_pass);
        self.drawn_in_pass += 1;
        place
    }

    fn next_strided(&mut self, stride: u64) -> u64 {
        let block = self.strided;
        self.strided += stride;
        if self.strided >= self.blocks {
            self.strided = block % stride + 1;
        }
        block
    }

    fn drawn(&mut self, bytes: u64) -> u64 {
        // Avoid the division where possible: it costs as much as a clock reading.
        let places = match self.is_mix {
            true => (self.region - bytes) / self.unit + 1,
            false => self.blocks,
        };
        let place = match &self.zipf {
            // The shuffle spreads the popular blocks over the file, and stays the same in all passes.
            Some(zipf) => self.shuffle.place_of(zipf.draw(&mut self.random)),
            None => self.random.below(places),
        };
        place.min(places - 1) * self.unit
    }

    /// Starts the next pass; false if the sequence ends.
    #[cold]
    #[inline(never)]
    fn begins_pass(&mut self) -> bool {
        if self.pass == self.region {
            self.passes_done += 1;
        }
        self.passes_left = match self.passes_left {
            u64::MAX => u64::MAX,
            left => left.saturating_sub(1),
        };
        if self.passes_left == 0 || self.left_in_all == 0 {
            return false;
        }
        self.pass = self.region.min(self.left_in_all);
        self.left = self.pass;
        self.left_in_all -= self.pass;
        self.come = [0, 0];
        self.strided = 0;
        self.drawn_in_pass = 0;
        if self.order == BlockOrder::EachOnce {
            self.shuffle = Shuffle::new(self.blocks, &mut self.random);
        }
        true
    }
}

#[cfg(test)]
mod tests;

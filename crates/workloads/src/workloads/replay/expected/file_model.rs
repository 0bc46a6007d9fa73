//! Content of one file: the laid-out data, and the writes over it.

use crate::engine::author::*;
use std::collections::BTreeMap;

/// A part of a read, and the block it belongs to; `None`: never written, so it is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Piece {
    pub offset: u64,
    pub bytes: u64,
    pub from: Option<Written>,
}

/// Layout of a file, which may be too large to be stored block by block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LaidOut {
    pub file: u64,
    pub unit: u64,
    pub bytes: u64,
}

impl LaidOut {
    /// The block that contains `at`.
    fn block(self, at: u64) -> Written {
        let unit = self.unit.max(1);
        let offset = at - at % unit;
        Written {
            file: self.file,
            offset,
            bytes: unit.min(self.bytes.saturating_sub(offset)),
            generation: 0,
        }
    }
}

/// The parts of a read.
struct Pieces {
    found: Vec<Piece>,
    most: usize,
}

impl Pieces {
    /// `None`: there are too many.
    fn add(&mut self, offset: u64, until: u64, from: Option<Written>) -> Option<()> {
        if offset < until {
            let bytes = until - offset;
            self.found.push(Piece {
                offset,
                bytes,
                from,
            });
        }
        (self.found.len() <= self.most).then_some(())
    }
}

/// Content of a file.
#[derive(Debug, Default)]
pub(super) struct FileModel {
    laid: LaidOut,
    /// Bytes of the laid-out data that have never been truncated. Writes of the list hide them.
    laid_out: u64,
    /// Blocks by start, each with its end; they do not overlap.
    blocks: BTreeMap<u64, (u64, Written)>,
    pub is_unknown: bool,
}

impl FileModel {
    /// A file with unknown content.
    pub(super) fn unknown() -> Self {
        Self {
            is_unknown: true,
            ..Self::default()
        }
    }

    pub(super) fn laid_out(laid: LaidOut) -> Self {
        Self {
            laid,
            laid_out: laid.bytes,
            ..Self::default()
        }
    }

    pub(super) fn truncate(&mut self, bytes: u64) {
        self.cut(bytes, u64::MAX);
        self.laid_out = self.laid_out.min(bytes);
    }

    pub(super) fn write(&mut self, written: Written) {
        let until = written.offset.saturating_add(written.bytes);
        self.cut(written.offset, until);
        if written.bytes > 0 {
            self.blocks.insert(written.offset, (until, written));
        }
    }

    /// Removes writes from `from` to `until`.
    fn cut(&mut self, from: u64, until: u64) {
        let before = self.blocks.range(..from).next_back();
        if let Some((&begin, &(end, written))) = before
            && end > from
        {
            self.blocks.insert(begin, (from, written));
            if end > until {
                self.blocks.insert(until, (end, written));
            }
        }
        while let Some((&begin, &(end, written))) = self.blocks.range(from..until).next() {
            self.blocks.remove(&begin);
            if end > until {
                self.blocks.insert(until, (end, written));
            }
        }
    }

    pub(super) fn read(&self, offset: u64, bytes: u64, most: usize) -> Option<Box<[Piece]>> {
        let until = offset.saturating_add(bytes);
        let mut pieces = Pieces {
            found: Vec::new(),
            most,
        };
        let mut at = offset;
        let first = self.blocks.range(..offset).next_back();
        let rest = self.blocks.range(offset..until);
        for (&begin, &(end, written)) in first.into_iter().chain(rest) {
            if end <= at {
                continue;
            }
            self.add_unwritten(at, begin, &mut pieces)?;
            let end = end.min(until);
            pieces.add(at.max(begin), end, Some(written))?;
            at = end;
        }
        self.add_unwritten(at, until, &mut pieces)?;
        Some(pieces.found.into())
    }

    /// Parts not written by the list: laid-out data, and zeros after it.
    fn add_unwritten(&self, from: u64, until: u64, pieces: &mut Pieces) -> Option<()> {
        let laid_until = until.min(self.laid_out);
        let mut at = from;
        while at < laid_until {
            let written = self.laid.block(at);
            let end = written.offset.saturating_add(written.bytes).min(laid_until);
            pieces.add(at, end, Some(written))?;
            at = end;
        }
        pieces.add(at, until, None)
    }
}

//! Verifies a copy against its source or generated content.
//!
//! A file that was made here is held against what was written into it, so that what went wrong on the way in is found
//! on the way out; one that was found, against its source. The copy is read as any program reads it: it may come from
//! a cache.

use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ffi::CStr;

#[derive(Debug)]
pub(super) struct Verifier {
    content: Option<Content>,
    copy: Vec<u8>,
    source: Vec<u8>,
}

impl Verifier {
    /// `content` is what made files have in them, written in blocks of `unit` bytes.
    pub(super) fn new(content: Option<Content>, unit: usize) -> Self {
        Self {
            source: match content {
                Some(_) => Vec::new(),
                None => vec![1; unit],
            },
            content,
            copy: vec![1; unit],
        }
    }

    /// Reads all of the copy; file `index` has `bytes`. `reached` is told before each read how far it is.
    pub(super) fn check(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        name: &CStr,
        index: u64,
        bytes: u64,
        reached: impl FnMut(u64),
    ) -> Result<Moved, Fault> {
        let Self {
            content,
            copy,
            source,
        } = self;
        match content {
            Some(content) => {
                let mut blocks = Blocks::new(content, index, bytes);
                read_back(to, name, copy, &mut blocks, reached)
            }
            None => {
                let mut given = Given {
                    from,
                    name,
                    bytes,
                    file: None,
                    block: source,
                    have: 0,
                };
                read_back(to, name, copy, &mut given, reached)
            }
        }
    }
}

/// A file that the copy was made from, and that had `bytes` when it was looked at.
struct Given<'a> {
    from: BorrowedFd<'a>,
    name: &'a CStr,
    bytes: u64,
    file: Option<OwnedFd>,
    block: &'a mut [u8],
    have: usize,
}

impl Original for Given<'_> {
    fn next(&mut self, offset: u64, room: usize) -> Result<usize, CallError> {
        if self.file.is_none() {
            self.file = Some(calls::open_to_read(self.from, self.name)?);
        }
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        self.have = left.min(room).min(self.block.len());
        if let (Some(file), Some(block)) = (&self.file, self.block.get_mut(..self.have)) {
            calls::read_full(file.as_fd(), block, offset)?;
        }
        Ok(self.have)
    }

    fn check(&mut self, found: &[u8], offset: u64, wrong: &mut Mismatches) {
        let expected = self.block.get(..self.have).unwrap_or_default();
        wrong.compare(expected, found, offset);
    }

    /// A source that has grown since it was looked at was copied whole.
    fn ends(&mut self, offset: u64) -> Result<bool, CallError> {
        match &self.file {
            Some(file) => calls::is_at_end(file.as_fd(), offset),
            None => Ok(true),
        }
    }
}

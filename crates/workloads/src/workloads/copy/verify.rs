//! Verifies a copy against its source or generated content.
//!
//! A generated file is compared with its generated content, so that an error of the copy in is found at the copy out. A
//! file from `from` is compared with its source. The copy is read by ordinary reads and may come from a cache.

use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CStr;

#[derive(Debug)]
pub(super) struct Verifier {
    content: Option<Content>,
    copy: AlignedBytes,
    source: AlignedBytes,
}

impl Verifier {
    /// `content` is the content of generated files, written in blocks of `unit` bytes.
    pub(super) fn new(content: Option<Content>, unit: usize) -> Self {
        Self {
            source: match content {
                Some(_) => AlignedBytes::new(1, 0),
                None => AlignedBytes::new(1, unit),
            },
            content,
            copy: AlignedBytes::new(1, unit),
        }
    }

    /// Reads the whole copy of file `index`, which has `bytes`. `allow` is as in [`read_back`].
    pub(super) fn check(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        name: &CStr,
        index: u64,
        bytes: u64,
        allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
    ) -> Result<Moved, Fault> {
        let Self {
            content,
            copy,
            source,
        } = self;
        match content {
            Some(content) => {
                let mut blocks = Blocks::new(content, index, bytes);
                read_back(to, name, copy, &mut blocks, allow)
            }
            None => {
                let mut given = ScannedFile {
                    from,
                    name,
                    bytes,
                    file: None,
                    block: source,
                    have: 0,
                };
                read_back(to, name, copy, &mut given, allow)
            }
        }
    }
}

/// A source file that had `bytes` when it was scanned.
struct ScannedFile<'a> {
    from: BorrowedFd<'a>,
    name: &'a CStr,
    bytes: u64,
    file: Option<OwnedFd>,
    block: &'a mut [u8],
    have: usize,
}

impl Original for ScannedFile<'_> {
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

    /// A source that has grown since it was scanned was copied completely.
    fn ends(&mut self, offset: u64) -> Result<bool, CallError> {
        match &self.file {
            Some(file) => calls::is_at_end(file.as_fd(), offset),
            None => Ok(true),
        }
    }
}

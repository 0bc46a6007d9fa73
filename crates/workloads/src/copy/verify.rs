//! Looking at a copy: whether it is what it was made from.
//!
//! A file that was made here is held against what was written into it, so that what went wrong on the way in is found
//! on the way out; one that was found, against its source. The copy is read as any program reads it: it may come from
//! a cache.

use crate::data::{Content, Mismatch};
use crate::files::calls::{self, Fault, read_full};
use rustix::fd::{AsFd, BorrowedFd};
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
        reached: impl Fn(u64),
    ) -> Result<u64, Fault> {
        let copy = calls::open_to_read(to, name)?;
        let source = match self.content {
            Some(_) => None,
            None => Some(calls::open_to_read(from, name)?),
        };
        let mut have = 0;
        while have < bytes {
            reached(have);
            let length = usize::try_from(bytes - have).unwrap_or(usize::MAX);
            let length = length.min(self.copy.len());
            let block = self.copy.get_mut(..length).unwrap_or_default();
            read_full(copy.as_fd(), block, have)?;
            match (&self.content, &source) {
                (Some(content), _) => drop(content.check(block, index, have, 0..=0)?),
                (None, Some(source)) => {
                    let original = self.source.get_mut(..length).unwrap_or_default();
                    read_full(source.as_fd(), original, have)?;
                    Mismatch::compare(original, block, have)?;
                }
                (None, None) => {}
            }
            have += u64::try_from(length).unwrap_or(0);
        }
        // A source that has grown since it was looked at was copied whole.
        let ends_here = match &source {
            Some(source) => calls::is_at_end(source.as_fd(), have)?,
            None => true,
        };
        if ends_here {
            calls::ends_at(copy.as_fd(), have)?;
        }
        calls::close(copy)?;
        Ok(have)
    }
}

//! A source of a tree's entries, one after the other.
//!
//! Invariant: a path is relative, and has no `..`, no empty component and no component longer than a name can be. So it
//! can be followed component by component beneath a directory.

use crate::engine::author::*;
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// Maximum length of a path component.
pub(super) const MAX_NAME_BYTES: usize = 255;
pub(super) const MAX_PATH_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Directory,
    File,
    Symlink,
    /// A hard link to an earlier file of the tree.
    Link,
}

/// One entry of the tree. It is reused for the next one to reuse its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub kind: EntryKind,
    pub path: Vec<u8>,
    /// Target of a symlink, or path of the file that a link refers to.
    pub target: Vec<u8>,
    pub bytes: u64,
    /// Of the permissions, only whether the user can execute the file is kept.
    pub executable: bool,
}

impl TreeEntry {
    pub(super) fn new() -> Self {
        Self {
            kind: EntryKind::Directory,
            path: Vec::new(),
            target: Vec::new(),
            bytes: 0,
            executable: false,
        }
    }
}

/// Why the next entry cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("{0}")]
    Refused(String),
    #[error("the archive cannot be read")]
    Io(#[from] io::Error),
}

pub(super) trait TreeSource: Send {
    /// Reads the next entry; false at the end. Skips the rest of the previous entry's content.
    fn next(&mut self, entry: &mut TreeEntry) -> Result<bool, SourceError>;

    /// The next piece of the entry's content, at most one unit; empty at its end.
    fn content(&mut self) -> io::Result<&[u8]>;

    /// Time spent on producing pieces since the last call, if it was more than a stamp.
    fn take_excluded_time(&mut self) -> Duration;

    /// Compares what was read at `offset` with the last piece, or with the beginning of it.
    fn check(&self, found: &[u8], offset: u64, wrong: &mut Mismatches);
}

/// Error of an operation whose content cannot be read from `offset` on.
pub(super) fn unreadable(error: &io::Error, offset: u64) -> CallError {
    let errno = error.raw_os_error().unwrap_or(libc::ENODATA);
    CallError::at(Errno::from_raw_os_error(errno), offset)
}

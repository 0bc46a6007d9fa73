//! What a tree is made of, one thing after the other, wherever it comes from.
//!
//! Invariant: a path is relative, has no `..`, no empty component and none longer than a name can be; so it can be
//! followed component by component beneath a directory.

use crate::engine::author::*;
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// A component of a path may not be longer.
pub(super) const MOST_NAME_BYTES: usize = 255;
pub(super) const MOST_PATH_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    Directory,
    File,
    Symlink,
    /// To a file of the tree that came before.
    Link,
}

/// One thing of the tree; reused for the next one, so that its memory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub kind: EntryKind,
    pub path: Vec<u8>,
    /// What a symlink says, or the path of the file that a link is to.
    pub target: Vec<u8>,
    pub bytes: u64,
    /// Permissions, of which only the user's own and whether it can be executed are kept.
    pub executable: bool,
}

impl Entry {
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

/// Why there is no next entry.
#[derive(Debug, thiserror::Error)]
pub(super) enum SourceError {
    #[error("{0}")]
    Refused(String),
    #[error("the archive cannot be read")]
    Io(#[from] io::Error),
}

pub(super) trait Source: Send {
    /// The next entry; false at the end. What is left of the content of the one before is passed over.
    fn next(&mut self, entry: &mut Entry) -> Result<bool, SourceError>;

    /// The next piece of the content of the entry, at most a unit; empty at its end.
    fn content(&mut self) -> io::Result<&[u8]>;

    /// What pieces took since this was asked last, where it was more than a stamp.
    fn take_excluded_time(&mut self) -> Duration;

    /// Holds what was read at `offset` against the piece that was given last: all of it, or its beginning.
    fn check(&self, found: &[u8], offset: u64, wrong: &mut Mismatches);
}

/// Why an operation cannot go on whose content cannot be had from `offset` on.
pub(super) fn unreadable(error: &io::Error, offset: u64) -> CallError {
    let errno = error.raw_os_error().unwrap_or(libc::ENODATA);
    CallError::at(Errno::from_raw_os_error(errno), offset)
}

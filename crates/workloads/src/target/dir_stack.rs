//! The stack of open directories from the root to the current one.
//!
//! Each step is one component, opened beneath the one before, and never a symlink: so nothing above or beside the root
//! is reached, whatever a path says and whatever happens to the names meanwhile.

use crate::target::sandbox::Dir;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};

/// To stand in a directory, not to read it.
const STAND: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Deeper than a path can be.
const MOST_DEPTH: usize = 2048;

/// A directory to stand in; a symlink of that name is refused.
pub(crate) fn stand_in(parent: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    openat(parent, name, STAND, Mode::empty())
}

#[derive(Debug)]
pub(crate) struct Stack {
    root: Dir,
    stack: Vec<(CString, OwnedFd)>,
}

impl Stack {
    pub(crate) fn new(root: Dir) -> Self {
        Self {
            root,
            stack: Vec::new(),
        }
    }

    pub(crate) fn root(&self) -> &Dir {
        &self.root
    }

    pub(crate) fn top(&self) -> BorrowedFd<'_> {
        match self.stack.last() {
            Some((_, fd)) => fd.as_fd(),
            None => self.root.fd(),
        }
    }

    /// Pops directories down to the common prefix with `directories`; returns its length.
    pub(crate) fn back_to_common(&mut self, directories: &[u8]) -> usize {
        let mut common = 0;
        for ((name, _), wanted) in self.stack.iter().zip(components(directories)) {
            if name.to_bytes() != wanted {
                break;
            }
            common += 1;
        }
        self.stack.truncate(common);
        common
    }

    /// The directory of a path from the root, whatever the stack holds.
    pub(crate) fn find(&self, directories: &[u8]) -> Result<OwnedFd, Errno> {
        let mut at = stand_in(self.root.fd(), c".")?;
        for part in components(directories) {
            at = stand_in(at.as_fd(), &c_string(part))?;
        }
        Ok(at)
    }

    pub(crate) fn step(&mut self, name: CString) -> Result<(), Errno> {
        if self.stack.len() >= MOST_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let fd = stand_in(self.top(), &name)?;
        self.stack.push((name, fd));
        Ok(())
    }
}

/// The components of a path as `tree` has them.
pub(crate) fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/')
        .filter(|part| !part.is_empty())
}

/// The directories of a path, and its last component.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (
            path.get(..at).unwrap_or_default(),
            path.get(at + 1..).unwrap_or_default(),
        ),
        None => (&[], path),
    }
}

/// Paths are checked for NUL where they come from.
pub(crate) fn c_string(bytes: &[u8]) -> CString {
    CString::new(bytes).unwrap_or_default()
}

//! A position in a tree of directories. All directories from the root to the current one are kept open.
//!
//! Each step opens one component beneath the previous directory and never follows a symlink. So nothing above or beside
//! the root is reached, whatever the path and whatever happens to the names meanwhile.

mod current_path;

pub(crate) use current_path::CurrentPath;

use crate::target::sandbox::Dir;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Flags for opening a directory in which names are resolved, but which is not listed.
pub(crate) const PARENT: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Deeper than any path can be.
const MAX_DEPTH: usize = 2048;
/// A longer path makes the cursor allocate once.
const PATH_BYTES: usize = 4096;

/// Opens a directory beneath `root`, component by component, each by `how`.
pub(crate) fn find<'a>(
    root: &Dir,
    path: impl IntoIterator<Item = &'a [u8]>,
    how: OFlags,
) -> Result<OwnedFd, Errno> {
    let mut at = openat(root.fd(), c".", how, Mode::empty())?;
    for part in path {
        at = openat(&at, c_string(part), how, Mode::empty())?;
    }
    Ok(at)
}

#[derive(Debug)]
pub(crate) struct Cursor {
    root: Dir,
    levels: Vec<Level>,
    /// Path from the root to the current directory.
    path: Vec<u8>,
    /// Publishes the position to other threads.
    shown: Option<Arc<CurrentPath>>,
}

#[derive(Debug)]
struct Level {
    name: CString,
    fd: OwnedFd,
    /// Length of the path of the parent directory.
    path_above: usize,
}

impl Cursor {
    /// A cursor at the root.
    pub(crate) fn new(root: Dir) -> Self {
        Self {
            root,
            levels: Vec::new(),
            path: Vec::with_capacity(PATH_BYTES),
            shown: None,
        }
    }

    /// As [`Cursor::new`], for a worker that publishes its position.
    pub(crate) fn shown(root: Dir, current_path: Arc<CurrentPath>) -> Self {
        Self {
            shown: Some(current_path),
            ..Self::new(root)
        }
    }

    pub(crate) fn root(&self) -> &Dir {
        &self.root
    }

    /// The current directory.
    pub(crate) fn dir(&self) -> BorrowedFd<'_> {
        match self.levels.last() {
            Some(level) => level.fd.as_fd(),
            None => self.root.fd(),
        }
    }

    /// The path of a name in the current directory, for messages.
    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        let here = self.path_from_root(&self.path);
        here.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// A path from the root, for messages.
    pub(crate) fn path_from_root(&self, path: &[u8]) -> PathBuf {
        self.root.path().join(Path::new(OsStr::from_bytes(path)))
    }

    /// Publishes the path of the next operation.
    #[inline]
    pub(crate) fn show(&self, directories: &[u8], name: &[u8]) {
        if let Some(shown) = &self.shown {
            shown.go(directories, name);
        }
    }

    /// As [`Cursor::show`], for a name in the current directory.
    #[inline]
    pub(crate) fn show_here(&self, name: &[u8]) {
        self.show(&self.path, name);
    }

    /// Goes to the directory with this path from the root: up as far as needed, then down by `step`, which has to call
    /// [`Cursor::down`] for each component.
    pub(crate) fn go<E>(
        &mut self,
        directories: &[u8],
        mut step: impl FnMut(&mut Self, CString) -> Result<(), E>,
    ) -> Result<(), E> {
        let levels = self.levels.iter().map(|level| level.name.to_bytes());
        let common = levels.zip(components(directories));
        let common = common.take_while(|(is, wanted)| is == wanted).count();
        self.up_to(common);
        components(directories)
            .skip(common)
            .try_for_each(|part| step(self, c_string(part)))
    }

    /// Enters a directory in the current one.
    pub(crate) fn down(&mut self, name: CString) -> Result<(), Errno> {
        if self.levels.len() >= MAX_DEPTH {
            return Err(Errno::NAMETOOLONG);
        }
        let fd = openat(self.dir(), &name, PARENT, Mode::empty())?;
        let path_above = self.path.len();
        if path_above > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name.to_bytes());
        self.levels.push(Level {
            name,
            fd,
            path_above,
        });
        Ok(())
    }

    /// Leaves the current directory and returns its name. `None` at the root.
    pub(crate) fn up(&mut self) -> Option<CString> {
        let left = self.levels.pop()?;
        self.path.truncate(left.path_above);
        Some(left.name)
    }

    /// Leaves all directories but the first `depth`.
    pub(crate) fn up_to(&mut self, depth: usize) {
        if let Some(first) = self.levels.get(depth) {
            self.path.truncate(first.path_above);
            self.levels.truncate(depth);
        }
    }
}

/// The components of a path as stored in a `tree`.
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

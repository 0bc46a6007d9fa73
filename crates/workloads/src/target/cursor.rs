//! A position in a tree of directories: those on the way from the root to the current one, each kept open.
//!
//! Each step is one component, opened beneath the one before, and never a symlink: so nothing above or beside the root
//! is reached, whatever a path says and whatever happens to the names meanwhile.

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

/// How a directory is opened that names are resolved in, and that is not read.
pub(crate) const PARENT: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Deeper than a path can be.
const MAX_DEPTH: usize = 2048;
/// A longer path makes the cursor allocate, once.
const PATH_BYTES: usize = 4096;

/// Opens a directory beneath `root`, component by component, each in the way of `how`.
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
    /// From the root to the current directory.
    path: Vec<u8>,
    /// Where other threads read the position.
    shown: Option<Arc<CurrentPath>>,
}

#[derive(Debug)]
struct Level {
    name: CString,
    fd: OwnedFd,
    /// Bytes of the path of the directory that it is in.
    path_above: usize,
}

impl Cursor {
    /// At the root.
    pub(crate) fn new(root: Dir) -> Self {
        Self {
            root,
            levels: Vec::new(),
            path: Vec::with_capacity(PATH_BYTES),
            shown: None,
        }
    }

    /// The same, for a worker whose position is read by others.
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

    /// For messages: the path of something in the current directory.
    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        let here = self.path_from_root(&self.path);
        here.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// For messages: a path from the root.
    pub(crate) fn path_from_root(&self, path: &[u8]) -> PathBuf {
        self.root.path().join(Path::new(OsStr::from_bytes(path)))
    }

    /// Tells others what the worker is about to do something to.
    #[inline]
    pub(crate) fn show(&self, directories: &[u8], name: &[u8]) {
        if let Some(shown) = &self.shown {
            shown.go(directories, name);
        }
    }

    /// The same of something in the current directory.
    #[inline]
    pub(crate) fn show_here(&self, name: &[u8]) {
        self.show(&self.path, name);
    }

    /// Goes to the directory with this path from the root: up as far as needed, then down by `step`, which has to end
    /// in [`Cursor::down`] for each component.
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

    /// Leaves the current directory; its name. `None` at the root.
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

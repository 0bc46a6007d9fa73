//! Through a tree that is there, depth first: looking at everything, or removing it.
//!
//! It stands in each directory by a descriptor of its own and takes names one at a time, so that it never leaves the
//! tree. What has vanished meanwhile is a failed operation; the rest goes on.

use super::current_path::CurrentPath;
use super::log::{Flow, Log};
use crate::engine::passes::Pass;
use crate::measure::op::Op;
use crate::target::calls::{self, listing_buffer};
use crate::target::dir_stack::stand_in;
use crate::target::fault::Fault;
use crate::target::read_back::Moved;
use crate::target::sandbox::Dir;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const LIST: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// Room for the names on the stack, and for what they are: as much as directories of 50000 names with 20 bytes each need. Only a
/// tree that has more makes a list wait for memory, once.
const NAMES_BYTES: usize = 1 << 20;
const ENTRIES: usize = 50_000;

pub(super) struct TreeWalker {
    root: Dir,
    buffer: Vec<MaybeUninit<u8>>,
    /// Names of the directories on the stack, each with its end: what is left of a directory that is done is used again.
    names: Vec<u8>,
    /// What is left to do in each directory on the stack, the last one's at the end: what comes first is last.
    entries: Vec<Named>,
    /// The path of the last directory of the stack.
    path: Vec<u8>,
    current_path: Arc<CurrentPath>,
}

/// A directory on the stack.
struct Level {
    /// To stand in; `None` for the root.
    fd: Option<OwnedFd>,
    name: CString,
    /// Where its names end in the list of all, and what is left to do in it begins.
    names_until: usize,
    entries_from: usize,
    /// Bytes of the path of the directory that it is in.
    path_above: usize,
}

#[derive(Clone, Copy)]
struct Named {
    at: usize,
    kind: FileType,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkKind {
    Look,
    Remove,
}

impl TreeWalker {
    pub(super) fn new(root: Dir, current_path: Arc<CurrentPath>) -> Self {
        Self {
            root,
            buffer: listing_buffer(),
            names: Vec::with_capacity(NAMES_BYTES),
            entries: Vec::with_capacity(ENTRIES),
            path: Vec::with_capacity(4096),
            current_path,
        }
    }

    pub(super) fn walk<L: Log>(&mut self, log: &mut L) -> Result<Pass, L::Error> {
        self.tree_walker(WalkKind::Look, log)
    }

    /// Everything in the root; the root itself stays.
    pub(super) fn remove<L: Log>(&mut self, log: &mut L) -> Result<Pass, L::Error> {
        self.tree_walker(WalkKind::Remove, log)
    }

    fn tree_walker<L: Log>(&mut self, walk_kind: WalkKind, log: &mut L) -> Result<Pass, L::Error> {
        self.names.clear();
        self.entries.clear();
        self.path.clear();
        let mut stack: Vec<Level> = Vec::new();
        let mut pass = Pass::Whole;
        let (flow, top) = self.open(&stack, c".".to_owned(), log)?;
        if flow.ends(&mut pass) {
            return Ok(pass);
        }
        stack.extend(top);
        while let Some(from) = stack.last().map(|level| level.entries_from) {
            let next = match self.entries.len() > from {
                true => self.entries.pop(),
                false => None,
            };
            let flow = match next {
                Some(entry) => self.entry(&mut stack, entry, walk_kind, log)?,
                None => self.leave(&mut stack, walk_kind, log)?,
            };
            if flow.ends(&mut pass) {
                break;
            }
        }
        Ok(pass)
    }

    /// One name in the last directory of the stack; a directory becomes the last one.
    fn entry<L: Log>(
        &mut self,
        stack: &mut Vec<Level>,
        entry: Named,
        walk_kind: WalkKind,
        log: &mut L,
    ) -> Result<Flow, L::Error> {
        let name = self.name(entry);
        let dir = stack
            .last()
            .map_or(self.root.fd(), |level| level.dir(&self.root));
        self.current_path.go(&self.path, name.to_bytes());
        let path = || path_of(&self.root, stack, &name);
        let mut kind = entry.kind;
        let flow = match walk_kind {
            WalkKind::Look => log.operation(Op::Stat, 0, path, |_| {
                kind = kind_of(dir, &name)?;
                Ok(Some(Moved::NOTHING))
            })?,
            WalkKind::Remove => {
                if kind == FileType::Unknown {
                    let found = log.untimed(Op::Delete, || kind_of(dir, &name));
                    kind = found.unwrap_or(FileType::Unknown);
                }
                match kind {
                    FileType::Directory => Flow::Done,
                    _ => log.operation(Op::Delete, 0, path, |_| {
                        calls::delete(dir, &name)?;
                        Ok(Some(Moved::NOTHING))
                    })?,
                }
            }
        };
        if flow != Flow::Done || kind != FileType::Directory {
            return Ok(flow);
        }
        let (flow, below) = self.open(stack, name, log)?;
        stack.extend(below);
        Ok(flow)
    }

    /// Back from the last directory of the stack, in which nothing is left to do.
    fn leave<L: Log>(
        &mut self,
        stack: &mut Vec<Level>,
        walk_kind: WalkKind,
        log: &mut L,
    ) -> Result<Flow, L::Error> {
        let done = stack.pop();
        let (Some(done), Some(above)) = (done, stack.last()) else {
            return Ok(Flow::Done);
        };
        self.names.truncate(above.names_until);
        self.path.truncate(done.path_above);
        if walk_kind == WalkKind::Look {
            return Ok(Flow::Done);
        }
        let dir = above.dir(&self.root);
        self.current_path.go(&self.path, done.name.to_bytes());
        let path = || path_of(&self.root, stack, &done.name);
        log.operation(Op::Rmdir, 0, path, |_| {
            calls::remove_directory(dir, &done.name)?;
            Ok(Some(Moved::NOTHING))
        })
    }

    /// Lists a directory in the last one of the stack, and goes to stand in it.
    fn open<L: Log>(
        &mut self,
        stack: &[Level],
        name: CString,
        log: &mut L,
    ) -> Result<(Flow, Option<Level>), L::Error> {
        let parent = stack
            .last()
            .map_or(self.root.fd(), |level| level.dir(&self.root));
        let (names, buffer, root) = (&mut self.names, &mut self.buffer, &self.root);
        let entries = &mut self.entries;
        let entries_from = entries.len();
        let path = || path_of(root, stack, &name);
        let is_root = stack.is_empty();
        let shown: &[u8] = if is_root { &[] } else { name.to_bytes() };
        self.current_path.go(&self.path, shown);
        let flow = log.operation(Op::List, 0, path, |_| {
            let before = names.len();
            let listed = list(parent, &name, buffer, |kind, entry| {
                entries.push(Named {
                    at: names.len(),
                    kind,
                });
                names.extend_from_slice(entry.to_bytes_with_nul());
            });
            if listed.is_err() {
                names.truncate(before);
                entries.truncate(entries_from);
            }
            listed.map(|()| Some(Moved::NOTHING)).map_err(Fault::from)
        })?;
        if flow != Flow::Done {
            return Ok((flow, None));
        }
        let fd = match is_root {
            true => None,
            false => match log.untimed(Op::List, || stand_in(parent, &name)) {
                Ok(fd) => Some(fd),
                // It vanished since it was listed.
                Err(errno) => {
                    self.entries.truncate(entries_from);
                    let flow = log.operation(Op::List, 0, path, |_| Err(Fault::from(errno)))?;
                    return Ok((flow, None));
                }
            },
        };
        // From the end: what comes first is popped first.
        if let Some(own) = self.entries.get_mut(entries_from..) {
            own.reverse();
        }
        let path_above = self.path.len();
        if !is_root {
            if path_above > 0 {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.to_bytes());
        }
        let level = Level {
            fd,
            name,
            entries_from,
            names_until: self.names.len(),
            path_above,
        };
        Ok((flow, Some(level)))
    }

    fn name(&self, entry: Named) -> CString {
        let bytes = self.names.get(entry.at..).unwrap_or_default();
        CStr::from_bytes_until_nul(bytes)
            .unwrap_or_default()
            .to_owned()
    }
}

impl Level {
    fn dir<'a>(&'a self, root: &'a Dir) -> BorrowedFd<'a> {
        self.fd.as_ref().map_or(root.fd(), AsFd::as_fd)
    }
}

/// Opens a directory, reads it to its end, closes it.
fn list(
    parent: BorrowedFd<'_>,
    name: &CStr,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(FileType, &CStr),
) -> Result<(), Errno> {
    let fd = openat(parent, name, LIST, Mode::empty())?;
    {
        let mut entries = RawDir::new(&fd, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                each(entry.file_type(), entry.file_name());
            }
        }
    }
    calls::close(fd)
}

fn kind_of(dir: BorrowedFd<'_>, name: &CStr) -> Result<FileType, Errno> {
    let facts = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(facts.st_mode))
}

/// For messages.
fn path_of(root: &Dir, stack: &[Level], name: &CStr) -> PathBuf {
    let mut path = root.path().to_owned();
    for level in stack.iter().skip(1) {
        path.push(Path::new(&*level.name.to_string_lossy()));
    }
    path.push(Path::new(&*name.to_string_lossy()));
    path
}

//! Walks an existing tree depth first, to stat everything or to remove it.
//!
//! It enters each directory by a descriptor and resolves one name at a time, so it never leaves the tree. An entry that
//! has vanished is a failed operation; the walk continues.

use super::log::{Flow, Log, NO_BYTES};
use crate::engine::author::*;
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, FileType, statat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;

/// Initial capacity for names and entries: enough for directories of 50000 names with 20 bytes each. Only a larger tree
/// makes a listing wait for memory, once.
const NAMES_BYTES: usize = 1 << 20;
const ENTRIES: usize = 50_000;

pub(super) struct TreeWalker {
    cursor: Cursor,
    /// The directories from the root to the current one.
    levels: Vec<Level>,
    buffer: Vec<MaybeUninit<u8>>,
    /// NUL-terminated names of the directories on the path; the memory of finished directories is reused.
    names: Vec<u8>,
    /// Entries left in each directory on the path, the current one's last. The first to visit is at the end.
    entries: Vec<Named>,
}

/// A directory on the path.
struct Level {
    /// End of its names in `names`, and start of its entries in `entries`.
    names_until: usize,
    entries_from: usize,
}

#[derive(Clone, Copy)]
struct Named {
    at: usize,
    kind: FileType,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkKind {
    Stat,
    Remove,
}

impl TreeWalker {
    /// `cursor` must be at the root of the tree.
    pub(super) fn new(cursor: Cursor) -> Self {
        Self {
            cursor,
            levels: Vec::new(),
            buffer: calls::listing_buffer(),
            names: Vec::with_capacity(NAMES_BYTES),
            entries: Vec::with_capacity(ENTRIES),
        }
    }

    pub(super) fn walk<L: Log>(&mut self, log: &mut L) -> Result<Pass, L::Error> {
        self.tree_walker(WalkKind::Stat, log)
    }

    /// Removes everything in the root, but not the root itself.
    pub(super) fn remove<L: Log>(&mut self, log: &mut L) -> Result<Pass, L::Error> {
        self.tree_walker(WalkKind::Remove, log)
    }

    fn tree_walker<L: Log>(&mut self, walk_kind: WalkKind, log: &mut L) -> Result<Pass, L::Error> {
        self.names.clear();
        self.entries.clear();
        self.levels.clear();
        self.cursor.up_to(0);
        let mut pass = Pass::Whole;
        if self.open(None, log)?.ends(&mut pass) {
            return Ok(pass);
        }
        while let Some(from) = self.levels.last().map(|level| level.entries_from) {
            let next = match self.entries.len() > from {
                true => self.entries.pop(),
                false => None,
            };
            let flow = match next {
                Some(entry) => self.entry(entry, walk_kind, log)?,
                None => self.leave(walk_kind, log)?,
            };
            if flow.ends(&mut pass) {
                break;
            }
        }
        Ok(pass)
    }

    /// Visits one name in the current directory; enters a directory.
    fn entry<L: Log>(
        &mut self,
        entry: Named,
        walk_kind: WalkKind,
        log: &mut L,
    ) -> Result<Flow, L::Error> {
        let name = self.name(entry);
        let dir = self.cursor.dir();
        self.cursor.show_here(name.to_bytes());
        let path = || self.cursor.path_of(&name);
        let mut kind = entry.kind;
        let flow = match walk_kind {
            WalkKind::Stat => log.operation(Op::Stat, NO_BYTES, path, |_| {
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
                    _ => log.operation(Op::Delete, NO_BYTES, path, |_| {
                        calls::delete(dir, &name)?;
                        Ok(Some(Moved::NOTHING))
                    })?,
                }
            }
        };
        match (flow, kind) {
            (Flow::Done, FileType::Directory) => self.open(Some(name), log),
            (flow, _) => Ok(flow),
        }
    }

    /// Leaves the current directory, which has no entries left.
    fn leave<L: Log>(&mut self, walk_kind: WalkKind, log: &mut L) -> Result<Flow, L::Error> {
        self.levels.pop();
        let (Some(above), Some(name)) = (self.levels.last(), self.cursor.up()) else {
            return Ok(Flow::Done);
        };
        self.names.truncate(above.names_until);
        if walk_kind == WalkKind::Stat {
            return Ok(Flow::Done);
        }
        let dir = self.cursor.dir();
        self.cursor.show_here(name.to_bytes());
        let path = || self.cursor.path_of(&name);
        log.operation(Op::Rmdir, NO_BYTES, path, |_| {
            calls::remove_directory(dir, &name)?;
            Ok(Some(Moved::NOTHING))
        })
    }

    /// Lists a subdirectory of the current directory, or the root, and enters it.
    fn open<L: Log>(&mut self, name: Option<CString>, log: &mut L) -> Result<Flow, L::Error> {
        let Self {
            cursor,
            buffer,
            names,
            entries,
            ..
        } = self;
        let entries_from = entries.len();
        let shown = name.as_deref().unwrap_or(c"");
        cursor.show_here(shown.to_bytes());
        let flow = log.operation(
            Op::List,
            NO_BYTES,
            || cursor.path_of(shown),
            |_| {
                let before = names.len();
                let at = name.as_deref().unwrap_or(c".");
                let listed = calls::list_all(cursor.dir(), at, buffer, |_, entry, kind| {
                    entries.push(Named {
                        at: names.len(),
                        kind,
                    });
                    names.extend_from_slice(entry.to_bytes_with_nul());
                    Ok(())
                });
                if listed.is_err() {
                    names.truncate(before);
                    entries.truncate(entries_from);
                }
                listed.map(|()| Some(Moved::NOTHING)).map_err(Fault::from)
            },
        )?;
        if flow != Flow::Done {
            return Ok(flow);
        }
        if let Some(name) = name
            && let Err(errno) = log.untimed(Op::List, || cursor.down(name.clone()))
        {
            // It has vanished since it was listed.
            entries.truncate(entries_from);
            let path = || cursor.path_of(&name);
            return log.operation(Op::List, NO_BYTES, path, |_| Err(Fault::from(errno)));
        }
        // Reverse, because entries are popped from the end.
        if let Some(own) = entries.get_mut(entries_from..) {
            own.reverse();
        }
        self.levels.push(Level {
            entries_from,
            names_until: names.len(),
        });
        Ok(flow)
    }

    fn name(&self, entry: Named) -> CString {
        let bytes = self.names.get(entry.at..).unwrap_or_default();
        CStr::from_bytes_until_nul(bytes)
            .unwrap_or_default()
            .to_owned()
    }
}

fn kind_of(dir: BorrowedFd<'_>, name: &CStr) -> Result<FileType, Errno> {
    let facts = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(FileType::from_raw_mode(facts.st_mode))
}

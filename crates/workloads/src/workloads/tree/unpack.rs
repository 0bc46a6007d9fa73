//! Creates a tree entry by entry, in the order of its source.
//!
//! Between two operations it reads ahead in the source and enters the directory of the next entry. Reading the source
//! within a file is no part of the operation's time. A directory without an entry in the archive is created on the way,
//! and recorded like the others.

use super::log::{Allow, Flow, Log, NO_BYTES, each_entry};
use super::source::{EntryKind, TreeEntry, TreeSource, unreadable};
use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, linkat, mkdirat, openat, statat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::{CStr, CString};

const NEW: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::WRONLY)
    .union(OFlags::CLOEXEC);
const FILE: Mode = Mode::RUSR
    .union(Mode::WUSR)
    .union(Mode::RGRP)
    .union(Mode::ROTH);
const EXECUTABLE: Mode = FILE.union(Mode::XUSR).union(Mode::XGRP).union(Mode::XOTH);

pub(super) struct Unpacker {
    pub cursor: Cursor,
    pub durable: Durable,
    /// Bytes of a write call.
    pub unit: usize,
}

impl Unpacker {
    pub(super) fn all<L: Log>(
        &mut self,
        source: &mut dyn TreeSource,
        log: &mut L,
    ) -> Result<Pass, L::Error> {
        each_entry(source, log, |entry, source, log| {
            match self.enter(entry, log)? {
                Flow::Done => self.make(entry, source, log),
                other => Ok(other),
            }
        })
    }

    /// Enters the directory of the entry.
    fn enter<L: Log>(&mut self, entry: &TreeEntry, log: &mut L) -> Result<Flow, L::Error> {
        let (directories, last) = cursor::split(&entry.path);
        self.cursor.show(directories, last);
        let entered = self.cursor.go(directories, |cursor, name| {
            match enter_or_make(cursor, name, entry, log) {
                Ok(Flow::Done) => Ok(()),
                ended => Err(ended),
            }
        });
        entered.err().unwrap_or(Ok(Flow::Done))
    }

    /// Creates the entry in the current directory.
    fn make<L: Log>(
        &self,
        entry: &TreeEntry,
        source: &mut dyn TreeSource,
        log: &mut L,
    ) -> Result<Flow, L::Error> {
        let dir = self.cursor.dir();
        let (_, last) = cursor::split(&entry.path);
        let name = cursor::c_string(last);
        let path = || self.cursor.path_from_root(&entry.path);
        let op = op_of(entry.kind);
        match entry.kind {
            EntryKind::Directory => {
                log.operation(op, NO_BYTES, path, |_| make_directory(dir, &name))
            }
            EntryKind::File => log.operation(op, (entry.bytes, self.unit), path, |allow| {
                let written = self.file((dir, &name), entry, source, allow);
                let excluded = source.take_excluded_time();
                let bytes = written?;
                Ok(Some(Moved { bytes, excluded }))
            }),
            EntryKind::Symlink => {
                let target = cursor::c_string(&entry.target);
                log.operation(op, NO_BYTES, path, |_| {
                    calls::make_symlink(dir, &name, &target)?;
                    Ok(Some(Moved::NOTHING))
                })
            }
            EntryKind::Link => {
                let (directories, old) = cursor::split(&entry.target);
                let old = cursor::c_string(old);
                let found = log.untimed(op, || -> Result<OwnedFd, Errno> {
                    let found = cursor::find(
                        self.cursor.root(),
                        cursor::components(directories),
                        cursor::PARENT,
                    )?;
                    check_not_symlink(found.as_fd(), &old)?;
                    Ok(found)
                });
                log.operation(op, NO_BYTES, path, |_| {
                    linkat(&found?, &old, dir, &name, AtFlags::empty())?;
                    Ok(Some(Moved::NOTHING))
                })
            }
        }
    }

    fn file(
        &self,
        (dir, name): (BorrowedFd<'_>, &CStr),
        entry: &TreeEntry,
        source: &mut dyn TreeSource,
        allow: Allow<'_>,
    ) -> Result<u64, CallError> {
        let mode = if entry.executable { EXECUTABLE } else { FILE };
        let fd = retry_on_intr(|| openat(dir, name, NEW, mode))?;
        let mut written = 0;
        loop {
            let mut piece = source
                .content()
                .map_err(|error| unreadable(&error, written))?;
            if piece.is_empty() {
                break;
            }
            while !piece.is_empty() {
                let chunk = calls::allowed_part(&mut piece, written, &mut *allow)?;
                calls::write_all(fd.as_fd(), chunk, &mut written)?;
            }
        }
        if self.durable == Durable::Fsync {
            rustix::fs::fsync(&fd).map_err(|errno| CallError::at(errno, written))?;
        }
        calls::close(fd).map_err(|errno| CallError::at(errno, written))?;
        Ok(written)
    }
}

/// Refuses (PERM) a symlink: from another directory its text may lead out of the tree.
fn check_not_symlink(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    let facts = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(facts.st_mode) {
        FileType::Symlink => Err(Errno::PERM),
        _ => Ok(()),
    }
}

/// Enters a directory on the path of an entry; creates it if missing.
fn enter_or_make<L: Log>(
    cursor: &mut Cursor,
    name: CString,
    entry: &TreeEntry,
    log: &mut L,
) -> Result<Flow, L::Error> {
    if log.has_to_end() {
        return Ok(Flow::Stop);
    }
    let op = op_of(entry.kind);
    let mut entered = log.untimed(op, || cursor.down(name.clone()));
    if entered == Err(Errno::NOENT) {
        let path = || cursor.path_from_root(&entry.path);
        let flow = log.operation(Op::Mkdir, NO_BYTES, path, |_| {
            make_directory(cursor.dir(), &name)
        })?;
        if flow != Flow::Done {
            return Ok(flow);
        }
        entered = log.untimed(op, || cursor.down(name));
    }
    match entered {
        Ok(()) => Ok(Flow::Done),
        Err(errno) => {
            let path = || cursor.path_from_root(&entry.path);
            log.operation(op, NO_BYTES, path, |_| Err(Fault::from(errno)))
        }
    }
}

fn op_of(kind: EntryKind) -> Op {
    match kind {
        EntryKind::Directory => Op::Mkdir,
        EntryKind::File => Op::Create,
        EntryKind::Symlink => Op::Symlink,
        EntryKind::Link => Op::Link,
    }
}

/// An existing directory is no error: archives list some directories twice.
fn make_directory(dir: BorrowedFd<'_>, name: &CStr) -> super::log::OpOutcome {
    match mkdirat(dir, name, Mode::RWXU) {
        Ok(()) => Ok(Some(Moved::NOTHING)),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

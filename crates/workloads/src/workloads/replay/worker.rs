//! The measured loop: executes line after line, each when it is due.
//!
//! Between two operations it enters the directory of the next path, opens that of a new name, prepares names and the
//! next block to write, and waits if the line has a due time. None of this is part of an operation's time.

use super::checks::Checks;
use super::expected::generation;
use super::list::{List, ListLine, ReplayAction};
use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::sync::Arc;

const OPEN: OFlags = OFlags::RDWR
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const NEW: OFlags = OPEN.union(OFlags::CREATE).union(OFlags::EXCL);

pub(super) struct ReplayWorker {
    list: Arc<List>,
    /// Whether operations wait until they are due.
    timed: bool,
    context: ReplayContext,
}

/// State and buffers for executing operations.
struct ReplayContext {
    cursor: Cursor,
    /// The last component of the path, and that of its new path or the target of the symlink.
    name: Name,
    other: Name,
    /// Directory of the new name; `None`: that of the old one.
    parent: Option<OwnedFd>,
    files: Vec<Option<OwnedFd>>,
    data: WriteBuffer,
    listing: Vec<MaybeUninit<u8>>,
    /// Verification of reads, with the files that no longer match the list.
    checks: Option<Checks>,
}

impl ReplayWorker {
    pub(super) fn new(
        cursor: Cursor,
        list: Arc<List>,
        timed: bool,
        data: WriteBuffer,
        checks: Option<Checks>,
    ) -> Self {
        let files = std::iter::repeat_with(|| None).take(list.files).collect();
        Self {
            list,
            timed,
            context: ReplayContext {
                cursor,
                name: Name::new(),
                other: Name::new(),
                parent: None,
                files,
                data,
                listing: calls::listing_buffer(),
                checks,
            },
        }
    }
}

impl Worker for ReplayWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let start = recorder.start();
        let list = Arc::clone(&self.list);
        for (number, line) in list.lines.iter().enumerate() {
            let op = line.action.op();
            let place = u64::try_from(number).unwrap_or(u64::MAX);
            recorder.set_file(place);
            let entered = self.context.make_ready(number, line, recorder);
            if let Some(offset) = line.action.offset() {
                recorder.set_position(place, offset);
            }
            let due = line.due.filter(|_| self.timed);
            let began = match due {
                Some(due) => recorder.next_at(op, start.saturating_add(due), line.action.bytes()),
                None => recorder.next(op, line.action.bytes()),
            };
            let Some(began) = began else {
                if self.timed {
                    self.count_not_issued(&list, number + 1, recorder);
                }
                return Ok(());
            };
            let done = entered.and_then(|()| self.context.act(line));
            let now = recorder.now();
            let checked = match done {
                Ok(()) => Fault::found(self.context.check(number, line)),
                Err(failed) => {
                    self.context.invalidate(line);
                    Err(Fault::from(failed))
                }
            };
            match checked {
                Ok(()) => recorder.end_at(now, op, began, line.action.bytes()),
                Err(fault) => {
                    let path = self.context.cursor.path_from_root(&line.path);
                    fault.record(recorder, op, began, &path)?;
                }
            }
        }
        Ok(())
    }
}

impl ReplayWorker {
    /// The load has ended before line `from`: counts the operations that were due by then.
    fn count_not_issued(&self, list: &List, from: usize, recorder: &mut Recorder) {
        for line in list.lines.get(from..).unwrap_or_default() {
            let due = line.due.map(|due| recorder.start().saturating_add(due));
            if due.is_none_or(|due| !recorder.not_issued(line.action.op(), due)) {
                break;
            }
        }
    }
}

/// A NUL-terminated name in reused memory.
struct Name(Vec<u8>);

impl Name {
    /// Maximum length of a symlink's target.
    const MAX_BYTES: usize = 4096;

    fn new() -> Self {
        Self(Vec::with_capacity(Self::MAX_BYTES))
    }

    /// Paths have been checked for NUL when they were parsed.
    fn set(&mut self, name: &[u8]) {
        self.0.clear();
        self.0.extend_from_slice(name);
        self.0.push(0);
    }

    fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.0).unwrap_or_default()
    }
}

impl ReplayContext {
    /// Enters the directory of the path, and prepares the names and the block.
    fn make_ready(
        &mut self,
        number: usize,
        line: &ListLine,
        recorder: &Recorder,
    ) -> Result<(), CallError> {
        if let ReplayAction::Write {
            file,
            offset,
            bytes,
        } = line.action
        {
            let file = u64::try_from(file).unwrap_or(u64::MAX);
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            self.data
                .written_as(generation(number), file, offset, length);
        }
        let (directories, last) = cursor::split(&line.path);
        self.name.set(last);
        if let Some(parent) = self.parent.take() {
            recorder.untimed(line.action.op(), || drop(parent));
        }
        self.cursor.go(directories, |cursor, name| {
            recorder.untimed(line.action.op(), || cursor.down(name))
        })?;
        match &line.action {
            ReplayAction::Rename { to } => {
                let (new_directories, new) = cursor::split(to);
                self.other.set(new);
                if new_directories != directories {
                    let root = self.cursor.root();
                    let found =
                        || cursor::find(root, cursor::components(new_directories), cursor::PARENT);
                    self.parent = Some(recorder.untimed(line.action.op(), found)?);
                }
            }
            ReplayAction::Symlink { target } => self.other.set(target),
            _ => {}
        }
        Ok(())
    }

    /// Mismatches in the data that a read returned.
    fn check(&self, number: usize, line: &ListLine) -> Mismatches {
        let (
            Some(checks),
            ReplayAction::Read {
                offset,
                bytes,
                file,
            },
        ) = (&self.checks, &line.action)
        else {
            return Mismatches::default();
        };
        let block = self
            .data
            .current(usize::try_from(*bytes).unwrap_or(usize::MAX));
        checks.read(number, *file, block, *offset, self.data.content())
    }

    fn invalidate(&mut self, line: &ListLine) {
        if let Some(checks) = &mut self.checks {
            checks.failed(&line.action);
        }
    }

    fn act(&mut self, line: &ListLine) -> Result<(), CallError> {
        let (name, other) = (self.name.as_c_str(), self.other.as_c_str());
        let dir = self.cursor.dir();
        match &line.action {
            ReplayAction::Create { file } => {
                let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
                let opened = retry_on_intr(|| openat(dir, name, NEW, mode))?;
                self.store_opened(*file, opened);
            }
            ReplayAction::Open { file } => {
                let opened = retry_on_intr(|| openat(dir, name, OPEN, Mode::empty()))?;
                calls::check_regular(opened.as_fd())?;
                self.store_opened(*file, opened);
            }
            ReplayAction::Close { file } => {
                let open = self.files.get_mut(*file).and_then(Option::take);
                calls::close(open.ok_or(Errno::BADF)?)?;
            }
            ReplayAction::Read {
                file,
                offset,
                bytes,
            } => {
                let length = usize::try_from(*bytes).unwrap_or(usize::MAX);
                let Self { files, data, .. } = self;
                read_at(open_file(files, *file)?, data.current_mut(length), *offset)?;
            }
            ReplayAction::Write {
                file,
                offset,
                bytes,
            } => {
                let length = usize::try_from(*bytes).unwrap_or(usize::MAX);
                write_at(
                    open_file(&self.files, *file)?,
                    self.data.current(length),
                    *offset,
                )?;
            }
            ReplayAction::Fsync { file } => rustix::fs::fsync(open_file(&self.files, *file)?)?,
            ReplayAction::Truncate { file, bytes } => {
                rustix::fs::ftruncate(open_file(&self.files, *file)?, *bytes)?;
            }
            ReplayAction::Stat => drop(calls::stat(dir, name)?),
            ReplayAction::List => calls::list(dir, name, &mut self.listing, |_| {})?,
            ReplayAction::Rename { .. } => {
                let parent = self.parent.as_ref().map_or(dir, AsFd::as_fd);
                rustix::fs::renameat(dir, name, parent, other)?;
            }
            ReplayAction::Symlink { .. } => calls::make_symlink(dir, name, other)?,
            ReplayAction::Delete => calls::delete(dir, name)?,
            ReplayAction::Mkdir => calls::make_directory(dir, name)?,
            ReplayAction::Rmdir => calls::remove_directory(dir, name)?,
        }
        Ok(())
    }

    fn store_opened(&mut self, file: usize, opened: OwnedFd) {
        if let Some(slot) = self.files.get_mut(file) {
            *slot = Some(opened);
        }
    }
}

/// Returns the open file; an error if it could not be opened before.
fn open_file(files: &[Option<OwnedFd>], file: usize) -> Result<BorrowedFd<'_>, Errno> {
    let open = files.get(file).and_then(Option::as_ref);
    open.map(AsFd::as_fd).ok_or(Errno::BADF)
}

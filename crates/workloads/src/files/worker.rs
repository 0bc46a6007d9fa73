//! The measured loops: one pass over a worker's files in one mode, or passes until the time is over.
//!
//! It knows nothing of how the data came to be. Between two operations it computes the next file's size and name, in
//! place, and now and then enters the next directory; nothing else.

use super::calls::{self, Durable, Failed};
use super::data::Data;
use super::size::SizeSpec;
use super::tree::{Directories, Name, Names, Share};
use super::{Done, Mode};
use crate::op::Op;
use crate::recorder::{Began, ErrorFacts, OpError, Recorder};
use crate::task::TaskError;
use crate::workload::Worker;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Buffers that only one of the modes needs.
pub(super) enum Tools {
    Write(Data, Durable),
    Read(Vec<u8>),
    List(Vec<MaybeUninit<u8>>),
    None,
}

pub(super) struct FilesWorker {
    pub mode: Mode,
    pub walk: Walk,
    pub tools: Tools,
    /// Counts the workers whose pass was whole and without error: the task's data are then known.
    pub whole: Arc<AtomicU32>,
}

/// The way through a worker's files.
pub(super) struct Walk {
    pub directories: Directories,
    pub share: Share,
    pub names: Names,
    pub sizes: SizeSpec,
    pub seed: u64,
    /// For messages.
    pub path: PathBuf,
}

/// Where the clock of an operation starts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    /// At a reading of its own.
    Own,
    /// Where the one before it ended: for operations so short that a second reading would be felt.
    Shared,
}

/// How a pass ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Whole,
    WithErrors,
    Stopped,
}

impl Worker for FilesWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        loop {
            let pass = self.pass(recorder)?;
            if pass == Pass::Whole {
                self.whole.fetch_add(1, Ordering::Release);
            }
            let again = self.mode.repeats() && recorder.is_timed();
            if pass == Pass::Stopped || !again {
                return Ok(());
            }
        }
    }
}

impl FilesWorker {
    fn pass(&mut self, recorder: &mut Recorder) -> Result<Pass, OpError> {
        let walk = &mut self.walk;
        let (sizes, seed) = (walk.sizes, walk.seed);
        let size_of = |index| sizes.of(seed, index);
        let no_size = |_| 0;
        match (self.mode, &mut self.tools) {
            (Mode::Create, Tools::Write(data, durable)) => walk.files(
                recorder,
                Op::Create,
                Clock::Own,
                size_of,
                |dir, name, index, bytes| {
                    calls::create(dir, name.as_c_str(), index, bytes, data, *durable)
                },
            ),
            (Mode::Read, Tools::Read(buffer)) => walk.files(
                recorder,
                Op::Read,
                Clock::Own,
                size_of,
                |dir, name, _, bytes| calls::read(dir, name.as_c_str(), bytes, buffer),
            ),
            (Mode::List, Tools::List(buffer)) => walk.list(recorder, buffer),
            (Mode::Rename, _) => {
                let mut new_name = Name::file(walk.names.other(), 0);
                walk.files(
                    recorder,
                    Op::Rename,
                    Clock::Shared,
                    no_size,
                    |dir, name, _, _| {
                        new_name.take_number(name);
                        rustix::fs::renameat(dir, name.as_c_str(), dir, new_name.as_c_str())?;
                        Ok(0)
                    },
                )
            }
            (Mode::Delete, _) => walk.files(
                recorder,
                Op::Delete,
                Clock::Shared,
                no_size,
                |dir, name, _, _| {
                    calls::delete(dir, name.as_c_str())?;
                    Ok(0)
                },
            ),
            // The other modes are never made without their tools; a stat needs none.
            _ => walk.files(
                recorder,
                Op::Stat,
                Clock::Shared,
                no_size,
                |dir, name, _, _| {
                    calls::stat(dir, name.as_c_str())?;
                    Ok(0)
                },
            ),
        }
    }
}

impl Walk {
    /// One operation on each file in turn. `size_of` is asked before the clock starts; `act` gets the file's number in
    /// the task and its size, and returns the bytes that count.
    #[inline]
    fn files(
        &mut self,
        recorder: &mut Recorder,
        op: Op,
        clock: Clock,
        size_of: impl Fn(u64) -> u64,
        mut act: impl FnMut(BorrowedFd<'_>, &Name, u64, u64) -> Result<u64, Failed>,
    ) -> Result<Pass, OpError> {
        let mut pass = Pass::Whole;
        for number in 0..self.share.directories() {
            let files = self.share.files_of(number);
            let mut name = Name::file(self.names, files.start);
            let at = (self.path.as_path(), number);
            let dir = match self.directories.enter(number) {
                Ok(dir) => dir,
                Err(errno) => {
                    pass = Pass::WithErrors;
                    let began = recorder.begin_as(op);
                    fail(recorder, op, began, &path_of(at, None), errno.into())?;
                    continue;
                }
            };
            let mut follows = false;
            for index in files {
                let index = self.share.first + index;
                let bytes = size_of(index);
                let began = match follows {
                    true => recorder.next_following(op, bytes),
                    false => recorder.next(op, bytes),
                };
                let Some(began) = began else {
                    return Ok(Pass::Stopped);
                };
                match act(dir, &name, index, bytes) {
                    Ok(bytes) => {
                        recorder.end(op, began, bytes);
                        follows = clock == Clock::Shared;
                    }
                    Err(failed) => {
                        fail(recorder, op, began, &path_of(at, Some(&name)), failed)?;
                        (pass, follows) = (Pass::WithErrors, false);
                    }
                }
                name.advance();
            }
        }
        Ok(pass)
    }

    /// Each directory in turn, to its end. One that does not hold as many names as it should is an error.
    fn list(
        &mut self,
        recorder: &mut Recorder,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<Pass, OpError> {
        let mut pass = Pass::Whole;
        let root = self.directories.root();
        for number in 0..self.share.directories() {
            let files = self.share.files_of(number);
            let expected = files.end - files.start;
            let name = Name::directory(number);
            let mut listed = 0;
            let Some(began) = recorder.next(Op::List, 0) else {
                return Ok(Pass::Stopped);
            };
            let result = calls::list(root, name.as_c_str(), buffer, |_| listed += 1);
            match result {
                Ok(()) if listed == expected => recorder.end(Op::List, began, 0),
                other => {
                    pass = Pass::WithErrors;
                    let mut path = self.path.join(name.to_string());
                    if other.is_ok() {
                        path.push(format!("({listed} of {expected} files are listed)"));
                    }
                    let errno = other.err().unwrap_or(Errno::NOENT);
                    fail(recorder, Op::List, began, &path, errno.into())?;
                }
            }
        }
        Ok(pass)
    }
}

/// For messages.
#[cold]
#[inline(never)]
fn path_of((root, directory): (&Path, u64), file: Option<&Name>) -> PathBuf {
    let mut path = root.join(Name::directory(directory).to_string());
    if let Some(name) = file {
        path.push(name.to_string());
    }
    path
}

#[cold]
#[inline(never)]
fn fail(
    recorder: &mut Recorder,
    op: Op,
    began: Began,
    path: &Path,
    failed: Failed,
) -> Result<(), OpError> {
    let path = path.to_string_lossy();
    let facts = ErrorFacts {
        errno: failed.errno.raw_os_error(),
        path: &path,
        offset: failed.offset,
    };
    recorder.error(op, began, &facts)
}

impl Walk {
    /// One unmeasured pass that touches what `mode` is going to touch.
    pub(super) fn warm(
        &mut self,
        mode: Mode,
        buffer: &mut [u8],
        done: &Done,
    ) -> Result<(), TaskError> {
        let mut listing = calls::listing_buffer();
        for number in 0..self.share.directories() {
            let at = Name::directory(number);
            let path = self.path.join(at.to_string());
            let failed = |errno: Errno| {
                TaskError::io(format!("warm the caches with `{}`", path.display()), errno)
            };
            calls::list(self.directories.root(), at.as_c_str(), &mut listing, |_| {})
                .map_err(failed)?;
            let files = self.share.files_of(number);
            let mut name = Name::file(self.names, files.start);
            let dir = self.directories.enter(number).map_err(failed)?;
            for index in files {
                match mode {
                    Mode::List => {}
                    Mode::Read => {
                        let bytes = self.sizes.of(self.seed, self.share.first + index);
                        calls::read(dir, name.as_c_str(), bytes, buffer)
                            .map_err(|error| failed(error.errno))?;
                    }
                    Mode::Create | Mode::Stat | Mode::Rename | Mode::Delete => {
                        calls::stat(dir, name.as_c_str()).map_err(failed)?;
                    }
                }
                name.advance();
                done.add(1)?;
            }
        }
        Ok(())
    }
}

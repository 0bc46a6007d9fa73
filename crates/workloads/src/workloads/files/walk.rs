//! Walks through a worker's files, in order or at random, and records operations.
//!
//! Between two operations it only computes the next file's size and name, in place, and sometimes enters the next
//! directory. The caller defines the operation on a file.

use super::mixed::MixedOp;
use super::modes::{DatasetState, FilesMode};
use super::name::Name;
use super::options::FileOrder;
use super::tree::{Directories, FilesShare};
use crate::engine::author::*;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};

pub(super) struct Walk {
    pub directories: Directories,
    pub share: FilesShare,
    pub dataset: DatasetState,
    pub sizes: SizeSpec,
    pub seed: u64,
    pub order: FileOrder,
    /// Gives each worker its own random order.
    pub worker: u64,
    /// For messages.
    pub path: PathBuf,
}

/// Parameters of a pass.
pub(super) struct PassSpec {
    pub op: Op,
    pub clock: Clock,
    /// First letter of the names to work on.
    pub letter: u8,
    /// Number of the pass; each has its own random order.
    pub pass: u64,
    /// Bytes to count per operation, if not the file's size.
    pub moves: Option<u64>,
    /// Bytes of a read or write call.
    pub call: usize,
}

/// The operation in flight and its file, for progress reports.
pub(super) struct WalkPosition<'a> {
    recorder: &'a mut Recorder,
    op: Op,
    began: Began,
    file: u64,
}

impl WalkPosition<'_> {
    /// The operation has reached `offset` and moved `moved` bytes; see [`Recorder::next_chunk`].
    #[inline]
    pub(super) fn next_chunk(
        &mut self,
        offset: u64,
        moved: u64,
        wanted: usize,
    ) -> Result<usize, Errno> {
        let place = (self.file, offset);
        self.recorder
            .next_chunk(self.op, self.began, place, moved, wanted)
    }
}

/// Start of an operation's clock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// A clock reading of its own.
    Own,
    /// The end of the previous operation: for operations so short that a second reading would matter.
    Shared,
}

/// Names between two progress reports of a listing.
const NAMES_PER_PROGRESS: u64 = 256;

impl Walk {
    /// One operation on each file. `size_of` is called before the clock starts. `act` gets the file, its number in the
    /// task and its size, and returns the bytes to count.
    #[inline]
    pub(super) fn files<M: Into<Moved>>(
        &mut self,
        recorder: &mut Recorder,
        job: &PassSpec,
        size_of: impl Fn(u64) -> u64,
        act: impl FnMut(WalkPosition<'_>, BorrowedFd<'_>, &Name, u64, u64) -> Result<M, Fault>,
    ) -> Result<Pass, OpError> {
        match (self.order, self.share.is_alone()) {
            (FileOrder::Sequential, true) => self.in_order(recorder, job, size_of, act),
            _ => self.one_by_one(recorder, job, size_of, act),
        }
    }

    /// Walks directory by directory and increments names.
    #[inline]
    fn in_order<M: Into<Moved>>(
        &mut self,
        recorder: &mut Recorder,
        job: &PassSpec,
        size_of: impl Fn(u64) -> u64,
        mut act: impl FnMut(WalkPosition<'_>, BorrowedFd<'_>, &Name, u64, u64) -> Result<M, Fault>,
    ) -> Result<Pass, OpError> {
        let mut pass = Pass::Whole;
        let op = job.op;
        for number in 0..self.share.directories() {
            let files = self.share.files_of(number);
            let mut name = Name::new(job.letter, files.start);
            let at = (self.path.as_path(), number);
            recorder.set_file(files.start);
            if recorder.should_stop() {
                return Ok(Pass::Stopped);
            }
            let dir = match recorder.untimed_since(op, || self.directories.enter(number)) {
                (_, Ok(dir)) => dir,
                (began, Err(errno)) => {
                    pass = Pass::WithErrors;
                    let fault = Fault::from(errno);
                    fault.record(recorder, op, began, &path_of(at, None))?;
                    continue;
                }
            };
            let mut follows = false;
            for file in files {
                recorder.set_file(file);
                let index = self.share.first + file;
                let bytes = size_of(index);
                let moved = job.moves.unwrap_or(bytes);
                let began = match follows {
                    true => recorder.next_back_to_back(op, moved),
                    false => recorder.next_in_chunks(op, moved, job.call),
                };
                let Some(began) = began else {
                    return Ok(Pass::Stopped);
                };
                let position = WalkPosition {
                    recorder,
                    op,
                    began,
                    file,
                };
                match act(position, dir, &name, index, bytes) {
                    Ok(moved) => {
                        let moved = moved.into();
                        recorder.end(op, moved.minus_excluded(began), moved.bytes);
                        follows = job.clock == Clock::Shared;
                    }
                    Err(fault) if recorder.is_cut_off() => {
                        fault.record_cut_off(recorder, op, &path_of(at, Some(&name)))?;
                        return Ok(Pass::Stopped);
                    }
                    Err(failed) => {
                        let path = path_of(at, Some(&name));
                        failed.record(recorder, op, began, &path)?;
                        (pass, follows) = (Pass::WithErrors, false);
                    }
                }
                name.advance();
            }
        }
        Ok(pass)
    }

    /// Builds each name, and enters the directory of each file.
    fn one_by_one<M: Into<Moved>>(
        &mut self,
        recorder: &mut Recorder,
        job: &PassSpec,
        size_of: impl Fn(u64) -> u64,
        mut act: impl FnMut(WalkPosition<'_>, BorrowedFd<'_>, &Name, u64, u64) -> Result<M, Fault>,
    ) -> Result<Pass, OpError> {
        let mut pass = Pass::Whole;
        let share = self.share;
        let shuffle = self.shuffle(share.files, job);
        for position in 0..share.files {
            let file = shuffle
                .as_ref()
                .map_or(position, |shuffle| shuffle.place_of(position));
            let bytes = size_of(share.first + file);
            match self.one(recorder, job, (file, bytes), &mut act)? {
                Pass::Stopped => return Ok(Pass::Stopped),
                done => pass = pass.and(done),
            }
        }
        Ok(pass)
    }

    /// One operation on a file of the given size.
    #[inline]
    fn one<M: Into<Moved>>(
        &mut self,
        recorder: &mut Recorder,
        job: &PassSpec,
        (file, bytes): (u64, u64),
        act: impl FnOnce(WalkPosition<'_>, BorrowedFd<'_>, &Name, u64, u64) -> Result<M, Fault>,
    ) -> Result<Pass, OpError> {
        let op = job.op;
        let name = Name::new(job.letter, self.share.number(file));
        let number = self.share.directory_of(file);
        let index = self.share.first + file;
        recorder.set_file(file);
        let dir = match self.directories.is_at(number) {
            true => self.directories.enter(number),
            false if recorder.should_stop() => return Ok(Pass::Stopped),
            false => recorder.untimed(op, || self.directories.enter(number)),
        };
        let Some(began) = recorder.next_in_chunks(op, job.moves.unwrap_or(bytes), job.call) else {
            return Ok(Pass::Stopped);
        };
        let position = WalkPosition {
            recorder,
            op,
            began,
            file,
        };
        let done = dir
            .map_err(Fault::from)
            .and_then(|dir| act(position, dir, &name, index, bytes));
        match done {
            Ok(moved) => {
                let moved = moved.into();
                recorder.end(op, moved.minus_excluded(began), moved.bytes);
                Ok(Pass::Whole)
            }
            Err(fault) if recorder.is_cut_off() => {
                let path = path_of((&self.path, number), Some(&name));
                fault.record_cut_off(recorder, op, &path)?;
                Ok(Pass::Stopped)
            }
            Err(failed) => {
                let path = path_of((&self.path, number), Some(&name));
                failed.record(recorder, op, began, &path)?;
                Ok(Pass::WithErrors)
            }
        }
    }

    /// As many operations as there are files, each on an independently drawn file. `size_of` is called before the clock
    /// starts.
    pub(super) fn drawn(
        &mut self,
        recorder: &mut Recorder,
        letter: u8,
        (mix, random): (&Weighted<MixedOp>, &mut Random),
        call: usize,
        size_of: impl Fn(MixedOp, u64) -> u64,
        mut act: impl FnMut(
            MixedOp,
            WalkPosition<'_>,
            BorrowedFd<'_>,
            &Name,
            u64,
            u64,
        ) -> Result<Moved, Fault>,
    ) -> Result<Pass, OpError> {
        let mut pass = Pass::Whole;
        for _ in 0..self.share.files {
            let drawn = mix.draw(random);
            let file = random.below(self.share.files);
            let index = self.share.first + file;
            let job = PassSpec {
                op: drawn.op(),
                clock: Clock::Own,
                letter,
                pass: 0,
                moves: None,
                call,
            };
            let bytes = size_of(drawn, index);
            let done = self.one(
                recorder,
                &job,
                (file, bytes),
                |spot, dir, name, index, bytes| act(drawn, spot, dir, name, index, bytes),
            )?;
            match done {
                Pass::Stopped => return Ok(Pass::Stopped),
                done => pass = pass.and(done),
            }
        }
        Ok(pass)
    }

    /// Lists each directory completely. A directory with a wrong number of names is an error.
    pub(super) fn list(
        &mut self,
        recorder: &mut Recorder,
        job: &PassSpec,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<Pass, OpError> {
        let mut pass = Pass::Whole;
        let directories = self.share.directories();
        let shuffle = self.shuffle(directories, job);
        for position in 0..directories {
            let number = shuffle
                .as_ref()
                .map_or(position, |shuffle| shuffle.place_of(position));
            pass = pass.and(self.list_one(recorder, job.op, number, buffer)?);
        }
        Ok(pass)
    }

    fn list_one(
        &self,
        recorder: &mut Recorder,
        op: Op,
        number: u64,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Result<Pass, OpError> {
        let files = self.share.files_of(number);
        let expected = (files.end - files.start) * self.dataset.names_per_file();
        let name = Name::directory(number);
        let root = self.directories.root();
        let mut listed = 0;
        recorder.set_file(number);
        let Some(began) = recorder.next(op, 0) else {
            return Ok(Pass::Stopped);
        };
        let result = calls::list_in(root, name.as_c_str(), buffer, |dir, name| {
            listed += 1;
            // Distinguishes a long listing from a hang.
            if listed % NAMES_PER_PROGRESS == 0 {
                recorder.set_position(number, listed);
            }
            match op {
                Op::ListStat => calls::stat(dir, name).map(drop),
                _ => Ok(()),
            }
        });
        // In a shared directory the number of others' names varies.
        let is_right = match self.share.is_alone() {
            true => listed == expected,
            false => listed >= expected,
        };
        if result.is_ok() && is_right {
            recorder.end(op, began, 0);
            return Ok(Pass::Whole);
        }
        let mut path = self.path.join(name.to_string());
        if result.is_ok() {
            path.push(format!("({listed} of {expected} names are listed)"));
        }
        let errno = result.err().unwrap_or(Errno::NOENT);
        Fault::from(errno).record(recorder, op, began, &path)?;
        Ok(Pass::WithErrors)
    }

    fn shuffle(&self, count: u64, job: &PassSpec) -> Option<Shuffle> {
        let op = u64::try_from(job.op.ordinal()).unwrap_or(0);
        let mut random = Random::of(&[self.seed, self.worker, op, job.pass]);
        (self.order == FileOrder::Random).then(|| Shuffle::new(count, &mut random))
    }

    /// One unmeasured pass that touches what `mode` is going to touch.
    pub(super) fn warm(
        &mut self,
        mode: FilesMode,
        buffer: &mut [u8],
        done: &Done<'_>,
    ) -> Result<(), TaskError> {
        let mut listing = calls::listing_buffer();
        for number in 0..self.share.directories() {
            let at = Name::directory(number);
            let path = self.path.join(at.to_string());
            let failed = |errno: Errno| {
                TaskError::io(format!("warm the caches with `{}`", path.display()), errno)
            };
            let root = self.directories.root();
            calls::list(root, at.as_c_str(), &mut listing, |_| {}).map_err(failed)?;
            let dir = self.directories.enter(number).map_err(failed)?;
            for file in self.share.files_of(number) {
                done.add(1)?;
                let number = self.share.number(file);
                let name = match mode.companion() {
                    None => Name::file(self.dataset.names(), number),
                    Some(kind) if self.dataset.has(kind) => Name::of(kind, number),
                    Some(_) => continue,
                };
                match mode {
                    FilesMode::Create | FilesMode::List => {}
                    FilesMode::Read | FilesMode::Mix => {
                        let bytes = self.sizes.of(self.seed, self.share.first + file);
                        let bytes = bytes.saturating_add(self.dataset.extras.appended);
                        let allow =
                            |have, wanted| done.next_chunk(bytes.saturating_sub(have), wanted);
                        calls::read(dir, name.as_c_str(), bytes, buffer, allow)
                            .map_err(|error| failed(error.errno))?;
                    }
                    _ => {
                        calls::stat(dir, name.as_c_str()).map_err(failed)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Full path of a file or directory, for messages.
#[cold]
#[inline(never)]
fn path_of((root, directory): (&Path, u64), file: Option<&Name>) -> PathBuf {
    let mut path = root.join(Name::directory(directory).to_string());
    if let Some(name) = file {
        path.push(name.to_string());
    }
    path
}

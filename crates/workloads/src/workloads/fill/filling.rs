//! The measured loop of `fill`: writes until the aim is reached.

use super::filled::Finished;
use super::name_of;
use super::space::{ASK_AGAIN, Facts, Room, Space};
use crate::engine::author::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pause while other workers hold grants on the rest of the space.
const WAIT: Duration = Duration::from_millis(1);

pub(super) struct FillWorker {
    pub index: u32,
    pub root: Dir,
    pub space: Space,
    /// Bytes to write, if `amount` is the aim.
    pub amount: Option<u64>,
    pub file_bytes: u64,
    pub data: WriteBuffer,
    /// Bytes that the workers of this task are granted and have not written yet.
    pub granted: Arc<AtomicU64>,
    /// Generation of this fill.
    pub generation: u64,
    /// Receives the bytes written, once the aim is reached without an error.
    pub finished: Finished,
    /// The files are laid out for `remove`: as many as there is room for.
    pub is_removed_next: bool,
}

/// The file that is being written.
struct Current {
    file: OwnedFd,
    number: u64,
    bytes: u64,
}

/// Progress of a worker.
#[derive(Default)]
struct FillProgress {
    current: Option<Current>,
    files: u64,
    written: u64,
    /// Bytes granted until the next query of the free space, and the expiry of the grant.
    room: u64,
    room_until: MonoNanos,
}

impl FillProgress {
    /// Whether the current file is full or missing.
    fn needs_file(&self, file_bytes: u64) -> bool {
        let is_full = |current: &Current| current.bytes >= file_bytes;
        self.current.as_ref().is_none_or(is_full)
    }

    /// Number of the file that the next block goes to.
    fn next_file(&self, file_bytes: u64) -> u64 {
        match &self.current {
            Some(current) if !self.needs_file(file_bytes) => current.number,
            _ => self.files,
        }
    }
}

/// The next step.
enum FillStep {
    /// Write this number of bytes.
    Write(u64),
    Reached,
    AtFloor(Facts),
}

impl FillWorker {
    fn facts(&self) -> Result<Facts, Errno> {
        let facts = rustix::fs::fstatvfs(self.root.fd())?;
        // Blocks reserved for the superuser cannot be filled.
        let kept = facts.f_bfree.saturating_sub(facts.f_bavail);
        Ok(Facts {
            total: facts
                .f_blocks
                .saturating_sub(kept)
                .saturating_mul(facts.f_frsize),
            free: facts.f_bavail.saturating_mul(facts.f_frsize),
        })
    }

    fn next(
        &self,
        progress: &mut FillProgress,
        facts: &dyn Fn() -> Result<Facts, Errno>,
        stop: &dyn Fn() -> bool,
    ) -> Result<FillStep, Errno> {
        let unit = u64::try_from(self.data.len()).unwrap_or(u64::MAX);
        let mut bytes = unit;
        if let Some(amount) = self.amount {
            bytes = bytes.min(amount.saturating_sub(progress.written));
            if bytes == 0 {
                return Ok(FillStep::Reached);
            }
        }
        let now = MonoNanos::now();
        if progress.room < bytes || now >= progress.room_until {
            match self.ask(progress, bytes, facts, stop)? {
                (Room::Bytes(room), _) => {
                    self.granted.fetch_add(room, Ordering::AcqRel);
                    (progress.room, progress.room_until) = (room, now.saturating_add(ASK_AGAIN));
                }
                (Room::AtFloor, facts) if !self.may_fill_up() => {
                    return Ok(FillStep::AtFloor(facts));
                }
                (Room::Reached | Room::AtFloor, _) => return Ok(FillStep::Reached),
            }
        }
        let left_in_file = match &progress.current {
            Some(current) => self.file_bytes.saturating_sub(current.bytes),
            None => 0,
        };
        Ok(FillStep::Write(match left_in_file {
            0 => bytes.min(self.file_bytes),
            left => bytes.min(left),
        }))
    }

    /// Space that may be written, without what other workers have been granted. If their grants cover the rest, it
    /// waits until they have written it or given it back.
    fn ask(
        &self,
        progress: &mut FillProgress,
        bytes: u64,
        facts: &dyn Fn() -> Result<Facts, Errno>,
        stop: &dyn Fn() -> bool,
    ) -> Result<(Room, Facts), Errno> {
        self.return_room(progress);
        loop {
            let granted = self.granted.load(Ordering::Acquire);
            let facts = facts()?;
            let not_granted = Facts {
                free: facts.free.saturating_sub(granted),
                ..facts
            };
            let room = self.space.room(not_granted, bytes);
            let there_is_more = matches!(self.space.room(facts, bytes), Room::Bytes(_));
            if matches!(room, Room::Bytes(_)) || !there_is_more || granted == 0 {
                return Ok((room, facts));
            }
            if stop() {
                // The load stops, so this block is never started.
                return Ok((Room::Bytes(bytes), facts));
            }
            sleep_until(MonoNanos::now().saturating_add(WAIT));
        }
    }

    fn return_room(&self, progress: &mut FillProgress) {
        self.granted.fetch_sub(progress.room, Ordering::AcqRel);
        progress.room = 0;
    }

    /// Opens the file for the next block: a new one if the last is full.
    fn enter(&self, progress: &mut FillProgress) -> Result<(), Errno> {
        if progress.needs_file(self.file_bytes) {
            if let Some(full) = progress.current.take() {
                calls::close(full.file)?;
            }
            let number = progress.files;
            progress.files += 1;
            progress.current = Some(Current {
                file: calls::open_new(self.root.fd(), &name_of(number))?,
                number,
                bytes: 0,
            });
        }
        Ok(())
    }

    fn write(&mut self, progress: &mut FillProgress, bytes: u64) -> Result<(), CallError> {
        let Some(current) = &mut progress.current else {
            return Err(Errno::BADF.into());
        };
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let block = self.data.current(length);
        let before = current.bytes;
        let result = calls::write_all(current.file.as_fd(), block, &mut current.bytes);
        let wrote = current.bytes - before;
        progress.written += wrote;
        let used = wrote.min(progress.room);
        progress.room -= used;
        self.granted.fetch_sub(used, Ordering::AcqRel);
        result
    }

    /// Generates the next block, outside of the operation.
    fn place(&mut self, progress: &FillProgress, bytes: u64) {
        if let Some(current) = &progress.current {
            let length = usize::try_from(bytes).unwrap_or(usize::MAX);
            let (generation, number) = (self.generation, current.number);
            self.data
                .written_as(generation, number, current.bytes, length);
        }
    }

    fn path(&self, progress: &FillProgress) -> PathBuf {
        let number = progress
            .current
            .as_ref()
            .map_or(progress.files, |current| current.number);
        self.root.path().join(&*name_of(number).to_string_lossy())
    }

    /// Does the same as the load, unmeasured.
    pub(super) fn lay_out(&mut self, control: &PrepareControl) -> Result<(), TaskError> {
        let mut progress = FillProgress::default();
        loop {
            control.check()?;
            control.progress(progress.written, self.amount.unwrap_or(0), "bytes");
            let next = self
                .next(&mut progress, &|| self.facts(), &|| control.cancelled())
                .map_err(|errno| TaskError::io("ask for free space", errno))?;
            let bytes = match next {
                FillStep::Write(bytes) => bytes,
                FillStep::Reached => break,
                FillStep::AtFloor(facts) => {
                    let doing = format!("lay out the files: {}", self.at_floor(&progress, facts));
                    return Err(TaskError::io(doing, Errno::NOSPC));
                }
            };
            control.wait_for_limit(bytes);
            let entered = self.enter(&mut progress);
            self.place(&progress, bytes);
            let written = entered
                .map_err(CallError::from)
                .and_then(|()| self.write(&mut progress, bytes));
            match written {
                Ok(()) => {}
                Err(failed) if self.is_end(failed.errno) => break,
                Err(failed) => {
                    let path = self.path(&progress);
                    let doing = format!("write `{}`", path.display());
                    return Err(TaskError::io(doing, failed.errno));
                }
            }
        }
        self.return_room(&mut progress);
        self.finished.add(self.index, progress.written);
        self.root.sync().map_err(TaskError::Sandbox)
    }

    /// Without a floor, a full target is a regular end of the load.
    fn may_fill_up(&self) -> bool {
        self.space.floor == 0 || self.is_removed_next
    }

    fn is_end(&self, errno: Errno) -> bool {
        self.may_fill_up() && matches!(errno, Errno::NOSPC | Errno::DQUOT)
    }

    /// Closes the last file, after which nothing is written; returns whether it is complete.
    fn close_last(
        &self,
        progress: &mut FillProgress,
        recorder: &mut Recorder,
    ) -> Result<bool, OpError> {
        let path = self.path(progress);
        let Some(last) = progress.current.take() else {
            return Ok(true);
        };
        recorder.set_file(last.number);
        let (began, closed) = recorder.untimed_since(Op::Write, || calls::close(last.file));
        if let Err(errno) = closed {
            let failed = CallError::at(errno, last.bytes);
            Fault::from(failed).record(recorder, Op::Write, began, &path)?;
        }
        Ok(closed.is_ok())
    }

    fn at_floor(&self, progress: &FillProgress, facts: Facts) -> String {
        format!(
            "`{}` was filled by {} and has {} free, of which `floor` keeps {}: stopped before the goal; free some \
             space, fill less, or set a smaller `floor`",
            self.root.path().display(),
            Bytes(progress.written).about(),
            Bytes(facts.free).about(),
            Bytes(self.space.floor).about()
        )
    }
}

impl Worker for FillWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut progress = FillProgress::default();
        let mut is_whole = true;
        loop {
            let number = progress.next_file(self.file_bytes);
            let facts = || {
                recorder.set_file(number);
                recorder.untimed(Op::Write, || self.facts())
            };
            let next = self.next(&mut progress, &facts, &|| recorder.should_stop());
            let next = next.map_err(|errno| OpError::Broken {
                what: format!("cannot ask for the free space of the target: {errno}"),
            })?;
            let bytes = match next {
                FillStep::Write(bytes) => bytes,
                FillStep::Reached => break,
                FillStep::AtFloor(facts) => {
                    return Err(OpError::Broken {
                        what: self.at_floor(&progress, facts),
                    });
                }
            };
            let entered = match progress.needs_file(self.file_bytes) {
                true if recorder.should_stop() => {
                    self.return_room(&mut progress);
                    return Ok(());
                }
                true => {
                    recorder.set_file(progress.files);
                    recorder.untimed(Op::Write, || self.enter(&mut progress))
                }
                false => Ok(()),
            };
            self.place(&progress, bytes);
            if let Some(current) = &progress.current {
                recorder.set_position(current.number, current.bytes);
            }
            let Some(began) = recorder.next(Op::Write, bytes) else {
                self.return_room(&mut progress);
                return Ok(());
            };
            let written = entered
                .map_err(CallError::from)
                .and_then(|()| self.write(&mut progress, bytes));
            match written {
                Ok(()) => recorder.end(Op::Write, began, bytes),
                Err(failed) if self.is_end(failed.errno) => {
                    recorder.idle();
                    break;
                }
                Err(failed) => {
                    is_whole = false;
                    let path = self.path(&progress);
                    Fault::from(failed).record(recorder, Op::Write, began, &path)?;
                    // Go to the next file: retrying a file that cannot be written would never end.
                    progress.current = None;
                }
            }
        }
        self.return_room(&mut progress);
        let is_closed = self.close_last(&mut progress, recorder)?;
        if is_whole && is_closed {
            self.finished.add(self.index, progress.written);
        }
        Ok(())
    }
}

//! The measured loop of `io` with many operations in flight, through io_uring.
//!
//! Each operation goes to the kernel as soon as its slot is free, right after its clock reading: a device that gets its work
//! in batches stands still between them. One reading serves all operations whose end is seen together. What the kernel
//! does in pieces is one operation all the same. Whatever ends the load, what is in flight is waited for.

use super::job::Job;
use super::ring::{Entry, Ring};
use super::sequence::{Lane, Next, Sequence};
use super::writing::Writing;
use super::{IoLoad, file};
use crate::clock::{MonoNanos, sleep_until};
use crate::data::{Content, Turns};
use crate::recorder::{ErrorFacts, OpError, Recorder};
use crate::task::TaskError;
use crate::workload::Worker;
use rustix::fd::OwnedFd;
use std::io;
use std::time::Duration;

/// How often one who waits for an instant of its schedule looks up.
const LOOK: Duration = Duration::from_millis(100);

pub(super) struct DeepWorker {
    ring: Ring,
    /// For the sync at the end.
    file: OwnedFd,
    name: String,
    slots: Box<[Slot]>,
    /// Slots with nothing in flight.
    free: Vec<u16>,
    sequence: Sequence,
    /// Drawn, and not yet due.
    waits: Option<Next>,
    writing: Writing,
    /// What is written, where each slot's own data would repeat too soon.
    stretch: Option<Stretch>,
    /// Writes between two fsyncs; `u64::MAX` for none.
    fsync_every: u64,
    unsynced: u64,
    end_fsync: bool,
}

/// Data that small blocks are copied from: a slot's buffer is the kernel's as long as it is in flight.
struct Stretch {
    turns: Turns,
    data: Vec<u8>,
}

impl Stretch {
    fn of(job: &Job, content: &Content, largest: usize) -> Option<Stretch> {
        let turns = Turns::of(content, largest);
        if turns.is_one() || !job.pattern.direction.writes() {
            return None;
        }
        let mut data = vec![0; turns.length()];
        turns.fill(content, &mut data);
        Some(Stretch { turns, data })
    }

    #[inline]
    fn copy(&self, block: &mut [u8], offset: u64) {
        let from = self.turns.at(0, offset);
        if let Some(data) = self.data.get(from..from + block.len()) {
            block.copy_from_slice(data);
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    next: Next,
    done: u32,
    /// The write is done, and its fsync in flight.
    syncs: bool,
}

impl Slot {
    const EMPTY: Slot = Slot {
        next: Next {
            offset: 0,
            bytes: 0,
            writes: false,
        },
        done: 0,
        syncs: false,
    };

    fn entry(&self) -> Entry {
        let (at, done) = (self.next.offset, self.done);
        let bytes = u32::try_from(self.next.bytes).unwrap_or(u32::MAX);
        match (self.syncs, self.next.writes) {
            (true, _) => Entry::Fsync,
            (false, true) => Entry::Write { at, done, bytes },
            (false, false) => Entry::Read { at, done, bytes },
        }
    }
}

/// What comes after the free slots have been filled as far as possible.
enum Filled {
    /// There is more to do when something has ended, or has already.
    Full,
    /// The next operation is due then.
    Until(MonoNanos),
    /// No operation begins any more.
    Last,
}

impl DeepWorker {
    pub(super) fn open(load: &IoLoad, index: u32) -> Result<DeepWorker, TaskError> {
        let job = &load.job;
        let name = load.store.name(index);
        let file = file::open(job, &load.store, index)?;
        let again = file.try_clone();
        let again = again.map_err(|error| TaskError::io(format!("keep {name} open"), error))?;
        let bs = usize::try_from(job.pattern.sizes.largest()).unwrap_or(usize::MAX);
        let depth = job.depth_of_ring();
        let writing = Writing::of(load, index, Lane::ONLY);
        let mut ring = Ring::open(again, depth, bs)?;
        load.note_buffers(ring.buffers());
        writing.content.fill(ring.memory());
        Ok(DeepWorker {
            ring,
            file,
            name,
            slots: vec![Slot::EMPTY; depth.into()].into(),
            free: (0..depth).rev().collect(),
            stretch: Stretch::of(job, &writing.content, bs),
            writing,
            sequence: load.sequence(index, Lane::ONLY),
            waits: None,
            fsync_every: job.fsync_every(),
            unsynced: 0,
            end_fsync: job.pattern.direction.writes() && job.end_fsync,
        })
    }

    /// Issues operations into all free slots that are due.
    #[inline]
    fn fill(&mut self, recorder: &mut Recorder) -> io::Result<Filled> {
        while let Some(slot) = self.free.last().copied() {
            if recorder.should_stop() {
                return Ok(Filled::Last);
            }
            let Some(next) = self.waits.take().or_else(|| self.sequence.next()) else {
                return Ok(Filled::Last);
            };
            if let Some(due) = recorder.due(next.bytes) {
                let is_last = due >= recorder.until();
                if is_last || due > recorder.now() {
                    self.waits = Some(next);
                    return Ok(if is_last {
                        Filled::Last
                    } else {
                        Filled::Until(due)
                    });
                }
            }
            self.issue(recorder, slot, next)?;
            if self.ring.has_ended() {
                // What the kernel did at once has ended now, not when the other slots are filled.
                break;
            }
        }
        Ok(Filled::Full)
    }

    #[inline]
    fn issue(&mut self, recorder: &mut Recorder, slot: u16, next: Next) -> io::Result<()> {
        self.free.pop();
        if next.writes {
            let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
            let block = self.ring.block(slot, bytes);
            if let Some(stretch) = &self.stretch {
                stretch.copy(block, next.offset);
            }
            self.writing.place(block, next);
        }
        let issued = Slot {
            next,
            done: 0,
            syncs: false,
        };
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            *entry = issued;
        }
        self.ring.push(slot, issued.entry());
        let place = (0, next.offset);
        let now = recorder.now();
        recorder.launch(slot, next.op(), place, next.bytes, now);
        self.ring.submit()
    }

    /// What became of the entry of a slot.
    #[inline]
    fn ended(
        &mut self,
        recorder: &mut Recorder,
        now: MonoNanos,
        slot: u16,
        result: i32,
    ) -> Result<(), OpError> {
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else {
            return Ok(());
        };
        let writes = entry.next.writes;
        let Ok(moved) = u32::try_from(result) else {
            let errno = -result;
            if errno == libc::EINTR {
                self.ring.push(slot, entry.entry());
                return Ok(());
            }
            return self.failed(recorder, now, slot, errno);
        };
        if !entry.syncs {
            if moved == 0 {
                let errno = if writes { libc::EIO } else { libc::ENODATA };
                return self.failed(recorder, now, slot, errno);
            }
            entry.done += moved;
            if u64::from(entry.done) < entry.next.bytes {
                self.ring.push(slot, entry.entry());
                return Ok(());
            }
            if writes {
                self.unsynced += 1;
                if self.unsynced >= self.fsync_every {
                    self.unsynced = 0;
                    entry.syncs = true;
                    self.ring.push(slot, entry.entry());
                    return Ok(());
                }
            }
        }
        let next = entry.next;
        self.free.push(slot);
        if !writes && self.writing.content.verifies() {
            let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
            let block = self.ring.block(slot, bytes);
            let wrong = self.writing.check(block, next);
            if !wrong.is_empty() {
                return recorder.land_mismatch(slot, now, &self.name, &wrong);
            }
        }
        recorder.land(slot, now, next.bytes);
        Ok(())
    }

    #[cold]
    fn failed(
        &mut self,
        recorder: &mut Recorder,
        now: MonoNanos,
        slot: u16,
        errno: i32,
    ) -> Result<(), OpError> {
        self.free.push(slot);
        let entry = self.slots.get(usize::from(slot)).copied();
        self.writing.failed |= entry.is_none_or(|entry| entry.next.writes);
        let facts = ErrorFacts {
            errno,
            path: &self.name,
            offset: entry.map(|entry| entry.next.offset),
        };
        recorder.land_error(slot, now, &facts)
    }

    #[cold]
    fn broken(&self, error: &io::Error) -> OpError {
        let what = format!("io_uring broke on {}: {error}", self.name);
        OpError::Broken { what }
    }
}

impl Worker for DeepWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut outcome = Ok(());
        loop {
            let filled = match outcome {
                Ok(()) => self.fill(recorder),
                Err(_) => Ok(Filled::Last),
            };
            let mut patience = None;
            match filled.map_err(|error| self.broken(&error))? {
                Filled::Last if self.ring.in_flight() == 0 => break,
                Filled::Until(due) => {
                    let now = recorder.now();
                    let wait = due.since(now).min(LOOK);
                    if self.ring.in_flight() == 0 {
                        sleep_until(now.saturating_add(wait));
                        let now = recorder.now();
                        recorder.look(now);
                        continue;
                    }
                    patience = Some(wait);
                }
                Filled::Last | Filled::Full => {}
            }
            let waited = self.ring.submit_and_wait(patience);
            waited.map_err(|error| self.broken(&error))?;
            let now = recorder.now();
            if patience.is_some() {
                recorder.look(now);
            }
            while let Some((slot, result)) = self.ring.reap() {
                let ended = self.ended(recorder, now, slot, result);
                outcome = outcome.and(ended);
            }
        }
        outcome?;
        self.writing.ended(&self.sequence);
        match self.end_fsync {
            true => file::sync_at_end(&self.file, &self.name, recorder),
            false => Ok(()),
        }
    }
}

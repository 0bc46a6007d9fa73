//! The measured loop of `io` with many operations in flight, through io_uring or librbd.
//!
//! Each operation is submitted as soon as its slot is free, right after its clock reading: a device that gets its work
//! in batches idles between them. With a ring, one clock reading serves all completions that are seen together, and is
//! taken when they are seen. While a block is verified, the worker polls for completions after each piece. A short read
//! or write that is continued is still one operation. The worker always waits for operations in flight, however the
//! load ends.

use super::job::IoJob;
use super::queue::Queue;
use super::reaped::{Completion, Reaped};
use super::ring::RingEntry;
use super::sequence::{NextIo, Sequence, Shard};
use super::writing::Writing;
use super::{IoLoad, file};
use crate::engine::author::*;
use std::io;
use std::time::Duration;

/// Bytes of a block verified between two polls for completions: about 10 us.
const PIECE_BYTES: usize = 64 << 10;
/// Longest sleep before the next check of the stop flag and the schedule.
const MAX_SLEEP: Duration = Duration::from_millis(100);

pub(super) struct DeepWorker<Q> {
    queue: Q,
    reaped: Reaped,
    name: String,
    slots: Box<[DeepSlot]>,
    /// Slots with nothing in flight.
    free: Vec<u16>,
    sequence: Sequence,
    /// Drawn, but not yet due.
    waits: Option<NextIo>,
    writing: Writing,
    /// Source of write blocks in the queue's pool; `None` if each slot's own buffer has enough variety.
    pool: Option<EntropyPool>,
    /// Writes between two fsyncs; `u64::MAX` for none.
    fsync_every: u64,
    unsynced: u64,
    end_fsync: bool,
}

/// 256 distinct blocks of 4 KiB. With 32 in flight, one block in eight is in use and has to be copied.
const DIRECT_VARIETY_BYTES: usize = 1 << 20;

/// Pool that small random writes are taken from; `None` if each slot's own buffer has enough variety. Buffered writes
/// complete at submission, so their places are hardly ever in use.
fn write_pool(job: &IoJob, content: &Content, largest: usize) -> Option<EntropyPool> {
    let variety = match job.direct {
        true => DIRECT_VARIETY_BYTES,
        false => VARIETY_BYTES,
    };
    let pool = EntropyPool::with_variety(content, largest, variety);
    Some(pool).filter(|pool| !pool.is_one() && job.pattern.direction.writes())
}

#[derive(Debug, Clone, Copy)]
struct DeepSlot {
    next: NextIo,
    done: u32,
    /// The write has completed, and its fsync is in flight.
    syncs: bool,
}

impl DeepSlot {
    const EMPTY: DeepSlot = DeepSlot {
        next: NextIo {
            offset: 0,
            bytes: 0,
            writes: false,
        },
        done: 0,
        syncs: false,
    };

    fn entry(&self) -> RingEntry {
        let (at, done) = (self.next.offset, self.done);
        let bytes = u32::try_from(self.next.bytes).unwrap_or(u32::MAX);
        match (self.syncs, self.next.writes) {
            (true, _) => RingEntry::Fsync,
            (false, true) => RingEntry::Write { at, done, bytes },
            (false, false) => RingEntry::Read { at, done, bytes },
        }
    }
}

/// What the worker does after it has filled the free slots.
enum DeepFillResult {
    /// Reap completions: some are there already, or will come.
    Full,
    /// Wait until the next operation is due.
    Until(MonoNanos),
    /// Start no more operations.
    Last,
}

impl<Q: Queue> DeepWorker<Q> {
    /// `queue` takes the number of slots, the bytes of a slot and the bytes of the pool.
    pub(super) fn open(
        load: &IoLoad,
        index: u32,
        queue: impl FnOnce(u16, usize, usize) -> Result<Q, TaskError>,
    ) -> Result<DeepWorker<Q>, TaskError> {
        let job = &load.job;
        let bs = usize::try_from(job.pattern.sizes.largest()).unwrap_or(usize::MAX);
        let depth = job.queue_depth();
        let writing = Writing::of(load, index, Shard::ONLY);
        let pool = write_pool(job, &writing.content, bs);
        let pool_bytes = pool.map_or(0, |pool| pool.length());
        let mut queue = queue(depth, bs, pool_bytes)?;
        let (slots, pooled) = queue.memory();
        writing.content.fill(slots);
        if let Some(pool) = pool {
            pool.fill(&writing.content, pooled);
        }
        Ok(DeepWorker {
            queue,
            reaped: Reaped::new(depth),
            name: load.data().name(index),
            slots: vec![DeepSlot::EMPTY; depth.into()].into(),
            free: (0..depth).rev().collect(),
            pool,
            writing,
            sequence: load.sequence(index, Shard::ONLY),
            waits: None,
            fsync_every: job.fsync_every(),
            unsynced: 0,
            end_fsync: job.syncs_at_end(),
        })
    }

    /// Fills the free slots with operations that are due.
    #[inline]
    fn fill(&mut self, recorder: &mut Recorder) -> io::Result<DeepFillResult> {
        while let Some(slot) = self.free.last().copied() {
            if recorder.should_stop() {
                return Ok(DeepFillResult::Last);
            }
            let Some(next) = self.waits.take().or_else(|| self.sequence.next()) else {
                return Ok(DeepFillResult::Last);
            };
            match recorder.turn(next.bytes) {
                Turn::Now => self.issue(recorder, slot, next)?,
                turn => {
                    self.waits = Some(next);
                    return Ok(match turn {
                        Turn::At(due) => DeepFillResult::Until(due),
                        _ => DeepFillResult::Last,
                    });
                }
            }
            if self.queue.has_ended() {
                // An operation that completed at submission is dated now, not after the other slots are filled.
                break;
            }
        }
        Ok(DeepFillResult::Full)
    }

    #[inline]
    fn issue(&mut self, recorder: &mut Recorder, slot: u16, next: NextIo) -> io::Result<()> {
        self.free.pop();
        if next.writes {
            let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
            if let Some(pool) = &self.pool {
                let from = pool.at(0, next.offset);
                self.queue.take_from_pool(slot, from, bytes);
            }
            self.writing.place(self.queue.block(slot, bytes), next);
        }
        let issued = DeepSlot {
            next,
            done: 0,
            syncs: false,
        };
        if let Some(entry) = self.slots.get_mut(usize::from(slot)) {
            *entry = issued;
        }
        self.queue.push(slot, issued.entry());
        let place = (0, next.offset);
        let now = recorder.now();
        recorder.submit(slot, next.op(), place, next.bytes, now);
        self.queue.submit()
    }

    #[inline]
    fn reap(&mut self, recorder: &mut Recorder) {
        self.queue.reap(&mut self.reaped, || recorder.now());
    }

    /// Handles the completion of a slot's entry.
    #[inline]
    fn ended(&mut self, recorder: &mut Recorder, completion: Completion) -> Result<(), OpError> {
        let Completion { slot, result, at } = completion;
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else {
            return Ok(());
        };
        let writes = entry.next.writes;
        let Ok(moved) = u32::try_from(result) else {
            let errno = -result;
            if errno == libc::EINTR {
                self.queue.push(slot, entry.entry());
                return Ok(());
            }
            return self.failed(recorder, at, slot, errno);
        };
        if !entry.syncs {
            if moved == 0 {
                let errno = if writes { libc::EIO } else { libc::ENODATA };
                return self.failed(recorder, at, slot, errno);
            }
            entry.done += moved;
            if u64::from(entry.done) < entry.next.bytes {
                self.queue.push(slot, entry.entry());
                return Ok(());
            }
            if writes {
                self.unsynced += 1;
                if self.unsynced >= self.fsync_every {
                    self.unsynced = 0;
                    entry.syncs = true;
                    self.queue.push(slot, entry.entry());
                    return Ok(());
                }
            }
        }
        let next = entry.next;
        if !writes && self.writing.content.verifies() {
            let wrong = self.verify(recorder, slot, next);
            if !wrong.is_empty() {
                self.set_free(slot);
                return recorder.complete_mismatch(slot, at, &self.name, &wrong);
            }
        }
        self.set_free(slot);
        recorder.complete(slot, at, next.bytes);
        Ok(())
    }

    /// Returns the mismatches of the block read into a slot. Polls for other completions after each piece.
    fn verify(&mut self, recorder: &mut Recorder, slot: u16, next: NextIo) -> Mismatches {
        let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
        let mut checked = self.writing.checking();
        let mut done = 0;
        while done < bytes {
            let left = bytes - done;
            let count = if left < 2 * PIECE_BYTES {
                left
            } else {
                PIECE_BYTES
            };
            let block = self.queue.block(slot, bytes);
            let piece = block.get(done..done + count).unwrap_or_default();
            let offset = next.offset.saturating_add(done as u64);
            self.writing.check_piece(piece, offset, &mut checked);
            done += count;
            self.reap(recorder);
        }
        checked.wrong
    }

    #[inline]
    fn set_free(&mut self, slot: u16) {
        self.queue.release(slot);
        self.free.push(slot);
    }

    #[cold]
    fn failed(
        &mut self,
        recorder: &mut Recorder,
        at: MonoNanos,
        slot: u16,
        errno: i32,
    ) -> Result<(), OpError> {
        self.set_free(slot);
        let entry = self.slots.get(usize::from(slot)).copied();
        self.writing.failed |= entry.is_none_or(|entry| entry.next.writes);
        let facts = ErrorFacts {
            errno,
            path: &self.name,
            offset: entry.map(|entry| entry.next.offset),
        };
        recorder.complete_error(slot, at, &facts)
    }

    #[cold]
    fn broken(&self, error: &io::Error) -> OpError {
        let what = format!("io_uring broke on {}: {error}", self.name);
        OpError::Broken { what }
    }
}

impl<Q: Queue> Worker for DeepWorker<Q> {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut outcome = Ok(());
        loop {
            let filled = match outcome {
                Ok(()) => self.fill(recorder),
                Err(_) => Ok(DeepFillResult::Last),
            };
            let mut max_wait = None;
            match filled.map_err(|error| self.broken(&error))? {
                DeepFillResult::Last if self.queue.in_flight() == 0 => break,
                DeepFillResult::Until(due) => {
                    let now = recorder.now();
                    let wait = due.since(now).min(MAX_SLEEP);
                    if self.queue.in_flight() == 0 {
                        sleep_until(now.saturating_add(wait));
                        let now = recorder.now();
                        recorder.advance_to(now);
                        continue;
                    }
                    max_wait = Some(wait);
                }
                DeepFillResult::Last | DeepFillResult::Full => {}
            }
            let waited = self.queue.submit_and_wait(max_wait);
            waited.map_err(|error| self.broken(&error))?;
            self.reap(recorder);
            if max_wait.is_some() && self.reaped.is_empty() {
                let now = recorder.now();
                recorder.advance_to(now);
            }
            while let Some(completion) = self.reaped.next() {
                let ended = self.ended(recorder, completion);
                outcome = outcome.and(ended);
            }
        }
        outcome?;
        self.writing.ended(&self.sequence);
        match self.end_fsync {
            true => file::end(&self.name, recorder, Op::Write, || self.queue.sync()),
            false => Ok(()),
        }
    }
}

//! The measured loop of `io` with one operation at a time.

use super::sequence::{Next, Sequence, Shard};
use super::writing::Writing;
use super::{IoLoad, file};
use crate::engine::author::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;

/// To put a stamp into so many bytes takes no longer than to record an operation.
const CHEAP_BYTES: u64 = 16 << 10;
/// As direct I/O wants it.
const PAGE_BYTES: usize = 4096;

pub(super) struct IoWorker {
    file: OwnedFd,
    name: String,
    block: Pages,
    pool: EntropyPool,
    /// Where what is read goes.
    read_at: usize,
    /// Where the block of the operation begins.
    from: usize,
    sequence: Sequence,
    writing: Writing,
    /// Writes between two fsyncs; `u64::MAX` for none.
    fsync_every: u64,
    unsynced: u64,
    end_fsync: bool,
    /// Next to nothing lies between two operations that need no block made: they share a reading of the clock.
    follows: bool,
}

impl IoWorker {
    pub(super) fn open(load: &IoLoad, index: u32) -> Result<IoWorker, TaskError> {
        let job = &load.job;
        let shards = load.shards();
        let (owner, shard) = (
            index / shards,
            Shard {
                index: index % shards,
                of: shards,
            },
        );
        let bs = usize::try_from(job.pattern.sizes.largest()).unwrap_or(usize::MAX);
        let writing = Writing::of(load, owner, shard);
        let pool = EntropyPool::of(&writing.content, bs);
        // What is read has a place of its own behind the blocks that are written.
        let read_at = match job.pattern.direction.writes() {
            true => pool.length().next_multiple_of(PAGE_BYTES),
            false => 0,
        };
        let bytes = read_at + bs;
        let doing = || format!("get a buffer of {bytes} bytes");
        // What matters for huge pages is the size of a block.
        let block = if bs < HUGE_FROM {
            Pages::small(bytes)
        } else {
            Pages::new(bytes)
        };
        let mut block = block.map_err(|error| TaskError::io(doing(), error))?;
        let blocks = block.get_mut(..read_at).unwrap_or_default();
        pool.fill(&writing.content, blocks);
        let sequence = load.sequence(owner, shard);
        Ok(IoWorker {
            file: file::open(job, load.data(), owner)?,
            name: load.data().name(owner),
            block,
            pool,
            read_at,
            from: 0,
            follows: sequence.is_cheap() && !writing.content.is_made_anew(),
            writing,
            sequence,
            fsync_every: job.fsync_every(),
            unsynced: 0,
            end_fsync: job.pattern.direction.writes() && job.end_fsync,
        })
    }

    #[inline]
    fn act(&mut self, next: Next) -> Result<(), Errno> {
        let block = part(&mut self.block, self.from, next);
        if !next.writes {
            return read_at(self.file.as_fd(), block, next.offset).map_err(|it| it.errno);
        }
        write_at(self.file.as_fd(), block, next.offset).map_err(|it| it.errno)?;
        self.unsynced += 1;
        if self.unsynced >= self.fsync_every {
            self.unsynced = 0;
            rustix::fs::fsync(&self.file)?;
        }
        Ok(())
    }

    /// Records an operation that came to its end at `now`; what was read is checked after that.
    #[inline]
    fn succeeded(
        &mut self,
        recorder: &mut Recorder,
        next: Next,
        began: Began,
    ) -> Result<(), OpError> {
        let op = next.op();
        if next.writes || !self.writing.content.verifies() {
            recorder.end(op, began, next.bytes);
            return Ok(());
        }
        let now = recorder.now();
        let wrong = self
            .writing
            .check(part(&mut self.block, self.from, next), next);
        if !wrong.is_empty() {
            return recorder.mismatch(op, began, &self.name, &wrong);
        }
        recorder.end_at(now, op, began, next.bytes);
        Ok(())
    }
}

#[inline(always)]
fn part(block: &mut [u8], from: usize, next: Next) -> &mut [u8] {
    let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
    let end = from.saturating_add(bytes);
    block.get_mut(from..end).unwrap_or_default()
}

impl Worker for IoWorker {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        let mut follows = self.follows;
        while let Some(next) = self.sequence.next() {
            let op = next.op();
            self.from = self.read_at;
            if next.writes {
                self.from = self.pool.at(0, next.offset);
                self.writing
                    .place(part(&mut self.block, self.from, next), next);
            }
            recorder.place_at(0, next.offset);
            let began = match follows && (!next.writes || next.bytes <= CHEAP_BYTES) {
                true => recorder.next_back_to_back(op, next.bytes),
                false => recorder.next(op, next.bytes),
            };
            let Some(began) = began else {
                break;
            };
            follows = self.follows;
            match self.act(next) {
                Ok(()) => self.succeeded(recorder, next, began)?,
                Err(errno) => {
                    self.writing.failed |= next.writes;
                    // To tell what failed takes longer than many an operation.
                    follows = false;
                    recorder.error(
                        op,
                        began,
                        &ErrorFacts {
                            errno: errno.raw_os_error(),
                            path: &self.name,
                            offset: Some(next.offset),
                        },
                    )?;
                }
            }
        }
        self.writing.ended(&self.sequence);
        match self.end_fsync {
            true => file::sync_at_end(&self.file, &self.name, recorder),
            false => Ok(()),
        }
    }
}

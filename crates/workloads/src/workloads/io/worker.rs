//! The measured loop of `io` with one operation at a time, and the engine `psync`.

use super::job::IoJob;
use super::sequence::{NextIo, Sequence, Shard};
use super::writing::Writing;
use super::{IoLoad, file};
use crate::engine::author::*;
use rustix::fd::{AsFd, OwnedFd};

/// Stamping a block of up to this size takes no longer than recording an operation.
const CHEAP_BYTES: u64 = 16 << 10;
/// Alignment for direct I/O.
const PAGE_BYTES: usize = 4096;

/// How an operation reaches the kernel.
pub(super) trait Access: Send {
    /// Called before the first operation.
    fn begin(&mut self, _recorder: &Recorder) {}

    /// Operation to record.
    fn op(&self, next: NextIo) -> Op;

    /// Bytes to record.
    fn bytes(&self, next: NextIo) -> u64;

    /// Whether the operation reads data that can be verified.
    fn reads(&self, next: NextIo) -> bool;

    /// An error without an offset applies to the whole operation.
    fn carry_out(&mut self, next: NextIo, memory: &mut BlockMemory) -> Result<(), CallError>;

    /// Operation that the work after the last one is recorded as; `None` if there is none.
    fn end_op(&self) -> Option<Op>;

    fn end(&mut self) -> Result<(), CallError>;
}

/// pread and pwrite.
pub(super) struct Psync {
    file: OwnedFd,
    /// Writes between two fsyncs; `u64::MAX` for none.
    fsync_every: u64,
    unsynced: u64,
    end_fsync: bool,
}

impl Psync {
    pub(super) fn new(job: &IoJob, file: OwnedFd) -> Psync {
        Psync {
            file,
            fsync_every: job.fsync_every(),
            unsynced: 0,
            end_fsync: job.syncs_at_end(),
        }
    }
}

impl Access for Psync {
    #[inline(always)]
    fn op(&self, next: NextIo) -> Op {
        next.op()
    }

    #[inline(always)]
    fn bytes(&self, next: NextIo) -> u64 {
        next.bytes
    }

    #[inline(always)]
    fn reads(&self, next: NextIo) -> bool {
        !next.writes
    }

    #[inline(always)]
    fn carry_out(&mut self, next: NextIo, memory: &mut BlockMemory) -> Result<(), CallError> {
        let fd = self.file.as_fd();
        if !next.writes {
            return read_at(fd, memory.block_to_read(next), next.offset)
                .map_err(|error| error.errno.into());
        }
        write_at(fd, memory.block_to_write(next), next.offset).map_err(|error| error.errno)?;
        self.unsynced += 1;
        if self.unsynced >= self.fsync_every {
            self.unsynced = 0;
            rustix::fs::fsync(&self.file)?;
        }
        Ok(())
    }

    fn end_op(&self) -> Option<Op> {
        self.end_fsync.then_some(Op::Write)
    }

    fn end(&mut self) -> Result<(), CallError> {
        Ok(rustix::fs::fsync(&self.file)?)
    }
}

/// Buffers of a worker: the blocks to write, and behind them the block to read into.
pub(super) struct BlockMemory {
    pages: Pages,
    pool: EntropyPool,
    read_at: usize,
    /// Start of the next block to write.
    from: usize,
}

impl BlockMemory {
    fn new(job: &IoJob, content: &Content) -> Result<BlockMemory, TaskError> {
        let bs = usize::try_from(job.pattern.sizes.largest()).unwrap_or(usize::MAX);
        let pool = EntropyPool::of(content, bs);
        let read_at = match job.pattern.direction.writes() {
            true => pool.length().next_multiple_of(PAGE_BYTES),
            false => 0,
        };
        let bytes = read_at + bs;
        let doing = || format!("get a buffer of {bytes} bytes");
        // Huge pages depend on the size of a block.
        let pages = if bs < HUGE_FROM {
            Pages::small(bytes)
        } else {
            Pages::new(bytes)
        };
        let mut pages = pages.map_err(|error| TaskError::io(doing(), error))?;
        pool.fill(content, pages.get_mut(..read_at).unwrap_or_default());
        Ok(BlockMemory {
            pages,
            pool,
            read_at,
            from: 0,
        })
    }

    #[inline(always)]
    fn block_to_write(&mut self, next: NextIo) -> &mut [u8] {
        part(&mut self.pages, self.from, next)
    }

    #[inline(always)]
    fn block_to_read(&mut self, next: NextIo) -> &mut [u8] {
        part(&mut self.pages, self.read_at, next)
    }

    /// The block to write, and the block to read into.
    pub(super) fn both(&mut self, next: NextIo) -> (&mut [u8], &mut [u8]) {
        let (written, read) = self.pages.split_at_mut(self.read_at);
        (part(written, self.from, next), part(read, 0, next))
    }
}

#[inline(always)]
fn part(block: &mut [u8], from: usize, next: NextIo) -> &mut [u8] {
    let bytes = usize::try_from(next.bytes).unwrap_or(usize::MAX);
    let end = from.saturating_add(bytes);
    block.get_mut(from..end).unwrap_or_default()
}

pub(super) struct IoWorker<A> {
    access: A,
    name: String,
    memory: BlockMemory,
    sequence: Sequence,
    writing: Writing,
    /// Consecutive operations that need no new block are so close that they share a clock reading.
    follows: bool,
}

impl<A: Access> IoWorker<A> {
    pub(super) fn open(
        load: &IoLoad,
        index: u32,
        access: impl FnOnce(OwnedFd) -> A,
    ) -> Result<IoWorker<A>, TaskError> {
        let job = &load.job;
        let shards = load.shards();
        let (owner, shard) = (
            index / shards,
            Shard {
                index: index % shards,
                of: shards,
            },
        );
        let writing = Writing::of(load, owner, shard);
        let sequence = load.sequence(owner, shard);
        Ok(IoWorker {
            access: access(file::open(job, load.data(), owner)?),
            name: load.data().name(owner),
            memory: BlockMemory::new(job, &writing.content)?,
            follows: sequence.is_cheap() && !writing.content.is_made_anew(),
            writing,
            sequence,
        })
    }

    /// Records an operation that has just ended, then verifies the data it read.
    #[inline]
    fn succeeded(
        &mut self,
        recorder: &mut Recorder,
        next: NextIo,
        began: Began,
    ) -> Result<(), OpError> {
        let (op, bytes) = (self.access.op(next), self.access.bytes(next));
        if !self.access.reads(next) || !self.writing.content.verifies() {
            recorder.end(op, began, bytes);
            return Ok(());
        }
        let now = recorder.now();
        let wrong = self.writing.check(self.memory.block_to_read(next), next);
        if !wrong.is_empty() {
            return recorder.mismatch(op, began, &self.name, &wrong);
        }
        recorder.end_at(now, op, began, bytes);
        Ok(())
    }
}

impl<A: Access> Worker for IoWorker<A> {
    fn run(&mut self, recorder: &mut Recorder) -> Result<(), OpError> {
        self.access.begin(recorder);
        let mut follows = self.follows;
        while let Some(next) = self.sequence.next() {
            let (op, bytes) = (self.access.op(next), self.access.bytes(next));
            if next.writes {
                self.memory.from = self.memory.pool.at(0, next.offset);
                self.writing.place(self.memory.block_to_write(next), next);
            }
            recorder.set_position(0, next.offset);
            let began = match follows && (!next.writes || next.bytes <= CHEAP_BYTES) {
                true => recorder.next_back_to_back(op, bytes),
                false => recorder.next(op, bytes),
            };
            let Some(began) = began else {
                break;
            };
            follows = self.follows;
            match self.access.carry_out(next, &mut self.memory) {
                Ok(()) => self.succeeded(recorder, next, began)?,
                Err(failed) => {
                    self.writing.failed |= next.writes;
                    // Reporting the failure takes longer than many operations.
                    follows = false;
                    recorder.error(
                        op,
                        began,
                        &ErrorFacts {
                            errno: failed.errno.raw_os_error(),
                            path: &self.name,
                            offset: failed.offset.or(Some(next.offset)),
                        },
                    )?;
                }
            }
        }
        if let Some(op) = self.access.end_op() {
            let (access, writing) = (&mut self.access, &mut self.writing);
            file::end(&self.name, recorder, op, || {
                let ended = access.end();
                writing.failed |= ended.is_err();
                ended
            })?;
        }
        self.writing.ended(&self.sequence);
        Ok(())
    }
}

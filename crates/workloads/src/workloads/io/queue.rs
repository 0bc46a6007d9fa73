//! Keeps many operations of one worker in flight, through io_uring or an RBD image.
//!
//! Each slot has at most one operation in flight, and a block that its operations read into or write from.

use super::reaped::{Completion, Reaped};
use super::ring::{Ring, RingEntry};
use crate::engine::author::*;
use std::io;
use std::time::Duration;

pub(super) trait Queue: Send {
    fn in_flight(&self) -> usize;

    /// The buffers of all slots, and the pool behind them. Only valid before the first operation.
    fn memory(&mut self) -> (&mut [u8], &mut [u8]);

    /// Uses the block at `from` of the pool as the block of an idle slot.
    fn take_from_pool(&mut self, slot: u16, from: usize, bytes: usize);

    /// The first `bytes` of an idle slot's block.
    fn block(&mut self, slot: u16, bytes: usize) -> &mut [u8];

    /// Queues an entry for an idle slot; it starts with the next submit.
    fn push(&mut self, slot: u16, entry: RingEntry);

    /// Submits the queued entries.
    fn submit(&mut self) -> io::Result<()>;

    /// Submits, and waits up to `max_wait` until an operation has completed.
    fn submit_and_wait(&mut self, max_wait: Option<Duration>) -> io::Result<()>;

    /// Whether a completion can be reaped.
    fn has_ended(&mut self) -> bool;

    /// Reaps completions. `now` dates those that carry no time of their own.
    fn reap(&mut self, reaped: &mut Reaped, now: impl FnOnce() -> MonoNanos);

    /// Releases the block of an idle slot.
    fn release(&mut self, slot: u16);

    /// Flushes all earlier writes to the storage.
    fn sync(&mut self) -> Result<(), CallError>;
}

impl Queue for Ring {
    #[inline]
    fn in_flight(&self) -> usize {
        Ring::in_flight(self)
    }

    fn memory(&mut self) -> (&mut [u8], &mut [u8]) {
        Ring::memory(self)
    }

    #[inline]
    fn take_from_pool(&mut self, slot: u16, from: usize, bytes: usize) {
        if !self.claim(slot, from, bytes) {
            self.copy_from_pool(slot, from, bytes);
        }
    }

    #[inline]
    fn block(&mut self, slot: u16, bytes: usize) -> &mut [u8] {
        Ring::block(self, slot, bytes)
    }

    #[inline]
    fn push(&mut self, slot: u16, entry: RingEntry) {
        Ring::push(self, slot, entry);
    }

    #[inline]
    fn submit(&mut self) -> io::Result<()> {
        Ring::submit(self)
    }

    #[inline]
    fn submit_and_wait(&mut self, max_wait: Option<Duration>) -> io::Result<()> {
        Ring::submit_and_wait(self, max_wait)
    }

    #[inline]
    fn has_ended(&mut self) -> bool {
        Ring::has_ended(self)
    }

    #[inline]
    fn reap(&mut self, reaped: &mut Reaped, now: impl FnOnce() -> MonoNanos) {
        reaped.take_from(self, now);
    }

    #[inline]
    fn release(&mut self, slot: u16) {
        Ring::release(self, slot);
    }

    fn sync(&mut self) -> Result<(), CallError> {
        Ok(rustix::fs::fsync(self.file())?)
    }
}

impl Queue for ImageQueue {
    #[inline]
    fn in_flight(&self) -> usize {
        ImageQueue::in_flight(self)
    }

    fn memory(&mut self) -> (&mut [u8], &mut [u8]) {
        ImageQueue::memory(self)
    }

    #[inline]
    fn take_from_pool(&mut self, slot: u16, from: usize, bytes: usize) {
        self.copy_from_pool(slot, from, bytes);
    }

    #[inline]
    fn block(&mut self, slot: u16, bytes: usize) -> &mut [u8] {
        ImageQueue::block(self, slot, bytes)
    }

    #[inline]
    fn push(&mut self, slot: u16, entry: RingEntry) {
        let from = |done| usize::try_from(done).unwrap_or(usize::MAX);
        let call = match entry {
            RingEntry::Read { at, done, bytes } => ImageCall::Read {
                offset: at + u64::from(done),
                from: from(done),
                bytes: from(bytes - done),
            },
            RingEntry::Write { at, done, bytes } => ImageCall::Write {
                offset: at + u64::from(done),
                from: from(done),
                bytes: from(bytes - done),
            },
            RingEntry::Fsync => ImageCall::Flush,
        };
        ImageQueue::push(self, slot, call);
    }

    #[inline]
    fn submit(&mut self) -> io::Result<()> {
        ImageQueue::submit(self);
        Ok(())
    }

    #[inline]
    fn submit_and_wait(&mut self, max_wait: Option<Duration>) -> io::Result<()> {
        ImageQueue::submit_and_wait(self, max_wait);
        Ok(())
    }

    #[inline]
    fn has_ended(&mut self) -> bool {
        ImageQueue::has_ended(self)
    }

    /// The library's callback has dated each completion.
    #[inline]
    fn reap(&mut self, reaped: &mut Reaped, _now: impl FnOnce() -> MonoNanos) {
        while let Some(EndedOp { slot, at, result }) = ImageQueue::reap(self) {
            reaped.push(Completion { slot, result, at });
        }
    }

    /// No-op: each slot has its own buffer.
    #[inline]
    fn release(&mut self, _slot: u16) {}

    fn sync(&mut self) -> Result<(), CallError> {
        Ok(self.flush().map_err(rustix::io::Errno::from_raw_os_error)?)
    }
}

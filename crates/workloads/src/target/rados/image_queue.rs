//! Many operations in flight on one image from one thread, through the library's asynchronous calls.
//!
//! Each slot has its own buffer, which the library may use until the slot's operation has completed. Behind the buffers
//! lies a pool from which blocks are copied. Invariants: a slot has one operation in flight at most. Buffers and board
//! outlive every operation, since dropping the queue waits for all in flight, which the session's timeout bounds.

use super::EndedOp;
use super::board::{Board, ended};
use super::image::Image;
use super::library::Completion;
use crate::target::memory::Pages;
use std::collections::VecDeque;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 4096;

/// An operation on an image; `from` is the begin in the slot's buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ImageCall {
    Read {
        offset: u64,
        from: usize,
        bytes: usize,
    },
    Write {
        offset: u64,
        from: usize,
        bytes: usize,
    },
    Flush,
}

#[derive(Debug)]
struct ImageSlot {
    /// Null: nothing is in flight.
    completion: Completion,
    /// Bytes of a write, which the library does not return.
    writes: i32,
    /// The library's error if it refused the operation.
    refused: i32,
}

#[derive(Debug)]
pub(crate) struct ImageQueue {
    slots: Box<[ImageSlot]>,
    board: Arc<Board>,
    /// Operations that are not reaped yet, queued or submitted.
    in_flight: usize,
    /// Queued operations, one per slot at most.
    waiting: VecDeque<(u16, ImageCall)>,
    /// Notes taken from the board.
    taken: u32,
    memory: Pages,
    slot_bytes: usize,
    pool_bytes: usize,
    /// Closed last.
    image: Image,
}

// SAFETY: completions are the queue's own, and the library lets any thread use them.
unsafe impl Send for ImageQueue {}

impl ImageQueue {
    /// For the calling thread, which is woken by completions: `depth` buffers of `bytes`, and a pool.
    pub(crate) fn new(
        image: Image,
        depth: u16,
        bytes: usize,
        pool_bytes: usize,
    ) -> io::Result<ImageQueue> {
        let slot_bytes = bytes.next_multiple_of(PAGE);
        let slots = slot_bytes.saturating_mul(depth.into());
        let memory = Pages::new(slots.saturating_add(pool_bytes))?;
        let board = Board::new(depth);
        image.session.keep(&board);
        let idle = || ImageSlot {
            completion: ptr::null_mut(),
            writes: 0,
            refused: 0,
        };
        Ok(ImageQueue {
            slots: (0..depth).map(|_| idle()).collect(),
            board,
            in_flight: 0,
            waiting: VecDeque::with_capacity(depth.into()),
            taken: 0,
            memory,
            slot_bytes,
            pool_bytes,
            image,
        })
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// The buffers of all slots, and the pool, before the first operation.
    pub(crate) fn memory(&mut self) -> (&mut [u8], &mut [u8]) {
        assert_eq!(self.in_flight, 0, "the library may write to the buffers");
        let slots = self.memory.len() - self.pool_bytes;
        self.memory.split_at_mut(slots)
    }

    #[inline]
    fn start(&self, slot: u16) -> *mut u8 {
        let offset = usize::from(slot) * self.slot_bytes;
        self.memory.start().wrapping_add(offset)
    }

    #[inline]
    fn has_slot(&self, slot: u16) -> bool {
        usize::from(slot) < self.slots.len()
    }

    /// Copies the block at `from` of the pool into the buffer of an idle slot.
    #[inline]
    pub(crate) fn copy_from_pool(&mut self, slot: u16, from: usize, bytes: usize) {
        if from + bytes > self.pool_bytes || bytes > self.slot_bytes || !self.has_slot(slot) {
            return;
        }
        let pool = self.slots.len() * self.slot_bytes;
        let source = self.memory.start().wrapping_add(pool + from);
        // SAFETY: both lie within the memory by the check above, and do not overlap. The slot has nothing in flight,
        // and the library never has a part of the pool.
        unsafe { ptr::copy_nonoverlapping(source, self.start(slot), bytes) };
    }

    /// The first `bytes` of the buffer of an idle slot.
    #[inline]
    pub(crate) fn block(&mut self, slot: u16, bytes: usize) -> &mut [u8] {
        if bytes > self.slot_bytes || !self.has_slot(slot) {
            return &mut [];
        }
        // SAFETY: it lies within the memory by the check above, `&mut self` makes this the only reference to it, and
        // the library has nothing of this slot.
        unsafe { std::slice::from_raw_parts_mut(self.start(slot), bytes) }
    }

    /// Queues an operation of an idle slot.
    #[inline]
    pub(crate) fn push(&mut self, slot: u16, call: ImageCall) {
        if self.has_slot(slot) {
            self.waiting.push_back((slot, call));
            self.in_flight += 1;
        }
    }

    /// Submits all queued operations, which may complete at any time from now on. One that the library refuses
    /// completes at once with its error.
    #[inline]
    pub(crate) fn submit(&mut self) {
        while let Some((slot, call)) = self.waiting.pop_front() {
            self.issue(slot, call);
        }
    }

    #[inline]
    fn issue(&mut self, slot: u16, call: ImageCall) {
        let (library, image, start) = (self.image.library, self.image.handle, self.start(slot));
        let argument = self.board.argument(slot);
        let room = self.slot_bytes;
        let Some(entry) = self.slots.get_mut(usize::from(slot)) else {
            return;
        };
        let mut completion = ptr::null_mut();
        // SAFETY: the argument's board lives as long as the session, which the library outlives.
        let mut code =
            unsafe { (library.rbd_aio_create_completion)(argument, ended, &mut completion) };
        if code >= 0 {
            let fits = |from: usize, bytes| from.saturating_add(bytes) <= room;
            // SAFETY: the part of the slot's buffer is checked, and lives until nothing is in flight.
            code = unsafe {
                match call {
                    ImageCall::Read {
                        offset,
                        from,
                        bytes,
                    } if fits(from, bytes) => {
                        let at = start.wrapping_add(from).cast();
                        (library.rbd_aio_read)(image, offset, bytes, at, completion)
                    }
                    ImageCall::Write {
                        offset,
                        from,
                        bytes,
                    } if fits(from, bytes) => {
                        let at = start.wrapping_add(from).cast();
                        (library.rbd_aio_write)(image, offset, bytes, at, completion)
                    }
                    ImageCall::Read { .. } | ImageCall::Write { .. } => -libc::EINVAL,
                    ImageCall::Flush => (library.rbd_aio_flush)(image, completion),
                }
            };
            if code < 0 {
                // SAFETY: the library has refused it.
                unsafe { (library.rbd_aio_release)(completion) };
                completion = ptr::null_mut();
            }
        }
        let writes = match call {
            ImageCall::Write { bytes, .. } => i32::try_from(bytes).unwrap_or(i32::MAX),
            ImageCall::Read { .. } | ImageCall::Flush => 0,
        };
        *entry = ImageSlot {
            completion,
            writes,
            refused: code.min(0),
        };
        if code < 0 {
            self.board.note_slot(slot);
        }
    }

    /// Whether a completion is waiting.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.board.has(self.taken)
    }

    /// The next completion, with the bytes moved.
    #[inline]
    pub(crate) fn reap(&mut self) -> Option<EndedOp> {
        let (slot, at) = self.board.take(self.taken)?;
        self.taken = self.taken.wrapping_add(1);
        let entry = self.slots.get_mut(usize::from(slot))?;
        let completion = std::mem::replace(&mut entry.completion, ptr::null_mut());
        self.in_flight -= 1;
        if completion.is_null() {
            let result = entry.refused;
            return Some(EndedOp { slot, at, result });
        }
        let library = self.image.library;
        // SAFETY: the completion is ours; the library keeps a reference of its own while its callback runs.
        let moved = unsafe {
            let moved = (library.rbd_aio_get_return_value)(completion);
            (library.rbd_aio_release)(completion);
            moved
        };
        let moved = i32::try_from(moved).unwrap_or(i32::MAX);
        let result = match moved {
            0.. => moved.max(entry.writes),
            _ => moved,
        };
        Some(EndedOp { slot, at, result })
    }

    /// Submits, and sleeps until there is a completion or `max_wait` is over.
    pub(crate) fn submit_and_wait(&mut self, max_wait: Option<Duration>) {
        self.submit();
        match max_wait {
            Some(max_wait) if !self.has_ended() => std::thread::park_timeout(max_wait),
            Some(_) => {}
            None => {
                while !self.has_ended() && self.in_flight > 0 {
                    std::thread::park();
                }
            }
        }
    }

    /// Makes earlier writes durable.
    ///
    /// # Errors
    /// The errno.
    pub(crate) fn flush(&self) -> Result<(), i32> {
        self.image.flush()
    }
}

impl Drop for ImageQueue {
    fn drop(&mut self) {
        let library = self.image.library;
        for slot in self.slots.iter().filter(|slot| !slot.completion.is_null()) {
            // SAFETY: it is in flight, and ours; nothing uses it afterwards.
            unsafe {
                (library.rbd_aio_wait_for_complete)(slot.completion);
                (library.rbd_aio_release)(slot.completion);
            }
        }
    }
}

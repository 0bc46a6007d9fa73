//! Records which operations have completed, and when, for the library's callbacks.
//!
//! Callbacks run in threads of the library; the worker that issued the operations takes the notes. Neither side locks
//! or allocates. Each slot has one operation in flight at most, so the ring of notes is never full. The callback reads
//! the clock: the time until the worker polls is not part of the operation.

use super::library::Completion;
use crate::measure::clock::MonoNanos;
use libc::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::thread::Thread;

#[derive(Debug)]
pub(super) struct Board {
    slots: Box<[BoardSlot]>,
    /// Completed slots, counted from 1, in the order of completion; 0: none yet.
    notes: Box<[AtomicU32]>,
    /// Number of notes begun.
    written: AtomicU32,
    /// Woken by each note.
    worker: Thread,
}

#[derive(Debug)]
struct BoardSlot {
    number: u16,
    ended_at: AtomicU64,
    board: AtomicPtr<Board>,
}

impl Board {
    /// For `depth` operations of the calling thread.
    pub(super) fn new(depth: u16) -> Arc<Board> {
        let slot = |number| BoardSlot {
            number,
            ended_at: AtomicU64::new(0),
            board: AtomicPtr::default(),
        };
        let rounded = u32::from(depth).next_power_of_two();
        let board = Arc::new(Board {
            slots: (0..depth).map(slot).collect(),
            notes: (0..rounded).map(|_| AtomicU32::new(0)).collect(),
            written: AtomicU32::new(0),
            worker: std::thread::current(),
        });
        for slot in &board.slots {
            let here = Arc::as_ptr(&board).cast_mut();
            slot.board.store(here, Ordering::Relaxed);
        }
        board
    }

    /// The argument for [`ended`]. The board has to outlive the last callback.
    pub(super) fn argument(&self, slot: u16) -> *mut c_void {
        let slot = self.slots.get(usize::from(slot));
        slot.map_or(std::ptr::null_mut(), |slot| {
            std::ptr::from_ref(slot).cast_mut().cast()
        })
    }

    fn note(&self, slot: &BoardSlot) {
        slot.ended_at.store(MonoNanos::now().0, Ordering::Relaxed);
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        if let Some(note) = self.notes.get(self.index(number)) {
            note.store(u32::from(slot.number) + 1, Ordering::Release);
        }
        self.worker.unpark();
    }

    /// Notes a completion as the library's callback does.
    pub(super) fn note_slot(&self, slot: u16) {
        if let Some(slot) = self.slots.get(usize::from(slot)) {
            self.note(slot);
        }
    }

    /// Whether note `number` exists.
    #[inline]
    pub(super) fn has(&self, number: u32) -> bool {
        let note = self.notes.get(self.index(number));
        note.is_some_and(|note| note.load(Ordering::Acquire) != 0)
    }

    /// Takes note `number` (the first is 0): the slot, and when its operation ended.
    #[inline]
    pub(super) fn take(&self, number: u32) -> Option<(u16, MonoNanos)> {
        let note = self.notes.get(self.index(number))?;
        let slot = note.load(Ordering::Acquire).checked_sub(1)?;
        note.store(0, Ordering::Relaxed);
        let slot = u16::try_from(slot).ok()?;
        let ended_at = &self.slots.get(usize::from(slot))?.ended_at;
        Some((slot, MonoNanos(ended_at.load(Ordering::Relaxed))))
    }

    /// The length is a power of two, so that note numbers may wrap.
    #[inline]
    fn index(&self, number: u32) -> usize {
        let last = self.notes.len().saturating_sub(1);
        usize::try_from(number).unwrap_or(0) & last
    }
}

/// The library's callback.
///
/// # Safety
/// `argument` is one of [`Board::argument`], and its board is alive.
pub(super) unsafe extern "C" fn ended(_completion: Completion, argument: *mut c_void) {
    let slot = argument.cast::<BoardSlot>();
    // SAFETY: the caller's condition; both are only read, except for their atomics.
    unsafe {
        if let Some(slot) = slot.as_ref()
            && let Some(board) = slot.board.load(Ordering::Relaxed).as_ref()
        {
            board.note(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_of_many_threads_come_once_each_and_in_order() {
        let board = Board::new(48);
        let mut next = 0;
        for _round in 0..50 {
            std::thread::scope(|scope| {
                for thread in 0..4_u16 {
                    let board = &board;
                    scope.spawn(move || {
                        for slot in (thread..48).step_by(4) {
                            // SAFETY: the board outlives the thread.
                            unsafe { ended(std::ptr::null_mut(), board.argument(slot)) };
                        }
                    });
                }
            });
            let mut seen: Vec<u16> = Vec::new();
            while let Some((slot, at)) = board.take(next) {
                assert!(at > MonoNanos(0));
                seen.push(slot);
                next += 1;
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..48).collect::<Vec<_>>());
        }
    }
}

//! Peak memory of a piece of work, counted by an allocator of the test program.
//!
//! Counted per thread. A program enables it with [`counts_memory!`](crate::counts_memory); in others every peak is 0.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static HELD: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// Enables memory counting in this test program.
#[macro_export]
macro_rules! counts_memory {
    () => {
        #[global_allocator]
        static MEMORY: $crate::memory::Counting = $crate::memory::Counting;
    };
}

/// The system's allocator plus a count of the bytes held by each thread.
#[derive(Debug)]
pub struct Counting;

fn add(bytes: usize) {
    let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
    // An ending thread no longer has a count.
    let _ = HELD.try_with(|held| {
        held.set(held.get().saturating_add(bytes));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(held.get())));
    });
}

fn remove(bytes: usize) {
    let bytes = isize::try_from(bytes).unwrap_or(isize::MAX);
    let _ = HELD.try_with(|held| held.set(held.get().saturating_sub(bytes)));
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting neither allocates nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size());
        // SAFETY: the caller guarantees the layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        remove(layout.size());
        // SAFETY: the pointer comes from the system's allocator, with the same layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        add(size);
        remove(layout.size());
        // SAFETY: as for `dealloc`; the caller guarantees the size.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// The result of `work`, and the maximum number of bytes that this thread held during it, beyond those held before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    let peak = PEAK.with(Cell::get).saturating_sub(before);
    (result, usize::try_from(peak).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    counts_memory!();

    #[test]
    fn the_peak_is_counted_not_what_is_left() {
        let ((), peak) = peak_of(|| drop(std::hint::black_box(vec![1_u8; 1 << 20])));
        assert!((1 << 20..1 << 21).contains(&peak), "{peak}");
        let (_, peak) = peak_of(|| ());
        assert_eq!(peak, 0);
    }
}

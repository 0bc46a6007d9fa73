//! A value that its owner changes all the time, and that another thread takes over while the owner stands still.
//!
//! The owner's access is two plain stores and one load; it executes no fence. The other side is rare and pays for both:
//! `membarrier(2)` makes every running thread of the process execute a full fence. Either the owner's mark is visible
//! after that, or the owner sees the other side's mark and waits. Where the kernel has no `membarrier` (before 4.14, or
//! a sandbox), the owner executes a fence per access.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// The owner's access lasts less than a microsecond, unless its thread has lost its CPU within it.
const TRIES: u32 = 1000;

/// Aligned so that a neighbour's stores do not slow the owner down (false sharing).
#[repr(align(128))]
struct Shared<T> {
    /// The owner uses the value.
    is_used: AtomicBool,
    /// Another thread uses the value, or is about to.
    is_wanted: AtomicBool,
    /// The owner has to execute a fence per access.
    fences: bool,
    value: UnsafeCell<T>,
}

// SAFETY: at most one thread has access to `value` at a time, see `Owner::get` and `Taker::take`.
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline(always)]
    fn order_owner(&self) {
        match self.fences {
            true => fence(Ordering::SeqCst),
            false => compiler_fence(Ordering::SeqCst),
        }
    }
}

impl<T> std::fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// The side that changes the value all the time.
#[derive(Debug)]
pub(super) struct Owner<T>(Arc<Shared<T>>);

/// The side that takes the value over from an owner that stands still.
#[derive(Debug)]
pub(super) struct Taker<T>(Arc<Shared<T>>);

impl<T> Clone for Taker<T> {
    fn clone(&self) -> Taker<T> {
        Taker(Arc::clone(&self.0))
    }
}

pub(super) fn shared<T>(value: T) -> (Owner<T>, Taker<T>) {
    let shared = Arc::new(Shared {
        is_used: AtomicBool::new(false),
        is_wanted: AtomicBool::new(false),
        fences: !has_membarrier(),
        value: UnsafeCell::new(value),
    });
    (Owner(Arc::clone(&shared)), Taker(shared))
}

impl<T> Owner<T> {
    /// Access until the guard is dropped. Waits while another thread has the value.
    #[inline(always)]
    pub(super) fn get(&mut self) -> Access<'_, T> {
        let shared = &*self.0;
        shared.is_used.store(true, Ordering::Relaxed);
        shared.order_owner();
        if shared.is_wanted.load(Ordering::Acquire) {
            yield_to_taker(shared);
        }
        Access(shared)
    }
}

/// The owner withdraws its mark until no taker wants the value.
#[cold]
#[inline(never)]
fn yield_to_taker<T>(shared: &Shared<T>) {
    loop {
        shared.is_used.store(false, Ordering::Release);
        while shared.is_wanted.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        shared.is_used.store(true, Ordering::Relaxed);
        shared.order_owner();
        if !shared.is_wanted.load(Ordering::Acquire) {
            return;
        }
    }
}

/// The owner's access to the value.
pub(super) struct Access<'a, T>(&'a Shared<T>);

impl<T> Deref for Access<'_, T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the owner is marked, and there is one owner, borrowed mutably. A taker that set its mark before ours
        // was visible was waited for; any other one sees our mark.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> DerefMut for Access<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Access<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.0.is_used.store(false, Ordering::Release);
    }
}

impl<T> Taker<T> {
    /// Passes the value to `act` while the owner does not use it. `None` if the owner, or another taker, uses it all
    /// the time, or if `membarrier` fails.
    pub(super) fn take<R>(&self, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let shared = &*self.0;
        for _ in 0..TRIES {
            if !shared.is_wanted.swap(true, Ordering::Acquire) {
                let _wanted = Wanted(&shared.is_wanted);
                if order_owners() && !shared.is_used.load(Ordering::Acquire) {
                    // SAFETY: the owner is not marked, and an owner that sets its mark from now on sees ours and waits.
                    // Other takers see our mark.
                    return Some(act(unsafe { &mut *shared.value.get() }));
                }
            }
            std::thread::yield_now();
        }
        None
    }
}

/// A taker's mark; withdrawn on drop.
struct Wanted<'a>(&'a AtomicBool);

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A full fence here, and in every running thread of the process if these execute none themselves. Returns whether
/// that succeeded: the kernel may lack memory, or a sandbox may have begun to refuse the call.
fn order_owners() -> bool {
    fence(Ordering::SeqCst);
    !has_membarrier() || membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Whether the kernel executes fences for this process; registers the process at the first call.
fn has_membarrier() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// An owner that counts as fast as it can, and a taker that moves the count away: nothing is lost or doubled.
    #[test]
    fn two_threads_never_have_the_value_at_once() {
        let (mut owner, taker) = shared((0_u64, 0_u64));
        let counting = std::thread::spawn(move || {
            for _ in 0..2_000_000 {
                let mut value = owner.get();
                let (one, other) = &mut *value;
                *one += 1;
                *other += 1;
            }
        });
        let (mut moved, mut taken) = (0, 0);
        while !counting.is_finished() {
            let both = taker.take(std::mem::take);
            if let Some((one, other)) = both {
                assert_eq!(one, other);
                moved += one;
                taken += 1;
            }
        }
        counting.join().unwrap();
        moved += taker.take(std::mem::take).unwrap().0;
        assert_eq!(moved, 2_000_000);
        assert!(taken > 0);
    }

    #[test]
    fn an_owner_that_uses_the_value_all_the_time_keeps_it() {
        let (mut owner, taker) = shared(7);
        let access = owner.get();
        assert_eq!(taker.take(|value| *value), None);
        drop(access);
        assert_eq!(taker.take(|value| *value), Some(7));
    }
}

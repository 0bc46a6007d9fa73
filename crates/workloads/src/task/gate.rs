//! Where workers wait for their start, and the task for their end. Locks are taken before and after the load only.

use super::urgency::Urgent;
use crate::clock::{MonoNanos, sleep_until, spin_until};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A worker leaves the gate this long before the start, and can be stopped up to then.
const LEAVE_EARLY: Duration = Duration::from_millis(5);
/// Its timer wakes it this long before the start, and it spins from there: more than a timer is late, less than a
/// measurement notices.
const SPIN: Duration = Duration::from_micros(200);

#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Condvar,
    /// What workers look at between two operations.
    stop: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct State {
    start: Option<MonoNanos>,
    stopped: bool,
    ended: usize,
}

impl Gate {
    pub(super) fn arm(&self, start: MonoNanos) {
        self.lock().start = Some(start);
        self.changed.notify_all();
    }

    /// Ends the load because someone asked for it.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.end_load();
    }

    /// Ends the load because a worker failed.
    pub(super) fn end_load(&self) {
        let _state = self.lock();
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }

    pub(super) fn was_stopped(&self) -> bool {
        self.lock().stopped
    }

    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Waits for the start instant and returns it with the instant at which the worker really begins: an ordinary
    /// thread again, on a CPU. `None` when the load ended before.
    pub(super) fn wait_start(&self) -> Option<(MonoNanos, MonoNanos)> {
        let start = self.wait_leave()?;
        let urgent = Urgent::now();
        sleep_until(start.saturating_sub(SPIN));
        spin_until(start);
        drop(urgent);
        Some((start, MonoNanos::now()))
    }

    fn wait_leave(&self) -> Option<MonoNanos> {
        let mut state = self.lock();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let Some(start) = state.start else {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = start.saturating_sub(LEAVE_EARLY).since(MonoNanos::now());
            if left.is_zero() {
                return Some(start);
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn one_ended(&self) {
        self.lock().ended += 1;
        self.changed.notify_all();
    }

    /// Waits until all workers have ended, at most until `until`; says whether they have.
    pub(super) fn wait_ended(&self, workers: usize, until: MonoNanos) -> bool {
        let mut state = self.lock();
        loop {
            if state.ended >= workers {
                return true;
            }
            let left = until.since(MonoNanos::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// No code that can panic runs under this lock; a poisoned one is as good as any.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

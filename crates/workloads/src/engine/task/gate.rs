//! Where workers wait for their start, and the task for their end. Locks are taken before and after the load only.

use crate::measure::clock::{MonoNanos, sleep_until, spin_until};
use crate::measure::interval::Shift;
use crate::measure::pacing::{Changes, ShareChange};
use crate::measure::rt_priority::{Handle, RtPriority};
use crate::measure::timing::StopRequest;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A worker leaves the gate this long before the start: longer than an ordinary thread waits for a CPU on a loaded
/// host.
const LEAVE_EARLY: Duration = Duration::from_millis(50);
/// A worker's timer fires this long before the start, and it spins from then on. Longer than timers are late, short
/// enough not to disturb a measurement.
const SPIN: Duration = Duration::from_micros(200);
/// Workers lose their real-time priority this long after the start at the latest.
pub(super) const RT_LIMIT: Duration = Duration::from_millis(1);
/// The same under a schedule, whose first instants may lie this long after the start. A worker sleeps until its own.
pub(super) const PACED_RT_LIMIT: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
    /// Checked by workers between two operations.
    stop: Arc<StopRequest>,
    /// Checked by paced workers between two operations.
    changes: Arc<Changes>,
    /// Shift of the periods; workers read it at the end of each period.
    shift: Arc<Shift>,
}

#[derive(Debug, Default)]
struct GateState {
    start: Option<MonoNanos>,
    /// The load ends at this instant at the latest.
    end: Option<MonoNanos>,
    stopped: bool,
    ended: usize,
    /// Workers with real-time priority around the start.
    rt_workers: Vec<Handle>,
    /// The watch over real-time priority has ended.
    watched: bool,
}

/// A worker that starts.
#[derive(Debug)]
pub(super) struct Started {
    pub planned: MonoNanos,
    /// The load ends at this instant at the latest, whatever its parameters.
    pub end: Option<MonoNanos>,
    pub began: MonoNanos,
    /// Held until its first operation has ended.
    pub rt_priority: RtPriority,
}

impl Gate {
    pub(super) fn arm(&self, start: MonoNanos, end: Option<MonoNanos>) {
        let mut state = self.lock();
        state.start = Some(start);
        state.end = end;
        drop(state);
        self.changed.notify_all();
    }

    /// Ends the load by request.
    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.end_load();
    }

    /// Ends the load because a worker has failed.
    pub(super) fn end_load(&self) {
        let _state = self.lock();
        self.stop.set();
        self.changed.notify_all();
    }

    /// When the load was ended from outside, or by a failure or a stall of a worker.
    pub(super) fn load_ended(&self) -> Option<MonoNanos> {
        self.stop.at()
    }

    pub(super) fn was_stopped(&self) -> bool {
        self.lock().stopped
    }

    pub(super) fn changes(&self) -> Arc<Changes> {
        Arc::clone(&self.changes)
    }

    pub(super) fn shift(&self) -> Arc<Shift> {
        Arc::clone(&self.shift)
    }

    /// Publishes a new share of the step's rate to the workers.
    pub(super) fn change(&self, change: ShareChange) {
        let _one_at_a_time = self.lock();
        self.changes.publish(change);
    }

    pub(super) fn stop_request(&self) -> Arc<StopRequest> {
        Arc::clone(&self.stop)
    }

    /// Waits for the start instant; `None` if the load ended before.
    pub(super) fn wait_start(&self) -> Option<Started> {
        let (planned, end) = self.wait_leave()?;
        let rt_priority = RtPriority::worker();
        self.note_rt_priority(rt_priority.handle());
        sleep_until(planned.saturating_sub(SPIN));
        let began = spin_until(planned);
        (!self.stop.is_set()).then_some(Started {
            planned,
            end,
            began,
            rt_priority,
        })
    }

    /// Waits until the workers have started or ended, and ends their real-time priority at the limit.
    pub(super) fn watch_start(&self, workers: usize, start: MonoNanos, limit: Duration) {
        if self.wait_ended(workers, start.saturating_sub(LEAVE_EARLY)) {
            return;
        }
        let _above = RtPriority::watch();
        sleep_until(start.saturating_add(limit));
        let mut state = self.lock();
        state.watched = true;
        for worker in state.rt_workers.drain(..) {
            worker.end();
        }
    }

    /// Threads that miss the deadline keep normal priority.
    fn note_rt_priority(&self, worker: Handle) {
        let mut state = self.lock();
        match state.watched {
            true => worker.end(),
            false => state.rt_workers.push(worker),
        }
    }

    fn wait_leave(&self) -> Option<(MonoNanos, Option<MonoNanos>)> {
        let mut state = self.lock();
        loop {
            if self.stop.is_set() {
                return None;
            }
            let Some(start) = state.start else {
                let woken = self.changed.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = start.saturating_sub(LEAVE_EARLY).since(MonoNanos::now());
            if left.is_zero() {
                return Some((start, state.end));
            }
            let woken = self.changed.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn one_ended(&self) {
        self.lock().ended += 1;
        self.changed.notify_all();
    }

    /// Waits until all workers have ended, or `until`; returns whether they have.
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

    /// No code that can panic runs under this lock, so a poisoned one is valid.
    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

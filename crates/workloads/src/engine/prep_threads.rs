//! Threads that work before, during or after the load without being part of it. They may hang like an operation.
//!
//! A thread that prepares or finishes a task, or carries out a command on a target, registers as a [`WorkingThread`] of
//! its [`PrepThreads`]. A [`HangDetector`] finds threads that have spent the whole stall time in one system call.
//! Either the kernel has not scheduled the thread, or the thread has run without ending the call (some calls wake up
//! now and then). Callers decide about consequences.

use super::stall::{Stall, StallEvent, TaskPhase};
use super::syscall::Syscall;
use crate::measure::clock::MonoNanos;
use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct PrepThreads(Arc<Mutex<Vec<i32>>>);

/// Registers a thread until it is dropped.
#[derive(Debug)]
pub(crate) struct WorkingThread {
    prep_threads: PrepThreads,
    tid: i32,
}

impl PrepThreads {
    /// Registers the calling thread.
    pub(crate) fn present(&self) -> WorkingThread {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        self.threads().push(tid);
        WorkingThread {
            prep_threads: self.clone(),
            tid,
        }
    }

    /// Runs `work` in the calling thread, as work of this phase. Calls `report` from another thread for each system
    /// call of these threads that lasts as long as `after`.
    pub fn watched<T>(
        &self,
        phase: TaskPhase,
        after: Duration,
        report: impl Fn(StallEvent) + Send + Sync,
        work: impl FnOnce() -> T,
    ) -> T {
        thread::scope(|scope| {
            let (working, over) = sync_channel::<()>(0);
            let mut detector = HangDetector::new(self.clone(), phase, after);
            let watching = thread::Builder::new()
                .name("bm-watch".to_owned())
                .spawn_scoped(scope, move || {
                    while over.recv_timeout(detector.poll_interval())
                        == Err(RecvTimeoutError::Timeout)
                    {
                        detector
                            .poll(MonoNanos::now())
                            .into_iter()
                            .for_each(&report);
                    }
                    detector.over().for_each(&report);
                });
            if let Err(error) = watching {
                let work = phase.as_str();
                tracing::warn!(%error, work, "cannot start the thread that watches for hangs: none will be reported");
            }
            let _present = self.present();
            let worked = work();
            drop(working);
            worked
        })
    }

    fn threads(&self) -> MutexGuard<'_, Vec<i32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WorkingThread {
    fn drop(&mut self) {
        let mut threads = self.prep_threads.threads();
        if let Some(at) = threads.iter().position(|tid| *tid == self.tid) {
            threads.swap_remove(at);
        }
    }
}

/// Checks the system calls of preparation threads.
#[derive(Debug)]
pub(super) struct HangDetector {
    prep_threads: PrepThreads,
    phase: TaskPhase,
    after: Duration,
    seen: BTreeMap<i32, SeenThread>,
}

/// State of a thread at the last check.
#[derive(Debug)]
struct SeenThread {
    switches: u64,
    /// Completed reads and writes, and the current call.
    ended: u64,
    call: Option<Syscall>,
    since: MonoNanos,
    reported: Option<Stall>,
}

impl SeenThread {
    fn over(self) -> Option<StallEvent> {
        self.reported.map(StallEvent::Over)
    }
}

impl HangDetector {
    /// For threads of this phase; a call hangs after this time.
    pub(super) fn new(
        prep_threads: PrepThreads,
        phase: TaskPhase,
        after: Duration,
    ) -> HangDetector {
        HangDetector {
            prep_threads,
            phase,
            after,
            seen: BTreeMap::new(),
        }
    }

    /// Interval of checks.
    pub(super) fn poll_interval(&self) -> Duration {
        (self.after / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// Events since the last check.
    pub(super) fn poll(&mut self, now: MonoNanos) -> Vec<StallEvent> {
        let mut events = Vec::new();
        let threads = self.prep_threads.threads().clone();
        let mut before = std::mem::take(&mut self.seen);
        for tid in threads {
            let Some(switches) = switches_of(tid) else {
                continue;
            };
            let known = before.remove(&tid);
            let mut seen = match known {
                Some(seen) if seen.switches == switches => seen,
                known => {
                    let (ended, call) = (ended_by(tid), Syscall::of(tid));
                    let same = |seen: &SeenThread| {
                        call.is_some() && (seen.ended, &seen.call) == (ended, &call)
                    };
                    match known {
                        Some(seen) if same(&seen) => SeenThread { switches, ..seen },
                        other => {
                            events.extend(other.and_then(SeenThread::over));
                            SeenThread {
                                switches,
                                ended,
                                call,
                                since: now,
                                reported: None,
                            }
                        }
                    }
                }
            };
            if seen.reported.is_none()
                && now.since(seen.since) >= self.after
                && let Some(call) = Syscall::of(tid)
            {
                let stall = self.stall(seen.since, call);
                events.push(StallEvent::Begun(stall.clone()));
                seen.reported = Some(stall);
            }
            self.seen.insert(tid, seen);
        }
        // Threads that have ended.
        events.extend(before.into_values().filter_map(SeenThread::over));
        events
    }

    /// Ends all stalls, because the work is done.
    pub(super) fn over(self) -> impl Iterator<Item = StallEvent> {
        self.seen.into_values().filter_map(SeenThread::over)
    }

    fn stall(&self, since: MonoNanos, call: Syscall) -> Stall {
        Stall {
            phase: self.phase,
            since,
            hangs: !call.syncs(),
            path: call.path.map(|path| path.display().to_string()),
            offset: call.offset,
            call: Some(call.name),
        }
    }
}

/// Completed reads and writes of a thread of this process; 0 if the kernel does not count them.
fn ended_by(tid: i32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/self/task/{tid}/io")).unwrap_or_default();
    let counts = io.lines().filter_map(|line| {
        let (key, count) = line.split_once(':')?;
        let counted = matches!(key, "syscr" | "syscw");
        counted.then(|| count.trim().parse::<u64>().ok())?
    });
    counts.fold(0, u64::saturating_add)
}

/// How often the kernel has switched away from a thread of this process.
fn switches_of(tid: i32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/self/task/{tid}/status")).ok()?;
    let counts = status.lines().filter_map(|line| {
        let (key, count) = line.split_once(':')?;
        let counted = key.ends_with("voluntary_ctxt_switches");
        counted.then(|| count.trim().parse::<u64>().ok())?
    });
    counts.reduce(|one, other| one.saturating_add(other))
}

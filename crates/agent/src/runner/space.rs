//! The free space of the tasks' targets: a sample of each target when its first task is prepared, and every [`PERIOD`]
//! while it has a task.
//!
//! A target may hang, so each reading has a thread of its own; its target is left out until the reading returns. Tasks
//! that share a target, by the nonce of the run's directory, share its readings. Between two readings only the tasks
//! hold the target open. Closing it may hang too, so this is never done under the lock or on the thread that starts
//! readings.

use crate::clock::Dating;
use crate::spool::SpoolEntry;
use crate::telemetry::{TargetSample, TelemetryRow};
use benchmesh_model::figures::{TargetFigures, UNKNOWN};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::sandbox::Space;
use benchmesh_workloads::task::Place;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Interval between readings of a target: some hundred bytes a minute.
const PERIOD: Duration = Duration::from_secs(10);
/// Maximum number of concurrent readings, including those that hang.
const MAX_READINGS: usize = 16;
/// Capacity of the thread's wake-up queue; one is enough, because the thread checks all targets.
const WAKE_UPS: usize = 1;
/// Upper limit of plausible sizes: some file systems report their size with all bits set.
const MAX_BYTES: u64 = 1 << 60;

/// The watched targets. Cheap to clone; the thread ends with the last clone.
#[derive(Clone, Debug, Default)]
pub struct SpaceWatch {
    watched: Watched,
    /// `None`: sampling is off.
    wake: Option<SyncSender<()>>,
}

/// Stops watching one task's target on drop.
#[derive(Debug)]
pub struct SpaceGuard {
    number: u64,
    watched: Watched,
}

impl Drop for SpaceGuard {
    fn drop(&mut self) {
        // The lock is released at the end of the statement, before the subject is dropped.
        let subject = self.watched.lock().remove(&self.number);
        drop(subject);
    }
}

/// The places that tasks work on, by the numbers of their guards.
#[derive(Clone, Debug, Default)]
struct Watched {
    subjects: Arc<Mutex<BTreeMap<u64, Subject>>>,
    numbers: Arc<AtomicU64>,
}

impl Watched {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Subject>> {
        self.subjects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, subject: Subject) -> SpaceGuard {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, subject);
        SpaceGuard {
            number,
            watched: self.clone(),
        }
    }
}

/// One target as opened by a task.
struct Subject {
    id: TargetId,
    read: Arc<Read>,
}

#[derive(Clone, Debug)]
struct TargetId {
    target: String,
    nonce: String,
}

/// Reads a target's free space; holds the target open.
type Read = dyn Fn() -> Option<SpaceReading> + Send + Sync;

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id.target, self.id.nonce)
    }
}

/// The answer of a target.
struct SpaceReading {
    device: Option<String>,
    space: Space,
}

impl SpaceWatch {
    /// Starts the thread.
    #[must_use]
    pub fn start(dating: &Dating, entries: &mpsc::Sender<SpoolEntry>) -> Self {
        let (dating, entries) = (dating.clone(), entries.clone());
        let report = move |id: &TargetId, at: MonoNanos, reading: SpaceReading| {
            // Dropped while mesh time is unknown; the next reading follows soon.
            if let Some(map) = dating.map() {
                let row = TelemetryRow::TargetSample(TargetSample {
                    at: map.to_mesh(at),
                    target: id.target.clone(),
                    nonce: id.nonce.clone(),
                    device: reading.device.unwrap_or_default(),
                    figures: figures(reading.space),
                });
                // Fails if the spool has ended, because the agent is ending too.
                let _ = entries.blocking_send(SpoolEntry::Rows(vec![row]));
            }
        };
        Self::reporting(Arc::new(report))
    }

    fn reporting(report: Arc<Report>) -> Self {
        let (wake, wake_ups) = sync_channel(WAKE_UPS);
        let watched = Watched::default();
        let mut readings = Readings {
            watched: watched.clone(),
            report,
            begun: BTreeMap::new(),
        };
        let thread = std::thread::Builder::new().name("bm-space".to_owned());
        if let Err(error) = thread.spawn(move || readings.run(&wake_ups)) {
            tracing::error!(%error, "free space of targets is not sampled: no thread");
        }
        Self {
            watched,
            wake: Some(wake),
        }
    }

    /// Samples the free space of a task's target until the guard is dropped; `nonce` is that of the run's directory.
    /// `None`: the target does not report free space, or sampling is off.
    pub fn watch(&self, target: String, nonce: String, place: Place) -> Option<SpaceGuard> {
        if !place.kind().has_free_space {
            return None;
        }
        let subject = Subject {
            id: TargetId { target, nonce },
            read: Arc::new(move || {
                let space = place.free().filter(|space| space.size_bytes > 0)?;
                let device = place.device();
                Some(SpaceReading { device, space })
            }),
        };
        self.add(subject)
    }

    fn add(&self, subject: Subject) -> Option<SpaceGuard> {
        let wake = self.wake.as_ref()?;
        let guard = self.watched.add(subject);
        // A full queue wakes the thread too.
        let _ = wake.try_send(());
        Some(guard)
    }
}

/// Handles a reading; called in its thread.
type Report = dyn Fn(&TargetId, MonoNanos, SpaceReading) + Send + Sync;

/// The newest reading of a target.
struct Begun {
    at: Instant,
    thread: JoinHandle<()>,
}

/// The state of the thread that starts readings.
struct Readings {
    watched: Watched,
    report: Arc<Report>,
    /// By nonce.
    begun: BTreeMap<String, Begun>,
}

impl Readings {
    fn run(&mut self, wake_ups: &Receiver<()>) {
        loop {
            let woken = match self.begin_due() {
                None => wake_ups.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(next) => wake_ups.recv_timeout(next.saturating_duration_since(Instant::now())),
            };
            if woken == Err(RecvTimeoutError::Disconnected) {
                return;
            }
        }
    }

    /// Starts the readings that are due. Returns the instant of the next one.
    fn begin_due(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut of_nonce: BTreeMap<String, (TargetId, Weak<Read>)> = BTreeMap::new();
        for Subject { id, read } in self.watched.lock().values() {
            let watched = || (id.clone(), Arc::downgrade(read));
            of_nonce.entry(id.nonce.clone()).or_insert_with(watched);
        }
        self.begun.retain(|nonce, begun| {
            let is_recent = now < begun.at + PERIOD;
            is_recent || of_nonce.contains_key(nonce) || !begun.thread.is_finished()
        });
        let mut next: Option<Instant> = None;
        for (nonce, (id, read)) in of_nonce {
            let due = self.begun.get(&nonce).map_or(now, |it| it.at + PERIOD);
            let is_due = due <= now;
            if is_due {
                self.begin(id, read, now);
            }
            let after = if is_due { now + PERIOD } else { due };
            next = Some(next.map_or(after, |next| next.min(after)));
        }
        next
    }

    /// Starts a reading, unless the previous one has not returned or too many others have not.
    fn begin(&mut self, id: TargetId, read: Weak<Read>, at: Instant) {
        let is_under_way = |begun: &Begun| !begun.thread.is_finished();
        let under_way = self.begun.values().filter(|it| is_under_way(it)).count();
        if under_way >= MAX_READINGS || self.begun.get(&id.nonce).is_some_and(is_under_way) {
            return;
        }
        let report = Arc::clone(&self.report);
        let nonce = id.nonce.clone();
        let read = move || {
            // `None`: the task has ended meanwhile.
            let Some(read) = read.upgrade() else {
                return;
            };
            let began = MonoNanos::now();
            if let Some(reading) = read() {
                report(&id, began, reading);
            }
        };
        let thread = std::thread::Builder::new().name("bm-statfs".to_owned());
        match thread.spawn(read) {
            Ok(thread) => {
                self.begun.insert(nonce, Begun { at, thread });
            }
            Err(error) => tracing::debug!(%error, "free space is not read this time: no thread"),
        }
    }
}

fn figures(space: Space) -> TargetFigures {
    let bytes = |bytes: u64| i64::try_from(bytes.min(MAX_BYTES)).unwrap_or(i64::MAX);
    // Some file systems without an inode limit set all bits in one of the two values.
    let is_limited = space.files > 0 && space.free_files <= space.files;
    let count = |count: u64| match i64::try_from(count.min(MAX_BYTES)) {
        Ok(count) if is_limited => count,
        _ => UNKNOWN,
    };
    TargetFigures {
        size_bytes: bytes(space.usable_bytes),
        free_bytes: bytes(space.free_bytes),
        files: count(space.files),
        free_files: count(space.free_files),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    fn space(files: u64, free_files: u64) -> Space {
        Space {
            size_bytes: 100,
            usable_bytes: 95,
            free_bytes: 40,
            files,
            free_files,
        }
    }

    fn subject(
        nonce: &str,
        read: impl Fn() -> Option<SpaceReading> + Send + Sync + 'static,
    ) -> Subject {
        Subject {
            id: TargetId {
                target: format!("/mnt/{nonce}"),
                nonce: nonce.to_owned(),
            },
            read: Arc::new(read),
        }
    }

    fn answers() -> Option<SpaceReading> {
        let (device, space) = (Some("8:1".to_owned()), space(10, 4));
        Some(SpaceReading { device, space })
    }

    #[test]
    fn inodes_without_a_limit_are_unknown() {
        for (files, free_files, expected) in [
            (10, 4, (10, 4)),
            (0, 0, (UNKNOWN, UNKNOWN)),
            (10, u64::MAX, (UNKNOWN, UNKNOWN)),
        ] {
            let found = figures(space(files, free_files));
            assert_eq!((found.files, found.free_files), expected);
            assert_eq!((found.size_bytes, found.free_bytes), (95, 40));
        }
    }

    #[test]
    fn a_dead_target_delays_no_other_and_shared_ones_are_read_once() {
        let (reports, reported) = sync_channel(64);
        let report = move |id: &TargetId, _, _: SpaceReading| {
            reports.send(id.target.clone()).unwrap();
        };
        let watch = SpaceWatch::reporting(Arc::new(report));
        let (hang, hanging) = sync_channel::<()>(0);
        let hanging = Mutex::new(hanging);
        let dead = subject("dead", move || {
            let _ = hanging.lock().unwrap().recv();
            None
        });
        let _dead = watch.add(dead);
        let _one = watch.add(subject("a", answers));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), "/mnt/a");
        let _same = watch.add(subject("a", answers));
        let _other = watch.add(subject("b", answers));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), "/mnt/b");
        assert!(reported.try_recv().is_err(), "read twice within a period");
        drop(hang);
    }

    #[test]
    fn a_reading_is_due_at_once_then_by_the_period_and_never_beside_itself() {
        let mut readings = Readings {
            watched: Watched::default(),
            report: Arc::new(|_: &TargetId, _, _| {}),
            begun: BTreeMap::new(),
        };
        assert_eq!(readings.begin_due(), None, "nothing is watched");
        let (hang, hanging) = sync_channel::<()>(0);
        let hanging = Mutex::new(hanging);
        let guard = readings.watched.add(subject("a", move || {
            let _ = hanging.lock().unwrap().recv();
            None
        }));
        let next = readings.begin_due().unwrap();
        let begun = readings.begun.get_mut("a").unwrap();
        assert_eq!(next, begun.at + PERIOD);
        // One period later the first reading still hangs.
        begun.at -= PERIOD;
        let (hung, thread) = (begun.at, begun.thread.thread().id());
        assert!(readings.begin_due().unwrap() > next);
        let begun = readings.begun.get("a").unwrap();
        assert_eq!((begun.at, begun.thread.thread().id()), (hung, thread));
        drop(guard);
        assert_eq!(readings.begin_due(), None);
        assert!(
            readings.begun.contains_key("a"),
            "it counts until it is back"
        );
        drop(hang);
        readings.begun.remove("a").unwrap().thread.join().unwrap();
    }

    /// Reports that it is being dropped, and waits until it may finish.
    struct Open {
        dropping: SyncSender<()>,
        may_end: Mutex<Receiver<()>>,
    }

    impl Drop for Open {
        fn drop(&mut self) {
            self.dropping.send(()).unwrap();
            let _ = self.may_end.lock().unwrap().recv();
        }
    }

    #[test]
    fn a_target_that_hangs_as_it_is_closed_delays_no_other() {
        let (reports, reported) = sync_channel(64);
        let report = move |id: &TargetId, _, _: SpaceReading| {
            reports.send(id.target.clone()).unwrap();
        };
        let watch = SpaceWatch::reporting(Arc::new(report));
        let (dropping, dropped) = sync_channel(1);
        let (end, may_end) = sync_channel::<()>(0);
        let may_end = Mutex::new(may_end);
        let open = Open { dropping, may_end };
        let guard = watch.add(subject("a", move || {
            let _ = &open;
            answers()
        }));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), "/mnt/a");
        // Dropped by the last owner: this thread, or the one of the reading.
        let ending = std::thread::spawn(move || drop(guard));
        dropped.recv_timeout(LIMIT).unwrap();
        let _other = watch.add(subject("b", answers));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), "/mnt/b");
        drop(end);
        ending.join().unwrap();
    }
}

//! The free space of the targets of tasks: a sample of each target as its first task is prepared, and every [`PERIOD`]
//! for as long as a task is there.
//!
//! A target may hang, so each reading has a thread of its own; until it is back, its target is left out. Tasks that
//! share a target, by the nonce of the run's directory, share its readings. Between two readings only the tasks hold
//! the target open. Letting go of it may hang too: it is never done under the lock, nor on the thread that begins
//! readings.

use crate::clock::Dating;
use crate::spool::Entry;
use crate::telemetry::{Row, TargetSample};
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

/// From reading to reading of a target: some hundred bytes a minute.
const PERIOD: Duration = Duration::from_secs(10);
/// Readings at once, those that hang included.
const MAX_READINGS: usize = 16;
/// Wake-ups that wait for the thread; one is enough, because it looks at all targets.
const WAKE_UPS: usize = 1;
/// The largest number of bytes that is believed: some file systems say how large they are with all bits set.
const MAX_BYTES: u64 = 1 << 60;

/// The targets that are watched. Cheap to clone; its thread ends with the last clone.
#[derive(Clone, Debug, Default)]
pub struct SpaceWatch {
    watched: Watched,
    /// `None`: nothing is sampled.
    wake: Option<SyncSender<()>>,
}

/// Ends the watch of one task's target when it is dropped.
#[derive(Debug)]
pub struct SpaceGuard {
    number: u64,
    watched: Watched,
}

impl Drop for SpaceGuard {
    fn drop(&mut self) {
        // Unlocked at the end of the statement, before it is dropped.
        let subject = self.watched.lock().remove(&self.number);
        drop(subject);
    }
}

/// What tasks work on, by the numbers of their guards.
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

/// One target as a task has it.
struct Subject {
    id: TargetId,
    read: Arc<Read>,
}

#[derive(Clone, Debug)]
struct TargetId {
    target: String,
    nonce: String,
}

/// Asks a target; it holds the target open.
type Read = dyn Fn() -> Option<Reading> + Send + Sync;

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.id.target, self.id.nonce)
    }
}

/// What a target says.
struct Reading {
    device: Option<String>,
    space: Space,
}

impl SpaceWatch {
    /// Starts its thread.
    #[must_use]
    pub fn start(dating: &Dating, entries: &mpsc::Sender<Entry>) -> Self {
        let (dating, entries) = (dating.clone(), entries.clone());
        let report = move |id: &TargetId, at: MonoNanos, reading: Reading| {
            // Undated while mesh time is unknown: the next one comes soon.
            if let Some(map) = dating.map() {
                let row = Row::TargetSample(TargetSample {
                    at: map.to_mesh(at),
                    target: id.target.clone(),
                    nonce: id.nonce.clone(),
                    device: reading.device.unwrap_or_default(),
                    figures: figures(reading.space),
                });
                // Fails if the spool has ended, and the agent with it.
                let _ = entries.blocking_send(Entry::Rows(vec![row]));
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
    /// `None`: the target does not say, or nothing is sampled.
    pub fn watch(&self, target: String, nonce: String, place: Place) -> Option<SpaceGuard> {
        if !place.kind().has_free_space {
            return None;
        }
        let subject = Subject {
            id: TargetId { target, nonce },
            read: Arc::new(move || {
                let space = place.free().filter(|space| space.size_bytes > 0)?;
                let device = place.device();
                Some(Reading { device, space })
            }),
        };
        self.add(subject)
    }

    fn add(&self, subject: Subject) -> Option<SpaceGuard> {
        let wake = self.wake.as_ref()?;
        let guard = self.watched.add(subject);
        // A full queue wakes it too.
        let _ = wake.try_send(());
        Some(guard)
    }
}

/// Takes a reading; called in its thread.
type Report = dyn Fn(&TargetId, MonoNanos, Reading) + Send + Sync;

/// The newest reading of a target.
struct Begun {
    at: Instant,
    thread: JoinHandle<()>,
}

/// The state of the thread that begins readings.
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

    /// Begins the readings that are due; when the next one is.
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

    /// Does nothing while the reading before has not come back, or too many have not.
    fn begin(&mut self, id: TargetId, read: Weak<Read>, at: Instant) {
        let is_under_way = |begun: &Begun| !begun.thread.is_finished();
        let under_way = self.begun.values().filter(|it| is_under_way(it)).count();
        if under_way >= MAX_READINGS || self.begun.get(&id.nonce).is_some_and(is_under_way) {
            return;
        }
        let report = Arc::clone(&self.report);
        let nonce = id.nonce.clone();
        let read = move || {
            // `None`: its task has ended meanwhile.
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
    // Of file systems without a limit, some have all bits set in one of the two.
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

    fn subject(nonce: &str, read: impl Fn() -> Option<Reading> + Send + Sync + 'static) -> Subject {
        Subject {
            id: TargetId {
                target: format!("/mnt/{nonce}"),
                nonce: nonce.to_owned(),
            },
            read: Arc::new(read),
        }
    }

    fn answers() -> Option<Reading> {
        let (device, space) = (Some("8:1".to_owned()), space(10, 4));
        Some(Reading { device, space })
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
        let report = move |id: &TargetId, _, _: Reading| {
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
        // A period later the first reading hangs still.
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

    /// Says when it is dropped, and waits until it may be.
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
        let report = move |id: &TargetId, _, _: Reading| {
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
        // By the last that has it: this thread, or that of the reading.
        let ending = std::thread::spawn(move || drop(guard));
        dropped.recv_timeout(LIMIT).unwrap();
        let _other = watch.add(subject("b", answers));
        assert_eq!(reported.recv_timeout(LIMIT).unwrap(), "/mnt/b");
        drop(end);
        ending.join().unwrap();
    }
}

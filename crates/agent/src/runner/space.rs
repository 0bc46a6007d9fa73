//! The free space of the tasks' targets: read every [`READ_INTERVAL`] while a target has a task, compared with the
//! floors of each task, and sampled at every tenth reading.
//!
//! A target may hang, so each has a thread of its own, which ends with the target's last task. Tasks that share a
//! target, by the nonce of the run's directory, share its readings. Between two readings only the tasks hold the target
//! open. Closing it may hang too, so this is never done under the lock.

use crate::clock::Dating;
use crate::policy::{Denial, Floors};
use crate::spool::SpoolEntry;
use crate::telemetry::{TargetSample, TelemetryRow};
use benchmesh_model::figures::{TargetFigures, UNKNOWN};
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::sandbox::Space;
use benchmesh_workloads::task::Place;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::Builder;
use std::time::Duration;
use std::{fmt, io};
use tokio::sync::mpsc;

/// Interval between readings of a target, long enough to cause no noticeable load on a network file system.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// Samples are some hundred bytes a minute.
const READINGS_PER_SAMPLE: u32 = 10;
/// Upper limit of plausible sizes: some file systems report their size with all bits set.
const MAX_BYTES: u64 = 1 << 60;

/// The watched targets. Cheap to clone.
#[derive(Clone)]
pub struct SpaceWatch(Arc<Shared>);

struct Shared {
    /// The tasks on each target that has a thread: by the target's nonce, and by the numbers of their guards.
    targets: Mutex<BTreeMap<String, BTreeMap<u64, Subject>>>,
    numbers: AtomicU64,
    sample: Box<Sample>,
}

/// Handles a sample with the device, if there is one; called in the target's thread, and must not wait.
type Sample = dyn Fn(&TargetId, MonoNanos, Option<String>, Space) + Send + Sync;

/// Called once.
type Breached = Box<dyn FnOnce(Denial) + Send>;

/// One target as opened by a task.
struct Subject {
    /// `None`: it is not sampled.
    id: Option<TargetId>,
    target: Arc<dyn Target>,
    floors: Option<(Floors, Breached)>,
}

#[derive(Clone, Debug)]
struct TargetId {
    target: String,
    nonce: String,
}

/// An open target. Both may hang.
trait Target: Send + Sync {
    fn free(&self) -> Option<Space>;
    fn device(&self) -> Option<String>;
}

impl Target for Place {
    fn free(&self) -> Option<Space> {
        Place::free(self)
    }

    fn device(&self) -> Option<String> {
        Place::device(self)
    }
}

/// Stops watching one task's target on drop.
#[derive(Debug)]
pub struct SpaceGuard {
    watch: SpaceWatch,
    key: String,
    number: u64,
}

impl SpaceGuard {
    /// From now on the task may leave less free than its floors.
    #[must_use]
    pub fn without_floors(self) -> Self {
        let breached = (self.watch.lock().get_mut(&self.key))
            .and_then(|tasks| tasks.get_mut(&self.number)?.floors.take());
        drop(breached);
        self
    }
}

impl Drop for SpaceGuard {
    fn drop(&mut self) {
        // The lock is released at the end of the statement, before the subject is dropped.
        let subject =
            (self.watch.lock().get_mut(&self.key)).and_then(|tasks| tasks.remove(&self.number));
        drop(subject);
    }
}

impl fmt::Debug for SpaceWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpaceWatch").finish_non_exhaustive()
    }
}

impl SpaceWatch {
    #[must_use]
    pub fn new(dating: &Dating, entries: &mpsc::Sender<SpoolEntry>) -> Self {
        let (dating, entries) = (dating.clone(), entries.clone());
        Self::sampling(Box::new(move |id, at, device, space| {
            // Dropped while mesh time is unknown, or while the spool is full: floors must not wait for it. The next
            // sample follows soon.
            if let Some(map) = dating.map() {
                let row = TelemetryRow::TargetSample(TargetSample {
                    at: map.to_mesh(at),
                    target: id.target.clone(),
                    nonce: id.nonce.clone(),
                    device: device.unwrap_or_default(),
                    figures: figures(space),
                });
                let _ = entries.try_send(SpoolEntry::Rows(vec![row]));
            }
        }))
    }

    fn sampling(sample: Box<Sample>) -> Self {
        Self(Arc::new(Shared {
            targets: Mutex::default(),
            numbers: AtomicU64::default(),
            sample,
        }))
    }

    /// Reads the free space of a task's target until the guard is dropped, and calls `breached` when it is below the
    /// floors. It is sampled if `run_nonce`, that of the run's directory, is known. `None`: the target does not report
    /// free space.
    ///
    /// # Errors
    /// If there is no thread for it.
    pub fn watch(
        &self,
        target: String,
        run_nonce: Option<String>,
        place: Place,
        floors: Floors,
        breached: impl FnOnce(Denial) + Send + 'static,
    ) -> Result<Option<SpaceGuard>, Denial> {
        if !place.kind().has_free_space {
            return Ok(None);
        }
        let Some(key) = run_nonce.clone().or(place.nonce().map(str::to_owned)) else {
            return Ok(None);
        };
        let subject = Subject {
            id: run_nonce.map(|nonce| TargetId { target, nonce }),
            target: Arc::new(place),
            floors: Some((floors, Box::new(breached))),
        };
        self.add(key, subject, Builder::new())
            .map(Some)
            .map_err(|error| floors.unwatched(&error))
    }

    fn add(&self, key: String, subject: Subject, thread: Builder) -> io::Result<SpaceGuard> {
        let number = self.0.numbers.fetch_add(1, Ordering::Relaxed);
        let mut targets = self.lock();
        match targets.entry(key.clone()) {
            Entry::Occupied(mut tasks) => {
                tasks.get_mut().insert(number, subject);
            }
            Entry::Vacant(place) => {
                let (watch, key) = (self.clone(), key.clone());
                let thread = thread.name("bm-space".to_owned());
                thread.spawn(move || watch.read_until_unused(&key))?;
                place.insert(BTreeMap::from([(number, subject)]));
            }
        }
        drop(targets);
        let watch = self.clone();
        Ok(SpaceGuard { watch, key, number })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<u64, Subject>>> {
        self.0
            .targets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The thread of one target.
    fn read_until_unused(&self, key: &str) {
        let _on_panic = RemovedOnPanic { watch: self, key };
        let mut before_sample = 0;
        while self.is_used(key) {
            let mut first = 0;
            // The target may be gone for one task and not for the next, which opened it later.
            while let Some((number, id, target)) = self.task_on(key, first) {
                first = number.saturating_add(1);
                let began = MonoNanos::now();
                // `None`: the task has ended meanwhile.
                let Some(target) = target.upgrade() else {
                    continue;
                };
                let Some(space) = target.free() else {
                    continue;
                };
                for (breached, denial) in self.breaches(key, space) {
                    breached(denial);
                }
                if before_sample == 0
                    && space.size_bytes > 0
                    && let Some(id) = id
                {
                    (self.0.sample)(&id, began, target.device(), space);
                    before_sample = READINGS_PER_SAMPLE;
                }
                before_sample = before_sample.saturating_sub(1);
                break;
            }
            std::thread::park_timeout(READ_INTERVAL);
        }
    }

    /// Whether the target has tasks; otherwise it is removed, and its thread must end.
    fn is_used(&self, key: &str) -> bool {
        let mut targets = self.lock();
        let is_used = targets.get(key).is_some_and(|tasks| !tasks.is_empty());
        if !is_used {
            targets.remove(key);
        }
        is_used
    }

    /// The first task on the target from this number on.
    fn task_on(&self, key: &str, first: u64) -> Option<(u64, Option<TargetId>, Weak<dyn Target>)> {
        let targets = self.lock();
        let (number, task) = targets.get(key)?.range(first..).next()?;
        Some((*number, task.id.clone(), Arc::downgrade(&task.target)))
    }

    /// The tasks on the target whose floors are above its free space. Each is returned once.
    fn breaches(&self, key: &str, space: Space) -> Vec<(Breached, Denial)> {
        let mut targets = self.lock();
        let tasks = targets
            .get_mut(key)
            .into_iter()
            .flat_map(BTreeMap::values_mut);
        tasks
            .filter_map(|task| {
                let (floors, _) = task.floors.as_ref()?;
                let denial = floors.check(Some(space)).err()?;
                let (_, breached) = task.floors.take()?;
                Some((breached, denial))
            })
            .collect()
    }
}

/// Removes a target whose thread panics, so that the next task on it starts another one.
struct RemovedOnPanic<'a> {
    watch: &'a SpaceWatch,
    key: &'a str,
}

impl Drop for RemovedOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The lock is released at the end of the statement, before the tasks are dropped.
            let tasks = self.watch.lock().remove(self.key);
            drop(tasks);
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
    use benchmesh_model::limits::Setting;
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

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

    struct Fake<F>(F);

    impl<F: Fn() -> Option<Space> + Send + Sync> Target for Fake<F> {
        fn free(&self) -> Option<Space> {
            (self.0)()
        }

        fn device(&self) -> Option<String> {
            Some("8:1".to_owned())
        }
    }

    fn subject(
        nonce: &str,
        free: impl Fn() -> Option<Space> + Send + Sync + 'static,
        floors: Option<(Floors, Breached)>,
    ) -> Subject {
        Subject {
            id: Some(TargetId {
                target: format!("/mnt/{nonce}"),
                nonce: nonce.to_owned(),
            }),
            target: Arc::new(Fake(free)),
            floors,
        }
    }

    fn answers() -> Option<Space> {
        Some(space(10, 4))
    }

    fn add(watch: &SpaceWatch, nonce: &str, subject: Subject) -> SpaceGuard {
        watch
            .add(nonce.to_owned(), subject, Builder::new())
            .unwrap()
    }

    /// A watch, and the targets of its samples.
    fn watching() -> (SpaceWatch, Receiver<String>) {
        let (samples, sampled) = sync_channel(64);
        let sample = move |id: &TargetId, _, _, _| samples.send(id.target.clone()).unwrap();
        (SpaceWatch::sampling(Box::new(sample)), sampled)
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
        let (watch, sampled) = watching();
        let (hang, hanging) = sync_channel::<()>(0);
        let hanging = Mutex::new(hanging);
        let dead = move || {
            let _ = hanging.lock().unwrap().recv();
            answers()
        };
        let dead = add(&watch, "dead", subject("dead", dead, None));
        let _one = add(&watch, "a", subject("a", answers, None));
        assert_eq!(sampled.recv_timeout(LIMIT).unwrap(), "/mnt/a");
        let _same = add(&watch, "a", subject("a", answers, None));
        let _other = add(&watch, "b", subject("b", answers, None));
        assert_eq!(sampled.recv_timeout(LIMIT).unwrap(), "/mnt/b");
        assert!(sampled.try_recv().is_err(), "sampled twice");
        // A further task on the dead target waits for the thread that hangs.
        drop(dead);
        let _next = add(&watch, "dead", subject("dead", answers, None));
        assert_eq!(watch.lock().len(), 3);
        drop(hang);
        assert_eq!(sampled.recv_timeout(LIMIT).unwrap(), "/mnt/dead");
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
        let (watch, sampled) = watching();
        let (dropping, dropped) = sync_channel(1);
        let (end, may_end) = sync_channel::<()>(0);
        let may_end = Mutex::new(may_end);
        let open = Open { dropping, may_end };
        let free = move || {
            let _ = &open;
            answers()
        };
        let guard = add(&watch, "a", subject("a", free, None));
        assert_eq!(sampled.recv_timeout(LIMIT).unwrap(), "/mnt/a");
        // Dropped by the last owner: this thread, or the one of the target.
        let ending = std::thread::spawn(move || drop(guard));
        dropped.recv_timeout(LIMIT).unwrap();
        let _other = add(&watch, "b", subject("b", answers, None));
        assert_eq!(sampled.recv_timeout(LIMIT).unwrap(), "/mnt/b");
        drop(end);
        ending.join().unwrap();
    }

    fn floors(space: u64) -> Floors {
        Floors {
            space: Setting::Amount(space),
            inodes: Setting::Amount(0),
        }
    }

    #[test]
    fn each_task_hears_of_its_own_floors_until_they_are_lifted() {
        let (watch, _sampled) = watching();
        let task = |least: u64| {
            let (sender, messages) = sync_channel(1);
            let breached = move |denial: Denial| sender.send(denial.key).unwrap();
            let floors = Some((floors(least), Box::new(breached) as Breached));
            let guard = add(&watch, "a", subject("a", answers, floors));
            (guard, messages)
        };
        let (low, not_breached) = task(40);
        let low = low.without_floors();
        let (_high, breached) = task(41);
        assert_eq!(breached.recv_timeout(LIMIT), Ok("free-space"));
        // Its callback is gone, without a message.
        assert!(not_breached.recv().is_err());
        drop(low);
    }

    #[test]
    fn a_target_that_is_gone_for_one_task_is_read_by_the_next() {
        let (watch, _sampled) = watching();
        let _gone = add(&watch, "a", subject("a", || None, None));
        let (sender, breached) = sync_channel(1);
        let breached_floor = move |denial: Denial| sender.send(denial.key).unwrap();
        let floors = Some((floors(41), Box::new(breached_floor) as Breached));
        let _there = add(&watch, "a", subject("a", answers, floors));
        assert_eq!(breached.recv_timeout(LIMIT), Ok("free-space"));
    }

    #[test]
    fn after_a_panic_the_next_task_on_the_target_is_watched() {
        let (watch, sampled) = watching();
        let panics = || panic!("the test's target panics");
        let _first = add(&watch, "a", subject("a", panics, None));
        let until = std::time::Instant::now() + LIMIT;
        while !watch.lock().is_empty() {
            assert!(std::time::Instant::now() < until, "its target stays");
            std::thread::yield_now();
        }
        let _next = add(&watch, "a", subject("a", answers, None));
        assert_eq!(sampled.recv_timeout(LIMIT).unwrap(), "/mnt/a");
    }

    #[test]
    fn without_a_thread_a_task_is_denied() {
        let (watch, _sampled) = watching();
        // No address space can hold such a stack.
        let thread = Builder::new().stack_size(1 << 60);
        let subject = subject("a", answers, None);
        let error = watch.add("a".to_owned(), subject, thread).unwrap_err();
        let denial = floors(1).unwatched(&error);
        assert_eq!(denial.key, "free-space");
        assert!(denial.asked.contains("cannot start a thread"), "{denial}");
        assert!(watch.lock().is_empty());
    }
}

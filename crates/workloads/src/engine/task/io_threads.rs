//! CPU time of the threads in which the kernel carries out what an io_uring cannot do at once: buffered writes, above
//! all.
//!
//! They are threads of this process, called `iou-wrk-TID` after the thread that has the ring, from Linux 5.12 on. Each
//! ends after 5 s without work, and all with the thread that has the ring: read once a second, and at that thread's
//! end, none of their work is missed. The name has the thread's id in the first PID namespace: in another one, where
//! such threads cannot be told apart, their CPU time is not known.

use crate::measure::clock::MonoNanos;
use crate::measure::thread_cpu::Schedstat;
use rustix::thread::gettid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const PREFIX: &str = "iou-wrk-";
/// The inode of the first PID namespace, the same on every host.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Below the time after which an idle thread ends.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Those of one task.
#[derive(Debug, Default)]
pub(super) struct IoThreads {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The ids of the threads that have a ring.
    owners: BTreeSet<u32>,
    /// By their ids. A thread that has ended keeps its place: ids are not used again within seconds.
    on_cpu: BTreeMap<u32, Duration>,
    /// One could not be attributed to this task alone.
    is_unknown: bool,
    next_look: Option<MonoNanos>,
}

impl IoThreads {
    /// The calling thread has a ring.
    pub(super) fn add_this_thread(&self) {
        let id = gettid().as_raw_pid().unsigned_abs();
        self.lock().owners.insert(id);
    }

    /// Looks at them, at the end of a thread that has a ring.
    pub(super) fn read(&self) {
        self.lock().look(Path::new("/proc/self"));
    }

    /// Looks at them if it is time.
    pub(super) fn poll(&self) {
        let now = MonoNanos::now();
        let mut state = self.lock();
        if state.next_look.is_none_or(|at| now >= at) {
            state.next_look = Some(now.saturating_add(POLL_INTERVAL));
            state.look(Path::new("/proc/self"));
        }
    }

    /// What they have had of the CPUs so far; `None`: not known.
    pub(super) fn on_cpu(&self) -> Option<Duration> {
        let state = self.lock();
        (!state.is_unknown).then(|| state.on_cpu.values().sum())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves the readings valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `process` is `/proc/self`.
    fn look(&mut self, process: &Path) {
        let Ok(tasks) = std::fs::read_dir(process.join("task")) else {
            self.is_unknown = true;
            return;
        };
        for task in tasks.flatten() {
            let Ok(name) = std::fs::read_to_string(task.path().join("comm")) else {
                continue;
            };
            let Some(owner) = name.trim().strip_prefix(PREFIX) else {
                continue;
            };
            let namespace = std::fs::read_link(process.join("ns/pid"));
            if !namespace.is_ok_and(|it| it == Path::new(FIRST_NAMESPACE)) {
                self.is_unknown = true;
                return;
            }
            let is_ours = owner.parse().is_ok_and(|id| self.owners.contains(&id));
            let id = task.file_name().to_str().and_then(|id| id.parse().ok());
            let (true, Some(id)) = (is_ours, id) else {
                continue;
            };
            let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            if let Some(schedstat) = Schedstat::parse(&text) {
                self.on_cpu.insert(id, schedstat.on_cpu);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use io_uring::{IoUring, opcode, squeue};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A process of threads, each with its id, its name and its time on a CPU.
    fn process(namespace: &str, threads: &[(u32, &str, u64)]) -> tempfile::TempDir {
        let process = tempfile::tempdir().unwrap();
        fs::create_dir(process.path().join("ns")).unwrap();
        symlink(namespace, process.path().join("ns/pid")).unwrap();
        for (id, name, on_cpu) in threads {
            let task = process.path().join(format!("task/{id}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            fs::write(task.join("schedstat"), format!("{on_cpu} 1 1\n")).unwrap();
        }
        process
    }

    /// Entries that are never tried on the spot.
    #[test]
    fn work_of_the_kernels_threads_is_counted() {
        if let Err(why) = crate::workloads::io::probe_io_uring() {
            return benchmesh_testing::skip("io_uring", &why);
        }
        let threads = IoThreads::default();
        threads.add_this_thread();
        let mut ring = IoUring::new(8).unwrap();
        for _ in 0..2_000 {
            let entry = opcode::Nop::new().build().flags(squeue::Flags::ASYNC);
            // SAFETY: the entry points to no memory.
            unsafe { ring.submission().push(&entry) }.unwrap();
            ring.submit_and_wait(1).unwrap();
            assert!(ring.completion().next().is_some());
        }
        threads.read();
        assert_ne!(threads.on_cpu(), Some(Duration::ZERO));
    }

    fn on_cpu(state: &State) -> Option<u64> {
        let sum: Duration = state.on_cpu.values().sum();
        (!state.is_unknown).then(|| u64::try_from(sum.as_nanos()).unwrap())
    }

    #[test]
    fn threads_of_own_rings_count_after_they_have_ended_too() {
        let mut state = State::default();
        state.owners.insert(7);
        let first = [
            (7, "bm-w0", 5_000),
            (8, "iou-wrk-7", 300),
            (9, "iou-wrk-70", 10_000),
            (11, "iou-wrk-7", 50),
        ];
        state.look(process(FIRST_NAMESPACE, &first).path());
        assert_eq!(on_cpu(&state), Some(350));
        let later = [(7, "bm-w0", 6_000), (8, "iou-wrk-7", 900)];
        state.look(process(FIRST_NAMESPACE, &later).path());
        assert_eq!(on_cpu(&state), Some(950));
    }

    /// In another PID namespace the ids in the names are unknown.
    #[test]
    fn threads_that_cannot_be_told_apart_are_not_known() {
        let mut state = State::default();
        state.owners.insert(7);
        state.look(process("pid:[4026532001]", &[(7, "bm-w0", 5_000)]).path());
        assert_eq!(on_cpu(&state), Some(0));
        state.look(process("pid:[4026532001]", &[(8, "iou-wrk-1207", 300)]).path());
        assert_eq!(on_cpu(&state), None);
    }
}

//! CPU time of the kernel threads that execute operations which an io_uring cannot do at once, mainly buffered writes.
//!
//! They are threads of this process, named `iou-wrk-TID` after the thread that owns the ring, since Linux 5.12. Each
//! ends after 5 s without work, and all end with the ring's owner. Reading them once a second, and when the owner ends,
//! misses none of their work. The name contains the thread's id in the initial PID namespace. In other namespaces the
//! threads cannot be attributed, so their CPU time is not known.

use crate::measure::clock::MonoNanos;
use crate::measure::thread_cpu::Schedstat;
use rustix::thread::gettid;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const PREFIX: &str = "iou-wrk-";
/// Inode of the initial PID namespace, the same on every host.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Shorter than the time after which an idle thread ends.
const SCAN_INTERVAL: Duration = Duration::from_secs(1);

/// Kernel threads of one task.
#[derive(Debug, Default)]
pub(super) struct IoThreads {
    state: Mutex<IoThreadsState>,
}

/// A thread's id and its start in ticks since boot: in a long load ids are used again.
type IoThread = (u32, u64);

#[derive(Debug, Default)]
struct IoThreadsState {
    /// Thread ids of the rings' owners.
    owners: BTreeSet<u32>,
    /// Ended threads stay in the map.
    on_cpu: BTreeMap<IoThread, Duration>,
    /// A thread could not be attributed to this task alone.
    is_unknown: bool,
    next_scan: Option<MonoNanos>,
}

impl IoThreads {
    /// Registers the calling thread as the owner of a ring.
    pub(super) fn add_this_thread(&self) {
        let id = gettid().as_raw_pid().unsigned_abs();
        self.lock().owners.insert(id);
    }

    /// Reads their CPU time, when the owner of a ring ends.
    pub(super) fn read(&self) {
        self.lock().scan(Path::new("/proc/self"));
    }

    /// Reads their CPU time if the interval has passed.
    pub(super) fn poll(&self) {
        let now = MonoNanos::now();
        let mut state = self.lock();
        if state.next_scan.is_none_or(|at| now >= at) {
            state.next_scan = Some(now.saturating_add(SCAN_INTERVAL));
            state.scan(Path::new("/proc/self"));
        }
    }

    /// Their CPU time so far; `None`: not known.
    pub(super) fn on_cpu(&self) -> Option<Duration> {
        let state = self.lock();
        (!state.is_unknown).then(|| state.on_cpu.values().sum())
    }

    fn lock(&self) -> MutexGuard<'_, IoThreadsState> {
        // A panic elsewhere leaves the readings valid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IoThreadsState {
    /// `process` is `/proc/self`.
    fn scan(&mut self, process: &Path) {
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
            if !namespace.is_ok_and(|namespace| namespace == Path::new(FIRST_NAMESPACE)) {
                self.is_unknown = true;
                return;
            }
            let is_ours = owner.parse().is_ok_and(|id| self.owners.contains(&id));
            let id = task.file_name().to_str().and_then(|id| id.parse().ok());
            let (true, Some(id)) = (is_ours, id) else {
                continue;
            };
            let text = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
            if let (Some(started), Some(schedstat)) = (
                start_ticks(&text("stat")),
                Schedstat::parse(&text("schedstat")),
            ) {
                self.on_cpu.insert((id, started), schedstat.on_cpu);
            }
        }
    }
}

/// The 22nd field of `stat`; those after the name begin with the third.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use io_uring::{IoUring, opcode, squeue};
    use std::fs;
    use std::os::unix::fs::symlink;

    /// A fake process with threads, each with an id, a name and its CPU time.
    fn process(namespace: &str, threads: &[(u32, &str, u64)]) -> tempfile::TempDir {
        process_since(100, namespace, threads)
    }

    /// The same, with the start of its threads.
    fn process_since(
        ticks: u64,
        namespace: &str,
        threads: &[(u32, &str, u64)],
    ) -> tempfile::TempDir {
        let process = tempfile::tempdir().unwrap();
        fs::create_dir(process.path().join("ns")).unwrap();
        symlink(namespace, process.path().join("ns/pid")).unwrap();
        for (id, name, on_cpu) in threads {
            let task = process.path().join(format!("task/{id}"));
            fs::create_dir_all(&task).unwrap();
            fs::write(task.join("comm"), format!("{name}\n")).unwrap();
            fs::write(task.join("schedstat"), format!("{on_cpu} 1 1\n")).unwrap();
            let fields = "0 ".repeat(18);
            let stat = format!("{id} ({name}) S {fields}{ticks} 0\n");
            fs::write(task.join("stat"), stat).unwrap();
        }
        process
    }

    /// Entries that the kernel always executes in its threads.
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

    fn on_cpu(state: &IoThreadsState) -> Option<u64> {
        let sum: Duration = state.on_cpu.values().sum();
        (!state.is_unknown).then(|| u64::try_from(sum.as_nanos()).unwrap())
    }

    #[test]
    fn threads_of_own_rings_count_after_they_have_ended_too() {
        let mut state = IoThreadsState::default();
        state.owners.insert(7);
        let first = [
            (7, "bm-w0", 5_000),
            (8, "iou-wrk-7", 300),
            (9, "iou-wrk-70", 10_000),
            (11, "iou-wrk-7", 50),
        ];
        state.scan(process(FIRST_NAMESPACE, &first).path());
        assert_eq!(on_cpu(&state), Some(350));
        let later = [(7, "bm-w0", 6_000), (8, "iou-wrk-7", 900)];
        state.scan(process(FIRST_NAMESPACE, &later).path());
        assert_eq!(on_cpu(&state), Some(950));
        // Another thread has the id of one that ended, and soon more CPU time.
        for (on_cpu_ns, all) in [(20, 970), (1_000, 1_950)] {
            let again = [(8, "iou-wrk-7", on_cpu_ns)];
            state.scan(process_since(500, FIRST_NAMESPACE, &again).path());
            assert_eq!(on_cpu(&state), Some(all));
        }
    }

    /// In another PID namespace the ids in the names are unknown.
    #[test]
    fn threads_that_cannot_be_told_apart_are_not_known() {
        let mut state = IoThreadsState::default();
        state.owners.insert(7);
        state.scan(process("pid:[4026532001]", &[(7, "bm-w0", 5_000)]).path());
        assert_eq!(on_cpu(&state), Some(0));
        state.scan(process("pid:[4026532001]", &[(8, "iou-wrk-1207", 300)]).path());
        assert_eq!(on_cpu(&state), None);
    }
}

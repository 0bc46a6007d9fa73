//! The threads that librados and librbd start for a session, which send, receive and execute what its task issues.
//!
//! They are those that appear in this process while a session or an image of it is opened, which one thread does at a
//! time. Threads of our own that begin meanwhile are recognised by their names.

use crate::measure::clock::{MonoNanos, sleep_until};
use crate::measure::thread_cpu::CpuTime;
use rustix::thread::{name, set_name};
use std::collections::BTreeSet;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const THREADS: &str = "/proc/self/task";
/// Prefixes of the names of threads that are not the libraries'.
const OWN_NAMES: [&str; 5] = ["benchmesh", "bm-", "iou-", "link-", "tokio-"];
/// Name of the opening thread meanwhile; threads that get no name of their own inherit it.
const OPENS: &CStr = c"librados";
/// Opening a session takes longer if the cluster does not answer; other sessions do not wait for that.
const MAX_WAIT: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

static OPENING: Mutex<()> = Mutex::new(());

/// Threads of one session.
#[derive(Debug)]
pub(super) struct LibraryThreads {
    /// `None`: they could not be distinguished from those of another session.
    ids: Mutex<Option<BTreeSet<u32>>>,
}

impl Default for LibraryThreads {
    fn default() -> LibraryThreads {
        LibraryThreads {
            ids: Mutex::new(Some(BTreeSet::new())),
        }
    }
}

impl LibraryThreads {
    /// Counts the threads that `open` starts as the session's.
    pub(super) fn started_by<T>(&self, open: impl FnOnce() -> T) -> T {
        let turn = wait_for_turn();
        let before = there();
        let own_name = name().ok();
        // If this fails, threads without a name of their own are not counted.
        let _ = set_name(OPENS);
        let opened = open();
        if let Some(own_name) = own_name {
            let _ = set_name(&own_name);
        }
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        *ids = match (turn, ids.take(), before, there()) {
            (Some(_turn), Some(mut ids), Some(before), Some(after)) => {
                ids.extend(after.difference(&before));
                Some(ids)
            }
            _ => None,
        };
        opened
    }

    /// Their CPU time so far; `None`: not known.
    pub(super) fn on_cpu(&self) -> Option<CpuTime> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let threads = ids.as_ref()?.iter().map(|id| directory(*id));
        let times = threads.filter(|thread| !is_ours(thread));
        Some(
            times
                .filter_map(|thread| CpuTime::of_thread(&thread))
                .fold(CpuTime::default(), CpuTime::plus),
        )
    }
}

fn wait_for_turn() -> Option<std::sync::MutexGuard<'static, ()>> {
    let until = MonoNanos::now().saturating_add(MAX_WAIT);
    loop {
        let now = MonoNanos::now();
        match OPENING.try_lock() {
            Ok(turn) => return Some(turn),
            Err(std::sync::TryLockError::Poisoned(turn)) => return Some(turn.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) if now >= until => return None,
            Err(std::sync::TryLockError::WouldBlock) => {
                sleep_until(now.saturating_add(POLL_INTERVAL))
            }
        }
    }
}

fn directory(id: u32) -> PathBuf {
    Path::new(THREADS).join(id.to_string())
}

fn there() -> Option<BTreeSet<u32>> {
    let threads = std::fs::read_dir(THREADS).ok()?.flatten();
    let ids = threads.filter_map(|thread| thread.file_name().to_str()?.parse().ok());
    Some(ids.collect())
}

fn is_ours(thread: &Path) -> bool {
    let name = std::fs::read_to_string(thread.join("comm")).unwrap_or_default();
    OWN_NAMES.iter().any(|own| name.starts_with(own))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Barrier};

    /// A thread that works until it is stopped.
    fn worker(
        name: &str,
        ends: &Arc<AtomicBool>,
        begun: &Arc<Barrier>,
    ) -> std::thread::JoinHandle<()> {
        let (ends, begun) = (Arc::clone(ends), Arc::clone(begun));
        let work = move || {
            begun.wait();
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        std::thread::Builder::new()
            .name(name.into())
            .spawn(work)
            .unwrap()
    }

    #[test]
    fn threads_of_a_library_count_and_ours_do_not() {
        let (ends, begun) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(4)));
        let other = worker("msgr-other", &ends, &begun);
        let threads = LibraryThreads::default();
        let mut started = threads.started_by(|| {
            vec![
                worker("msgr-worker-0", &ends, &begun),
                worker("bm-w0", &ends, &begun),
            ]
        });
        begun.wait();
        {
            let mut ids = threads.ids.lock().unwrap();
            let ids = ids.as_mut().unwrap();
            // Other tests begin threads meanwhile.
            ids.retain(|id| {
                let name = std::fs::read_to_string(directory(*id).join("comm"));
                name.is_ok_and(|name| ["msgr-worker-0\n", "bm-w0\n"].contains(&name.as_str()))
            });
            assert_eq!(ids.len(), 2);
        }
        let mut used = CpuTime::default();
        while used.user + used.system < Duration::from_millis(50) {
            std::thread::yield_now();
            used = threads.on_cpu().unwrap();
        }
        ends.store(true, Ordering::Relaxed);
        started.push(other);
        started
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert_eq!(
            threads.on_cpu(),
            Some(CpuTime::default()),
            "they have ended"
        );
    }
}

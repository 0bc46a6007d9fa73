//! Changes a worker's share of a step's rate while it runs: other tasks were lost, and the total rate is to stay.
//!
//! Lock-free: one thread writes, and a worker that reads during a write keeps its old share. Invariants: operations
//! that were due before the change stay due and are done. From the change on, instants come from a new common sequence
//! that begins at the same time for all tasks. So no instant is done twice or left out, and no task catches up in a
//! burst.

use crate::measure::clock::MonoNanos;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// A task's share from an instant on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareChange {
    /// The task's index among the tasks that share the rate.
    pub task: u32,
    pub tasks: u32,
    /// When the new sequence begins; the same for all tasks.
    pub from: MonoNanos,
    /// When this task received the change. If that is later than `from`, it kept the old schedule until then.
    pub known_at: MonoNanos,
}

impl ShareChange {
    /// When it takes effect for this task.
    pub(super) fn begins(&self) -> MonoNanos {
        self.from.max(self.known_at)
    }
}

/// The newest change of a task's share. The version is odd while it is being written.
#[derive(Debug, Default)]
pub struct Changes {
    version: AtomicU64,
    tasks: AtomicU64,
    from: AtomicU64,
    known_at: AtomicU64,
}

impl Changes {
    /// Publishes a change. Only one thread may call this at a time.
    pub fn publish(&self, change: ShareChange) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let tasks = u64::from(change.task) << 32 | u64::from(change.tasks);
        self.tasks.store(tasks, Ordering::Relaxed);
        self.from.store(change.from.0, Ordering::Relaxed);
        self.known_at.store(change.known_at.0, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// Whether there is a change with a version other than `seen`.
    #[inline]
    pub fn is_newer(&self, seen: u64) -> bool {
        self.version.load(Ordering::Relaxed) != seen
    }

    /// The newest change and its version, unless the version is `seen`.
    pub fn newer(&self, seen: u64) -> Option<(u64, ShareChange)> {
        let version = self.version.load(Ordering::Acquire);
        if version == seen || version % 2 == 1 {
            return None;
        }
        let tasks = self.tasks.load(Ordering::Relaxed);
        let [from, known_at] =
            [&self.from, &self.known_at].map(|at| MonoNanos(at.load(Ordering::Relaxed)));
        fence(Ordering::Acquire);
        if self.version.load(Ordering::Relaxed) != version {
            return None;
        }
        let change = ShareChange {
            task: u32::try_from(tasks >> 32).unwrap_or(u32::MAX),
            tasks: u32::try_from(tasks & u64::from(u32::MAX)).unwrap_or(u32::MAX),
            from,
            known_at,
        };
        Some((version, change))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_reader_never_sees_half_a_change() {
        let changes = Arc::new(Changes::default());
        let writer = {
            let changes = Arc::clone(&changes);
            std::thread::spawn(move || {
                for n in 1..200_000_u32 {
                    let at = MonoNanos(u64::from(n));
                    changes.publish(ShareChange {
                        task: n,
                        tasks: n,
                        from: at,
                        known_at: at,
                    });
                }
            })
        };
        let mut seen = 0;
        while seen < 2 * 199_999 {
            let Some((version, change)) = changes.newer(seen) else {
                continue;
            };
            assert!(version > seen);
            let n = u64::from(change.task);
            assert_eq!(
                (n, n, n),
                (change.tasks.into(), change.from.0, change.known_at.0)
            );
            seen = version;
        }
        writer.join().unwrap();
        assert!(!changes.is_newer(seen));
    }
}

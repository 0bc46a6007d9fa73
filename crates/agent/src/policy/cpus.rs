//! CPUs of the load: how many threads it may have by default, and which CPUs they may run on.
//!
//! Confinement is by affinity, which needs no privilege and is inherited by the threads that a thread starts. Work that
//! the kernel and the storage's own clients do for the load is not confined.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

const THREADS_PER_CPU: u32 = 16;
const MIN_THREADS: u32 = 64;

/// Default number of threads: enough to keep a storage system busy without overloading the host.
pub(super) fn default_threads() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    u32::try_from(cpus)
        .unwrap_or(u32::MAX)
        .saturating_mul(THREADS_PER_CPU)
        .max(MIN_THREADS)
}

/// Confines the calling thread to the last `count` of its CPUs, because the first ones serve most interrupts.
pub(super) fn confine_this_thread(count: u32) {
    let confined = sched_getaffinity(None)
        .map(|all| last_of(&all, count))
        .and_then(|some| sched_setaffinity(None, &some));
    if let Err(error) = confined {
        tracing::warn!(%error, "cannot confine the load to its CPUs");
    }
}

fn last_of(all: &CpuSet, count: u32) -> CpuSet {
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let mut some = CpuSet::new();
    (0..CpuSet::MAX_CPU)
        .rev()
        .filter(|cpu| all.is_set(*cpu))
        .take(count)
        .for_each(|cpu| some.set(cpu));
    some
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn threads_inherit_the_share_of_the_thread_that_starts_them() {
        let count = std::thread::spawn(|| {
            confine_this_thread(1);
            let inherits = std::thread::spawn(|| sched_getaffinity(None).unwrap().count());
            inherits.join().unwrap()
        });
        assert_eq!(count.join().unwrap(), 1);
        assert!(default_threads() >= MIN_THREADS);
    }

    #[test]
    fn the_last_cpus_are_taken_and_never_more_than_there_are() {
        let mut all = CpuSet::new();
        [0, 2, 5].into_iter().for_each(|cpu| all.set(cpu));
        let some = last_of(&all, 2);
        assert!(!some.is_set(0) && some.is_set(2) && some.is_set(5));
        assert_eq!(last_of(&all, 9).count(), 3);
    }
}

//! Real-time priority for workers around the start.
//!
//! On a loaded host a thread may wait for milliseconds after its timer has fired, and a hundred workers on a few CPUs
//! wait for each other. A worker therefore asks for real-time priority around the start only: until its first operation
//! has ended, for a millisecond at most, or a tenth of a second under a schedule, whose first instants may lie after the
//! start. A task thread with a higher priority enforces that limit. Threads spawned
//! meanwhile have normal priority (io_uring's kernel threads are a worker's children). Without the permission
//! (CAP_SYS_NICE) a worker starts when the kernel schedules it, and the delay is reported as its skew.

use std::sync::{Arc, Mutex, PoisonError};

/// Above every ordinary thread, below threads to which an administrator gave a higher priority.
const WORKER: libc::c_int = 1;
const WATCH: libc::c_int = 2;

/// Real-time priority of the thread that asked for it. It ends on drop or by [`RtPriority::handle`].
#[derive(Debug)]
pub(crate) struct RtPriority(Handle);

/// Ends another thread's real-time priority.
#[derive(Debug, Clone)]
pub(crate) struct Handle(Arc<Mutex<Option<libc::pid_t>>>);

impl RtPriority {
    /// For the calling thread, a worker. A thread with another than the ordinary policy keeps it.
    pub(crate) fn worker() -> RtPriority {
        RtPriority::of_this_thread(WORKER)
    }

    /// For the calling thread, which limits the workers' real-time priority.
    pub(crate) fn watch() -> RtPriority {
        RtPriority::of_this_thread(WATCH)
    }

    fn of_this_thread(priority: libc::c_int) -> RtPriority {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let granted = policy_of(thread) == libc::SCHED_OTHER
            && set_policy(thread, libc::SCHED_FIFO, priority);
        RtPriority(Handle(Arc::new(Mutex::new(granted.then_some(thread)))))
    }

    #[cfg(test)]
    pub(crate) fn is_granted(&self) -> bool {
        self.0.0.lock().is_ok_and(|thread| thread.is_some())
    }

    pub(crate) fn handle(&self) -> Handle {
        self.0.clone()
    }
}

impl Drop for RtPriority {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Handle {
    /// Restores the ordinary policy, once. The thread lives until then, so no other thread has its id.
    pub(crate) fn end(&self) {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = thread.take() {
            set_policy(thread, libc::SCHED_OTHER, 0);
        }
    }
}

/// The policy without `SCHED_RESET_ON_FORK`.
fn policy_of(thread: libc::pid_t) -> libc::c_int {
    // SAFETY: takes no pointer.
    let policy = unsafe { libc::sched_getscheduler(thread) };
    policy & !libc::SCHED_RESET_ON_FORK
}

/// Keeps `SCHED_RESET_ON_FORK`: clearing it needs another permission.
fn set_policy(thread: libc::pid_t, policy: libc::c_int, priority: libc::c_int) -> bool {
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `parameters` is valid for the call, which keeps no pointer.
    unsafe { libc::sched_setscheduler(thread, policy, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Policy of the calling thread.
    fn policy() -> libc::c_int {
        policy_of(0)
    }

    #[test]
    fn children_of_a_realtime_thread_have_normal_priority() {
        let priority = RtPriority::worker();
        let child = std::thread::spawn(policy);
        assert_eq!(child.join().ok(), Some(libc::SCHED_OTHER));
        drop(priority);
        let priority = RtPriority::worker();
        assert_eq!(policy() == libc::SCHED_FIFO, priority.is_granted());
    }

    #[test]
    fn any_thread_can_restore_normal_priority() {
        for by_handle in [false, true] {
            assert_eq!(policy(), libc::SCHED_OTHER);
            let priority = RtPriority::worker();
            let expected = match priority.is_granted() {
                true => libc::SCHED_FIFO,
                false => libc::SCHED_OTHER,
            };
            assert_eq!(policy(), expected);
            if by_handle {
                let handle = priority.handle();
                let ended = std::thread::spawn(move || handle.end());
                assert!(ended.join().is_ok());
                assert_eq!(policy(), libc::SCHED_OTHER);
            }
            drop(priority);
            assert_eq!(policy(), libc::SCHED_OTHER);
        }
    }
}

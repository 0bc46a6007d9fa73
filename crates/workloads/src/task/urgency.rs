//! A worker's place in the queue for a CPU while it waits for its start.
//!
//! A host that carries load lets a thread wait for milliseconds after its timer has rung. For the last stretch before
//! the start, and only for it, a worker therefore asks for real-time priority; before its first operation it is an
//! ordinary thread again. Without the right to (CAP_SYS_NICE) it starts when the kernel lets it, and its skew says so.

/// The least of the real-time priorities: above every ordinary thread, below whatever a person made urgent.
const PRIORITY: libc::c_int = 1;

/// Real-time priority of the calling thread, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Urgent {
    granted: bool,
}

impl Urgent {
    /// Asks for it. A thread that has another policy than the ordinary one keeps that.
    pub(super) fn now() -> Urgent {
        // SAFETY: takes no pointer; 0 is the calling thread.
        let policy = unsafe { libc::sched_getscheduler(0) };
        Urgent {
            granted: policy == libc::SCHED_OTHER && set(libc::SCHED_FIFO, PRIORITY),
        }
    }
}

impl Drop for Urgent {
    fn drop(&mut self) {
        if self.granted {
            set(libc::SCHED_OTHER, 0);
        }
    }
}

fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `parameters` is valid for the call, which keeps no pointer; 0 is the calling thread.
    unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_ordinary_again() {
        // SAFETY: as above.
        let policy = || unsafe { libc::sched_getscheduler(0) };
        assert_eq!(policy(), libc::SCHED_OTHER);
        let urgent = Urgent::now();
        let expected = if urgent.granted {
            libc::SCHED_FIFO
        } else {
            libc::SCHED_OTHER
        };
        assert_eq!(policy(), expected);
        drop(urgent);
        assert_eq!(policy(), libc::SCHED_OTHER);
    }
}

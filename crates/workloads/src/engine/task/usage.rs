//! CPU time of a thread, and the time it waited for a CPU.

use crate::measure::thread_cpu::Schedstat;
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::thread::gettid;
use std::time::Duration;

/// CPU time of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Usage {
    pub user: Duration,
    pub system: Duration,
    /// Time that it was runnable without a CPU; `None` if the kernel does not report it.
    pub wait: Option<Duration>,
}

impl Usage {
    pub(super) fn since(self, before: Usage) -> Usage {
        Usage {
            user: self.user.saturating_sub(before.user),
            system: self.system.saturating_sub(before.system),
            wait: self
                .wait
                .zip(before.wait)
                .map(|(now, before)| now.saturating_sub(before)),
        }
    }
}

/// Reads the usage of the thread that created it, in about 2 us.
#[derive(Debug)]
pub(super) struct UsageMeter {
    /// Absent if the kernel keeps no such statistics.
    schedstat: Option<OwnedFd>,
}

impl UsageMeter {
    pub(super) fn of_this_thread() -> UsageMeter {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let open = |path: &str| rustix::fs::openat(CWD, path, flags, Mode::empty()).ok();
        // `thread-self` came with Linux 3.17.
        let by_id = || format!("/proc/self/task/{}/schedstat", gettid().as_raw_pid());
        UsageMeter {
            schedstat: open("/proc/thread-self/schedstat").or_else(|| open(&by_id())),
        }
    }

    pub(super) fn read(&self) -> Usage {
        let (user, system) = cpu_times();
        Usage {
            user,
            system,
            wait: self.run_delay(),
        }
    }

    fn run_delay(&self) -> Option<Duration> {
        let mut text = [0_u8; 96];
        let length = rustix::io::pread(self.schedstat.as_ref()?, &mut text, 0).ok()?;
        let text = std::str::from_utf8(text.get(..length)?).ok()?;
        Schedstat::parse(text).map(|times| times.waited)
    }
}

fn cpu_times() -> (Duration, Duration) {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to our own rusage, for which all zeros are a valid value, and the call only writes it.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    (duration(usage.ru_utime), duration(usage.ru_stime))
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::clock::{MonoNanos, spin_until};

    #[test]
    fn a_wait_that_the_kernel_does_not_keep_is_not_zero() {
        let unknown = UsageMeter { schedstat: None };
        let before = unknown.read();
        assert_eq!(unknown.read().since(before).wait, None);
    }

    #[test]
    fn cpu_time_of_a_spinning_thread_is_measured() {
        let meter = UsageMeter::of_this_thread();
        let before = meter.read();
        // Other threads may take the CPU meanwhile, so spin until this thread has used 20 ms of CPU time.
        let mut used = Usage::default();
        while used.user + used.system < Duration::from_millis(20) {
            spin_until(MonoNanos::now().saturating_add(Duration::from_millis(1)));
            used = meter.read().since(before);
        }
        assert!(used.user > used.system);
    }
}

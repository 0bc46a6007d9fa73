//! The sampler thread's own CPU clock.

pub(crate) const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// CPU time of the calling thread since it began.
pub(crate) fn thread_cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds
        .saturating_mul(NANOS_PER_SECOND)
        .saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

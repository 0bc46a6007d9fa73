//! The memory that glibc keeps for the threads of an agent.
//!
//! By default glibc gives threads up to eight arenas per CPU, and each keeps what was freed in it. Every task starts new
//! threads, so that in time all arenas hold the buffers of a task: an agent on two CPUs grew by a third within 18
//! minutes of short loads.

/// Workers hardly allocate while they measure. A second arena keeps them apart from the threads that sample and send.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: libc::c_int = 2;

/// Limits the arenas of the whole process. Call it before the process starts other threads.
pub fn limit_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes no pointers, and glibc allows it at any time and in any thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS);
    }
}

//! Capabilities of root that the agent uses, and how it drops all others at its start.
//!
//! docs/security.md gives the purpose of each. Capabilities are per thread and are inherited by the threads that it
//! starts, so this is called before any other thread exists.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    clear_ambient_capability_set, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

/// In order: files of any owner on targets and in `/proc`, other processes' I/O counters and open files, real-time
/// priority at the start, births of processes and their accounting, and pinned buffers of io_uring.
pub const USED: CapabilitySet = CapabilitySet::DAC_OVERRIDE
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::SYS_PTRACE)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::IPC_LOCK);

/// Why the unused capabilities could not be dropped.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}")]
pub struct PrivilegesError {
    doing: &'static str,
    #[source]
    source: Errno,
}

/// Drops every other capability for good, in the calling thread and all that it starts. Also drops the ability to gain
/// new ones by executing a program.
///
/// # Errors
/// If the kernel refuses. Without the right to change the bounding set, that set stays as it is: no program can be
/// executed with more capabilities, so none can be gained from it.
pub fn give_up_unused() -> Result<(), PrivilegesError> {
    let failed = |doing| move |source| PrivilegesError { doing, source };
    let held = capabilities(None).map_err(failed("read the capabilities"))?;
    if held.effective.contains(CapabilitySet::SETPCAP) {
        for unused in CapabilitySet::all().difference(USED).iter() {
            // A capability that this kernel does not know is in no set.
            if capability_is_in_bounding_set(unused) == Ok(true) {
                remove_capability_from_bounding_set(unused)
                    .map_err(failed("take a capability from the bounding set"))?;
            }
        }
    }
    clear_ambient_capability_set().map_err(failed("clear the ambient capabilities"))?;
    let kept = CapabilitySets {
        effective: held.effective.intersection(USED),
        permitted: held.permitted.intersection(USED),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, kept).map_err(failed("give up capabilities"))?;
    set_no_new_privs(true).map_err(failed("refuse new privileges"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_thread_that_gave_them_up_has_no_others_and_neither_have_its_own_threads() {
        let sets = std::thread::spawn(|| {
            give_up_unused().unwrap();
            // A second call has no further effect.
            give_up_unused().unwrap();
            std::thread::spawn(|| {
                assert!(rustix::thread::no_new_privs().unwrap());
                capabilities(None).unwrap()
            })
            .join()
            .unwrap()
        });
        let sets = sets.join().unwrap();
        assert!(USED.contains(sets.permitted) && USED.contains(sets.effective));
        assert!(sets.inheritable.is_empty());
        // The test's own thread has kept its capabilities.
        let ours = capabilities(None).unwrap();
        assert!(ours.permitted.contains(sets.permitted));
    }
}

//! The lock that tells others whether somebody works in a run's directory.
//!
//! A task holds a shared lock on the marker of its run's directory for as long as it is there, which network file systems
//! tell other hosts of; the kernel drops it when the process ends, however it ends.

use super::SandboxError;
use super::dir::Dir;
use super::marker;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// The lock on a marker.
#[derive(Debug)]
pub(super) enum Lock {
    Held {
        _marker: OwnedFd,
    },
    HeldByOthers,
    /// The file system knows no locks.
    Unknown,
}

impl PartialEq for Lock {
    fn eq(&self, other: &Lock) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Never waits.
pub(super) fn lock(dir: &Dir, operation: FlockOperation) -> Result<Lock, SandboxError> {
    // Over NFS an exclusive lock needs a file that is open for writing.
    let flags = match operation {
        FlockOperation::NonBlockingLockExclusive => OFlags::RDWR,
        _ => OFlags::RDONLY,
    };
    let marker = dir.open(marker::NAME, flags | OFlags::NOFOLLOW, Mode::empty())?;
    Ok(match flock(&marker, operation) {
        Ok(()) => Lock::Held { _marker: marker },
        Err(Errno::WOULDBLOCK) => Lock::HeldByOthers,
        Err(_) => Lock::Unknown,
    })
}

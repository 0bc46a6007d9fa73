//! The lock that shows whether a run's directory is in use.
//!
//! A task holds a shared lock on the marker of its run's directory while it runs. Network file systems propagate the
//! lock to other hosts. The kernel drops it when the process ends, even by a crash.

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
    /// The file system has no locks, or other hosts may not respect this one.
    Unknown,
}

impl PartialEq for Lock {
    fn eq(&self, other: &Lock) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// Takes an exclusive lock, which proves that the directory is unused on this host and others. Never waits.
pub(super) fn prove_unused(dir: &Dir) -> Result<Lock, SandboxError> {
    let lock = lock(dir, FlockOperation::NonBlockingLockExclusive)?;
    let holds = matches!(lock, Lock::Held { .. }) && shares_locks(dir);
    Ok(match lock {
        Lock::Held { .. } if !holds => Lock::Unknown,
        lock => lock,
    })
}

/// Whether all hosts that mount this file system respect a lock on it. The kernel grants locks on FUSE file systems
/// that do not implement them, and enforces them on one host only.
fn shares_locks(dir: &Dir) -> bool {
    #[cfg(test)]
    if KEEPS_LOCKS_TO_ITSELF.get() {
        return false;
    }
    let Ok(facts) = rustix::fs::fstatfs(dir.fd()) else {
        return false;
    };
    let magic = u64::try_from(facts.f_type).unwrap_or(0);
    match magic {
        NFS => nfs_shares_locks(dir),
        magic => LOCAL.contains(&magic) || CLUSTER.contains(&magic),
    }
}

/// From the mount options: `nolock` and `local_lock` keep locks on this host.
fn nfs_shares_locks(dir: &Dir) -> bool {
    let Ok(facts) = rustix::fs::fstat(dir.fd()) else {
        return false;
    };
    let device = format!(
        "{}:{}",
        rustix::fs::major(facts.st_dev),
        rustix::fs::minor(facts.st_dev)
    );
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut of_device = mounts
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some(&device))
        .peekable();
    of_device.peek().is_some() && of_device.all(nfs_options_share_locks)
}

/// `line` is a line of mountinfo; its last field has the options of the file system.
fn nfs_options_share_locks(line: &str) -> bool {
    let options = line.rsplit(' ').next().unwrap_or_default();
    let mut options = options.split(',');
    let is_shared = options.clone().any(|option| option == "local_lock=none");
    is_shared && !options.any(|option| option == "nolock")
}

#[cfg(test)]
thread_local! {
    /// Treats file systems as if their locks held on one host only, like many FUSE file systems.
    pub(super) static KEEPS_LOCKS_TO_ITSELF: std::cell::Cell<bool> =
        const { std::cell::Cell::new(false) };
}

/// Local file systems: ext, xfs, btrfs, tmpfs, ramfs, overlay, f2fs, zfs, bcachefs, jfs, reiserfs.
const LOCAL: [u64; 11] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0x0102_1994,
    0x8584_58f6,
    0x794c_7630,
    0xf2f5_2010,
    0x2fc1_2fc1,
    0xca45_1a4e,
    0x3153_464a,
    0x5265_4973,
];
/// Cluster file systems that share such locks: ceph (in the kernel), gfs2, ocfs2.
const CLUSTER: [u64; 3] = [0x00c3_6400, 0x0116_1970, 0x7461_636f];
const NFS: u64 = 0x6969;

/// Never waits.
pub(super) fn lock(dir: &Dir, operation: FlockOperation) -> Result<Lock, SandboxError> {
    // An exclusive lock over NFS needs a file that is open for writing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_nfs_hold_for_all_unless_its_options_keep_them() {
        let line = |options: &str| {
            format!("36 25 0:45 / /mnt/nfs rw,relatime shared:9 - nfs4 a:/x rw,vers=4.2,{options}")
        };
        for (options, expected) in [
            ("hard,local_lock=none,addr=1.2.3.4", true),
            ("hard,local_lock=flock,addr=1.2.3.4", false),
            ("hard,local_lock=all", false),
            ("nolock,local_lock=none", false),
            ("hard", false),
        ] {
            assert_eq!(
                nfs_options_share_locks(&line(options)),
                expected,
                "{options}"
            );
        }
    }
}

//! Size and free space of a file system.

use rustix::fd::AsFd;
use rustix::fs::StatVfs;
use rustix::io::Errno;
use std::path::Path;

/// For an ordinary user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// 0: the file system does not report its size.
    pub size_bytes: u64,
    /// Of these, the bytes available to ordinary users.
    pub usable_bytes: u64,
    /// `u64::MAX` if the file system does not report its size.
    pub free_bytes: u64,
    /// 0: no limit.
    pub files: u64,
    pub free_files: u64,
}

impl Space {
    /// Space of the file system of an open file. May hang with it, as [`Space::at`] may.
    pub fn of(file: impl AsFd) -> Result<Space, Errno> {
        rustix::fs::fstatvfs(file).map(|facts| Space::from_facts(&facts))
    }

    pub fn at(path: &Path) -> Result<Space, Errno> {
        rustix::fs::statvfs(path).map(|facts| Space::from_facts(&facts))
    }

    fn from_facts(facts: &StatVfs) -> Space {
        let bytes = |blocks: u64| blocks.saturating_mul(facts.f_frsize);
        let reserved = facts.f_bfree.saturating_sub(facts.f_bavail);
        Space {
            size_bytes: bytes(facts.f_blocks),
            usable_bytes: bytes(facts.f_blocks.saturating_sub(reserved)),
            free_bytes: match facts.f_blocks {
                0 => u64::MAX,
                _ => bytes(facts.f_bavail),
            },
            files: facts.f_files,
            free_files: facts.f_favail,
        }
    }
}

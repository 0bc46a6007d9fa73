//! Raw block devices: only those that the agent's own configuration names, and never one that anybody else has.
//!
//! The kernel decides whether a device is free: it is claimed (O_EXCL), which fails while it, a partition of it or the
//! whole that it is a part of is mounted, swapped on or a part of something else, and keeps others from doing so until
//! the claim is dropped.

use super::{SandboxError, canonical};
use crate::clock::{MonoNanos, sleep_until};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who claims a device for no longer than this does not have it: a program that looks what it is, and a process that is
/// just being started, which holds a copy of all that its parent has open until it runs its own program.
const PATIENCE: Duration = Duration::from_secs(1);
/// How soon a claim is tried again.
const AGAIN: Duration = Duration::from_millis(5);

/// The devices that an agent may overwrite, canonical.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedDevices {
    devices: Vec<PathBuf>,
}

impl AllowedDevices {
    /// Each has to be a block device that is there.
    pub fn new(paths: Vec<PathBuf>) -> Result<AllowedDevices, SandboxError> {
        let device = |path: &PathBuf| {
            let device = canonical(path)?;
            match is_block_device(&device) {
                true => Ok(device),
                false => Err(SandboxError::NoDevice { path: path.clone() }),
            }
        };
        Ok(AllowedDevices {
            devices: paths.iter().map(device).collect::<Result<_, _>>()?,
        })
    }

    /// The canonical path, if it is an allowed device. What else a path may be is not said.
    pub fn permits(&self, path: &Path) -> Option<PathBuf> {
        let device = canonical(path).ok()?;
        let known = self.devices.contains(&device);
        (known && is_block_device(&device)).then_some(device)
    }

    pub fn paths(&self) -> &[PathBuf] {
        &self.devices
    }
}

fn is_block_device(path: &Path) -> bool {
    rustix::fs::stat(path)
        .is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice)
}

/// Blocks for as long as [`PATIENCE`] where it is not free.
fn open_free(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let until = MonoNanos::now().saturating_add(PATIENCE);
    loop {
        match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::BUSY) if MonoNanos::now() < until => {
                sleep_until(MonoNanos::now().saturating_add(AGAIN));
            }
            opened => return opened,
        }
    }
}

/// A claimed device.
#[derive(Debug)]
pub struct Device {
    claim: OwnedFd,
    /// For messages only; never resolved again.
    path: PathBuf,
    bytes: u64,
    /// Which cell of which run works on it.
    cell: String,
}

impl Device {
    /// Claims an allowed device for a cell; `None` when the path is none. May block for a second.
    pub fn claim(
        allowed: &AllowedDevices,
        path: &Path,
        cell: String,
    ) -> Result<Option<Device>, SandboxError> {
        let Some(path) = allowed.permits(path) else {
            return Ok(None);
        };
        let claim = match open_free(&path) {
            Ok(claim) => claim,
            Err(Errno::BUSY) => return Err(SandboxError::InUse { path }),
            Err(errno) => return Err(SandboxError::io("open", path, errno)),
        };
        let facts = rustix::fs::fstat(&claim);
        if !facts.is_ok_and(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice)
        {
            return Err(SandboxError::NoDevice { path });
        }
        let bytes = rustix::fs::seek(&claim, SeekFrom::End(0))
            .map_err(|errno| SandboxError::io("ask for the size of", &path, errno))?;
        Ok(Some(Device {
            claim,
            path,
            bytes,
            cell,
        }))
    }

    /// The very device that was claimed, whatever its name has become.
    pub fn open(&self, flags: OFlags) -> Result<OwnedFd, SandboxError> {
        let claimed = format!("/proc/self/fd/{}", self.claim.as_raw_fd());
        rustix::fs::openat(CWD, claimed, flags | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| SandboxError::io("open", &self.path, errno))
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which cell of which run works on it.
    pub fn cell(&self) -> &str {
        &self.cell
    }
}

//! Raw block devices: only those that the agent's own configuration names, known by their identity, and never one that
//! anybody else has.
//!
//! The kernel decides whether a device is free: it is claimed (O_EXCL), which fails while it, a partition of it or the
//! whole that it is a part of is mounted, swapped on or a part of something else, and keeps others from doing so until
//! the claim is dropped.

use super::device_identity::DeviceIdentity;
use super::device_users::users;
use super::{SandboxError, canonical};
use crate::measure::clock::{MonoNanos, sleep_until};
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

/// A device as it was when it was allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedDevice {
    /// As the configuration names it, such as `/dev/disk/by-id/...`.
    name: PathBuf,
    /// What that led to then.
    path: PathBuf,
    identity: DeviceIdentity,
}

/// The devices that an agent may overwrite, each known by its identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedDevices {
    devices: Vec<AllowedDevice>,
}

impl AllowedDevices {
    /// Each has to be a block device that is there.
    pub fn new(paths: Vec<PathBuf>) -> Result<AllowedDevices, SandboxError> {
        let device = |name: &PathBuf| {
            let path = canonical(name)?;
            let Some(number) = block_device(&path) else {
                return Err(SandboxError::NoDevice { path: name.clone() });
            };
            let identity = DeviceIdentity::of(number);
            if !identity.is_known() {
                tracing::warn!(
                    device = %name.display(), known_by = %identity,
                    "this device has neither WWN nor serial number: another that takes its place is not told from it"
                );
            }
            Ok(AllowedDevice {
                name: name.clone(),
                path,
                identity,
            })
        };
        Ok(AllowedDevices {
            devices: paths.iter().map(device).collect::<Result<_, _>>()?,
        })
    }

    /// The canonical path, if it leads to an allowed device. Whether that is still the same one is known when it is
    /// claimed.
    pub fn permits(&self, path: &Path) -> Option<PathBuf> {
        self.find(path).map(|(device, _)| device)
    }

    fn find(&self, path: &Path) -> Option<(PathBuf, &AllowedDevice)> {
        // Nothing else is looked at: what is no device here tells nobody whether it exists.
        let is_named = |known: &AllowedDevice| known.name == path || known.path == path;
        let is_device = path.starts_with("/dev") && !self.devices.is_empty();
        if !is_device && !self.devices.iter().any(is_named) {
            return None;
        }
        let device = canonical(path).ok()?;
        block_device(&device)?;
        // By the name that it has now, where it has got another since.
        let leads_there =
            |known: &&AllowedDevice| canonical(&known.name).is_ok_and(|now| now == device);
        let by_path = self.devices.iter().find(|known| known.path == device);
        let known = self.devices.iter().find(leads_there).or(by_path)?;
        Some((device, known))
    }

    /// What the devices were when they were allowed.
    pub fn paths(&self) -> Vec<PathBuf> {
        self.devices
            .iter()
            .map(|known| known.path.clone())
            .collect()
    }

    pub fn is_empty(&self) -> bool {
        self.devices.is_empty()
    }
}

/// The number of a block device; `None` when it is none.
fn block_device(path: &Path) -> Option<u64> {
    let facts = rustix::fs::stat(path).ok()?;
    (FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice).then_some(facts.st_rdev)
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
        let Some((path, known)) = allowed.find(path) else {
            return Ok(None);
        };
        let claim = match open_free(&path) {
            Ok(claim) => claim,
            Err(Errno::BUSY) => {
                let by = users(&path);
                return Err(SandboxError::InUse { path, by });
            }
            Err(errno) => return Err(SandboxError::io("open", path, errno)),
        };
        let number = rustix::fs::fstat(&claim)
            .ok()
            .filter(|facts| FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice)
            .map(|facts| facts.st_rdev);
        let Some(number) = number else {
            return Err(SandboxError::NoDevice { path });
        };
        // It cannot be exchanged any more while it is claimed.
        let found = DeviceIdentity::of(number);
        if found != known.identity {
            return Err(SandboxError::OtherDevice {
                path,
                allowed: Box::new(known.identity.clone()),
                found: Box::new(found),
            });
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

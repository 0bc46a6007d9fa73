//! Raw block devices: only those named in the agent's configuration, recognised by their identity, and never one in
//! use.
//!
//! The kernel decides whether a device is free: claiming it (O_EXCL) fails while it, one of its partitions or its
//! parent device is mounted, used as swap or part of another device. The claim prevents such use until it is dropped.

use super::device_identity::DeviceIdentity;
use super::device_users::users;
use super::{SandboxError, canonical};
use crate::measure::clock::{MonoNanos, sleep_until};
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A device claimed by others for no longer than this is not in use: a program may be probing it, or a starting process
/// may hold a copy of its parent's descriptors until its exec.
const MIN_CLAIM_TIME: Duration = Duration::from_secs(1);
/// Delay between two attempts to claim.
const RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// A device as it was when it was allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct AllowedDevice {
    /// The configured name, such as `/dev/disk/by-id/...`.
    name: PathBuf,
    /// The device that it led to then.
    path: PathBuf,
    identity: DeviceIdentity,
}

/// The devices that an agent may overwrite, with their identities.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedDevices {
    devices: Vec<AllowedDevice>,
}

impl AllowedDevices {
    /// Each has to be an existing block device.
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

    /// The canonical path, if it leads to an allowed device. Whether it is still the same device is checked when it is
    /// claimed.
    pub fn permits(&self, path: &Path) -> Option<PathBuf> {
        self.find(path).map(|(device, _)| device)
    }

    fn find(&self, path: &Path) -> Option<(PathBuf, &AllowedDevice)> {
        // Other paths are not accessed, so that the answer does not reveal whether they exist.
        let is_named = |known: &AllowedDevice| known.name == path || known.path == path;
        let is_device = path.starts_with("/dev") && !self.devices.is_empty();
        if !is_device && !self.devices.iter().any(is_named) {
            return None;
        }
        let device = canonical(path).ok()?;
        block_device(&device)?;
        // By its current device number, if its name has changed since.
        let leads_there =
            |known: &&AllowedDevice| canonical(&known.name).is_ok_and(|now| now == device);
        let by_path = self.devices.iter().find(|known| known.path == device);
        let known = self.devices.iter().find(leads_there).or(by_path)?;
        Some((device, known))
    }

    /// The paths of the devices when they were allowed.
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

/// The number of a block device; `None` for any other file.
fn block_device(path: &Path) -> Option<u64> {
    let facts = rustix::fs::stat(path).ok()?;
    (FileType::from_raw_mode(facts.st_mode) == FileType::BlockDevice).then_some(facts.st_rdev)
}

/// Blocks for up to [`MIN_CLAIM_TIME`] if it is not free.
fn open_free(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let until = MonoNanos::now().saturating_add(MIN_CLAIM_TIME);
    loop {
        match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Err(Errno::BUSY) if MonoNanos::now() < until => {
                sleep_until(MonoNanos::now().saturating_add(RETRY_INTERVAL));
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
    /// The cell and run that use it.
    cell: String,
}

impl Device {
    /// Claims an allowed device for a cell; `None` if the path is not a block device. May block for a second.
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
        // It cannot be replaced while it is claimed.
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

    /// Opens the claimed device itself, even if its name has changed since.
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

    /// The cell and run that use it.
    pub fn cell(&self) -> &str {
        &self.cell
    }
}

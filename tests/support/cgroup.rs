//! Disk throttles of the kernel: cgroup v1's blkio controller, in an existing hierarchy or one that is mounted for the
//! test.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

/// A cgroup with its own limits. Its processes must end before it is dropped.
#[derive(Debug)]
pub struct DiskThrottle {
    group: PathBuf,
    /// The hierarchy, if it had to be mounted.
    _hierarchy: Option<Hierarchy>,
}

#[derive(Debug)]
struct Hierarchy(TempDir);

/// Whether this kernel can throttle disks by cgroup v1.
pub fn has_blkio_throttle() -> Result<(), String> {
    let (root, _mounted) = hierarchy()?;
    let probe = root.join(unique());
    fs::create_dir(&probe).map_err(|error| format!("make a blkio cgroup: {error}"))?;
    let has = probe.join("blkio.throttle.write_bps_device").exists();
    let _ = fs::remove_dir(&probe);
    if has {
        Ok(())
    } else {
        Err("the blkio controller has no throttle".to_owned())
    }
}

impl DiskThrottle {
    /// A cgroup that limits reads and writes of the device (`major:minor`) to `bytes_per_s` each.
    pub fn new(device: &str, bytes_per_s: u64) -> Self {
        let (root, mounted) = hierarchy().unwrap();
        let group = root.join(unique());
        fs::create_dir(&group).unwrap();
        for limit in ["read_bps_device", "write_bps_device"] {
            fs::write(
                group.join(format!("blkio.throttle.{limit}")),
                format!("{device} {bytes_per_s}"),
            )
            .unwrap();
        }
        Self {
            group,
            _hierarchy: mounted,
        }
    }

    /// Puts a process, with all its threads, under the throttle.
    pub fn take(&self, pid: u32) {
        fs::write(self.group.join("cgroup.procs"), pid.to_string()).unwrap();
    }
}

impl Drop for DiskThrottle {
    fn drop(&mut self) {
        let gone = super::wait::try_until(std::time::Duration::from_secs(5), || {
            fs::remove_dir(&self.group).ok()
        });
        if gone.is_none() {
            super::gate::say(&format!("cgroup {} is still in use", self.group.display()));
        }
    }
}

impl Drop for Hierarchy {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// The mount point of cgroup v1's blkio; mounts it if necessary.
fn hierarchy() -> Result<(PathBuf, Option<Hierarchy>), String> {
    let mounts = fs::read_to_string("/proc/mounts").map_err(|error| error.to_string())?;
    for line in mounts.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        if fields[2] == "cgroup" && fields[3].split(',').any(|option| option == "blkio") {
            return Ok((PathBuf::from(fields[1]), None));
        }
    }
    let directory = tempfile::Builder::new()
        .prefix("bm-blkio-")
        .tempdir()
        .map_err(|error| error.to_string())?;
    mount_blkio(directory.path())?;
    let path = directory.path().to_owned();
    Ok((path, Some(Hierarchy(directory))))
}

fn mount_blkio(at: &Path) -> Result<(), String> {
    rustix::mount::mount(
        "cgroup",
        at,
        "cgroup",
        rustix::mount::MountFlags::empty(),
        c"blkio",
    )
    .map_err(|error| format!("mount cgroup v1 blkio: {error}"))
}

fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("benchmesh-test-{}-{number}", std::process::id())
}

//! Block devices: claimed for a task, without a run directory.

use super::{AllowedTargets, PathFacts, RequestedTarget, RunDirectoryFacts, RunName, TargetOpener};
use crate::finding::Finding;
use crate::host::{MountedOn, beneath};
use benchmesh_model::targets::DEVICE;
use benchmesh_workloads::sandbox::{AllowedDevices, Device, Make, SandboxError, Space};
use benchmesh_workloads::task::Place;
use rustix::fs::{Access, AtFlags, CWD, FileType};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) const KIND: TargetOpener = TargetOpener {
    about: &DEVICE,
    allow: |paths| Ok(Arc::new(AllowedDevices::new(paths)?)),
    examine,
};

impl AllowedTargets for AllowedDevices {
    fn find(&self, name: &str) -> Option<Box<dyn RequestedTarget + '_>> {
        let path = self.permits(Path::new(name))?;
        Some(Box::new(DeviceTarget {
            allowed: self,
            name: name.to_owned(),
            path,
        }))
    }

    fn names(&self) -> Vec<PathBuf> {
        self.paths()
    }
}

struct DeviceTarget<'a> {
    allowed: &'a AllowedDevices,
    /// The name as requested.
    name: String,
    path: PathBuf,
}

impl RequestedTarget for DeviceTarget<'_> {
    /// Devices have no run directory. The nonce differs between hosts and agents, because a device is never shared.
    fn open_run(&self, _run: RunName<'_>, _make: Make) -> Result<RunDirectoryFacts, SandboxError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        Ok(RunDirectoryFacts {
            found: true,
            made: false,
            nonce: format!(
                "{}-{}-{}",
                boot.trim(),
                std::process::id(),
                self.path.display()
            ),
            free_bytes: i64::MAX,
        })
    }

    fn remove_run(
        &self,
        _run: RunName<'_>,
        _progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        Ok(())
    }

    fn remove_cell(
        &self,
        _run: RunName<'_>,
        _cell: &str,
        _task_index: u32,
        _progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        Ok(())
    }

    fn place(
        &self,
        run: RunName<'_>,
        cell: &str,
        task_index: u32,
    ) -> Result<Option<Place>, SandboxError> {
        let user = format!("{}/{cell}/t{task_index}/{}", run.uid, self.name);
        let claimed = Device::claim(self.allowed, Path::new(&self.name), user)?;
        Ok(claimed.map(|device| Place::Device(Arc::new(device))))
    }

    fn free(&self) -> Option<Space> {
        None
    }

    /// Examines only the device number; whether the device is free is found out when it is claimed.
    fn survey(&self) -> PathFacts {
        let number = rustix::fs::stat(&self.path).map_or(0, |facts| facts.st_rdev);
        let device = format!(
            "{}:{}",
            rustix::fs::major(number),
            rustix::fs::minor(number)
        );
        PathFacts {
            allowed: true,
            exists: true,
            free_bytes: i64::MAX,
            free_files: -1,
            file_system: "block device".to_owned(),
            mount_source: self.name.clone(),
            beneath: beneath(&MountedOn {
                kind: String::new(),
                device: device.clone(),
                source: self.name.clone(),
            }),
            device,
            ..PathFacts::default()
        }
    }
}

fn examine(path: &Path) -> Vec<Finding> {
    let shown = path.display();
    let remedy = "correct --allow-device";
    let finding = match rustix::fs::stat(path) {
        Err(error) => Finding::fail("device", format!("{shown}: {error}"), remedy),
        Ok(facts) if FileType::from_raw_mode(facts.st_mode) != FileType::BlockDevice => {
            Finding::fail("device", format!("{shown} is not a block device"), remedy)
        }
        Ok(_) => match rustix::fs::accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS) {
            Ok(()) => Finding::ok(
                "device",
                format!("{shown}: can be opened; a plan overwrites it"),
            ),
            Err(error) => Finding::fail(
                "device",
                format!("{shown}: {error}"),
                "run the agent as root, with DeviceAllow= for it in the unit",
            ),
        },
    };
    vec![finding]
}

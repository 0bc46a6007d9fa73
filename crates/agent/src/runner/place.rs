//! From a command's names to a task's specification, and the run's directories, all within what the agent allows.
//!
//! Everything here may block on the target, so it runs on a thread of its own.

use super::command::{PlaceName, Prepare, Refusal, RefusalKind, RunDirectoryFacts};
use crate::chain;
use benchmesh_workloads::sandbox::{
    Allowed, AllowedDevices, Device, Make, RunDirectory, SandboxError,
};
use benchmesh_workloads::task::{PeerEnd, Place, TaskError, TaskSpec};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the agent's own configuration allows; a collector cannot widen it.
#[derive(Clone, Debug)]
pub struct Grounds {
    pub targets: Allowed,
    pub devices: AllowedDevices,
    pub sources: Allowed,
    pub scratch: Option<PathBuf>,
}

impl Grounds {
    /// The run's directory on a target, opened or made.
    ///
    /// # Errors
    /// When the path is not allowed, or the directory cannot be made or is not the run's.
    pub fn open_run(
        &self,
        mesh: &str,
        run_uid: &str,
        path: &Path,
        make: Make,
    ) -> Result<RunDirectoryFacts, Refusal> {
        if let Some(device) = self.devices.permits(path) {
            return Ok(device_facts(&device));
        }
        let opened = RunDirectory::open_or_make(&self.targets, path, mesh, run_uid, make)
            .map_err(|error| sandbox(&error))?;
        let Some((directory, made)) = opened else {
            return Ok(RunDirectoryFacts::default());
        };
        let free_bytes = directory.free_bytes().map_err(|error| sandbox(&error))?;
        Ok(RunDirectoryFacts {
            found: true,
            made,
            nonce: directory.nonce().to_owned(),
            free_bytes: i64::try_from(free_bytes).unwrap_or(i64::MAX),
        })
    }

    /// Removes the run's directory; one that is not there is removed already.
    ///
    /// # Errors
    /// When it is not the run's, or something in it cannot be removed.
    pub fn remove_run(
        &self,
        mesh: &str,
        run_uid: &str,
        path: &Path,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Refusal> {
        if self.devices.permits(path).is_some() {
            return Ok(());
        }
        match RunDirectory::open_or_make(&self.targets, path, mesh, run_uid, Make::Never) {
            Ok(Some((directory, _))) => directory.remove(progress).map_err(|error| sandbox(&error)),
            Ok(None) => Ok(()),
            Err(error) => Err(sandbox(&error)),
        }
    }

    /// Removes what one task has laid out.
    ///
    /// # Errors
    /// As [`Grounds::remove_run`].
    pub fn remove_cell(
        &self,
        mesh: &str,
        place: &PlaceName,
        task_index: u32,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), Refusal> {
        let PlaceName {
            run_uid,
            path,
            cell,
        } = place;
        if self.devices.permits(path).is_some() {
            return Ok(());
        }
        match RunDirectory::open_or_make(&self.targets, path, mesh, run_uid, Make::Never) {
            Ok(Some((directory, _))) => directory
                .remove_cell(cell, task_index, progress)
                .map_err(|error| sandbox(&error)),
            Ok(None) => Ok(()),
            Err(error) => Err(sandbox(&error)),
        }
    }

    /// Everything that makes the task.
    ///
    /// # Errors
    /// When its path is not allowed or the run's directory is not there.
    pub fn spec(&self, mesh: &str, prepare: Prepare) -> Result<TaskSpec, Refusal> {
        let device = match &prepare.place {
            None => None,
            Some(name) => self.device(name, prepare.task_index)?,
        };
        let place = match prepare.place {
            Some(name) if device.is_none() => Some(self.place(mesh, name)?),
            _ => None,
        };
        Ok(TaskSpec {
            workload: prepare.workload,
            mode: prepare.mode,
            params: prepare.params,
            place,
            device: device.map(Arc::new),
            task_index: prepare.task_index,
            tasks: prepare.tasks,
            peer: prepare
                .peer
                .map(|(address, token)| PeerEnd { address, token }),
            scratch: self.scratch.clone(),
            sources: self.sources.clone(),
            cache: prepare.cache,
        })
    }

    /// The claimed device, where a target is an allowed one.
    fn device(&self, name: &PlaceName, task_index: u32) -> Result<Option<Device>, Refusal> {
        let path = name.path.display();
        let cell = format!("{}/{}/t{task_index}/{path}", name.run_uid, name.cell);
        Device::claim(&self.devices, &name.path, cell).map_err(|error| sandbox(&error))
    }

    fn place(&self, mesh: &str, name: PlaceName) -> Result<Place, Refusal> {
        let PlaceName {
            run_uid,
            path,
            cell,
        } = name;
        let opened = RunDirectory::open_or_make(&self.targets, &path, mesh, &run_uid, Make::Never)
            .map_err(|error| sandbox(&error))?;
        let Some((directory, _)) = opened else {
            return Err(Refusal::failed(format!(
                "the directory of run {run_uid} is not at {}: has it been removed, or is the target not mounted?",
                path.display()
            )));
        };
        Ok(Place {
            run: Arc::new(directory),
            cell,
        })
    }
}

/// A device has no directory to make, share or remove, and how much it holds is known when it is claimed.
fn device_facts(device: &Path) -> RunDirectoryFacts {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    RunDirectoryFacts {
        found: true,
        made: false,
        nonce: format!(
            "{}-{}-{}",
            boot.trim(),
            std::process::id(),
            device.display()
        ),
        free_bytes: i64::MAX,
    }
}

/// A sandbox's refusal, by what the scheduler can do about it.
fn sandbox(error: &SandboxError) -> Refusal {
    let kind = match error {
        SandboxError::NotAllowed { .. }
        | SandboxError::NotAbsolute { .. }
        | SandboxError::NotOurs { .. }
        | SandboxError::NoDevice { .. }
        | SandboxError::InUse { .. } => RefusalKind::NotAllowed,
        SandboxError::BadName { .. } | SandboxError::Io { .. } => kind_of(error.errno()),
    };
    Refusal::new(kind, chain(error))
}

/// A task's refusal, by what the scheduler can do about it.
#[must_use]
pub fn refusal(error: &TaskError) -> Refusal {
    match error {
        TaskError::Sandbox(cause) => sandbox(cause),
        TaskError::UnknownWorkload { .. }
        | TaskError::NoReceiver { .. }
        | TaskError::Unfit { .. } => Refusal::new(RefusalKind::Unsupported, chain(error)),
        TaskError::Io { source, .. } => Refusal::new(kind_of(source.raw_os_error()), chain(error)),
        _ => Refusal::failed(chain(error)),
    }
}

fn kind_of(errno: Option<i32>) -> RefusalKind {
    match errno.map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => RefusalKind::NoSpace,
        _ => RefusalKind::Failed,
    }
}

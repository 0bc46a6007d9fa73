//! From a command's names to a task's specification, and the run's directories, all within what the agent allows.
//!
//! Everything here may block on the target, so it runs on a thread of its own.

use super::command::{PlaceName, Prepare, Refusal, RefusalKind, RunDirectoryFacts};
use crate::chain;
use benchmesh_workloads::sandbox::{Allowed, Make, RunDirectory, SandboxError};
use benchmesh_workloads::task::{PeerEnd, Place, TaskError, TaskSpec};
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What the agent's own configuration allows; a collector cannot widen it.
#[derive(Clone, Debug)]
pub struct Grounds {
    pub targets: Allowed,
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
        let place = match prepare.place {
            None => None,
            Some(name) => Some(self.place(mesh, name)?),
        };
        Ok(TaskSpec {
            workload: prepare.workload,
            mode: prepare.mode,
            params: prepare.params,
            place,
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

/// A sandbox's refusal, by what the scheduler can do about it.
fn sandbox(error: &SandboxError) -> Refusal {
    let kind = match error {
        SandboxError::NotAllowed { .. }
        | SandboxError::NotAbsolute { .. }
        | SandboxError::NotOurs { .. } => RefusalKind::NotAllowed,
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

//! A task's directory on the target, with a directory `w<index>` in it for each worker.

use crate::engine::prepare_control::PrepareControl;
use crate::engine::spec::{TaskError, TaskSpec};
use crate::target::sandbox::Dir;
use std::path::PathBuf;

#[derive(Debug)]
pub(crate) struct WorkerDirs {
    pub task: Dir,
}

impl WorkerDirs {
    pub(crate) fn of(spec: &TaskSpec) -> Result<WorkerDirs, TaskError> {
        Ok(WorkerDirs { task: spec.dir()? })
    }

    /// A worker's directory; creates it if needed.
    pub(crate) fn open(&self, worker: u32) -> Result<Dir, TaskError> {
        self.task
            .make_dir(&format!("w{worker}"))
            .map_err(TaskError::Sandbox)
    }

    pub(crate) fn path(&self, worker: u32) -> PathBuf {
        self.task.path().join(format!("w{worker}"))
    }

    /// Removes the directories of all workers in a task's directory, with their contents.
    pub(crate) fn remove_from(task: &Dir, control: &PrepareControl) -> Result<(), TaskError> {
        for name in task.names().map_err(TaskError::Sandbox)? {
            control.check()?;
            if name.starts_with('w') {
                let mut removed = |files| control.progress(files, 0, "files removed");
                task.remove_all(&name, &mut removed)
                    .map_err(TaskError::Sandbox)?;
            }
        }
        Ok(())
    }

    /// Creates the missing directories of workers below `workers`.
    pub(crate) fn make(&self, workers: u32, control: &PrepareControl) -> Result<(), TaskError> {
        for worker in 0..workers {
            control.check()?;
            self.open(worker)?;
        }
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<(), TaskError> {
        self.task.sync().map_err(TaskError::Sandbox)
    }
}

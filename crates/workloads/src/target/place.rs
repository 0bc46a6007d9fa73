//! What one task works on, as its kind of target opens it.

use super::sandbox::{Device, Dir, RunDirectory, SandboxError, task_dir_name};
use benchmesh_model::targets::{DEVICE, DIRECTORY, TargetKind};
use std::path::Path;
use std::sync::Arc;

/// One cell of a run's directory, in which each task has a directory of its own.
#[derive(Debug, Clone)]
pub struct CellDir {
    pub run: Arc<RunDirectory>,
    pub cell: String,
}

impl CellDir {
    /// The directory of one task, made if it is not there yet.
    pub fn task_dir(&self, task_index: u32) -> Result<Dir, SandboxError> {
        let cell = self.run.cell(&self.cell)?;
        cell.make_dir(&task_dir_name(task_index))
    }

    /// Whether an earlier mode has left anything in the directory of one task.
    fn has_data(&self, task_index: u32) -> Result<bool, SandboxError> {
        Ok(!self.task_dir(task_index)?.names()?.is_empty())
    }
}

/// What a task works on.
#[derive(Debug, Clone)]
pub enum Place {
    Directory(CellDir),
    Device(Arc<Device>),
}

impl Place {
    pub fn kind(&self) -> &'static TargetKind {
        match self {
            Place::Directory(_) => &DIRECTORY,
            Place::Device(_) => &DEVICE,
        }
    }

    /// For messages.
    pub fn path(&self) -> &Path {
        match self {
            Place::Directory(cell) => cell.run.dir().path(),
            Place::Device(device) => device.path(),
        }
    }

    /// Whether an earlier mode has left files of one task. What cannot be looked at has none.
    pub fn has_data(&self, task_index: u32) -> bool {
        match self {
            Place::Directory(cell) => cell.has_data(task_index).unwrap_or(false),
            Place::Device(_) => false,
        }
    }
}

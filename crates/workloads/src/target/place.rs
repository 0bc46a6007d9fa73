//! What a task works on, by kind of target.

mod pool;

pub use pool::{LeftRun, PoolRun, PoolTask, RunMarker, facts, runs_in, space};

use super::sandbox::{Device, Dir, RunDirectory, SandboxError, Space, task_dir_name};
use benchmesh_model::targets::{DEVICE, DIRECTORY, POOL, TargetKind};
use std::sync::Arc;

/// One cell of a run's directory. Each task has its own directory in it.
#[derive(Debug, Clone)]
pub struct CellDir {
    pub run: Arc<RunDirectory>,
    pub cell: String,
}

impl CellDir {
    /// The directory of one task; creates it if needed.
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
    Pool(Arc<PoolTask>),
}

impl Place {
    pub fn kind(&self) -> &'static TargetKind {
        match self {
            Place::Directory(_) => &DIRECTORY,
            Place::Device(_) => &DEVICE,
            Place::Pool(_) => &POOL,
        }
    }

    /// For messages.
    pub fn name(&self) -> String {
        let path = match self {
            Place::Directory(cell) => cell.run.dir().path(),
            Place::Device(device) => device.path(),
            Place::Pool(task) => return task.name(),
        };
        path.display().to_string()
    }

    /// The nonce of the run's directory or marker. Clients that read the same nonce share the target's contents.
    /// `None`: it has none.
    pub fn nonce(&self) -> Option<&str> {
        match self {
            Place::Directory(cell) => Some(cell.run.nonce()),
            Place::Device(_) => None,
            Place::Pool(task) => Some(task.nonce()),
        }
    }

    /// The device number of its file system on this host, such as `8:1`. `None`: not on a file system. May hang with
    /// the target.
    pub fn device(&self) -> Option<String> {
        let Place::Directory(cell) = self else {
            return None;
        };
        let device = rustix::fs::fstat(cell.run.dir().fd()).ok()?.st_dev;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Some(format!("{major}:{minor}"))
    }

    /// The free space now. `None`: unknown or unlimited. May hang with the target.
    pub fn free(&self) -> Option<Space> {
        match self {
            Place::Directory(cell) => Space::of(cell.run.dir().fd()).ok(),
            Place::Device(_) => None,
            Place::Pool(task) => task.free(),
        }
    }

    /// Whether an earlier mode has left files of one task. False if that cannot be determined.
    pub fn has_data(&self, task_index: u32) -> bool {
        match self {
            Place::Directory(cell) => cell.has_data(task_index).unwrap_or(false),
            Place::Device(_) => false,
            Place::Pool(task) => task.has_data(),
        }
    }
}

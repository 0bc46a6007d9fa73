//! Input of a task, and why a task cannot be prepared.

use crate::measure::pacing::RateLimit;
use crate::params::{ParamError, Params, PortRange};
pub use crate::target::place::{CellDir, Place};
use crate::target::rados::RadosError;
use crate::target::sandbox::{Allowed, Dir, SandboxError};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The other end of a task that needs a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerEnd {
    pub address: SocketAddr,
    pub token: String,
}

/// Handling of caches. The agent drops them between preparation and start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cache {
    #[default]
    AsIs,
    /// One unmeasured pass before the start.
    Warm,
    /// Caches are dropped between preparation and start.
    Cold,
    /// O_DIRECT.
    Bypass,
}

/// Everything needed to create a task.
#[derive(Debug, Clone)]
pub struct TaskSpec {
    pub workload: String,
    pub mode: String,
    pub params: Params,
    pub place: Option<Place>,
    /// Index of the task within its step, and the number of tasks.
    pub task_index: u32,
    pub tasks: u32,
    pub peer: Option<PeerEnd>,
    pub scratch: Option<PathBuf>,
    /// Paths beneath which files to copy may be read.
    pub sources: Allowed,
    pub cache: Cache,
    /// Limits the bytes per second of all loads that share it, whatever the parameters ask for.
    pub limit: Option<Arc<RateLimit>>,
}

impl TaskSpec {
    /// A task that is the only one of its step, with parameters only.
    pub fn new(workload: &str, mode: &str, params: Params) -> TaskSpec {
        TaskSpec {
            workload: workload.to_owned(),
            mode: mode.to_owned(),
            params,
            place: None,
            task_index: 0,
            tasks: 1,
            peer: None,
            scratch: None,
            sources: Allowed::default(),
            cache: Cache::AsIs,
            limit: None,
        }
    }

    /// Its cell, if its target has directories.
    pub fn cell_dir(&self) -> Result<&CellDir, TaskError> {
        match &self.place {
            Some(Place::Directory(cell)) => Ok(cell),
            _ => Err(TaskError::NoPlace {
                workload: self.workload.clone(),
            }),
        }
    }

    /// The task's own directory on the target.
    pub fn dir(&self) -> Result<Dir, TaskError> {
        let cell = self.cell_dir()?;
        cell.task_dir(self.task_index).map_err(TaskError::Sandbox)
    }
}

/// Why a task could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    #[error("there is no workload `{name}`")]
    UnknownWorkload { name: String },
    #[error("invalid parameter")]
    Params(#[source] ParamError),
    #[error("workload `{workload}` needs a target, and the task has none")]
    NoPlace { workload: String },
    #[error("workload `{workload}` needs a peer, and the task has none")]
    NoPeer { workload: String },
    #[error("workload `{workload}` has no receiving end")]
    NoReceiver { workload: &'static str },
    #[error(
        "ports {range}: free over {protocol}: {free} of {}, needed: {needed}",
        .range.count()
    )]
    Ports {
        range: PortRange,
        protocol: &'static str,
        free: usize,
        needed: usize,
    },
    #[error("the sandbox refused")]
    Sandbox(#[source] SandboxError),
    #[error(transparent)]
    Pool(RadosError),
    #[error("cannot {doing}")]
    Io {
        doing: String,
        #[source]
        source: io::Error,
    },
    #[error(
        "{what} is not there whole, and a phase with `use` lays nothing out: lay the data out by a phase with `keep`"
    )]
    NotLaidOut { what: String },
    #[error("this cannot be done: {why}")]
    Unsupported { why: String },
    #[error("worker {worker} died while it was being prepared: {message}")]
    Died { worker: u32, message: String },
    #[error("the preparation was cancelled")]
    Cancelled,
}

impl TaskError {
    pub fn io(doing: impl Into<String>, source: impl Into<io::Error>) -> TaskError {
        TaskError::Io {
            doing: doing.into(),
            source: source.into(),
        }
    }
}

//! A directory of one task's own in the agent's scratch, gone when the task is.
//!
//! It is marked like a run's directory on a target, so that it is never anything else that is removed.

use crate::clock::MonoNanos;
use crate::sandbox::{Allowed, Dir, Make, RunDirectory};
use crate::task::TaskError;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
pub(super) struct Scratch {
    directory: Option<RunDirectory>,
}

impl Scratch {
    pub(super) fn make(parent: &Path) -> Result<Self, TaskError> {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let uid = format!(
            "copy-{}-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Ordering::Relaxed),
            MonoNanos::now().0
        );
        let allowed = Allowed::new(vec![parent.to_owned()]).map_err(TaskError::Sandbox)?;
        let made = RunDirectory::open_or_make(&allowed, parent, "scratch", &uid, Make::IfMissing)
            .map_err(TaskError::Sandbox)?;
        Ok(Self {
            directory: made.map(|(directory, _)| directory),
        })
    }

    /// A directory in it.
    pub(super) fn dir(&self, name: &str) -> Result<Dir, TaskError> {
        match &self.directory {
            Some(directory) => directory.cell(name).map_err(TaskError::Sandbox),
            None => Err(TaskError::Unfit {
                why: "the scratch directory of this task is gone".into(),
            }),
        }
    }

    pub(super) fn remove(&mut self) -> Result<(), TaskError> {
        match self.directory.take() {
            Some(directory) => directory.remove(&mut |_| {}).map_err(TaskError::Sandbox),
            None => Ok(()),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            tracing::warn!(error = %error.in_full(), "a scratch directory was not removed; remove it by hand");
        }
    }
}

//! RBD images in a pool, one per worker, and their state, which the task's state object keeps from mode to mode.

use super::job::IoJob;
use super::keys::{FilePer, SyncKind};
use crate::engine::author::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// An operation fails if the cluster has not answered by then. The same as the default of `objects`.
const OP_TIMEOUT: Duration = Duration::from_secs(60);
/// Size of an object, unless the cluster's configuration sets another one.
const OBJECT_BYTES: u64 = 4 << 20;

/// The images of one task.
#[derive(Debug, Clone)]
pub(super) struct Images {
    place: Arc<PoolTask>,
    session: Arc<Session>,
    /// Size of each image.
    bytes: u64,
    workers: u32,
}

/// State of the images.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ImagesState {
    /// Bytes of each worker's image written so far, from its beginning.
    laid: Vec<u64>,
    generations: Generations,
}

impl ImagesState {
    fn laid(&self, worker: u32) -> u64 {
        self.laid.get(worker as usize).copied().unwrap_or(0)
    }

    fn set_laid(&mut self, worker: u32, bytes: u64) {
        let index = worker as usize;
        if self.laid.len() <= index {
            self.laid.resize(index + 1, 0);
        }
        if let Some(laid) = self.laid.get_mut(index) {
            *laid = bytes;
        }
    }
}

impl Images {
    pub(super) fn new(job: &IoJob, place: &Arc<PoolTask>) -> Result<Images, TaskError> {
        check(job).map_err(TaskError::Params)?;
        let largest = job.pattern.sizes.largest();
        let in_flight = u64::from(job.depth).saturating_mul(job.workers.into());
        // One operation on an image may need operations on several objects and on the image's metadata.
        let ops = in_flight.saturating_mul(2 + 2 * largest.div_ceil(OBJECT_BYTES));
        let session = place.run.open(Limits {
            op_timeout: OP_TIMEOUT,
            ops,
            bytes: in_flight.saturating_mul(2 * largest),
        });
        Ok(Images {
            place: Arc::clone(place),
            session: session.map_err(TaskError::Pool)?,
            bytes: job.file_bytes(),
            workers: job.workers,
        })
    }

    /// The images of another task of the step.
    pub(super) fn of_task(&self, task: u32) -> Images {
        Images {
            place: Arc::new(self.place.of_task(task)),
            ..self.clone()
        }
    }

    pub(super) fn library_cpu(&self) -> Option<CpuTime> {
        self.session.library_cpu()
    }

    pub(super) fn name(&self, worker: u32) -> String {
        self.place.image_name(worker)
    }

    pub(super) fn path(&self, worker: u32) -> String {
        self.place.image_path(worker)
    }

    /// Error for opening an image as a file.
    pub(super) fn no_file(&self, worker: u32) -> SandboxError {
        let doing = format!("open image `{}` as a file", self.name(worker));
        SandboxError::Pool(self.session.image_failed(&doing, -libc::EINVAL))
    }

    /// Opens a worker's image. Opening for writing creates it, or grows it, as needed.
    pub(super) fn open(&self, worker: u32, access: ImageAccess) -> Result<Image, TaskError> {
        let open = || {
            let name = self.name(worker);
            if access == ImageAccess::Write && !self.session.has_image(&name)? {
                self.session.create_image(&name, self.bytes)?;
            }
            let image = Image::open(&self.session, &name, access)?;
            if access == ImageAccess::Write {
                image.grow(self.bytes)?;
            }
            Ok(image)
        };
        open().map_err(TaskError::Pool)
    }

    fn state(&self) -> Result<ImagesState, TaskError> {
        let text = self.session.read(&self.place.state_name());
        let text = text.map_err(TaskError::Pool)?;
        // If the state cannot be parsed, the data is laid out again.
        let state = text.and_then(|text| serde_json::from_slice(&text).ok());
        Ok(state.unwrap_or_default())
    }

    fn change(&self, change: impl FnOnce(&mut ImagesState)) -> Result<(), TaskError> {
        let mut state = self.state()?;
        change(&mut state);
        let text = serde_json::to_vec(&state).expect("numbers are always JSON");
        let written = self.session.write(&self.place.state_name(), &text);
        written.map_err(TaskError::Pool)
    }

    pub(super) fn laid_bytes(&self, worker: u32) -> Result<u64, TaskError> {
        Ok(self.state()?.laid(worker))
    }

    /// Records that all workers' data is laid out.
    pub(super) fn all_laid(&self) -> Result<(), TaskError> {
        let is_known = {
            let state = self.state()?;
            (0..self.workers).all(|worker| state.laid(worker) >= self.bytes)
        };
        if is_known {
            return Ok(());
        }
        self.change(|state| {
            for worker in 0..self.workers {
                state.set_laid(worker, state.laid(worker).max(self.bytes));
            }
        })
    }

    pub(super) fn remove(&self, worker: u32) -> Result<(), TaskError> {
        self.change(|state| state.set_laid(worker, 0))?;
        let removed = self.place.remove_image(&self.session, worker);
        removed.map_err(TaskError::Pool)
    }

    pub(super) fn generations(&self) -> Result<Generations, TaskError> {
        Ok(self.state()?.generations)
    }

    pub(super) fn set_generations(&self, known: Generations) -> Result<(), TaskError> {
        self.change(|state| state.generations = known)
    }
}

/// Refuses parameters that apply only to files.
pub(super) fn check(job: &IoJob) -> Result<(), ParamError> {
    let (key, why) = if job.stdio.is_some() {
        (
            "modes",
            "RBD images do not support the modes of stdio, which need a file",
        )
    } else if !job.engine_by_default {
        ("ioengine", "RBD images use only librbd: leave it out")
    } else if job.file_per != FilePer::Worker {
        (
            "file-per",
            "each worker has its own RBD image: leave it out",
        )
    } else if job.sync != SyncKind::None {
        (
            "sync",
            "a write to an RBD image is on stable storage when it completes, and there is no O_SYNC: leave it out",
        )
    } else {
        return Ok(());
    };
    Err(ParamError::of(key, why))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_state_knows_each_workers_image_and_is_read_back() {
        let mut state = ImagesState::default();
        assert_eq!(state.laid(3), 0);
        state.set_laid(2, 4096);
        assert_eq!(state.laid, [0, 0, 4096]);
        state.set_laid(0, 8192);
        state.generations.newest = 3;
        let text = serde_json::to_vec(&state).unwrap();
        let again: ImagesState = serde_json::from_slice(&text).unwrap();
        assert_eq!(again, state);
        assert_eq!(
            (again.laid(0), again.laid(1), again.laid(2)),
            (8192, 0, 4096)
        );
    }
}

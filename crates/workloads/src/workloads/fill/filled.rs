//! What is known of a fill that is whole: which writing of the files it is, and how much each worker has written.
//!
//! It is kept with the state of the data, for a share of the target's space does not say it.

use crate::engine::author::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug, Default)]
pub(super) struct Filled {
    /// Which writing of the files it is: what an earlier one has left on the storage must not be taken for it.
    pub generation: u64,
    /// Bytes of each worker.
    pub parts: Vec<u64>,
}

impl Filled {
    /// What is in `task`, where all of it is known and of this shape.
    pub(super) fn find(task: &Dir, shape: &str, workers: u32) -> Result<Option<Self>, TaskError> {
        let found = DatasetRecord::read(task).map_err(TaskError::Sandbox)?;
        let workers = usize::try_from(workers).unwrap_or(usize::MAX);
        let is_ours = |found: &DatasetRecord| {
            let is_whole = found.content == DatasetContent::Created && found.parts.len() == workers;
            is_whole && found.shape == shape
        };
        Ok(found.filter(is_ours).map(|found| Self {
            generation: found.extras.generations.newest,
            parts: found.parts,
        }))
    }

    pub(super) fn record(&self, shape: String, content: DatasetContent) -> DatasetRecord {
        DatasetRecord {
            shape,
            content,
            extras: Extras {
                generations: Generations {
                    oldest: self.generation,
                    newest: self.generation,
                    ..Generations::default()
                },
                ..Extras::default()
            },
            parts: self.parts.clone(),
        }
    }
}

/// The workers of a task that reached the aim without an error, each with what it has written.
#[derive(Clone, Debug, Default)]
pub(super) struct Finished(Arc<Mutex<BTreeMap<u32, u64>>>);

impl Finished {
    pub(super) fn add(&self, worker: u32, written: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(worker, written);
    }

    /// Bytes of each worker, in their order, when all `workers` are among them.
    pub(super) fn all(&self, workers: u32) -> Option<Vec<u64>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_all = u32::try_from(all.len()) == Ok(workers);
        is_all.then(|| all.values().copied().collect())
    }
}

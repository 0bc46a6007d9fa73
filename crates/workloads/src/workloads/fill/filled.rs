//! State of a complete fill: its generation, and the bytes that each worker has written.
//!
//! It is stored with the state of the data, because a share of the target's space does not determine it.

use crate::engine::author::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Clone, Debug, Default)]
pub(super) struct FilledFiles {
    /// Generation of the files, to detect data that the storage has kept from an earlier fill.
    pub generation: u64,
    /// Bytes of each worker.
    pub parts: Vec<u64>,
}

impl FilledFiles {
    /// Fill in `task`, if it is complete and has this shape.
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

/// Bytes written by each worker of a task that reached the aim without an error.
#[derive(Clone, Debug, Default)]
pub(super) struct Finished(Arc<Mutex<BTreeMap<u32, u64>>>);

impl Finished {
    pub(super) fn add(&self, worker: u32, written: u64) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(worker, written);
    }

    /// Bytes of each worker, in order, if all `workers` have finished.
    pub(super) fn all(&self, workers: u32) -> Option<Vec<u64>> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_all = u32::try_from(all.len()) == Ok(workers);
        is_all.then(|| all.values().copied().collect())
    }
}

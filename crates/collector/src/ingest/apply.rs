//! What happens to batches inside the writer's transaction.

use super::batch::Batch;
use super::publisher::{IngestError, Stored};
use crate::model::{AgentId, HostId};
use crate::store::error::StoreError;
use crate::store::live::Live;
use sqlx::SqliteConnection;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Whose batches a publisher brings.
#[derive(Debug)]
pub(crate) struct Source {
    pub agent: AgentId,
    pub host: HostId,
    pub net_namespace: String,
}

/// A batch that waits for its turn and then for its commit.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    source: Arc<Source>,
    batch: Batch,
    outcome: Option<Result<(), IngestError>>,
    done: oneshot::Sender<Result<Stored, IngestError>>,
    _permit: OwnedSemaphorePermit,
}

impl PendingBatch {
    pub(crate) fn new(
        source: Arc<Source>,
        batch: Batch,
        permit: OwnedSemaphorePermit,
        done: oneshot::Sender<Result<Stored, IngestError>>,
    ) -> Self {
        Self {
            source,
            batch,
            outcome: None,
            done,
            _permit: permit,
        }
    }

    pub(crate) fn rows(&self) -> usize {
        self.batch.rows()
    }

    pub(crate) fn refuse(&mut self, error: &StoreError) {
        self.outcome = Some(Err(IngestError::Refused {
            why: error.to_string(),
        }));
    }

    pub(crate) fn answer(self) {
        let answer = match self.outcome {
            Some(Ok(())) => Ok(Stored {
                spool_id: self.batch.spool_id,
                sequence: self.batch.sequence,
            }),
            Some(Err(error)) => Err(error),
            None => Err(IngestError::Closed),
        };
        // The session may have gone; what is stored is stored.
        drop(self.done.send(answer));
    }
}

/// The writer's memory of what the database holds.
#[derive(Debug)]
pub(crate) struct Ingest {
    live: Live,
}

impl Ingest {
    pub(crate) fn new(live: Live) -> Self {
        Self { live }
    }

    pub(crate) async fn store_together(
        &mut self,
        _connection: &mut SqliteConnection,
        _batches: &mut [PendingBatch],
    ) -> Result<(), StoreError> {
        Ok(())
    }

    pub(crate) fn keep(&mut self) {}

    pub(crate) fn undone(&mut self) {}

    pub(crate) fn rolled_back(&mut self) {}

    pub(crate) fn committed(&mut self) {
        self.live.committed();
    }
}

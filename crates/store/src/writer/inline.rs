//! The writer of a database in memory: each write is a transaction of its own, committed before its call returns.

use super::{Pending, directly};
use crate::database::{Doing, StoreError};
use crate::ingest::{apply::Ingest, pending::PendingBatch};
use sqlx::sqlite::SqlitePool;
use tokio::sync::Mutex;

const DOING: &str = "commit a transaction";

#[derive(Debug)]
pub(super) struct Inline {
    pool: SqlitePool,
    ingest: Mutex<Ingest>,
}

impl Inline {
    pub(super) fn new(pool: SqlitePool, ingest: Ingest) -> Self {
        Self {
            pool,
            ingest: Mutex::new(ingest),
        }
    }

    /// Commits a write, and answers it.
    pub(super) async fn write(&self, mut write: Box<dyn Pending>) {
        if let Err(error) = self.commit(write.as_mut()).await {
            write.refuse(error);
        }
        write.answer();
    }

    async fn commit(&self, write: &mut dyn Pending) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await.doing(DOING)?;
        write.apply(&mut transaction).await?;
        transaction.commit().await.doing(DOING)
    }

    pub(super) async fn submit(&self, batch: PendingBatch) -> Result<(), StoreError> {
        let mut batch = [batch];
        let mut ingest = self.ingest.lock().await;
        if let Err(error) = self.store(&mut ingest, &mut batch).await {
            ingest.rolled_back();
            return Err(error);
        }
        ingest.committed(&batch);
        let [batch] = batch;
        batch.answer();
        Ok(())
    }

    async fn store(
        &self,
        ingest: &mut Ingest,
        batches: &mut [PendingBatch],
    ) -> Result<(), StoreError> {
        let mut transaction = self.pool.begin().await.doing(DOING)?;
        directly(&mut transaction, |connection| {
            ingest.store(connection, batches)
        })
        .await?;
        transaction.commit().await.doing(DOING)
    }
}

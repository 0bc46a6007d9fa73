//! The only writer: every change of the database goes through its queue and is committed in groups.
//!
//! Everything that queued during one commit goes into the next transaction, the scheduler's writes first. Samples and
//! intervals wait for others of their kind while nobody asks for them (`gather`). Nothing is answered before its
//! commit. A write that fails by its own fault is undone alone (a savepoint) and does not affect the others; when the
//! disk is full or failing the whole group is rolled back, nothing is answered, and the group is retried with back-off.

mod gather;
mod group;

pub(crate) use gather::Calm;
pub use gather::GROUP_ROWS;
pub(crate) use gather::LONGEST as LONGEST_WAIT;
pub(crate) use group::{Haste, Pending};

use super::blocked::Blockage;
use super::direct;
use super::lock::Lock;
use crate::database::StoreError;
use crate::ingest::apply::Ingest;
use crate::ingest::pending::PendingBatch;
use futures::future::BoxFuture;
use rusqlite::Connection;
use sqlx::SqliteConnection;
use sqlx::sqlite::SqliteConnectOptions;
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Writes of the scheduler and the sessions that may wait. They are few and small; a sender waits when it is full.
const QUEUED_WRITES: usize = 1024;
/// Batches that may wait; the publishers' row budget is the bound in bytes. A sender waits when it is full.
const QUEUED_BATCHES: usize = 1024;

/// How the rest of the crate reaches the writer.
#[derive(Clone, Debug)]
pub(crate) struct WriterHandle {
    writes: mpsc::Sender<Box<dyn Pending>>,
    batches: mpsc::Sender<PendingBatch>,
    closing: CancellationToken,
    died: CancellationToken,
    ingested: watch::Receiver<Option<Ingested>>,
}

/// Rows of agents that were committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingested {
    /// Since the database was opened.
    pub rows: u64,
    /// When the latest were.
    pub at: Instant,
}

impl WriterHandle {
    pub(crate) fn start(
        connection: SqliteConnection,
        options: SqliteConnectOptions,
        lock: Lock,
        ingest: Ingest,
        blockage: Blockage,
        calm: Calm,
    ) -> Result<(Self, tokio::task::JoinHandle<()>), StoreError> {
        let (writes, queued_writes) = mpsc::channel(QUEUED_WRITES);
        let (batches, queued_batches) = mpsc::channel(QUEUED_BATCHES);
        let closing = CancellationToken::new();
        let (latest, ingested) = watch::channel(None);
        let writer = group::Writer {
            connection,
            options,
            ingest,
            blockage,
            writes: queued_writes,
            batches: queued_batches,
            closing: closing.clone(),
            calm,
            latest,
        };
        let (over, ended) = oneshot::channel();
        thread(move |runtime| {
            runtime.block_on(writer.run());
            // Only now may another collector have the database.
            drop(lock);
            let _ = over.send(());
        })?;
        let died = CancellationToken::new();
        let task = tokio::spawn({
            let died = died.clone();
            async move {
                if ended.await.is_err() {
                    died.cancel();
                }
            }
        });
        let handle = Self {
            writes,
            batches,
            closing,
            died,
            ingested,
        };
        Ok((handle, task))
    }

    /// Resolves if the writer's thread ends on its own, which a healthy one never does.
    pub(crate) async fn died(&self) {
        self.died.cancelled().await;
    }

    /// `None`: no agent has sent any.
    pub(crate) fn ingested(&self) -> Option<Ingested> {
        *self.ingested.borrow()
    }

    /// Queued writes are still done; later ones are refused.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Runs `apply` within the next transaction and returns what it returned, after the commit. It may be run more than
    /// once (when a transaction had to be rolled back), so it must do nothing but read and write rows.
    pub(crate) async fn write<D, T>(
        &self,
        data: D,
        apply: Apply<D, T>,
        haste: Haste,
    ) -> Result<T, StoreError>
    where
        D: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (done, outcome) = oneshot::channel();
        let pending = group::Write::new(data, apply, haste, done);
        self.writes
            .send(Box::new(pending))
            .await
            .map_err(|_| StoreError::Closed)?;
        outcome.await.map_err(|_| StoreError::Closed)?
    }

    pub(crate) async fn submit(&self, batch: PendingBatch) -> Result<(), StoreError> {
        self.batches
            .send(batch)
            .await
            .map_err(|_| StoreError::Closed)
    }
}

/// Starts the writer's own thread: it writes rows, and may not delay sessions.
fn thread(live: impl FnOnce(&Runtime) + Send + 'static) -> Result<(), StoreError> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .map_err(|source| StoreError::NoThread { source })?;
    std::thread::Builder::new()
        .name("store-writer".to_owned())
        .spawn(move || live(&runtime))
        .map(drop)
        .map_err(|source| StoreError::NoThread { source })
}

/// A write's function on its data.
pub(crate) type Apply<D, T> =
    for<'c> fn(&'c D, &'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>>;

/// As [`direct::directly`], for what the writer does.
pub(crate) async fn directly<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let done = direct::directly(connection, work).await;
    done.map_err(StoreError::sql("be used by the writer"))?
}

//! The only writer: every change of the database goes through its queue and is committed in groups.
//!
//! Everything queued during one commit goes into the next transaction, the scheduler's writes first. Samples and
//! intervals wait for more of their kind unless a reader asks for them (`gather`). Writes are answered after their
//! commit. A write that fails by its own fault is undone alone (a savepoint) and does not affect the others. If the
//! disk is full or failing, the whole group is rolled back and retried with backoff before anything is answered.

mod gather;
mod group;
mod inline;

pub use gather::GROUP_ROWS;
pub(crate) use gather::LastRequest;
pub(crate) use gather::MAX_WAIT;
pub(crate) use group::{CommitPolicy, Pending};

use super::blocked::Blockage;
use super::direct;
use super::lock::Lock;
use crate::database::{Doing, StoreError};
use crate::ingest::apply::Ingest;
use crate::ingest::pending::PendingBatch;
use futures::future::BoxFuture;
use inline::Inline;
use rusqlite::Connection;
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{self, Runtime};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Queued writes of the scheduler and the sessions. They are few and small; a sender waits when the queue is full.
const QUEUED_WRITES: usize = 1024;
/// Queued batches. The publishers' row budget bounds their size in bytes; a sender waits when the queue is full.
const QUEUED_BATCHES: usize = 1024;

/// How the rest of the crate reaches the writer.
#[derive(Clone, Debug)]
pub(crate) struct WriterHandle {
    route: Route,
    closing: CancellationToken,
    died: CancellationToken,
    ingested: watch::Receiver<Option<Ingested>>,
}

/// Where writes go.
#[derive(Clone, Debug)]
enum Route {
    /// To the writer's thread.
    Queues {
        writes: mpsc::Sender<Box<dyn Pending>>,
        batches: mpsc::Sender<PendingBatch>,
    },
    /// To the only connection of a database in memory.
    Inline(Arc<Inline>),
}

/// Committed rows of agents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ingested {
    /// Number of rows since the database was opened.
    pub rows: u64,
    /// When the latest rows were committed.
    pub at: Instant,
    /// Time that the writer has spent on such rows and on their commits since the database was opened.
    pub busy: Duration,
}

impl WriterHandle {
    pub(crate) fn start(
        connection: SqliteConnection,
        options: SqliteConnectOptions,
        lock: Lock,
        ingest: Ingest,
        blockage: Blockage,
        last_request: LastRequest,
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
            last_request,
            latest,
        };
        let (over, ended) = oneshot::channel();
        thread(move |runtime| {
            runtime.block_on(writer.run());
            // Another collector may lock the database only after the writer has ended.
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
            route: Route::Queues { writes, batches },
            closing,
            died,
            ingested,
        };
        Ok((handle, task))
    }

    /// Commits each write where it is called, by the only connection of `pool`.
    pub(crate) fn inline(pool: SqlitePool, ingest: Ingest) -> Self {
        Self {
            route: Route::Inline(Arc::new(Inline::new(pool, ingest))),
            closing: CancellationToken::new(),
            died: CancellationToken::new(),
            ingested: watch::channel(None).1,
        }
    }

    /// Resolves if the writer's thread ends unexpectedly.
    pub(crate) async fn died(&self) {
        self.died.cancelled().await;
    }

    /// `None` if no agent has sent rows.
    pub(crate) fn ingested(&self) -> Option<Ingested> {
        *self.ingested.borrow()
    }

    /// Refuses later writes; queued writes are still done.
    pub(crate) fn close(&self) {
        self.closing.cancel();
    }

    /// Runs `apply` within the next transaction and returns its result after the commit. It may be run more than once
    /// (after a rollback), so it must only read and write rows.
    pub(crate) async fn write<D, T>(
        &self,
        data: D,
        apply: Apply<D, T>,
        commit_policy: CommitPolicy,
    ) -> Result<T, StoreError>
    where
        D: Send + Sync + 'static,
        T: Send + 'static,
    {
        let (done, outcome) = oneshot::channel();
        let write: Box<dyn Pending> = Box::new(group::Write::new(data, apply, commit_policy, done));
        match &self.route {
            Route::Queues { writes, .. } => {
                let queued = writes.send(write).await;
                queued.map_err(|_| StoreError::Closed)?;
            }
            Route::Inline(inline) => inline.write(write).await,
        }
        outcome.await.map_err(|_| StoreError::Closed)?
    }

    pub(crate) async fn submit(&self, batch: PendingBatch) -> Result<(), StoreError> {
        match &self.route {
            Route::Queues { batches, .. } => {
                batches.send(batch).await.map_err(|_| StoreError::Closed)
            }
            Route::Inline(inline) => inline.submit(batch).await,
        }
    }
}

/// Starts the writer's own thread, because writing must not delay sessions.
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

/// The function of a write, called with its data.
pub(crate) type Apply<D, T> =
    for<'c> fn(&'c D, &'c mut SqliteConnection) -> BoxFuture<'c, Result<T, StoreError>>;

/// Like [`direct::directly`], for the writer's statements.
pub(crate) async fn directly<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let done = direct::directly(connection, work).await;
    done.doing("use the writer connection")?
}

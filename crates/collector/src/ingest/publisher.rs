//! What a session holds to hand batches to the writer: bounded by rows, answered after the commit.
//!
//! The order in which one publisher's batches are submitted is the order in which they are stored.

use super::batch::Batch;
use super::pending::{PendingBatch, Source};
use crate::model::{AgentId, HostId};
use crate::store::writer::WriterHandle;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, oneshot};

/// What may wait for the writer from all sessions, in rows of a few hundred bytes: a few transactions' worth. A session
/// waits when there is no room, and its agent with it.
pub(crate) const QUEUED_ROWS: u32 = 1 << 16;
/// How far ahead of the collector's own clock an instant may lie before it cannot be true.
const AHEAD_US: i64 = 3_600_000_000;

/// Why a batch was not stored. Nothing of it is in the database.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum IngestError {
    #[error(
        "spool {spool_id} is stored up to sequence {last}, so {expected} must come next, not {found}; a hole is only accepted inside a batch that records the loss"
    )]
    Hole {
        spool_id: String,
        last: u64,
        expected: u64,
        found: u64,
    },
    #[error(
        "the batch {first}..={sequence} of spool {spool_id} was stored in part, up to {last}; a batch that was sent once must not change"
    )]
    Overlap {
        spool_id: String,
        first: u64,
        sequence: u64,
        last: u64,
    },
    #[error("task {task_id} is no task of this agent")]
    ForeignTask { task_id: i64 },
    #[error("run {run_id} of an event is not known")]
    UnknownRun { run_id: i64 },
    #[error("step {step_id} of an event is not known")]
    UnknownStep { step_id: i64 },
    #[error(
        "samples of the process with pid {pid} and start {start_ticks} came before its description (DaemonSeen)"
    )]
    UnknownDaemon { pid: i32, start_ticks: u64 },
    #[error("an instant in it is {ahead_s} s ahead of the collector's clock")]
    FromTheFuture { ahead_s: i64 },
    #[error("the database refused it: {why}")]
    Refused { why: String },
    #[error("the collector is closing")]
    Closed,
}

/// Everything up to `sequence` of `spool_id` is committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub spool_id: String,
    pub sequence: u64,
}

/// Resolves after the commit of the batch (or of the one that it repeats).
#[derive(Debug)]
pub struct Receipt(oneshot::Receiver<Result<Stored, IngestError>>);

impl Future for Receipt {
    type Output = Result<Stored, IngestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(IngestError::Closed)))
    }
}

/// One agent's way into the database.
#[derive(Clone, Debug)]
pub struct Publisher {
    writer: WriterHandle,
    source: Arc<Source>,
    budget: Arc<Semaphore>,
    newest: Arc<AtomicI64>,
}

impl Publisher {
    pub(crate) fn new(
        writer: WriterHandle,
        budget: Arc<Semaphore>,
        newest: Arc<AtomicI64>,
        agent: AgentId,
        host: HostId,
        net_namespace: String,
    ) -> Self {
        let source = Arc::new(Source {
            agent,
            host,
            net_namespace,
        });
        Self {
            writer,
            source,
            budget,
            newest,
        }
    }

    /// Queues a batch; waits while the writer has enough to do, so that a session slows down its agent.
    pub async fn submit(&self, batch: Batch) -> Result<Receipt, IngestError> {
        self.check_instants(&batch)?;
        let weight = u32::try_from(batch.weight())
            .unwrap_or(QUEUED_ROWS)
            .clamp(1, QUEUED_ROWS);
        let permit = Arc::clone(&self.budget)
            .acquire_many_owned(weight)
            .await
            .map_err(|_| IngestError::Closed)?;
        let (done, receipt) = oneshot::channel();
        let pending = PendingBatch::new(Arc::clone(&self.source), batch, permit, done);
        self.writer
            .submit(pending)
            .await
            .map_err(|_| IngestError::Closed)?;
        Ok(Receipt(receipt))
    }

    fn check_instants(&self, batch: &Batch) -> Result<(), IngestError> {
        #[expect(
            clippy::disallowed_methods,
            reason = "a sanity check of what an agent claims, against the wall clock whatever mesh time says"
        )]
        let wall = SystemTime::now();
        let wall = wall
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_micros()).ok())
            .unwrap_or(0);
        let now = wall.max(self.newest.load(Ordering::Relaxed));
        let ahead = batch.newest_us.saturating_sub(now);
        if ahead > AHEAD_US {
            return Err(IngestError::FromTheFuture {
                ahead_s: ahead / 1_000_000,
            });
        }
        Ok(())
    }
}

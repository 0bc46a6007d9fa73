//! A session's handle for submitting batches to the writer: bounded by rows, answered after the commit.
//!
//! Batches of one publisher are stored in the order in which they are submitted.

use super::writer::WriterHandle;
use crate::ingest::feed::Feed;
use crate::ingest::pending::PendingBatch;
use crate::ingest::source::BatchSource;
use crate::ingest::{Batch, IngestError, Receipt};
use benchmesh_model::mesh::{AgentId, HostId};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::{Semaphore, oneshot};

/// Maximum number of rows of all sessions that wait for the writer: a few transactions' worth. A session that exceeds
/// it waits, and so does its agent.
pub(crate) const QUEUED_ROWS: u32 = 1 << 16;
/// Maximum number of batches of one session between submission and acknowledgement: minutes of gathered rows, which
/// `QUEUED_ROWS` bounds.
pub const MAX_WINDOW: usize = 256;
/// The window assumed for an agent that does not report one.
const FORMER_WINDOW: usize = 32;
/// Instants further ahead of the collector's own clock are invalid.
const AHEAD_US: i64 = 3_600_000_000;

/// An agent's handle for storing batches.
#[derive(Clone, Debug)]
pub struct Publisher {
    writer: WriterHandle,
    source: Arc<BatchSource>,
    budget: Arc<Semaphore>,
    newest: Arc<AtomicI64>,
    live: Feed,
}

impl Publisher {
    pub(crate) fn new(
        writer: WriterHandle,
        budget: Arc<Semaphore>,
        newest: Arc<AtomicI64>,
        live: Feed,
        agent: AgentId,
        host: HostId,
        net_namespace: String,
    ) -> Self {
        let source = Arc::new(BatchSource {
            agent,
            host,
            net_namespace,
            window: FORMER_WINDOW,
        });
        Self {
            writer,
            source,
            budget,
            newest,
            live,
        }
    }

    /// Sets the number of batches that the agent sends before they are acknowledged; 0 if unknown.
    #[must_use]
    pub fn with_window(mut self, batches: u32) -> Self {
        if batches > 0 {
            let window = usize::try_from(batches).unwrap_or(FORMER_WINDOW);
            self.source = Arc::new(BatchSource {
                window: window.min(MAX_WINDOW),
                ..(*self.source).clone()
            });
        }
        self
    }

    /// Queues a batch. Waits while the writer is busy, so that the session slows down its agent.
    pub async fn submit(&self, batch: Batch) -> Result<Receipt, IngestError> {
        self.check_instants(&batch)?;
        self.live.samples().add(self.source.host, &batch);
        let weight = u32::try_from(batch.weight())
            .unwrap_or(QUEUED_ROWS)
            .clamp(1, QUEUED_ROWS);
        let permit = Arc::clone(&self.budget)
            .acquire_many_owned(weight)
            .await
            .map_err(|_| IngestError::Closed)?;
        let (done, receipt) = oneshot::channel();
        // The latest recorded instant may be some seconds old, or a minute.
        let now_us = self.newest.load(Ordering::Relaxed);
        let pending = PendingBatch::new(Arc::clone(&self.source), batch, permit, done).at(now_us);
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

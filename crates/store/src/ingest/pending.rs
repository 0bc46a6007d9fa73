//! A batch between its submission and its answer: its agent, the rows it refers to, and the channel for the answer.

use super::batch::{Batch, Loss};
use super::receipt::{IngestError, Stored};
use super::source::BatchSource;
use super::unknown_rows::UnknownRows;
use benchmesh_model::mesh::{AgentId, DaemonId};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

/// Rows older than this were not sent when they were measured.
const BACKLOG_US: i64 = 10_000_000;

/// A batch that waits for its transaction and commit.
#[derive(Debug)]
pub(crate) struct PendingBatch {
    pub(super) source: Arc<BatchSource>,
    pub(super) batch: Batch,
    pub(super) verdict: Result<Admission, IngestError>,
    /// Rows that were removed from the batch.
    pub(super) unknown: UnknownRows,
    /// Samples that were removed because the database's disk is almost full.
    pub(super) withheld: Vec<Loss>,
    /// The daemon of each sample, once the batch is admitted; `None` if the sample is left out.
    pub(super) daemon_ids: Vec<Option<DaemonId>>,
    /// It comes from a spool that is being drained: the agent sends nothing newer before it is acknowledged.
    is_backlog: bool,
    done: oneshot::Sender<Result<Stored, IngestError>>,
    _permit: OwnedSemaphorePermit,
}

/// The result of admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Waiting,
    Fresh,
    Repeat,
}

impl PendingBatch {
    pub(crate) fn new(
        source: Arc<BatchSource>,
        batch: Batch,
        permit: OwnedSemaphorePermit,
        done: oneshot::Sender<Result<Stored, IngestError>>,
    ) -> Self {
        Self {
            source,
            batch,
            verdict: Ok(Admission::Waiting),
            unknown: UnknownRows::default(),
            withheld: Vec::new(),
            daemon_ids: Vec::new(),
            is_backlog: false,
            done,
            _permit: permit,
        }
    }

    /// Marks it as backlog if its rows are older than `now_us` by more than the usual delay.
    pub(crate) fn at(mut self, now_us: i64) -> Self {
        self.is_backlog = self.batch.newest_us < now_us.saturating_sub(BACKLOG_US);
        self
    }

    pub(crate) fn weight(&self) -> usize {
        self.batch.weight()
    }

    pub(crate) fn source(&self) -> &BatchSource {
        &self.source
    }

    /// Whether its commit may be delayed: it has current rows on which no decision depends. Losses may wait only with
    /// such rows.
    pub(crate) fn may_wait(&self) -> bool {
        let batch = &self.batch;
        let decides =
            !(batch.task_ends.is_empty() && batch.events.is_empty() && batch.daemons.is_empty());
        let has_others = batch.rows() > batch.losses.len();
        has_others && !decides && !self.is_backlog
    }

    pub(crate) fn refuse(&mut self, why: String) {
        self.verdict = Err(IngestError::Refused { why });
    }

    /// The store is closed before the batch is written.
    pub(crate) fn close(&mut self) {
        self.verdict = Err(IngestError::Closed);
    }

    pub(crate) fn answer(self) {
        let answer = match self.verdict {
            Ok(Admission::Fresh | Admission::Repeat) => Ok(Stored {
                spool_id: self.batch.spool_id,
                sequence: self.batch.sequence,
            }),
            Ok(Admission::Waiting) => Err(IngestError::Closed),
            Err(error) => Err(error),
        };
        // The session may have ended; the rows are stored anyway.
        drop(self.done.send(answer));
    }

    pub(super) fn is_fresh(&self) -> bool {
        self.verdict == Ok(Admission::Fresh)
    }

    pub(super) fn spool(&self) -> (AgentId, String) {
        (self.source.agent, self.batch.spool_id.clone())
    }
}

//! The answer to a batch: stored, or the reason for the refusal.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// The reason why a batch was not stored. No row of it is in the database.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum IngestError {
    #[error(
        "spool {spool_id} is stored up to sequence {last}, so {expected} must come next, not {found}; only a batch \
        that records the loss may skip sequences"
    )]
    Hole {
        spool_id: String,
        last: u64,
        expected: u64,
        found: u64,
    },
    #[error(
        "the batch {first}..={sequence} of spool {spool_id} is already stored up to {last}; a batch must not change \
        after it was sent"
    )]
    Overlap {
        spool_id: String,
        first: u64,
        sequence: u64,
        last: u64,
    },
    #[error("an instant in the batch is {ahead_s} s ahead of the collector's clock")]
    FromTheFuture { ahead_s: i64 },
    #[error("the database refused the batch: {why}")]
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
pub struct Receipt(pub(crate) oneshot::Receiver<Result<Stored, IngestError>>);

impl Future for Receipt {
    type Output = Result<Stored, IngestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(cx)
            .map(|answer| answer.unwrap_or(Err(IngestError::Closed)))
    }
}

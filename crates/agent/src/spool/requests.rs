//! Requests of the session and the tasks to the spools, and their answers.

use super::SpoolError;
use crate::envelope::{Announced, Envelope, RowPosition, Sequence, SpoolId};
use crate::telemetry::TelemetryRow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{mpsc, oneshot};

/// Rows to be spooled.
#[derive(Debug)]
pub enum SpoolEntry {
    Rows(Vec<TelemetryRow>),
    /// A row that is appended at once; answered with its position when it is on disk.
    Last(Box<TelemetryRow>, oneshot::Sender<RowPosition>),
}

/// The result of attaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// Batches follow.
    Sending,
    /// The database differs from the one before, or is an older copy of it: the spools have changed, and the agent must
    /// attach again.
    Again,
}

#[derive(Debug)]
pub(super) enum SpoolRequest {
    Announce(oneshot::Sender<Vec<Announced>>),
    /// Asks whether the collector has less than it had acked.
    IsAhead {
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        reply: oneshot::Sender<Option<Sequence>>,
    },
    Attach {
        mesh: String,
        stored: HashMap<SpoolId, Sequence>,
        out: mpsc::Sender<Envelope>,
        done: oneshot::Sender<Result<Attached, SpoolError>>,
    },
    Detach,
    Ack(SpoolId, Sequence),
    Refused(String),
    Finish,
    Close(oneshot::Sender<Result<(), SpoolError>>),
    /// Makes the disk appear full at this number of pages.
    #[cfg(test)]
    LimitPages(u32, oneshot::Sender<()>),
}

/// The last sequence of the written spool that the collector has acked.
#[derive(Clone, Debug, Default)]
pub struct Acked(Arc<AtomicU64>);

impl Acked {
    pub(super) fn set(&self, sequence: Sequence) {
        self.0.store(sequence.0, Ordering::Relaxed);
    }

    /// Position in the currently written spool.
    #[must_use]
    pub fn last(&self) -> Sequence {
        Sequence(self.0.load(Ordering::Relaxed))
    }
}

//! What was measured, on disk until the collector has it.
//!
//! One SQLite file for each start of the agent. Batches are appended with consecutive sequences, sent in order, and
//! forgotten when the collector has committed them; older files are drained first and removed when empty. A batch that
//! may have been sent never changes; when the spool is full, only unsent batches are merged into wider intervals, and
//! samples give way, counted. It knows nothing of connections: it hands [`Envelope`]s to a channel and takes acks.

mod actor;
mod compact;
mod error;
mod file;
mod handle;
mod old;
mod pending;
mod samples;
mod set;
mod window;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub use error::SpoolError;
pub use handle::{Acked, Attached, Entry, Spool};
pub use samples::Samples;
pub(crate) use window::WINDOW_BATCHES;

use std::fmt;
use uuid::Uuid;

/// One file of batches; unique in the mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpoolId(pub Uuid);

impl fmt::Display for SpoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of a batch in its spool, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// The one after it.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub spool: SpoolId,
    pub sequence: Sequence,
}

/// One batch on its way: the body as `wire` made it, and the sequences that it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub spool: SpoolId,
    pub first: Sequence,
    pub sequence: Sequence,
    pub body: Vec<u8>,
}

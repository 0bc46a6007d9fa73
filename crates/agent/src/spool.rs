//! Telemetry on disk until the collector has committed it.
//!
//! One SQLite file for each start of the agent. Batches are appended with consecutive sequences, sent in order, and
//! deleted when the collector has committed them; older files are drained first and removed when empty. A batch that
//! may have been sent never changes. When the spool is full, only unsent batches are merged into wider intervals, and
//! samples are dropped and counted. The spool does not know about connections: it sends
//! [`Envelope`](crate::envelope::Envelope)s to a channel and takes acks.

mod actor;
mod compact;
mod error;
mod file;
mod gap;
mod handle;
mod ledger;
mod old;
mod pending;
mod requests;
mod samples;
mod set;
mod window;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

pub(crate) use crate::envelope::WINDOW_BATCHES;
pub use error::SpoolError;
pub use handle::Spool;
pub use requests::{Acked, Attached, SpoolEntry};
pub use samples::Samples;

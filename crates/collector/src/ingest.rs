//! Batches on their way from a session into the database.
//!
//! `batch` is the edge: what came over the wire becomes our own types or an error that names the field. `publisher` is
//! what a session holds; `apply` runs inside the writer's transaction. Rows of a batch are stored all or none, together
//! with the spool's position, and what is sent twice is stored once. Its statements run in the writer's own thread, at once.

pub(crate) mod apply;
pub mod batch;
mod devices;
mod known;
pub(crate) mod pending;
pub mod publisher;
mod statements;
mod tables;
mod tasks;

pub use batch::{Batch, BatchError};
pub use publisher::{IngestError, Publisher, Receipt, Stored};

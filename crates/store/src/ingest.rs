//! Ingest: stores the batches of agents' sessions in the database.
//!
//! `batch` is the edge: it converts wire messages into checked types, or returns an error that names the field.
//! `apply` runs inside the writer's transaction. All rows of a batch are stored or none, together with the spool's
//! position, and a batch that is sent twice is stored once. Rows of tasks, runs and steps that this database does not
//! have are left out and counted (`unknown_rows`). The SQL statements run synchronously on the writer's own thread.

pub(crate) mod apply;
pub mod appointed;
pub mod batch;
mod cache;
mod devices;
pub mod feed;
pub(crate) mod pending;
mod receipt;
pub mod recent;
pub(crate) mod reserve;
pub(crate) mod source;
mod statements;
mod tables;
mod tasks;
mod unknown_rows;

pub use batch::{Batch, BatchError};
pub use receipt::{IngestError, Receipt, Stored};

//! Runs statements on the writer's connection without the hop to sqlx's thread, for the length of one call.
//!
//! sqlx hands every statement to a thread of its own and its arguments over a channel, which costs more than SQLite
//! does for a row of telemetry. Ingest therefore borrows the handle that sqlx owns; sqlx waits until it is returned.

use crate::database::StoreError;
use rusqlite::Connection;
use sqlx::SqliteConnection;

/// Runs `work` on the connection. It blocks, and leaves neither statement nor borrowed handle behind; the transaction
/// it finds stays open unless `work` ends it.
pub(crate) async fn directly<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    const DOING: &str = "be used by the writer";
    let mut locked = connection
        .lock_handle()
        .await
        .map_err(StoreError::sql(DOING))?;
    let handle = locked.as_raw_handle();
    // SAFETY: the handle is open, and ours alone until `locked` is dropped, which is after `borrowed` and its
    // statements: sqlx's thread does nothing with it before. A `Connection` made this way does not close the handle.
    let borrowed =
        unsafe { Connection::from_handle(handle.as_ptr()) }.map_err(StoreError::row(DOING))?;
    borrowed.set_prepared_statement_cache_capacity(STATEMENTS);
    work(&borrowed)
}

/// Every statement of ingest, each prepared once per call.
const STATEMENTS: usize = 32;

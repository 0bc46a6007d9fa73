//! Runs statements on a connection of sqlx without the hop to its thread, for the length of one call.
//!
//! sqlx hands every statement to a thread of its own, its arguments and each row over channels, which costs more than
//! SQLite does for a row of telemetry. Ingest and reports therefore borrow the handle that sqlx owns; sqlx waits until
//! it is returned.

use rusqlite::Connection;
use sqlx::SqliteConnection;

/// Runs `work` on the connection. It blocks, and leaves neither statement nor borrowed handle behind; the transaction
/// it finds stays open unless `work` ends it. An error: the handle cannot be borrowed, and `work` did not run.
pub async fn directly<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> T,
) -> Result<T, sqlx::Error> {
    let mut locked = connection.lock_handle().await?;
    let handle = locked.as_raw_handle();
    // SAFETY: the handle is open, and ours alone until `locked` is dropped, which is after `borrowed` and its
    // statements: sqlx's thread does nothing with it before. A `Connection` made this way does not close the handle.
    let borrowed = unsafe { Connection::from_handle(handle.as_ptr()) }
        .map_err(|error| sqlx::Error::Configuration(Box::new(error)))?;
    borrowed.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(work(&borrowed))
}

/// Every statement of ingest, each prepared once per call.
const STATEMENTS: usize = 32;

//! Runs statements on a connection of sqlx without the hop to its thread, for the length of one call.
//!
//! sqlx passes every statement, its arguments and each row through channels to its own thread, which costs more than
//! SQLite's work for a row of telemetry. Ingest and reports therefore borrow the handle that sqlx owns; sqlx waits
//! until it is returned.

use rusqlite::Connection;
use sqlx::{Connection as _, SqliteConnection};

/// Runs `work` on the connection. It blocks, and leaves neither a statement nor a borrowed handle behind; an open
/// transaction stays open unless `work` ends it. It fails if the handle cannot be borrowed; then `work` did not run.
pub async fn directly<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> T,
) -> Result<T, sqlx::Error> {
    // sqlx's thread has taken the handle back when it answers. An earlier borrow leaves a command in the thread's
    // queue, and once 50 commands fill it, both sides wait for each other forever (sqlx 0.9).
    connection.ping().await?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::ConnectOptions as _;
    use sqlx::sqlite::SqliteConnectOptions;
    use std::time::Duration;

    #[test]
    fn borrowing_many_times_in_a_row_does_not_hang() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let options = SqliteConnectOptions::new().in_memory(true);
            let mut connection = options.connect().await.expect("a database");
            for number in 0..5_000 {
                let borrowed = directly(&mut connection, |connection| {
                    tokio::task::block_in_place(|| {
                        connection.query_row("SELECT 1", [], |row| row.get::<_, i64>(0))
                    })
                });
                let one = tokio::time::timeout(Duration::from_secs(10), borrowed).await;
                assert!(one.is_ok(), "hangs at {number}");
            }
        });
    }
}

//! Runs several statements atomically.
//!
//! This does not use sqlx's transactions: when SQLite has rolled back by itself, as it does when the disk is full, sqlx
//! 0.9 rolls back again, fails, and from then on considers the connection to be within a transaction. A spool has to
//! continue.

use sqlx::SqliteConnection;

/// Runs `work` between BEGIN and COMMIT. After an error the file is unchanged, except that a failed COMMIT may have
/// taken effect.
pub(super) async fn transaction<T>(
    connection: &mut SqliteConnection,
    work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    sqlx::raw_sql("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    let done = match work(connection).await {
        Ok(done) => sqlx::raw_sql("COMMIT")
            .execute(&mut *connection)
            .await
            .map(|_| done),
        Err(error) => Err(error),
    };
    if done.is_err() {
        // It fails if SQLite has already rolled back.
        let _ = sqlx::raw_sql("ROLLBACK").execute(&mut *connection).await;
    }
    done
}

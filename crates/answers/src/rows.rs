//! Runs a statement of the database's own and reads its rows, on the handle that sqlx owns (`benchmesh_store::directly`
//! says why).

use benchmesh_store::directly;
use futures::future::BoxFuture;
use rusqlite::types::Value;
use sqlx::SqliteConnection;
use tokio::runtime::{Handle, RuntimeFlavor};

pub(crate) use rusqlite::Row;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A tuple of a row's columns.
pub(crate) trait Columns:
    for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error> + Send
{
}

impl<T: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error> + Send> Columns for T {}

/// All rows of a statement.
pub(crate) async fn all_rows<T: Columns>(
    connection: &mut SqliteConnection,
    sql: &str,
    parameters: &[Value],
) -> Result<Vec<T>, BoxError> {
    let mut rows = Vec::new();
    let mut each = |row: &Row<'_>| {
        rows.push(T::try_from(row)?);
        Ok(())
    };
    each_row(connection, sql, parameters, &mut each).await?;
    Ok(rows)
}

/// The first row of a statement.
pub(crate) async fn first_row<T: Columns>(
    connection: &mut SqliteConnection,
    sql: &str,
    parameters: &[Value],
) -> Result<Option<T>, BoxError> {
    let rows = all_rows(connection, sql, parameters).await?;
    Ok(rows.into_iter().next())
}

pub(crate) type EachRow<'e> = &'e mut (dyn FnMut(&Row<'_>) -> rusqlite::Result<()> + Send);

/// Boxed: each kind of row would have a copy of it.
pub(crate) fn each_row<'c>(
    connection: &'c mut SqliteConnection,
    sql: &'c str,
    parameters: &'c [Value],
    each: EachRow<'c>,
) -> BoxFuture<'c, Result<(), BoxError>> {
    Box::pin(async move {
        let read: rusqlite::Result<()> = directly(connection, |connection| {
            blocking(|| {
                let mut prepared = connection.prepare(sql)?;
                let mut rows = prepared.query(rusqlite::params_from_iter(parameters))?;
                while let Some(row) = rows.next()? {
                    each(row)?;
                }
                Ok(())
            })
        })
        .await?;
        Ok(read?)
    })
}

/// Work of up to seconds. Where the runtime has other threads, they take over what waits for this one.
fn blocking<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|handle| handle.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

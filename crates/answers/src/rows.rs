//! Runs the database's own statements and reads their rows, on the handle that sqlx owns (`benchmesh_store::directly`
//! says why).

use benchmesh_store::directly;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use sqlx::SqliteConnection;
use tokio::runtime::{Handle, RuntimeFlavor};

pub(crate) use rusqlite::Row;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// A tuple of a row's columns.
pub(crate) trait Columns: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error> {}

impl<T: for<'r> TryFrom<&'r Row<'r>, Error = rusqlite::Error>> Columns for T {}

/// Work of up to seconds on a connection of sqlx. Where the runtime has other threads, they take over what waits for
/// this one.
pub(crate) async fn borrow<T>(
    connection: &mut SqliteConnection,
    work: impl FnOnce(&Connection) -> T,
) -> Result<T, sqlx::Error> {
    let others_exist = Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::MultiThread);
    directly(connection, |connection| match others_exist {
        true => tokio::task::block_in_place(|| work(connection)),
        false => work(connection),
    })
    .await
}

/// All rows of a statement.
pub(crate) fn all_rows<T: Columns>(
    connection: &Connection,
    sql: &str,
    parameters: &[Value],
) -> rusqlite::Result<Vec<T>> {
    rows_with(connection, sql, parameters, |row: &Row<'_>| {
        T::try_from(row)
    })
}

/// All rows of a statement, each converted by `make`.
pub(crate) fn rows_with<T, E: From<rusqlite::Error>>(
    connection: &Connection,
    sql: &str,
    parameters: &[Value],
    make: impl Fn(&Row<'_>) -> Result<T, E>,
) -> Result<Vec<T>, E> {
    let mut prepared = connection.prepare_cached(sql)?;
    let mut found = prepared.query(params_from_iter(parameters))?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push(make(row)?);
    }
    Ok(rows)
}

/// The first row of a statement.
pub(crate) fn first_row<T: Columns>(
    connection: &Connection,
    sql: &str,
    parameters: &[Value],
) -> rusqlite::Result<Option<T>> {
    let rows = all_rows(connection, sql, parameters)?;
    Ok(rows.into_iter().next())
}

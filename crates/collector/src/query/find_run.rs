//! Which run a person means.

use super::questions::which_run;
use crate::model::RunId;
use sqlx::SqliteConnection;

/// The run that is meant by an id, a uid or a name, of which the newest; empty or `last`: the newest of all. One lookup in
/// an index each.
pub(crate) async fn find_run(
    connection: &mut SqliteConnection,
    wanted: &str,
) -> Result<Option<RunId>, sqlx::Error> {
    // `which_run` quotes what is wanted.
    let sql = sqlx::AssertSqlSafe(which_run(Some(wanted)));
    let found: Option<i64> = sqlx::query_scalar(sql).fetch_one(connection).await?;
    Ok(found.map(RunId))
}

//! Finds the run named by a user.

use super::questions::which_run;
use benchmesh_model::mesh::RunId;
use sqlx::SqliteConnection;

/// The run with this id, uid or name (the newest of that name); empty or `last` is the newest of all. Each case is
/// one lookup in an index.
pub(crate) async fn find_run(
    connection: &mut SqliteConnection,
    wanted: &str,
) -> Result<Option<RunId>, sqlx::Error> {
    // `which_run` quotes the text.
    let sql = sqlx::AssertSqlSafe(which_run(Some(wanted)));
    let found: Option<i64> = sqlx::query_scalar(sql).fetch_one(connection).await?;
    Ok(found.map(RunId))
}

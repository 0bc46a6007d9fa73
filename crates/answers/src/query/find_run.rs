//! Finds the run named by a user.

use super::questions::which_run;
use benchmesh_model::mesh::RunId;
use rusqlite::Connection;

/// The run with this id, uid or name (the newest of that name); empty or `last` is the newest of all. Each case is
/// one lookup in an index.
pub(crate) fn find_run(connection: &Connection, wanted: &str) -> rusqlite::Result<Option<RunId>> {
    // `which_run` quotes the text.
    let found: Option<i64> =
        connection.query_row(&which_run(Some(wanted)), [], |row| row.get(0))?;
    Ok(found.map(RunId))
}

//! Finds the run named by a user, or the name that was probably meant.

use super::questions::which_run;
use benchmesh_model::mesh::RunId;
use benchmesh_workloads::params::nearest;
use rusqlite::Connection;

/// The run with this id, uid or name (the newest of that name); empty or `last` is the newest of all. Each case is
/// one lookup in an index.
pub(crate) fn find_run(connection: &Connection, wanted: &str) -> rusqlite::Result<Option<RunId>> {
    // `which_run` quotes the text.
    let found: Option<i64> =
        connection.query_row(&which_run(Some(wanted)), [], |row| row.get(0))?;
    Ok(found.map(RunId))
}

/// SQL: the names of all runs.
pub const RUN_NAMES: &str = "SELECT DISTINCT name FROM runs";

/// The name of a run that is most like `wanted`; `None` if none is like it.
pub(crate) fn nearest_run(
    connection: &Connection,
    wanted: &str,
) -> rusqlite::Result<Option<String>> {
    let mut names = connection.prepare(RUN_NAMES)?;
    let names = names.query_map([], |row| row.get(0))?;
    let names: Vec<String> = names.collect::<rusqlite::Result<_>>()?;
    let near = nearest(wanted, names.iter().map(String::as_str));
    Ok(near.map(str::to_owned))
}

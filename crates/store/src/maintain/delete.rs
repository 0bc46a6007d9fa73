//! Deletes one run and every row that belongs to it alone.

use super::{MaintainError, failed, writer};
use async_recursion::async_recursion as boxed;
use rusqlite::{Connection, params};
use std::path::Path;

/// Tables with rows of one run, children first, each with the condition for the run's rows.
const OF_RUN: &[(&str, &str)] = &[
    (
        "op_intervals",
        "task_id IN (SELECT t.id FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = ?1)",
    ),
    (
        "task_results",
        "task_id IN (SELECT t.id FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = ?1)",
    ),
    (
        "task_errors",
        "task_id IN (SELECT t.id FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = ?1)",
    ),
    (
        "tasks",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_sums",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_intervals",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_results",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_groups",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_daemons",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_traffic",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_objectives",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "step_states",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "cache_drops",
        "step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "events",
        "run_id = ?1 OR step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "facts",
        "run_id = ?1 OR step_id IN (SELECT id FROM steps WHERE run_id = ?1)",
    ),
    (
        "target_samples",
        "target_id IN (SELECT id FROM targets WHERE run_id = ?1)",
    ),
    ("targets", "run_id = ?1"),
    ("findings", "run_id = ?1"),
    ("steps", "run_id = ?1"),
    ("run_agents", "run_id = ?1"),
    ("run_targets", "run_id = ?1"),
    ("run_directories", "run_id = ?1"),
    ("run_tags", "run_id = ?1"),
    ("run_notes", "run_id = ?1"),
    ("marks", "run_id = ?1"),
    ("baselines", "run_id = ?1"),
    ("archived_runs", "run_id = ?1"),
    ("runs", "id = ?1"),
];

/// Deletes an ended run and all rows that belong only to it, and releases the space. Samples of hosts stay. Returns
/// the run's id and name.
#[boxed]
#[inline(never)]
pub async fn delete(path: &Path, wanted: &str) -> Result<(i64, String), MaintainError> {
    let doing = "cannot delete the run";
    let (mut connection, lock) = writer(path).await?;
    let found = connection
        .query_row(
            "SELECT id, name, state FROM runs WHERE CAST(id AS TEXT) = ?1 OR uid = ?1 OR name = ?1
             ORDER BY CAST(id AS TEXT) = ?1 DESC, uid = ?1 DESC, id DESC LIMIT 1",
            params![wanted],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                ))
            },
        )
        .map_err(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => {
                MaintainError::Wrong(format!("there is no run {wanted:?} in {}", path.display()))
            }
            error => failed(path, doing)(error),
        })?;
    let (id, name, state) = found;
    if matches!(state.as_str(), "queued" | "running") {
        return Err(MaintainError::Wrong(format!(
            "run {id} ({name}) is {state}: stop it first"
        )));
    }
    delete_rows(&mut connection, id).map_err(failed(path, doing))?;
    release(&connection).map_err(failed(path, "cannot release the free space"))?;
    drop(connection);
    drop(lock);
    Ok((id, name))
}

fn delete_rows(connection: &mut Connection, run: i64) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    for (table, condition) in OF_RUN {
        transaction.execute(&format!("DELETE FROM {table} WHERE {condition}"), [run])?;
    }
    transaction.commit()
}

/// Returns the free pages of the file to the file system.
fn release(connection: &Connection) -> rusqlite::Result<()> {
    // Each returned row frees one page, so all rows must be read.
    let mut vacuum = connection.prepare("PRAGMA incremental_vacuum")?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
}

//! The runs named in a request.

use super::{CompareError, reading};
use crate::compare::RunRef;
use crate::query::find_run as run_id;
use benchmesh_model::mesh::RunId;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};

/// Refuses a run that has not ended.
pub(super) fn ended(run: RunRef) -> Result<RunRef, CompareError> {
    match run.state.as_str() {
        "queued" | "running" => Err(CompareError::NotEnded {
            run: run.id,
            name: run.name,
            state: run.state,
        }),
        _ => Ok(run),
    }
}

const RUN: &str = "SELECT id, name, state, created_us, imported_from FROM runs";

fn run_ref(row: &SqliteRow) -> Result<RunRef, CompareError> {
    let read = || {
        Ok(RunRef {
            id: RunId(row.try_get("id")?),
            name: row.try_get("name")?,
            state: row.try_get("state")?,
            created_us: row.try_get("created_us")?,
            imported_from: row.try_get("imported_from")?,
        })
    };
    read().map_err(reading("runs"))
}

/// Finds a run by id, uid or name (the newest of that name); `last` is the newest of all.
pub(super) async fn find(
    connection: &mut SqliteConnection,
    wanted: &str,
) -> Result<RunRef, CompareError> {
    let found = run_id(connection, wanted).await.map_err(reading("runs"))?;
    match found {
        Some(id) => by_id(connection, id).await,
        None => Err(CompareError::NoRun {
            wanted: wanted.to_owned(),
        }),
    }
}

pub(super) async fn by_id(
    connection: &mut SqliteConnection,
    id: RunId,
) -> Result<RunRef, CompareError> {
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("{RUN} WHERE id = ?")))
        .bind(id.0)
        .fetch_one(connection)
        .await
        .map_err(reading("runs"))?;
    run_ref(&row)
}

/// The newest runs of a plan that have ended with results, oldest first.
pub(super) async fn ended_runs(
    connection: &mut SqliteConnection,
    plan: &str,
    most: u32,
) -> Result<Vec<RunRef>, CompareError> {
    let sql = format!(
        "{RUN} WHERE name = ? AND state NOT IN ('queued', 'running')
             AND EXISTS (SELECT 1 FROM steps AS s JOIN step_results AS o ON o.step_id = s.id WHERE s.run_id = runs.id)
         ORDER BY id DESC LIMIT ?"
    );
    let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(plan)
        .bind(most)
        .fetch_all(connection)
        .await
        .map_err(reading("runs"))?;
    rows.iter().rev().map(run_ref).collect()
}

pub(super) async fn baseline(
    connection: &mut SqliteConnection,
    name: &str,
) -> Result<RunRef, CompareError> {
    let sql = format!("{RUN} WHERE id = (SELECT run_id FROM baselines WHERE name = ?)");
    let row = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(name)
        .fetch_optional(connection)
        .await
        .map_err(reading("baselines"))?;
    let row = row.ok_or_else(|| CompareError::NoBaseline {
        name: name.to_owned(),
    })?;
    run_ref(&row)
}

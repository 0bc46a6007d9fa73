//! The runs named in a request.

use super::{CompareError, reading};
use crate::compare::RunRef;
use crate::query::{find_run, nearest_run};
use crate::rows::{Row, rows_with};
use benchmesh_model::mesh::RunId;
use rusqlite::{Connection, OptionalExtension};

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

fn run_ref(row: &Row<'_>) -> rusqlite::Result<RunRef> {
    Ok(RunRef {
        id: RunId(row.get("id")?),
        name: row.get("name")?,
        state: row.get("state")?,
        created_us: row.get("created_us")?,
        imported_from: row.get("imported_from")?,
    })
}

/// Finds a run by id, uid or name (the newest of that name); `last` is the newest of all.
pub(super) fn find(connection: &Connection, wanted: &str) -> Result<RunRef, CompareError> {
    match find_run(connection, wanted).map_err(reading("runs"))? {
        Some(id) => by_id(connection, id),
        None if ["", "last"].contains(&wanted) => Err(CompareError::NoRunYet),
        None => Err(no_run(connection, wanted)?),
    }
}

/// The refusal of an unknown run or plan.
fn no_run(connection: &Connection, wanted: &str) -> Result<CompareError, CompareError> {
    Ok(CompareError::NoRun {
        wanted: wanted.to_owned(),
        near: nearest_run(connection, wanted).map_err(reading("runs"))?,
    })
}

/// The refusal of a plan that has `found` ended runs: fewer than `needed`, or none because there is no such plan.
pub(super) fn too_few(
    connection: &Connection,
    plan: &str,
    found: usize,
    needed: usize,
) -> Result<CompareError, CompareError> {
    let known = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM runs WHERE name = ?)",
        [plan],
        |row| row.get(0),
    );
    let is_known: bool = known.map_err(reading("runs"))?;
    if !is_known {
        return no_run(connection, plan);
    }
    Ok(CompareError::TooFewRuns {
        plan: plan.to_owned(),
        found,
        needed,
    })
}

pub(super) fn by_id(connection: &Connection, id: RunId) -> Result<RunRef, CompareError> {
    connection
        .query_row(&format!("{RUN} WHERE id = ?"), [id.0], run_ref)
        .map_err(reading("runs"))
}

/// The newest runs of a plan that have ended with results, oldest first.
pub(super) fn ended_runs(
    connection: &Connection,
    plan: &str,
    most: u32,
) -> Result<Vec<RunRef>, CompareError> {
    ended_before(connection, plan, RunId(i64::MAX), most)
}

/// Those with a smaller id than this.
pub(super) fn ended_before(
    connection: &Connection,
    plan: &str,
    id: RunId,
    most: u32,
) -> Result<Vec<RunRef>, CompareError> {
    let sql = format!(
        "{RUN} WHERE name = ? AND id < ? AND state NOT IN ('queued', 'running')
             AND EXISTS (SELECT 1 FROM steps AS s JOIN step_results AS o ON o.step_id = s.id WHERE s.run_id = runs.id)
         ORDER BY id DESC LIMIT ?"
    );
    let parameters = [plan.to_owned().into(), id.0.into(), most.into()];
    let mut runs = rows_with(connection, &sql, &parameters, run_ref).map_err(reading("runs"))?;
    runs.reverse();
    Ok(runs)
}

/// The newest run of the same plan on the same paths before a measured run that has ended with results.
pub(super) fn before(
    connection: &Connection,
    run: &RunRef,
) -> Result<Option<RunRef>, CompareError> {
    if run.imported_from.is_some() {
        return Ok(None);
    }
    let targets = |of: &str| {
        format!(
            "(SELECT group_concat(place, char(10)) FROM (
                 SELECT DISTINCT target || char(9) || path AS place FROM run_targets WHERE run_id = {of} ORDER BY 1))"
        )
    };
    let sql = format!(
        "{RUN} WHERE name = ?1 AND id < ?2 AND imported_from IS NULL AND state NOT IN ('queued', 'running')
             AND EXISTS (SELECT 1 FROM steps AS s JOIN step_results AS o ON o.step_id = s.id WHERE s.run_id = runs.id)
             AND {} IS {}
         ORDER BY id DESC LIMIT 1",
        targets("runs.id"),
        targets("?2")
    );
    let found = connection.query_row(&sql, (&run.name, run.id.0), run_ref);
    found.optional().map_err(reading("runs"))
}

pub(super) fn baseline(connection: &Connection, name: &str) -> Result<RunRef, CompareError> {
    let sql = format!("{RUN} WHERE id = (SELECT run_id FROM baselines WHERE name = ?)");
    let saved = connection.query_row(&sql, [name], run_ref).optional();
    let saved = saved.map_err(reading("baselines"))?;
    saved.ok_or_else(|| CompareError::NoBaseline {
        name: name.to_owned(),
    })
}

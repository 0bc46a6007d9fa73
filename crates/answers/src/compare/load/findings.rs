//! Findings of the runs of side B that no run of side A has.

use super::{CompareError, reading};
use crate::compare::model::Side;
use crate::rows::all_rows;
use benchmesh_model::mesh::RunId;
use benchmesh_results::Finding;
use rusqlite::Connection;
use std::collections::BTreeSet;

const FOUND: &str = "
    SELECT kind, severity, subject, figure, step_id, from_us, until_us, size, unit, sentence, sql
    FROM findings WHERE run_id = ? AND verdict = 'found' ORDER BY id";
/// A judged run also has findings that list what was judged.
const IS_JUDGED: &str = "SELECT EXISTS (SELECT 1 FROM findings WHERE run_id = ?)";

type FindingColumns = (
    String,
    String,
    String,
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<i64>,
    Option<f64>,
    Option<String>,
    String,
    Option<String>,
);

/// Findings whose kind and subject only side B has. Empty if one side was never judged, or both sides are of one run.
pub(super) fn new_ones(
    connection: &Connection,
    a: &Side,
    b: &Side,
) -> Result<Vec<Finding>, CompareError> {
    if a.runs == b.runs {
        return Ok(Vec::new());
    }
    let (Some(before), Some(now)) = (of_side(connection, a)?, of_side(connection, b)?) else {
        return Ok(Vec::new());
    };
    let mut known: BTreeSet<(String, String, Option<String>)> = before.iter().map(key).collect();
    Ok(now
        .into_iter()
        .filter(|finding| known.insert(key(finding)))
        .collect())
}

/// Ignores the pid, which differs after a restart of the daemon.
fn key(finding: &Finding) -> (String, String, Option<String>) {
    let subject = match finding.subject.split_once(" (pid ") {
        Some((name, rest)) => format!(
            "{name}{}",
            rest.split_once(')').map_or("", |(_, rest)| rest)
        ),
        None => finding.subject.clone(),
    };
    (finding.kind.clone(), subject, finding.figure.clone())
}

/// `None` if none of its runs has been judged.
fn of_side(connection: &Connection, side: &Side) -> Result<Option<Vec<Finding>>, CompareError> {
    let mut found = None;
    for run in &side.runs {
        if is_judged(connection, run.id)? {
            let rows: Vec<FindingColumns> =
                all_rows(connection, FOUND, &[run.id.0.into()]).map_err(reading("findings"))?;
            found
                .get_or_insert_with(Vec::new)
                .extend(rows.into_iter().map(finding));
        }
    }
    Ok(found)
}

fn is_judged(connection: &Connection, run: RunId) -> Result<bool, CompareError> {
    connection
        .query_row(IS_JUDGED, [run.0], |row| row.get(0))
        .map_err(reading("findings"))
}

fn finding(row: FindingColumns) -> Finding {
    let (kind, severity, subject, figure, step_id, from_us, until_us, size, unit, sentence, sql) =
        row;
    Finding {
        kind,
        verdict: benchmesh_model::mesh::FindingVerdict::Found
            .as_str()
            .to_owned(),
        severity,
        subject,
        figure,
        step_id,
        from_us,
        until_us,
        size,
        unit,
        sentence,
        sql,
        ..Finding::default()
    }
}

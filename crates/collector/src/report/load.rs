//! Reads a report from a database, in one read transaction, so that its parts belong together.
//!
//! It asks the tables and views of docs/database.md and nothing else; a person could ask the same in SQL. Every statement
//! begins at one run and follows indexes, so that the cost grows with the run and not with the database
//! (`plans.rs` holds them to it).

mod clients;
mod daemons;
mod environment;
mod events;
mod hosts;
mod marks;
mod missing;
mod outage;
mod slots;
mod steps;

use super::{REPORT_FORMAT, Report, RunReport, curve, pivot, validity};
use crate::compare::{CompareError, LoadedTargets};
use crate::model::RunId;
use crate::query::{QueryError, ReadOnly, find_run};
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection, SqlitePool};
use std::path::Path;

/// A statement about one run, bound as its first parameter.
#[derive(Clone, Copy, Debug)]
pub struct Statement {
    /// The table or view that is named when it cannot be read.
    pub what: &'static str,
    pub sql: &'static str,
}

/// Every statement of a report but those that find the run.
#[cfg(test)]
const STATEMENTS: [Statement; 20] = [
    steps::STEPS,
    steps::OPS,
    slots::HISTOGRAMS,
    steps::GROUPS,
    steps::CACHES,
    steps::TASKS,
    missing::MISSING,
    clients::CLIENTS,
    environment::AGENTS,
    environment::TARGETS,
    daemons::USAGE,
    daemons::COSTS,
    hosts::HOSTS,
    hosts::TRAFFIC,
    hosts::AWAITED,
    hosts::OTHERS,
    hosts::LINKS,
    events::EVENTS,
    events::LOSSES,
    marks::MARKS,
];

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(
        "there is no run {wanted:?} in this database; `benchmesh query \"SELECT run_id, run, state FROM v_runs\"` lists them"
    )]
    NoRun { wanted: String },
    #[error("there is no run in this database yet")]
    NoRuns,
    #[error(transparent)]
    Open(QueryError),
    #[error("cannot compare the targets of the run")]
    Compare(#[source] CompareError),
    #[error("this file is no benchmesh database of this version: {what} cannot be read")]
    Read {
        what: &'static str,
        #[source]
        source: sqlx::Error,
    },
}

/// The report of the run that `wanted` names: an id, a uid, a name (its newest run), or `last`.
pub async fn load(pool: &SqlitePool, wanted: &str) -> Result<Report, ReportError> {
    let mut connection = pool.acquire().await.map_err(reading("the database"))?;
    load_from(&mut connection, wanted).await
}

/// As [`load`], from a file that no collector of this process has open. Never makes or changes it.
pub async fn load_file(path: &Path, wanted: &str) -> Result<Report, ReportError> {
    let mut file = ReadOnly::open(path).await.map_err(ReportError::Open)?;
    let report = load_from(&mut file.connection, wanted).await;
    file.close().await;
    report
}

async fn load_from(connection: &mut SqliteConnection, wanted: &str) -> Result<Report, ReportError> {
    let mut transaction = connection.begin().await.map_err(reading("the database"))?;
    let run = run(&mut transaction, wanted).await?;
    let id = run.id;
    let mut steps = steps::steps(&mut transaction, id).await?;
    steps::add_groups(&mut transaction, id, &mut steps).await?;
    steps::add_ops(&mut transaction, id, &mut steps).await?;
    slots::add(&mut transaction, id, &mut steps).await?;
    steps::add_tasks(&mut transaction, id, &mut steps).await?;
    steps::add_caches(&mut transaction, id, &mut steps).await?;
    missing::add(&mut transaction, id, &mut steps).await?;
    clients::add(&mut transaction, id, &mut steps).await?;
    hosts::add_traffic(&mut transaction, id, &mut steps).await?;
    let (daemons, costs) = daemons::load(&mut transaction, &run).await?;
    let (events, events_total) = events::load(&mut transaction, id).await?;
    let targets = LoadedTargets::load(&mut transaction, id)
        .await
        .map_err(ReportError::Compare)?;
    let mut report = Report {
        format: REPORT_FORMAT,
        validity: Vec::new(),
        comparisons: Vec::new(),
        phases: Vec::new(),
        curves: curve::curves(&steps),
        agents: environment::agents(&mut transaction, id).await?,
        targets: environment::targets(&mut transaction, id).await?,
        daemons,
        costs,
        hosts: hosts::hosts(&mut transaction, id, &steps).await?,
        links: hosts::links(&mut transaction, id).await?,
        events,
        events_total,
        marks: marks::marks(&mut transaction, id, &steps).await?,
        awaited: match run.ended_us {
            Some(_) => hosts::awaited(&mut transaction, id).await?,
            None => Vec::new(),
        },
        losses: events::losses(&mut transaction, id).await?,
        busy_others: hosts::busy_others(&mut transaction, id, &steps).await?,
        run,
        steps,
    };
    transaction
        .rollback()
        .await
        .map_err(reading("the database"))?;
    if let Some(targets) = targets {
        report.comparisons = targets.judge().await.map_err(ReportError::Compare)?;
    }
    report.validity = validity::checks(&report);
    report.phases = pivot::phases(&report, &pivot::Axes::default());
    Ok(report)
}

fn reading(what: &'static str) -> impl Fn(sqlx::Error) -> ReportError {
    move |source| ReportError::Read { what, source }
}

async fn run(connection: &mut SqliteConnection, wanted: &str) -> Result<RunReport, ReportError> {
    let id = find_run(connection, wanted)
        .await
        .map_err(reading("runs"))?;
    let Some(id) = id else {
        return Err(match wanted {
            "" | "last" => ReportError::NoRuns,
            _ => ReportError::NoRun {
                wanted: wanted.to_owned(),
            },
        });
    };
    let row = sqlx::query(
        "SELECT id, uid, name, state, partial, reason, created_us, started_us, ended_us, order_seed, version,
         imported_from, plan
         FROM runs WHERE id = ?",
    )
    .bind(id.0)
    .fetch_one(connection)
    .await
    .map_err(reading("runs"))?;
    let read = || {
        Ok(RunReport {
            id: RunId(row.try_get("id")?),
            uid: row.try_get("uid")?,
            name: row.try_get("name")?,
            state: row.try_get("state")?,
            partial: row.try_get("partial")?,
            reason: row.try_get("reason")?,
            created_us: row.try_get("created_us")?,
            started_us: row.try_get("started_us")?,
            ended_us: row.try_get("ended_us")?,
            order_seed: row.try_get("order_seed")?,
            version: row.try_get("version")?,
            imported_from: row.try_get("imported_from")?,
            plan: row.try_get("plan")?,
        })
    };
    read().map_err(reading("runs"))
}

/// Runs one statement about one run and makes a value of each row.
async fn rows<T>(
    connection: &mut SqliteConnection,
    statement: Statement,
    run: RunId,
    make: fn(&SqliteRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, ReportError> {
    let rows = sqlx::query(statement.sql)
        .bind(run.0)
        .fetch_all(connection)
        .await
        .map_err(reading(statement.what))?;
    rows.iter()
        .map(|row| make(row).map_err(reading(statement.what)))
        .collect()
}

fn json<T: serde::de::DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, sqlx::Error> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|source| sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: Box::new(source),
    })
}

/// As [`json`], of a column that may be NULL.
fn json_if_any(row: &SqliteRow, column: &str) -> Result<Option<serde_json::Value>, sqlx::Error> {
    match row.try_get::<Option<String>, _>(column)? {
        Some(_) => json(row, column).map(Some),
        None => Ok(None),
    }
}

#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;

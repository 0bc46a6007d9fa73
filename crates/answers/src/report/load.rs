//! Reads a report from a database, in one read transaction, so that its parts are consistent.
//!
//! It queries only the tables and views of docs/database.md. Every statement begins at one run and follows indexes,
//! so that the cost grows with the run and not with the database (`plans.rs` checks this).

use super::row::{ReportError, Statement, reading, rows};
use super::sections::{
    REPORT_FORMAT, Report, RunReport, agents, cluster, costs, curves, events, findings, hosts,
    links, losses, marks, pivot, queried, steps, validity,
};
use crate::compare::LoadedTargets;
use crate::query::{ReadOnly, find_run};
use crate::rows::borrow;
use futures::future::BoxFuture;
use sqlx::{Connection, SqliteConnection, SqlitePool};
use std::path::Path;

/// The report of the run named by `wanted`: an id, a uid, a name (its newest run), or `last`.
pub async fn load(pool: &SqlitePool, wanted: &str) -> Result<Report, ReportError> {
    let mut connection = pool.acquire().await.map_err(reading("the database"))?;
    load_from(&mut connection, wanted).await
}

/// Like [`load`], for a file that no collector in this process has open. Never creates or changes it.
pub async fn load_file(path: &Path, wanted: &str) -> Result<Report, ReportError> {
    let mut file = ReadOnly::open(path).await.map_err(ReportError::Open)?;
    let report = load_from(&mut file.connection, wanted).await;
    file.close().await;
    report
}

/// Boxed, because other crates would otherwise compile a copy of it.
fn load_from<'c>(
    connection: &'c mut SqliteConnection,
    wanted: &'c str,
) -> BoxFuture<'c, Result<Report, ReportError>> {
    Box::pin(whole(connection, wanted))
}

async fn whole(connection: &mut SqliteConnection, wanted: &str) -> Result<Report, ReportError> {
    let mut transaction = connection.begin().await.map_err(reading("the database"))?;
    let run = run(&mut transaction, wanted).await?;
    let id = run.id;
    let steps = steps::load(&mut transaction, id).await?;
    let (daemons, costs) = costs::load(&mut transaction, &run).await?;
    let (events, events_total) = events::load(&mut transaction, id).await?;
    let compared = borrow(&mut transaction, |connection| {
        LoadedTargets::load(connection, id)
    });
    let compared = compared.await.map_err(reading("the database"))?;
    let compared = compared.map_err(ReportError::Compare)?;
    let queried = queried::load(&mut transaction, id).await?;
    let probes = queried::probes(&queried);
    let mut report = Report {
        format: REPORT_FORMAT,
        findings: findings::findings(&mut transaction, &run).await?,
        validity: Vec::new(),
        comparisons: Vec::new(),
        phases: Vec::new(),
        curves: curves::curves(&steps, &probes),
        agents: rows(&mut transaction, agents::AGENTS, id).await?,
        facts: rows(&mut transaction, cluster::FACTS, id).await?,
        daemons,
        costs,
        hosts: hosts::hosts(&mut transaction, id, &steps).await?,
        links: rows(&mut transaction, links::LINKS, id).await?,
        events,
        events_total,
        marks: marks::marks(&mut transaction, id, &steps).await?,
        awaited: match run.ended_us {
            Some(_) => hosts::awaited(&mut transaction, id).await?,
            None => Vec::new(),
        },
        losses: rows(&mut transaction, losses::LOSSES, id).await?,
        busy_others: hosts::busy_others(&mut transaction, id, &steps).await?,
        queried,
        run,
        steps,
    };
    transaction
        .rollback()
        .await
        .map_err(reading("the database"))?;
    if let Some(targets) = compared {
        report.comparisons = targets.judge().await.map_err(ReportError::Compare)?;
    }
    report.validity = validity::checks(&report);
    report.phases = pivot::phases(&report, &pivot::Axes::default());
    Ok(report)
}

async fn run(connection: &mut SqliteConnection, wanted: &str) -> Result<RunReport, ReportError> {
    let found = borrow(connection, |connection| find_run(connection, wanted)).await;
    let found = found.map_err(reading("runs"))?;
    let Some(id) = found.map_err(reading("runs"))? else {
        return Err(match wanted {
            "" | "last" => ReportError::NoRuns,
            _ => ReportError::NoRun {
                wanted: wanted.to_owned(),
            },
        });
    };
    let mut runs: Vec<RunReport> = rows(connection, RUN, id).await?;
    runs.pop()
        .ok_or(sqlx::Error::RowNotFound)
        .map_err(reading(RUN.what))
}

const RUN: Statement = Statement {
    what: "runs",
    sql: "SELECT id, uid, name, state, partial, reason, created_us, started_us, ended_us, order_seed, version,
                 paused_us, imported_from, plan
          FROM runs WHERE id = ?",
};

#[cfg(test)]
mod plans;
#[cfg(test)]
mod tests;

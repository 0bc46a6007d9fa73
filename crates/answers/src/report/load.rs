//! Reads a report from a database, in one read transaction, so that its parts are consistent.
//!
//! It queries only the tables and views of docs/database.md. Every statement begins at one run and follows indexes,
//! so that the cost grows with the run and not with the database (`plans.rs` checks this).

use super::card;
use super::row::{ReportError, Statement, reading, rows};
use super::sections::{
    REPORT_FORMAT, Report, RunReport, agents, cluster, costs, curves, events, findings, hosts,
    links, losses, marks, pivot, queried, steps, validity,
};
use crate::compare::{CompareError, LoadedEarlier, LoadedTargets};
use crate::query::{ReadOnly, find_run, nearest_run};
use crate::rows::borrow;
use async_recursion::async_recursion as boxed;
use futures::future::BoxFuture;
use rusqlite::Connection;
use sqlx::{SqliteConnection, SqlitePool};
use std::path::Path;

/// The report of the run named by `wanted`: an id, a uid, a name (its newest run), or `last`.
#[boxed]
#[inline(never)]
pub async fn load(pool: &SqlitePool, wanted: &str) -> Result<Report, ReportError> {
    let mut connection = pool.acquire().await.map_err(reading("the database"))?;
    load_from(&mut connection, wanted).await
}

/// Like [`load`], for a file that no collector in this process has open. Never creates or changes it.
#[boxed]
#[inline(never)]
pub async fn load_file(path: &Path, wanted: &str) -> Result<Report, ReportError> {
    let mut file = ReadOnly::open(path).await.map_err(ReportError::Open)?;
    let report = load_from(&mut file.connection, wanted).await;
    file.close().await;
    report
}

/// Boxed, because other crates would otherwise compile a copy of it. It blocks its thread for up to seconds and cannot
/// be cancelled meanwhile.
#[inline(never)]
fn load_from<'c>(
    connection: &'c mut SqliteConnection,
    wanted: &'c str,
) -> BoxFuture<'c, Result<Report, ReportError>> {
    Box::pin(whole(connection, wanted))
}

async fn whole(connection: &mut SqliteConnection, wanted: &str) -> Result<Report, ReportError> {
    let read = borrow(connection, |connection| read(connection, wanted)).await;
    let (mut report, targets, earlier) = read.map_err(reading("the database"))??;
    if let Some(targets) = targets {
        report.comparisons = targets.judge().await.map_err(ReportError::Compare)?;
    }
    report.validity = validity::checks(&report);
    report.phases = pivot::phases(&report, &pivot::Axes::default());
    let since = match earlier {
        Ok(Some(earlier)) => earlier.judge().await,
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    // A fault of the earlier run is none of this one.
    report.card = card::of_run(&report, since.as_ref().map(Option::as_ref));
    Ok(report)
}

/// The run before, unless it cannot be read.
type Earlier = Result<Option<LoadedEarlier>, CompareError>;

/// Reads the stored parts of a report, its targets, and the run before; these are not compared yet.
fn read(
    connection: &Connection,
    wanted: &str,
) -> Result<(Report, Option<LoadedTargets>, Earlier), ReportError> {
    let transaction = connection.unchecked_transaction();
    let transaction = transaction.map_err(reading("the database"))?;
    let run = run(&transaction, wanted)?;
    let id = run.id;
    let steps = steps::load(&transaction, id)?;
    let (daemons, costs) = costs::load(&transaction, &run)?;
    let (events, events_total) = events::load(&transaction, id)?;
    let targets = LoadedTargets::load(&transaction, id).map_err(ReportError::Compare)?;
    let earlier = LoadedEarlier::load(&transaction, id);
    let queried = queried::load(&transaction, id)?;
    let probes = queried::probes(&queried);
    let report = Report {
        format: REPORT_FORMAT,
        card: card::Card::default(),
        findings: findings::findings(&transaction, &run)?,
        validity: Vec::new(),
        comparisons: Vec::new(),
        phases: Vec::new(),
        curves: curves::curves(&steps, &probes),
        agents: rows(&transaction, agents::AGENTS, id)?,
        facts: rows(&transaction, cluster::FACTS, id)?,
        daemons,
        costs,
        hosts: hosts::hosts(&transaction, id, &steps)?,
        links: rows(&transaction, links::LINKS, id)?,
        events,
        events_total,
        marks: marks::marks(&transaction, id, &steps)?,
        awaited: match run.ended_us {
            Some(_) => hosts::awaited(&transaction, id)?,
            None => Vec::new(),
        },
        losses: rows(&transaction, losses::LOSSES, id)?,
        busy_others: hosts::busy_others(&transaction, id, &steps)?,
        queried,
        run,
        steps,
    };
    Ok((report, targets, earlier))
}

fn run(connection: &Connection, wanted: &str) -> Result<RunReport, ReportError> {
    let Some(id) = find_run(connection, wanted).map_err(reading("runs"))? else {
        return Err(match wanted {
            "" | "last" => ReportError::NoRuns,
            _ => ReportError::NoRun {
                wanted: wanted.to_owned(),
                near: nearest_run(connection, wanted).map_err(reading("runs"))?,
            },
        });
    };
    let mut runs: Vec<RunReport> = rows(connection, RUN, id)?;
    runs.pop()
        .ok_or(rusqlite::Error::QueryReturnedNoRows)
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

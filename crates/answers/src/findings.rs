//! Findings: anomalies of a run, judged from its samples and seconds.
//!
//! Each file handles one or two kinds (their table is in `results/findings.rs`): it passes series to `analysis` and
//! writes the result as a sentence with the SQL that shows it. The seconds of each step are read once ([`seconds`]),
//! the counters of daemons, disks and hosts at a limited number of instants ([`mesh`]), so that the cost hardly grows
//! with the length of a run. Everything is read by SQL from the tables of docs/database.md. [`keep`] stores the
//! findings of ended runs.

mod beside;
mod daemon;
mod daemons;
mod drift;
mod foreign;
mod hosts;
pub mod keep;
mod leaks;
mod links;
mod mesh;
mod outages;
mod outliers;
mod periods;
mod seconds;
mod space;
mod steps;
mod telemetry;

use crate::rows::{self, BoxError};
use benchmesh_model::mesh::RunId;
use benchmesh_results::{Finding, FindingKind};
use benchmesh_workloads::figures;
use futures::future::BoxFuture;
use rusqlite::Connection;
use sqlx::SqliteConnection;

/// Number of points of a series.
const POINTS: usize = 128;
const POINTS_WANTED: i64 = 128;
/// Maximum time range that is read for one point.
const MAX_POINT_US: i64 = 20_000_000;
/// Shorter loads show neither a leak nor a drift.
const MIN_SPAN_US: i64 = 300_000_000;
/// Maximum number of outages, and of periods, for which the activity of daemons and disks is read.
const MAX_LOOKED_AT: usize = 20;

/// Kinds about hosts and not about a load. In a pause of the run they are not attributed to it.
const OF_THE_MESH: [&str; 4] = ["clock", "daemon", "host", "telemetry"];

/// Why findings could not be computed.
#[derive(Debug, thiserror::Error)]
pub enum FindingsError {
    #[error("cannot read {what}: this file is not a benchmesh database")]
    Read {
        what: &'static str,
        #[source]
        source: BoxError,
    },
}

fn reading<E: Into<BoxError>>(what: &'static str) -> impl Fn(E) -> FindingsError {
    move |source| FindingsError::Read {
        what,
        source: source.into(),
    }
}

/// The findings of a run from the data stored so far, whether it has ended or not, ordered by the table of kinds.
/// Never empty.
///
/// Boxed, because other crates would otherwise compile a copy of it. It blocks its thread for up to seconds and cannot be
/// cancelled meanwhile: waiting for sqlx's thread at each of some thousand statements would cost more than they do.
#[inline(never)]
pub fn of_run(
    connection: &mut SqliteConnection,
    run: RunId,
) -> BoxFuture<'_, Result<Vec<Finding>, FindingsError>> {
    Box::pin(async move {
        let found = rows::borrow(connection, |connection| all_kinds(connection, run)).await;
        found.map_err(reading("the database"))?
    })
}

/// Like [`of_run`], on a borrowed connection.
pub(crate) fn all_kinds(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<Finding>, FindingsError> {
    let steps = steps::load(connection, run)?;
    let mut found = leaks::find(connection, run, &steps)?;
    let (Some(first), Some(last)) = (steps.first(), steps.iter().map(|step| step.until_us).max())
    else {
        found.extend(drift::Drifts::default().find(&beside::Events::default()));
        return Ok(found);
    };
    let events = beside::load(connection, run, first.from_us, last)?;
    let mesh = mesh::Mesh::load(connection, run, (first.from_us, last))?;
    let mut drifts = drift::Drifts::default();
    let (mut outages, mut periods) = (Vec::new(), Vec::new());
    for step in &steps {
        let lines = seconds::lines(connection, step)?;
        drifts.add(step, &lines);
        let totals = seconds::totals(&lines);
        let looks = |found: &Vec<Finding>| Some(&mesh).filter(|_| found.len() < MAX_LOOKED_AT);
        outages.extend(outages::find(
            connection,
            step,
            &totals,
            looks(&outages),
            &events,
        )?);
        periods.extend(periods::find(connection, step, &totals, looks(&periods))?);
    }
    found.extend(drifts.find(&events));
    found.extend(outages);
    found.extend(periods);
    found.extend(outliers::find(connection, run, &steps, &mesh)?);
    found.extend(links::find(connection, run, &steps)?);
    found.extend(daemons::find(connection, run, &mesh)?);
    found.extend(hosts::find(&mesh));
    found.extend(space::find(connection, run, &steps, &mesh)?);
    found.extend(telemetry::find(connection, run, &mesh)?);
    let of_a_pause = |finding: &Finding| {
        let span = finding.from_us.zip(finding.until_us);
        OF_THE_MESH.contains(&finding.kind.as_str())
            && span.is_some_and(|(from_us, until_us)| mesh.was_paused(from_us, until_us))
    };
    found.retain(|finding| !of_a_pause(finding));
    let mut found = foreign::in_one_line(connection, run, found)?;
    found.sort_by_key(|finding| FindingKind::place(&finding.kind));
    Ok(found)
}

/// `2h 05m`. From 10 s on to the nearest second: 24.9 s are 25 s.
fn span(us: i64) -> String {
    let shown = match us >= 10_000_000 {
        true => us.saturating_add(500_000),
        false => us,
    };
    figures::between(0, shown).map_or_else(|| figures::NONE.to_owned(), figures::span)
}

/// A text as an SQL literal.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The first names of a list, and the number of the others.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 3;
    let shown = names.get(..SHOWN).unwrap_or(names).join(", ");
    match names.len().checked_sub(SHOWN) {
        None | Some(0) => shown,
        Some(more) => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests;

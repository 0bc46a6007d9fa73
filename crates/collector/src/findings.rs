//! Findings: anomalies of a run, judged from its samples and seconds.
//!
//! One file per kind (`results/findings.rs` has their table): it reads at most some hundred points of each series, by
//! SQL over the tables of docs/database.md, has `analysis` judge them, and writes the result as a sentence with the SQL
//! that shows it. The cost grows with steps and daemons and hardly with the length of a run. [`keep`] stores the
//! findings of runs that have ended.

mod daemon;
mod drift;
mod equals;
pub mod keep;
mod leaks;
mod outages;
mod steps;

use crate::figures;
use crate::model::RunId;
use crate::results::Finding;
use sqlx::SqliteConnection;

/// Points of a series.
const POINTS: usize = 128;
const POINTS_WANTED: i64 = 128;
/// Maximum time range that is read for one point.
const MAX_POINT_US: i64 = 20_000_000;
/// Shorter loads show neither a leak nor a drift.
const MIN_SPAN_US: i64 = 300_000_000;

/// Why there are no findings.
#[derive(Debug, thiserror::Error)]
pub enum FindingsError {
    #[error("this file is no benchmesh database of this version: {what} cannot be read")]
    Read {
        what: &'static str,
        #[source]
        source: sqlx::Error,
    },
    #[error("the judgement was given up")]
    Thread(#[from] tokio::task::JoinError),
}

fn reading(what: &'static str) -> impl Fn(sqlx::Error) -> FindingsError {
    move |source| FindingsError::Read { what, source }
}

/// The findings of a run from the data stored so far, whether the run has ended or not; the kinds in the order of their
/// table. Never empty.
pub async fn of_run(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<Finding>, FindingsError> {
    let steps = steps::load(connection, run).await?;
    let mut found = leaks::find(connection, run, &steps).await?;
    found.extend(drift::find(connection, &steps).await?);
    found.extend(outages::find(connection, &steps).await?);
    found.extend(equals::find(connection, run, &steps).await?);
    Ok(found)
}

/// `2h 05m`.
fn span(us: i64) -> String {
    figures::between(0, us).map_or_else(|| figures::NONE.to_owned(), figures::span)
}

/// A text as SQL writes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

/// The first names of a list, and how many more there are.
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

//! The writer's part of pruning: replaces and deletes rows by their ids, within one transaction.

use super::Timed;
use super::merge::{Head, Merged, OpRow, Response, StepRow};
use crate::database::{Doing, StoreError};
use crate::distribution::Distribution;
use crate::writer::directly;
use benchmesh_workloads::histogram::Histogram;
use rusqlite::{Connection, params};
use sqlx::SqliteConnection;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DOING: &str = "merge old rows";
/// Maximum number of rows that one DELETE removes. A statement runs to its end, so this bounds how far a slice exceeds
/// its time limit.
pub(super) const MAX_DELETED_ROWS: usize = 128;

/// One independent change.
#[derive(Debug)]
pub(super) enum PruneChange {
    Ops(MergedOps),
    Steps(MergedSteps),
    /// Rows of a table of intervals.
    Delete {
        table: &'static str,
        ids: Vec<i64>,
    },
    /// Samples of one series.
    Thin {
        table: &'static str,
        key: &'static str,
        series: i64,
        instants: Vec<i64>,
    },
}

impl PruneChange {
    /// Number of rows that it changes.
    pub(super) fn rows(&self) -> usize {
        match self {
            // The histogram is rewritten, which is some hundred bytes.
            Self::Ops(one) => one.of.len() + 4,
            Self::Steps(one) => one.of.len() + 4,
            Self::Delete { ids, .. } => ids.len(),
            Self::Thin { instants, .. } => instants.len(),
        }
    }
}

/// Rows of `op_intervals` that are merged into one, ready to be bound.
#[derive(Debug)]
pub(super) struct MergedOps {
    of: Vec<Head>,
    head: Head,
    undated_bytes: i64,
    in_flight: i64,
    service: Distribution,
    response: Option<Distribution>,
}

impl From<Merged<OpRow>> for MergedOps {
    fn from(merged: Merged<OpRow>) -> Self {
        let OpRow {
            head,
            undated_bytes,
            in_flight,
            service,
            response,
        } = merged.row;
        Self {
            of: merged.of,
            head,
            undated_bytes,
            in_flight,
            service: Distribution::from(&service),
            response: response.as_ref().map(Distribution::from),
        }
    }
}

/// Rows of `step_intervals` that are merged into one, ready to be bound.
#[derive(Debug)]
pub(super) struct MergedSteps {
    of: Vec<Head>,
    head: Head,
    tasks: i64,
    mean_ns: Option<f64>,
    p50_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_ns: Option<i64>,
    histogram: Option<Vec<u8>>,
    response: Option<Response>,
}

impl From<Merged<StepRow>> for MergedSteps {
    fn from(merged: Merged<StepRow>) -> Self {
        let row = merged.row;
        let service = Some(&row.service).filter(|service| !service.is_empty());
        let quantile = |q| {
            let found = service.map(|service| count(service.quantile(q)));
            // The minimum and maximum of a histogram without exact sums are those of its slots.
            found.map(|found| row.max_ns.map_or(found, |max| found.min(max)))
        };
        Self {
            of: merged.of,
            mean_ns: (row.mean_of > 0).then(|| row.sum_ns / benchmesh_results::real(row.mean_of)),
            p50_ns: quantile(0.5),
            p99_ns: quantile(0.99),
            max_ns: row.max_ns,
            histogram: service.map(Histogram::to_v2_deflate),
            response: row.response,
            tasks: row.tasks,
            head: row.head,
        }
    }
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The changes of one slice: those from index `from` on, as many as the limits allow.
#[derive(Debug)]
pub(super) struct Part {
    pub changes: Arc<Vec<PruneChange>>,
    pub from: usize,
    pub max_rows: usize,
    /// No further change begins after this time, because others wait for the writer. What a row costs differs by its
    /// table and by the pages in the cache.
    pub max_time: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Applied {
    pub changes: usize,
    /// Number of rows of the changes.
    pub rows: usize,
    /// Number of rows that the changes have removed.
    pub gone: u64,
}

/// Applies at least one change.
pub(super) async fn apply(
    part: &Part,
    connection: &mut SqliteConnection,
) -> Result<Timed<Applied>, StoreError> {
    let began = Instant::now();
    directly(connection, |connection| {
        let mut applied = Applied::default();
        for change in part.changes.iter().skip(part.from) {
            let rows = applied.rows + change.rows();
            let is_full = rows > part.max_rows || began.elapsed() > part.max_time;
            if is_full && applied.changes > 0 {
                break;
            }
            let gone = one(change, connection).doing(DOING)?;
            applied.gone += u64::try_from(gone).unwrap_or(0);
            applied.changes += 1;
            applied.rows = rows;
        }
        Ok(Timed::since(began, applied))
    })
    .await
}

fn one(change: &PruneChange, connection: &Connection) -> rusqlite::Result<usize> {
    match change {
        PruneChange::Ops(merged) => {
            if !are_as_read("op_intervals", &merged.of, connection)? {
                return Ok(0);
            }
            ops(merged, connection)?;
            delete_others("op_intervals", &merged.of, connection)
        }
        PruneChange::Steps(merged) => {
            if !are_as_read("step_intervals", &merged.of, connection)? {
                return Ok(0);
            }
            steps(merged, connection)?;
            delete_others("step_intervals", &merged.of, connection)
        }
        PruneChange::Delete { table, ids } => delete(table, ids, connection),
        PruneChange::Thin {
            table,
            key,
            series,
            instants,
        } => connection
            .prepare_cached(&format!(
                "DELETE FROM {table} WHERE {key} = ?1 AND at_us IN (SELECT value FROM json_each(?2))"
            ))?
            .execute(params![series, json(instants)]),
    }
}

/// Whether rows are unchanged since they were read: late data are added to an existing row, which may get another id.
fn are_as_read(table: &str, of: &[Head], connection: &Connection) -> rusqlite::Result<bool> {
    let sum = |value: fn(&Head) -> i64| of.iter().map(value).fold(0, i64::saturating_add);
    let ids: Vec<i64> = of.iter().map(|head| head.id).collect();
    let found: (i64, i64, i64, i64, i64) = connection
        .prepare_cached(&format!(
            "SELECT count(*), coalesce(sum(ops), 0), coalesce(sum(bytes), 0), coalesce(sum(errors), 0),
                    coalesce(sum(span_us), 0)
             FROM {table} WHERE id IN (SELECT value FROM json_each(?1))"
        ))?
        .query_row([json(&ids)], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?))
        })?;
    let read = (
        i64::try_from(of.len()).unwrap_or(i64::MAX),
        sum(|head| head.ops),
        sum(|head| head.bytes),
        sum(|head| head.errors),
        sum(|head| head.span_us),
    );
    Ok(found == read)
}

fn ops(merged: &MergedOps, connection: &Connection) -> rusqlite::Result<()> {
    let head = &merged.head;
    let some = |one: &&Distribution| one.blob.count > 0;
    let service = &merged.service.blob;
    let with_service = Some(&merged.service).filter(some);
    let response = merged.response.as_ref().map(|one| &one.blob);
    let with_response = merged.response.as_ref().filter(some);
    connection
        .prepare_cached(
            "UPDATE op_intervals SET span_us = ?2, ops = ?3, bytes = ?4, undated_bytes = ?5, errors = ?6, in_flight = ?7,
                 service_count = ?8, service_sum_ns = ?9, service_sum_squares_ns2 = ?10, service_min_ns = ?11,
                 service_max_ns = ?12, service_saturated = ?13, service_histogram = ?14, response_count = ?15,
                 response_sum_ns = ?16, response_sum_squares_ns2 = ?17, response_min_ns = ?18, response_max_ns = ?19,
                 response_saturated = ?20, response_histogram = ?21, service_p50_ns = ?22, service_p99_ns = ?23,
                 response_p99_ns = ?24
             WHERE id = ?1",
        )?
        .execute(params![
            head.id,
            head.span_us,
            head.ops,
            head.bytes,
            merged.undated_bytes,
            head.errors,
            merged.in_flight,
            count(service.count),
            service.sum_ns,
            service.sum_squares_ns2,
            with_service.map(|one| count(one.blob.min_ns)),
            with_service.map(|one| count(one.blob.max_ns)),
            count(service.saturated),
            with_service.map(|one| &one.blob.v2_deflate),
            response.map(|blob| count(blob.count)),
            response.map(|blob| blob.sum_ns),
            response.map(|blob| blob.sum_squares_ns2),
            with_response.map(|one| count(one.blob.min_ns)),
            with_response.map(|one| count(one.blob.max_ns)),
            response.map(|blob| count(blob.saturated)),
            with_response.map(|one| &one.blob.v2_deflate),
            with_service.map(|one| count(one.p50_ns)),
            with_service.map(|one| count(one.p99_ns)),
            with_response.map(|one| count(one.p99_ns)),
        ])
        .map(drop)
}

fn steps(merged: &MergedSteps, connection: &Connection) -> rusqlite::Result<()> {
    let head = &merged.head;
    connection
        .prepare_cached(
            "UPDATE step_intervals SET span_us = ?2, ops = ?3, bytes = ?4, errors = ?5, tasks = ?6, mean_ns = ?7, p50_ns = ?8,
                 p99_ns = ?9, max_ns = ?10, histogram = ?11, response_p50_ns = ?12, response_p99_ns = ?13,
                 response_max_ns = ?14
             WHERE id = ?1",
        )?
        .execute(params![
            head.id,
            head.span_us,
            head.ops,
            head.bytes,
            head.errors,
            merged.tasks,
            merged.mean_ns,
            merged.p50_ns,
            merged.p99_ns,
            merged.max_ns,
            merged.histogram,
            merged.response.and_then(|response| response.p50_ns),
            merged.response.and_then(|response| response.p99_ns),
            merged.response.map(|response| response.max_ns),
        ])
        .map(drop)
}

fn delete_others(table: &str, of: &[Head], connection: &Connection) -> rusqlite::Result<usize> {
    let ids: Vec<i64> = of.iter().skip(1).map(|head| head.id).collect();
    delete(table, &ids, connection)
}

fn delete(table: &str, ids: &[i64], connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .prepare_cached(&format!(
            "DELETE FROM {table} WHERE id IN (SELECT value FROM json_each(?1))"
        ))?
        .execute([json(ids)])
}

fn json(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    format!("[{}]", ids.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sqlx::ConnectOptions as _;
    use sqlx::sqlite::SqliteConnectOptions;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test]
    async fn a_slice_ends_at_its_rows_or_time_and_has_at_least_one_change() {
        let options = SqliteConnectOptions::new().in_memory(true);
        let mut connection = options.connect().await.expect("a database");
        sqlx::raw_sql(
            "CREATE TABLE t (id INTEGER PRIMARY KEY);
             INSERT INTO t SELECT value FROM json_each('[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]')",
        )
        .execute(&mut connection)
        .await
        .expect("rows");
        let two = |first| PruneChange::Delete {
            table: "t",
            ids: vec![first, first + 1],
        };
        let changes = Arc::new((1..20).step_by(2).map(two).collect::<Vec<_>>());
        for (from, max_rows, max_time, applied) in [
            (0, 100, Duration::ZERO, 1),
            (1, 6, LONG, 3),
            (4, 7, LONG, 3),
            (7, 0, LONG, 1),
            (8, 100, LONG, 2),
        ] {
            let part = Part {
                changes: Arc::clone(&changes),
                from,
                max_rows,
                max_time,
            };
            let done = apply(&part, &mut connection).await.expect("changes").value;
            let expected = (applied, 2 * applied, 2 * applied as u64);
            assert_eq!(
                (done.changes, done.rows, done.gone),
                expected,
                "from {from}"
            );
        }
    }
}

//! What tasks did: their intervals, merged where one is there already, and how they ended.

use super::batch::{OpInterval, TaskEnd};
use crate::model::StepId;
use crate::results::histogram_of;
use crate::store::error::StoreError;
use benchmesh_workloads::histogram::Blob;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Row, SqliteConnection};
use std::collections::BTreeSet;

const INSERT: &str = "INSERT INTO op_intervals (task_id, at_us, span_us, op, ramp, ops, bytes, errors, in_flight,
     service_count, service_sum_ns, service_sum_squares_ns2, service_min_ns, service_max_ns, service_saturated,
     service_histogram, response_count, response_sum_ns, response_sum_squares_ns2, response_min_ns, response_max_ns,
     response_saturated, response_histogram)
 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
 ON CONFLICT (task_id, at_us, op, ramp) DO NOTHING";

const FIND: &str =
    "SELECT * FROM op_intervals WHERE task_id = ? AND at_us = ? AND op = ? AND ramp = ?";

/// Replaces what stood under the key: the row was read, added to, and is written whole.
const REPLACE: &str =
    "DELETE FROM op_intervals WHERE task_id = ? AND at_us = ? AND op = ? AND ramp = ?";

/// Stores an interval; late parts of one that is there are added to it.
pub(super) async fn store_interval(
    connection: &mut SqliteConnection,
    interval: &OpInterval,
) -> Result<(), StoreError> {
    if insert(connection, interval).await? == 1 {
        return Ok(());
    }
    let there = sqlx::query(FIND)
        .bind(interval.task.0)
        .bind(interval.at.0)
        .bind(interval.op.as_str())
        .bind(interval.ramp)
        .fetch_one(&mut *connection)
        .await
        .map_err(StoreError::sql("read an interval"))?;
    let merged = merge(interval, &there).map_err(StoreError::sql("read an interval"))?;
    sqlx::query(REPLACE)
        .bind(interval.task.0)
        .bind(interval.at.0)
        .bind(interval.op.as_str())
        .bind(interval.ramp)
        .execute(&mut *connection)
        .await
        .map_err(StoreError::sql("replace an interval"))?;
    insert(connection, &merged).await.map(drop)
}

async fn insert(
    connection: &mut SqliteConnection,
    interval: &OpInterval,
) -> Result<u64, StoreError> {
    let arguments = arguments(interval)
        .map_err(sqlx::Error::Encode)
        .map_err(StoreError::sql("keep an interval"))?;
    sqlx::query_with(INSERT, arguments)
        .execute(connection)
        .await
        .map(|done| done.rows_affected())
        .map_err(StoreError::sql("keep an interval"))
}

fn arguments(interval: &OpInterval) -> Result<SqliteArguments, sqlx::error::BoxDynError> {
    use sqlx::Arguments;
    let mut row = SqliteArguments::default();
    row.add(interval.task.0)?;
    row.add(interval.at.0)?;
    row.add(interval.span_us)?;
    row.add(interval.op.clone())?;
    row.add(interval.ramp)?;
    row.add(interval.ops)?;
    row.add(interval.bytes)?;
    row.add(interval.errors)?;
    row.add(interval.in_flight)?;
    distribution(&mut row, Some(&interval.service))?;
    distribution(&mut row, interval.response.as_ref())?;
    Ok(row)
}

/// Seven columns: count, both sums, least and largest (NULL when nothing was recorded), saturated, histogram.
fn distribution(
    row: &mut SqliteArguments,
    blob: Option<&Blob>,
) -> Result<(), sqlx::error::BoxDynError> {
    use sqlx::Arguments;
    let some = blob.filter(|blob| blob.count > 0);
    row.add(blob.map(|blob| column(blob.count)))?;
    row.add(blob.map(|blob| blob.sum_ns))?;
    row.add(blob.map(|blob| blob.sum_squares_ns2))?;
    row.add(some.map(|blob| column(blob.min_ns)))?;
    row.add(some.map(|blob| column(blob.max_ns)))?;
    row.add(blob.map(|blob| column(blob.saturated)))?;
    row.add(some.map(|blob| blob.v2_deflate.clone()))
}

/// Counts were checked where the batch came in; a sum of many that leaves the range stays at its end.
fn column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn merge(interval: &OpInterval, there: &SqliteRow) -> Result<OpInterval, sqlx::Error> {
    let mut merged = interval.clone();
    merged.span_us = merged.span_us.max(there.try_get("span_us")?);
    merged.ops = merged.ops.saturating_add(there.try_get("ops")?);
    merged.bytes = merged.bytes.saturating_add(there.try_get("bytes")?);
    merged.errors = merged.errors.saturating_add(there.try_get("errors")?);
    merged.in_flight = merged.in_flight.max(there.try_get("in_flight")?);
    merged.service = sum(&merged.service, &service(there)?)?;
    merged.response = match (merged.response, response(there)?) {
        (Some(ours), Some(theirs)) => Some(sum(&ours, &theirs)?),
        (ours, theirs) => ours.or(theirs),
    };
    Ok(merged)
}

fn sum(ours: &Blob, theirs: &Blob) -> Result<Blob, sqlx::Error> {
    let unpack = |blob| {
        histogram_of(blob).map_err(|error| sqlx::Error::ColumnDecode {
            index: "histogram".to_owned(),
            source: Box::new(error),
        })
    };
    let mut sum = unpack(ours)?;
    sum.add(&unpack(theirs)?);
    Ok(sum.to_blob())
}

/// The service columns of a row of `op_intervals`.
pub(crate) fn service(row: &SqliteRow) -> Result<Blob, sqlx::Error> {
    Ok(Blob {
        v2_deflate: row
            .try_get::<Option<Vec<u8>>, _>("service_histogram")?
            .unwrap_or_default(),
        count: unsigned(row.try_get("service_count")?),
        sum_ns: row.try_get("service_sum_ns")?,
        sum_squares_ns2: row.try_get("service_sum_squares_ns2")?,
        min_ns: unsigned(
            row.try_get::<Option<i64>, _>("service_min_ns")?
                .unwrap_or(0),
        ),
        max_ns: unsigned(
            row.try_get::<Option<i64>, _>("service_max_ns")?
                .unwrap_or(0),
        ),
        saturated: unsigned(row.try_get("service_saturated")?),
    })
}

/// The response columns of a row of `op_intervals`; `None` when the load was not paced.
pub(crate) fn response(row: &SqliteRow) -> Result<Option<Blob>, sqlx::Error> {
    let Some(count) = row.try_get::<Option<i64>, _>("response_count")? else {
        return Ok(None);
    };
    let real = |column| {
        row.try_get::<Option<f64>, _>(column)
            .map(Option::unwrap_or_default)
    };
    let integer = |column| {
        row.try_get::<Option<i64>, _>(column)
            .map(|value| unsigned(value.unwrap_or(0)))
    };
    Ok(Some(Blob {
        v2_deflate: row
            .try_get::<Option<Vec<u8>>, _>("response_histogram")?
            .unwrap_or_default(),
        count: unsigned(count),
        sum_ns: real("response_sum_ns")?,
        sum_squares_ns2: real("response_sum_squares_ns2")?,
        min_ns: integer("response_min_ns")?,
        max_ns: integer("response_max_ns")?,
        saturated: integer("response_saturated")?,
    }))
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Keeps how a task ended, and its errors by operation and errno.
pub(super) async fn store_end(
    connection: &mut SqliteConnection,
    end: &TaskEnd,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE tasks SET state = ?, workers = ?, start_us = coalesce(?, start_us), skew_us = ?, skew_error_us = ?,
             first_done_us = ?, ended_us = ?, cpu_user_us = ?, cpu_system_us = ?, wait_cpu_us = ?,
             harness_ns_per_op = ?, error = coalesce(?, error) WHERE id = ?",
    )
    .bind(end.state.as_str())
    .bind(end.workers)
    .bind(end.start.map(|at| at.0))
    .bind(end.skew_us)
    .bind(end.skew_error_us)
    .bind(end.first_done.map(|at| at.0))
    .bind(end.ended.map(|at| at.0))
    .bind(end.cpu_user_us)
    .bind(end.cpu_system_us)
    .bind(end.wait_cpu_us)
    .bind(end.harness_ns_per_op)
    .bind(end.error.as_deref())
    .bind(end.task.0)
    .execute(&mut *connection)
    .await
    .map_err(StoreError::sql("keep the end of a task"))?;
    for error in &end.errors {
        sqlx::query(
            "INSERT INTO task_errors (task_id, op, errno, errors, first) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (task_id, op, errno) DO UPDATE SET errors = excluded.errors, first = excluded.first",
        )
        .bind(end.task.0)
        .bind(error.op.as_str())
        .bind(error.errno)
        .bind(error.count)
        .bind(error.first.as_str())
        .execute(&mut *connection)
        .await
        .map_err(StoreError::sql("keep the errors of a task"))?;
    }
    Ok(())
}

/// Notes that steps which have ended got more data, so that their results are made again; says whether any had.
pub(super) async fn note_late(
    connection: &mut SqliteConnection,
    steps: &BTreeSet<StepId>,
) -> Result<bool, StoreError> {
    let mut late = false;
    for step in steps {
        let done = sqlx::query(
            "UPDATE steps SET stale_batches = stale_batches + 1
             WHERE id = ? AND state IN ('done', 'failed', 'stopped')",
        )
        .bind(step.0)
        .execute(&mut *connection)
        .await
        .map_err(StoreError::sql("note late data"))?;
        late |= done.rows_affected() > 0;
    }
    Ok(late)
}

//! Reads the intervals of one step in slices, merges them, and passes them to the writer. The step's intervals come
//! before those of its tasks, because the percentiles of response times are computed from the tasks' histograms.

use super::merge::{Head, Interval, OpRow, Response, StepRow, bucket, merged};
use super::write::{MAX_DELETED_ROWS, PruneChange};
use super::{Pruner, Resolution};
use crate::database::{Doing, StoreError};
use benchmesh_model::mesh::StepId;
use benchmesh_results::{histogram_of, real};
use benchmesh_workloads::histogram::{Blob, Histogram};
use rusqlite::{Connection, Row, params};

const DOING: &str = "read old rows";
/// Number of rows read at once, of a few kilobytes each with their histograms; more if one bucket has more.
const SLICE_ROWS: usize = 2000;
const MAX_SLICE_ROWS: usize = 128_000;

/// All of a step.
pub(super) const WHOLE: (i64, i64) = (i64::MIN, i64::MAX);

/// `part`: only rows that begin in it.
pub(super) async fn prune(
    pruner: &mut Pruner,
    step: StepId,
    to: Resolution,
    part: (i64, i64),
) -> Result<(), StoreError> {
    let pruned = read_and_gather(pruner, step, to, part).await;
    // Also write the changes before unreadable rows.
    pruner.write_gathered().await?;
    pruned
}

async fn read_and_gather(
    pruner: &mut Pruner,
    step: StepId,
    to: Resolution,
    part: (i64, i64),
) -> Result<(), StoreError> {
    let tasks = pruner
        .read(move |connection| tasks(step, connection))
        .await?;
    let Some(bucket_us) = to.bucket_us() else {
        delete(pruner, "step_intervals", "step_id", step.0).await?;
        for task in tasks {
            delete(pruner, "op_intervals", "task_id", task).await?;
        }
        return Ok(());
    };
    let grid = Grid {
        start_us: pruner
            .read(move |connection| start_us(step, connection))
            .await?,
        bucket_us,
        part,
    };
    merge(pruner, grid, move |from, limit, connection| {
        let mut slice = slice(
            of_step(step, (from, grid.part.1), limit, connection)?,
            limit,
            grid,
        );
        for one in &mut slice.merged {
            if one.row.response.is_some() {
                one.row.response = response(step, &one.row, grid, connection)?;
            }
        }
        Ok(slice.into_changes(|one| PruneChange::Steps(one.into())))
    })
    .await?;
    for task in tasks {
        merge(pruner, grid, move |from, limit, connection| {
            let slice = slice(
                of_task(task, (from, grid.part.1), limit, connection)?,
                limit,
                grid,
            );
            Ok(slice.into_changes(|one| PruneChange::Ops(one.into())))
        })
        .await?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
struct Grid {
    start_us: i64,
    bucket_us: i64,
    /// Rows that begin in this range are read.
    part: (i64, i64),
}

/// Reads rows in the order of time: `read` gets the first instant and the number of rows.
async fn merge(
    pruner: &mut Pruner,
    grid: Grid,
    read: impl Fn(i64, usize, &Connection) -> Result<Changes, StoreError> + Copy + Send + 'static,
) -> Result<(), StoreError> {
    let (mut from, mut limit) = (grid.part.0, SLICE_ROWS);
    loop {
        let found = pruner
            .read(move |connection| read(from, limit, connection))
            .await?;
        let Some(next) = found.next else {
            return pruner.gather(found.changes.into_iter()).await;
        };
        if next <= from && limit < MAX_SLICE_ROWS {
            // The bucket has more rows than were read.
            limit *= 2;
            continue;
        }
        pruner.gather(found.changes.into_iter()).await?;
        from = next.max(from.saturating_add(grid.bucket_us));
        limit = SLICE_ROWS;
    }
}

struct Changes {
    changes: Vec<PruneChange>,
    /// The instant from which there may be more rows; `None` if there are no more.
    next: Option<i64>,
}

struct Slice<R> {
    merged: Vec<super::merge::Merged<R>>,
    next: Option<i64>,
}

impl<R> Slice<R> {
    fn into_changes(self, change: impl Fn(super::merge::Merged<R>) -> PruneChange) -> Changes {
        Changes {
            changes: self.merged.into_iter().map(change).collect(),
            next: self.next,
        }
    }
}

/// Merges rows in the order of time, except those of the last bucket, which may be incomplete.
fn slice<R: Interval>(mut rows: Vec<R>, limit: usize, grid: Grid) -> Slice<R> {
    let of = |row: &R| bucket(row.head(), grid.start_us, grid.bucket_us);
    let mut next = None;
    if rows.len() >= limit
        && let Some(last) = rows.last().map(of)
    {
        let incomplete = rows.iter().filter(|row| of(row) >= last);
        next = incomplete.map(|row| row.head().at_us).min();
        rows.retain(|row| of(row) < last);
    }
    Slice {
        merged: merged(rows, grid.start_us, grid.bucket_us),
        next,
    }
}

async fn delete(
    pruner: &mut Pruner,
    table: &'static str,
    key: &'static str,
    of: i64,
) -> Result<(), StoreError> {
    loop {
        let ids = pruner
            .read(move |connection| {
                let sql = format!("SELECT id FROM {table} WHERE {key} = ?1 LIMIT ?2");
                all(&sql, params![of, limited(SLICE_ROWS)], connection, |row| {
                    row.get::<_, i64>(0)
                })
            })
            .await?;
        if ids.is_empty() {
            return Ok(());
        }
        let some = ids.chunks(MAX_DELETED_ROWS).map(|ids| PruneChange::Delete {
            table,
            ids: ids.to_vec(),
        });
        pruner.write(some.collect()).await?;
    }
}

fn limited(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
}

fn all<T>(
    sql: &str,
    values: impl rusqlite::Params,
    connection: &Connection,
    row: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, StoreError> {
    let read = || {
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map(values, row)?;
        rows.collect::<rusqlite::Result<Vec<T>>>()
    };
    read().doing(DOING)
}

fn tasks(step: StepId, connection: &Connection) -> Result<Vec<i64>, StoreError> {
    let sql = "SELECT id FROM tasks WHERE step_id = ?1 ORDER BY id";
    all(sql, [step.0], connection, |row| row.get(0))
}

/// The instant from which the step's seconds are counted.
fn start_us(step: StepId, connection: &Connection) -> Result<i64, StoreError> {
    connection
        .query_row(
            "SELECT coalesce(start_us, (SELECT min(at_us) FROM step_intervals WHERE step_id = ?1), 0) FROM steps WHERE id = ?1",
            [step.0],
            |row| row.get(0),
        )
        .doing(DOING)
}

fn head(row: &Row<'_>) -> rusqlite::Result<Head> {
    Ok(Head {
        id: row.get("id")?,
        op: row.get("op")?,
        ramp: row.get("ramp")?,
        at_us: row.get("at_us")?,
        span_us: row.get("span_us")?,
        ops: row.get("ops")?,
        bytes: row.get("bytes")?,
        errors: row.get("errors")?,
    })
}

fn of_step(
    step: StepId,
    (from, until): (i64, i64),
    limit: usize,
    connection: &Connection,
) -> Result<Vec<StepRow>, StoreError> {
    let rows = all(
        "SELECT * FROM step_intervals WHERE step_id = ?1 AND at_us >= ?2 AND at_us < ?4
             -- What an imported log does not count cannot be added.
             AND ops IS NOT NULL AND bytes IS NOT NULL
         ORDER BY at_us LIMIT ?3",
        params![step.0, from, limited(limit), until],
        connection,
        |row| {
            let response_max: Option<i64> = row.get("response_max_ns")?;
            let response = response_max.map(|max_ns| Response {
                p50_ns: None,
                p99_ns: None,
                max_ns,
            });
            let group = row.get::<_, Option<String>>("group_name")?;
            Ok((
                head(row)?,
                group.unwrap_or_default(),
                row.get("tasks")?,
                row.get::<_, Option<f64>>("mean_ns")?,
                row.get("max_ns")?,
                row.get::<_, Option<Vec<u8>>>("histogram")?,
                response,
            ))
        },
    )?;
    let rows = rows
        .into_iter()
        .map(|(head, group, tasks, mean_ns, max_ns, packed, response)| {
            let service = match packed {
                Some(packed) => Histogram::from_v2_deflate(&packed).doing("merge old rows")?,
                None => Histogram::new(),
            };
            // An imported row has a mean and no histogram.
            let mean_of = match (service.is_empty(), mean_ns) {
                (true, Some(_)) => head.ops,
                _ => i64::try_from(service.count()).unwrap_or(i64::MAX),
            };
            Ok(StepRow {
                head,
                group,
                tasks,
                sum_ns: mean_ns.unwrap_or(0.0) * real(mean_of),
                mean_of,
                max_ns,
                service,
                response,
            })
        });
    rows.collect()
}

fn of_task(
    task: i64,
    (from, until): (i64, i64),
    limit: usize,
    connection: &Connection,
) -> Result<Vec<OpRow>, StoreError> {
    let rows = all(
        "SELECT * FROM op_intervals WHERE task_id = ?1 AND at_us >= ?2 AND at_us < ?4 ORDER BY at_us LIMIT ?3",
        params![task, from, limited(limit), until],
        connection,
        |row| {
            Ok((
                head(row)?,
                row.get("undated_bytes")?,
                row.get("in_flight")?,
                distribution("service", row)?,
                distribution("response", row)?,
            ))
        },
    )?;
    let unpack = |blob: &Blob| histogram_of(blob).doing("merge old rows");
    let rows = rows
        .into_iter()
        .map(|(head, undated_bytes, in_flight, service, response)| {
            Ok(OpRow {
                head,
                undated_bytes,
                in_flight,
                service: service
                    .as_ref()
                    .map(unpack)
                    .transpose()?
                    .unwrap_or_default(),
                response: response.as_ref().map(unpack).transpose()?,
            })
        });
    rows.collect()
}

/// A histogram with its exact sums; `None` without a record of its kind.
fn distribution(kind: &str, row: &Row<'_>) -> rusqlite::Result<Option<Blob>> {
    let column = |name: &str| format!("{kind}_{name}");
    let integer = |name: &str| {
        let value: Option<i64> = row.get(column(name).as_str())?;
        Ok::<_, rusqlite::Error>(value.map(|value| u64::try_from(value).unwrap_or(0)))
    };
    let Some(count) = integer("count")? else {
        return Ok(None);
    };
    let packed: Option<Vec<u8>> = row.get(column("histogram").as_str())?;
    Ok(Some(Blob {
        count,
        sum_ns: row.get(column("sum_ns").as_str())?,
        sum_squares_ns2: row.get(column("sum_squares_ns2").as_str())?,
        min_ns: integer("min_ns")?.unwrap_or(0),
        max_ns: integer("max_ns")?.unwrap_or(0),
        saturated: integer("saturated")?.unwrap_or(0),
        v2_deflate: packed.unwrap_or_default(),
    }))
}

/// The percentiles of a merged row of a step, from its tasks' intervals, which are merged later.
fn response(
    step: StepId,
    row: &StepRow,
    grid: Grid,
    connection: &Connection,
) -> Result<Option<Response>, StoreError> {
    let until_us = row.head.at_us.saturating_add(row.head.span_us);
    let blobs = all(
        "SELECT i.* FROM tasks AS t CROSS JOIN op_intervals AS i ON i.task_id = t.id
             AND i.at_us > ?2 - ?6 AND i.at_us < ?3
         WHERE t.step_id = ?1 AND coalesce(t.group_name, '') = ?7 AND i.op = ?4 AND i.ramp = ?5
           AND i.at_us + i.span_us / 2 >= ?2 AND i.at_us + i.span_us / 2 < ?3",
        params![
            step.0,
            row.head.at_us,
            until_us,
            row.head.op,
            row.head.ramp,
            grid.bucket_us,
            row.group
        ],
        connection,
        |row| distribution("response", row),
    )?;
    let mut sum = Histogram::new();
    for blob in blobs.into_iter().flatten() {
        sum.add(&histogram_of(&blob).doing("merge old rows")?);
    }
    let quantile = |q| {
        let found = i64::try_from(sum.quantile(q)).unwrap_or(i64::MAX);
        Some(found).filter(|_| !sum.is_empty())
    };
    Ok(row.response.map(|response| Response {
        p50_ns: quantile(0.5),
        p99_ns: quantile(0.99),
        ..response
    }))
}

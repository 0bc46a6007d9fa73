//! Rows of tasks: their intervals, merged with existing ones, and their ends.

use super::batch::{Loss, OpInterval, TaskEnd};
use super::statements::{Table, Values, execute, find};
use crate::database::{Doing, StoreError};
use crate::distribution::Distribution;
use benchmesh_model::mesh::{AgentId, LossKind, StepId};
use benchmesh_workloads::histogram::{Blob, DecodeError};
use rusqlite::{Connection, Row};
use std::collections::BTreeMap;

static INTERVALS: Table = Table::new(
    "op_intervals",
    &[
        "task_id",
        "at_us",
        "span_us",
        "op",
        "ramp",
        "ops",
        "bytes",
        "undated_bytes",
        "errors",
        "in_flight",
        "service_count",
        "service_sum_ns",
        "service_sum_squares_ns2",
        "service_min_ns",
        "service_p50_ns",
        "service_p99_ns",
        "service_max_ns",
        "service_saturated",
        "service_histogram",
        "response_count",
        "response_sum_ns",
        "response_sum_squares_ns2",
        "response_min_ns",
        "response_p99_ns",
        "response_max_ns",
        "response_saturated",
        "response_histogram",
    ],
    "ON CONFLICT (task_id, at_us, op, ramp) DO NOTHING",
    "store an interval",
);

const FIND: &str = "SELECT span_us, ops, bytes, undated_bytes, errors, in_flight,
     service_count, service_sum_ns, service_sum_squares_ns2, service_min_ns, service_max_ns, service_saturated,
     service_histogram, response_count, response_sum_ns, response_sum_squares_ns2, response_min_ns, response_max_ns,
     response_saturated, response_histogram
 FROM op_intervals WHERE task_id = ? AND at_us = ? AND op = ? AND ramp = ?";

/// Removes the existing row of this key, after it was read and added to the new one.
const REMOVE: &str =
    "DELETE FROM op_intervals WHERE task_id = ? AND at_us = ? AND op = ? AND ramp = ?";

/// Stores an interval; a part that comes late is added to the existing row.
pub(super) fn store_interval(
    connection: &Connection,
    interval: &OpInterval,
) -> Result<(), StoreError> {
    if INTERVALS.insert(connection, std::slice::from_ref(interval), columns)? == 1 {
        return Ok(());
    }
    let key = (
        interval.task.0,
        interval.at.0,
        interval.op.as_str(),
        interval.ramp,
    );
    let there = find(connection, "read an interval", FIND, key, |row| {
        Ok(ExistingRow {
            span_us: row.get(0)?,
            ops: row.get(1)?,
            bytes: row.get(2)?,
            undated_bytes: row.get(3)?,
            errors: row.get(4)?,
            in_flight: row.get(5)?,
            service: distribution_of(row, 6)?.unwrap_or_default(),
            response: distribution_of(row, 13)?,
        })
    })?;
    let there = there.ok_or_else(|| StoreError::NoSuch {
        what: "interval of task",
        id: interval.task.0.to_string(),
    })?;
    let merged = merge(interval, there)?;
    execute(connection, "replace an interval", REMOVE, key)?;
    INTERVALS
        .insert(connection, std::slice::from_ref(&merged), columns)
        .map(drop)
}

fn columns(interval: &OpInterval, row: &mut Values<'_, '_>) {
    row.add(interval.task.0);
    row.add(interval.at.0);
    row.add(interval.span_us);
    row.add(interval.op.as_str());
    row.add(interval.ramp);
    row.add(interval.ops);
    row.add(interval.bytes);
    row.add(interval.undated_bytes);
    row.add(interval.errors);
    row.add(interval.in_flight);
    distribution(row, Some(&interval.service), Percentiles::Both);
    distribution(row, interval.response.as_ref(), Percentiles::P99);
}

/// Which percentiles of a distribution have columns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Percentiles {
    Both,
    P99,
}

/// Its columns: count, both sums, minimum, percentiles and maximum (NULL if nothing was recorded), saturated, histogram.
fn distribution(
    row: &mut Values<'_, '_>,
    distribution: Option<&Distribution>,
    percentiles: Percentiles,
) {
    let blob = distribution.map(|one| &one.blob);
    let some = blob.filter(|blob| blob.count > 0);
    let recorded = distribution.filter(|one| one.blob.count > 0);
    row.add(blob.map(|blob| column(blob.count)));
    row.add(blob.map(|blob| blob.sum_ns));
    row.add(blob.map(|blob| blob.sum_squares_ns2));
    row.add(some.map(|blob| column(blob.min_ns)));
    if percentiles == Percentiles::Both {
        row.add(recorded.map(|one| column(one.p50_ns)));
    }
    row.add(recorded.map(|one| column(one.p99_ns)));
    row.add(some.map(|blob| column(blob.max_ns)));
    row.add(blob.map(|blob| column(blob.saturated)));
    row.add(some.map(|blob| &blob.v2_deflate));
}

/// Reads the seven columns from `first` on, without percentiles; `None` if no distribution was recorded.
fn distribution_of(row: &Row<'_>, first: usize) -> rusqlite::Result<Option<Blob>> {
    let Some(count) = row.get::<_, Option<i64>>(first)? else {
        return Ok(None);
    };
    let integer = |column| {
        row.get::<_, Option<i64>>(column)
            .map(|value| unsigned(value.unwrap_or(0)))
    };
    Ok(Some(Blob {
        count: unsigned(count),
        sum_ns: row.get(first + 1)?,
        sum_squares_ns2: row.get(first + 2)?,
        min_ns: integer(first + 3)?,
        max_ns: integer(first + 4)?,
        saturated: integer(first + 5)?,
        v2_deflate: row
            .get::<_, Option<Vec<u8>>>(first + 6)?
            .unwrap_or_default(),
    }))
}

/// Counts were checked when the batch arrived; a sum of many that exceeds the range is clamped.
fn column(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// An interval as stored in the table.
struct ExistingRow {
    span_us: i64,
    ops: i64,
    bytes: i64,
    undated_bytes: i64,
    errors: i64,
    in_flight: i64,
    service: Blob,
    response: Option<Blob>,
}

fn merge(interval: &OpInterval, there: ExistingRow) -> Result<OpInterval, StoreError> {
    let mut merged = interval.clone();
    merged.span_us = merged.span_us.max(there.span_us);
    merged.ops = merged.ops.saturating_add(there.ops);
    merged.bytes = merged.bytes.saturating_add(there.bytes);
    merged.undated_bytes = merged.undated_bytes.saturating_add(there.undated_bytes);
    merged.errors = merged.errors.saturating_add(there.errors);
    merged.in_flight = merged.in_flight.max(there.in_flight);
    merge_distributions(&mut merged, there.service, there.response).doing("add to an interval")?;
    Ok(merged)
}

fn merge_distributions(
    merged: &mut OpInterval,
    service: Blob,
    response: Option<Blob>,
) -> Result<(), DecodeError> {
    merged.service = merged.service.sum(&Distribution::decode(service)?)?;
    let theirs = response.map(Distribution::decode).transpose()?;
    merged.response = match (merged.response.take(), theirs) {
        (Some(ours), Some(theirs)) => Some(ours.sum(&theirs)?),
        (ours, theirs) => ours.or(theirs),
    };
    Ok(())
}

/// Stores the end of a task, and its errors by operation and errno. A task that is stored as lost stays lost, unless
/// it completed all of its work.
pub(super) fn store_end(connection: &Connection, end: &TaskEnd) -> Result<(), StoreError> {
    execute(
        connection,
        "store the end of a task",
        "UPDATE tasks SET state = CASE WHEN state = 'lost' AND ?1 <> 'done' THEN state ELSE ?1 END, workers = ?, start_us = coalesce(?, start_us), skew_us = ?, skew_error_us = ?,
             first_done_us = ?, ended_us = ?, last_begun_us = ?, cpu_user_us = ?, cpu_system_us = ?, wait_cpu_us = ?,
             harness_ns_per_op = ?, error = coalesce(?, error) WHERE id = ?",
        rusqlite::params![
            end.state.as_str(),
            end.workers,
            end.start.map(|at| at.0),
            end.start.map(|_| end.skew_us),
            end.start.map(|_| end.skew_error_us),
            end.first_done.map(|at| at.0),
            end.ended.map(|at| at.0),
            end.last_begun.map(|at| at.0),
            end.cpu_user_us,
            end.cpu_system_us,
            end.wait_cpu_us,
            end.harness_ns_per_op,
            end.error,
            end.task.0,
        ],
    )?;
    for error in &end.errors {
        execute(
            connection,
            "store the errors of a task",
            "INSERT INTO task_errors (task_id, op, errno, errors, first) VALUES (?, ?, ?, ?, ?)
             ON CONFLICT (task_id, op, errno) DO UPDATE SET errors = excluded.errors, first = excluded.first",
            (
                end.task.0,
                error.op.as_str(),
                error.errno,
                error.count,
                error.first.as_str(),
            ),
        )?;
    }
    Ok(())
}

/// From the start of the first to the end of the last interval that arrived for a step; `None` if only ends of tasks
/// did.
pub(super) type Arrived = Option<(i64, i64)>;

/// Extends the range by an interval.
pub(super) fn arrived(so_far: Arrived, interval: &OpInterval) -> Arrived {
    let end = interval.at.0.saturating_add(interval.span_us);
    let (from, until) = so_far.unwrap_or((interval.at.0, end));
    Some((from.min(interval.at.0), until.max(end)))
}

/// Marks ended steps that received more data, so that their results are computed again; returns whether there were
/// any. Here and below, the results of steps whose rows are merged do not change; their late rows are merged too. The
/// sums of slices with late data are marked, also in a running step.
pub(super) fn mark_results_stale(
    connection: &Connection,
    steps: &BTreeMap<StepId, Arrived>,
) -> Result<bool, StoreError> {
    let mut late = false;
    for (step, arrived) in steps {
        if let Some((from, until)) = arrived {
            execute(
                connection,
                "mark the sums of a step",
                "UPDATE step_sums SET stale = 1
                 WHERE step_id = ? AND until_us > ? AND from_us < ? AND stale = 0 AND resolution_s = 1",
                [step.0, *from, *until],
            )?;
            mark_late_in_merged(connection, *step, (*from, *until))?;
        }
        let ended = execute(
            connection,
            "mark late data",
            "UPDATE steps SET stale_batches = stale_batches + 1
             WHERE id = ? AND state IN ('done', 'failed', 'stopped') AND resolution_s = 1",
            [step.0],
        )?;
        late |= ended > 0;
        if ended == 0 {
            execute(
                connection,
                "mark late rows",
                "UPDATE steps SET late_batches = late_batches + 1
                 WHERE id = ? AND state IN ('done', 'failed', 'stopped') AND resolution_s <> 1",
                [step.0],
            )?;
        }
    }
    Ok(late)
}

/// Rows that arrive for merged slices of a step are merged too; the sums of those slices do not include them.
fn mark_late_in_merged(
    connection: &Connection,
    step: StepId,
    (from, until): (i64, i64),
) -> Result<(), StoreError> {
    let slices = execute(
        connection,
        "mark late rows",
        "UPDATE step_sums SET merging = merging + 1
         WHERE step_id = ?1 AND until_us > ?2 AND from_us < ?3 AND resolution_s <> 1
           AND ?2 < (SELECT merged_10s_until_us FROM steps WHERE id = ?1)",
        [step.0, from, until],
    )?;
    if slices > 0 {
        execute(
            connection,
            "mark late rows",
            "UPDATE steps SET late_batches = late_batches + 1 WHERE id = ? AND resolution_s = 1",
            [step.0],
        )?;
    }
    Ok(())
}

/// Marks ended steps that overlap batches that an agent has lost, so that their results are computed again; returns
/// whether there were any.
pub(super) fn mark_stale_by_losses(
    connection: &Connection,
    agent: AgentId,
    losses: &[Loss],
) -> Result<bool, StoreError> {
    let mut late = false;
    for loss in losses
        .iter()
        .filter(|loss| matches!(loss.what, LossKind::Batches | LossKind::Operations))
    {
        let steps = execute(
            connection,
            "mark lost data",
            "UPDATE steps SET stale_batches = stale_batches + 1
             WHERE ended_us >= ?1 AND start_us <= ?2 AND state IN ('done', 'failed', 'stopped') AND resolution_s = 1
               AND EXISTS (SELECT 1 FROM tasks AS t WHERE t.step_id = steps.id AND t.agent_id = ?3)",
            [loss.from.0, loss.until.0, agent.0],
        )?;
        late |= steps > 0;
    }
    Ok(late)
}

/// Samples up to this long after a step's end are used for its end.
const AFTER_US: i64 = 5_000_000;

/// Marks ended steps that received samples of their time, so that the daemons' usage is computed again; returns
/// whether there were any. Imported steps are skipped: they did not run in this mesh.
pub(super) fn mark_stale_by_samples(
    connection: &Connection,
    (oldest_us, newest_us): (i64, i64),
) -> Result<bool, StoreError> {
    execute(
        connection,
        "mark the sums of samples",
        "UPDATE step_sums SET stale_samples = 1
         WHERE until_us > ? AND from_us <= ? AND stale_samples = 0 AND resolution_s = 1",
        [oldest_us, newest_us],
    )?;
    let steps = execute(
        connection,
        "mark late samples",
        "UPDATE steps SET stale_samples = stale_samples + 1
         WHERE ended_us >= ?1 AND start_us <= ?2 AND state IN ('done', 'failed', 'stopped') AND resolution_s = 1
           AND coalesce(last_done_us, ended_us) >= ?1
           AND NOT EXISTS (SELECT 1 FROM runs AS r WHERE r.id = steps.run_id AND r.imported_from IS NOT NULL)",
        [
            oldest_us.saturating_sub(AFTER_US),
            newest_us.saturating_add(AFTER_US),
        ],
    )?;
    Ok(steps > 0)
}

//! Stores a step's results.

use crate::database::{Doing, StoreError, WriteRows};
use crate::rows::FinishedStep;
use benchmesh_model::mesh::StepId;
use benchmesh_results::{Flag, OpResult, StepResults, TaskResult};
use benchmesh_workloads::histogram::Histogram;
use sqlx::SqliteConnection;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};

const DOING: &str = "store the results of a step";

/// Marks the step as ended. Until its figures are stored it counts as a step with late data.
pub(super) async fn end(
    step: StepId,
    finished: &FinishedStep,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE steps SET state = ?, partial = max(partial, ?), ended_us = ?, reason = coalesce(nullif(?, ''), reason),
             stale_batches = stale_batches + 1 WHERE id = ?",
    )
    .bind(finished.state.as_str())
    .bind(finished.partial)
    .bind(finished.ended.0)
    .bind(finished.reason.as_deref())
    .bind(step.0)
    .write_one(connection, "end a step", "step", step.0)
    .await
}

/// Subtracts the batches with late samples that the step's rows of daemons cover.
pub(super) async fn samples_covered(
    step: StepId,
    covered: i64,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE steps SET stale_samples = max(stale_samples - ?, 0) WHERE id = ?")
        .bind(covered)
        .bind(step.0)
        .write(connection, "mark the late samples as used")
        .await
}

/// Deletes the findings of the step's run, because its figures have changed.
pub(super) async fn forget_findings(
    step: StepId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM findings WHERE run_id = (SELECT run_id FROM steps WHERE id = ?)")
        .bind(step.0)
        .write(connection, "forget the findings of a run")
        .await
}

/// Replaces a step's results; `covered` is the number of late batches that they include.
pub(super) async fn results(
    step: StepId,
    results: &StepResults,
    covered: i64,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let partial = results.flags.contains(&Flag::Partial);
    let known: bool = sqlx::query_scalar("SELECT partial FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_one(&mut *connection)
        .await
        .doing(DOING)?;
    let mut flags: Vec<&str> = results.flags.iter().map(|flag| flag.as_str()).collect();
    if known && !partial {
        flags.push(Flag::Partial.as_str());
    }
    // The reason of a stop or a failure is more specific, so only a step in state `done` changes.
    sqlx::query(
        "UPDATE steps SET state = 'failed', reason = ?1 || coalesce(
             (SELECT '; ' || e.op || ': ' || e.first FROM tasks AS t JOIN task_errors AS e ON e.task_id = t.id
              WHERE t.step_id = ?2 ORDER BY e.errors DESC LIMIT 1), '')
         WHERE id = ?2 AND state = 'done' AND ?3",
    )
    .bind(results.mostly_failed())
    .bind(step.0)
    .bind(results.flags.contains(&Flag::MostlyFailed))
        .write(connection, DOING)
        .await?;
    sqlx::query(
        "UPDATE steps SET flags = ?, partial = max(partial, ?), measured_from_us = ?, all_active_from_us = ?,
             all_active_until_us = ?, last_done_us = ?, stale_batches = max(stale_batches - ?, 0) WHERE id = ?",
    )
    .bind(serde_json::Value::from(flags).to_string())
    .bind(partial)
    .bind(results.measured_from.map(|at| at.0))
    .bind(results.all_active.map(|(from, _)| from.0))
    .bind(results.all_active.map(|(_, until)| until.0))
    .bind(results.last_done.map(|at| at.0))
    .bind(covered)
    .bind(step.0)
    .write(connection, DOING)
    .await?;
    figures(step, results, connection).await
}

/// Replaces the figures so far of a running step. Its flags and its window are known at its end.
pub(super) async fn figures_so_far(
    step: StepId,
    results: &StepResults,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let is_running: bool = sqlx::query_scalar("SELECT state = 'running' FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_one(&mut *connection)
        .await
        .doing(DOING)?;
    match is_running {
        true => figures(step, results, connection).await,
        false => Ok(()),
    }
}

async fn figures(
    step: StepId,
    results: &StepResults,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    for clear in [
        "DELETE FROM step_results WHERE step_id = ?",
        "DELETE FROM task_results WHERE task_id IN (SELECT id FROM tasks WHERE step_id = ?)",
    ] {
        sqlx::query(clear)
            .bind(step.0)
            .write(connection, DOING)
            .await?;
    }
    for op in &results.ops {
        op_result(step, op, connection).await?;
    }
    for task in &results.tasks {
        task_result(task, connection).await?;
    }
    Ok(())
}

async fn op_result(
    step: StepId,
    op: &OpResult,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let row = sqlx::query(
        "INSERT INTO step_results (step_id, group_name, op, tasks, ops, bytes, errors, window_us, window_ops, window_ops_error,
             window_bytes, window_bytes_error, headline, ops_per_s, bytes_per_s, last_done_us, last_done_ops_per_s,
             last_done_bytes_per_s, saturated, seconds, zero_seconds, ops_per_s_stddev, ops_per_s_min, ops_per_s_max,
             bytes_per_s_stddev, bytes_per_s_min, bytes_per_s_max,
             mean_ns, stddev_ns, min_ns, p50_ns, p90_ns, p95_ns, p99_ns, p999_ns, max_ns, histogram,
             response_mean_ns, response_stddev_ns, response_min_ns, response_p50_ns, response_p90_ns, response_p95_ns,
             response_p99_ns, response_p999_ns, response_max_ns, response_histogram)
         VALUES (?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
             ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(step.0)
    .bind(op.group.as_str())
    .bind(op.op.as_str())
    .bind(op.tasks)
    .bind(op.ops)
    .bind(op.bytes)
    .bind(op.errors)
    .bind(op.window_us)
    .bind(op.window_ops)
    .bind(op.window_ops_error)
    .bind(op.window_bytes)
    .bind(op.window_bytes_error)
    .bind(op.headline.as_str())
    .bind(op.ops_per_s)
    .bind(op.bytes_per_s)
    .bind(op.last_done_us)
    .bind(op.last_done_ops_per_s)
    .bind(op.last_done_bytes_per_s)
    .bind(count(op.service.saturated()))
    .bind(op.seconds.map(|seconds| seconds.count))
    .bind(op.seconds.map(|seconds| seconds.zero))
    .bind(op.seconds.map(|seconds| seconds.ops.stddev))
    .bind(op.seconds.map(|seconds| seconds.ops.min))
    .bind(op.seconds.map(|seconds| seconds.ops.max))
    .bind(op.seconds.map(|seconds| seconds.bytes.stddev))
    .bind(op.seconds.map(|seconds| seconds.bytes.min))
    .bind(op.seconds.map(|seconds| seconds.bytes.max));
    let row = Stats::of(&op.service).bind(row);
    let empty = Histogram::new();
    let row = Stats::of(op.response.as_ref().unwrap_or(&empty)).bind(row);
    row.write(connection, DOING).await
}

async fn task_result(
    task: &TaskResult,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let service = Stats::of(&task.service);
    sqlx::query(
        "INSERT INTO task_results (task_id, op, ops, bytes, errors, busy_us, ops_per_s, bytes_per_s, mean_ns, min_ns,
             p50_ns, p99_ns, max_ns) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(task.task.0)
    .bind(task.op.as_str())
    .bind(task.ops)
    .bind(task.bytes)
    .bind(task.errors)
    .bind(task.busy_us)
    .bind(task.ops_per_s)
    .bind(task.bytes_per_s)
    .bind(service.mean_ns)
    .bind(service.min_ns)
    .bind(service.quantile(0.5))
    .bind(service.quantile(0.99))
    .bind(service.max_ns)
    .write(connection, DOING)
    .await
}

/// The figures of a histogram; all NULL if nothing was recorded.
struct Stats<'h> {
    histogram: Option<&'h Histogram>,
    mean_ns: Option<f64>,
    min_ns: Option<i64>,
    max_ns: Option<i64>,
}

impl<'h> Stats<'h> {
    fn of(histogram: &'h Histogram) -> Self {
        let some = Some(histogram).filter(|histogram| !histogram.is_empty());
        Self {
            histogram: some,
            mean_ns: some.map(Histogram::mean_ns),
            min_ns: some.map(|histogram| count(histogram.min_ns())),
            max_ns: some.map(|histogram| count(histogram.max_ns())),
        }
    }

    fn quantile(&self, q: f64) -> Option<i64> {
        self.histogram.map(|histogram| count(histogram.quantile(q)))
    }

    fn packed(&self) -> Option<Vec<u8>> {
        self.histogram.map(Histogram::to_v2_deflate)
    }

    /// Mean, deviation, minimum, five percentiles, maximum, histogram.
    fn bind<'q>(
        &self,
        row: Query<'q, Sqlite, SqliteArguments>,
    ) -> Query<'q, Sqlite, SqliteArguments> {
        row.bind(self.mean_ns)
            .bind(self.histogram.map(Histogram::stddev_ns))
            .bind(self.min_ns)
            .bind(self.quantile(0.5))
            .bind(self.quantile(0.9))
            .bind(self.quantile(0.95))
            .bind(self.quantile(0.99))
            .bind(self.quantile(0.999))
            .bind(self.max_ns)
            .bind(self.packed())
    }
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

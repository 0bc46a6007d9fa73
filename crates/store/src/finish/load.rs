//! Reads the rows that a step's totals are computed from, through the read-only pool.

use crate::database::{Doing, StoreError};
use crate::read::{text, word};
use benchmesh_model::mesh::{AgentId, RunId, StepId, TaskId, TaskState};
use benchmesh_results::{Arrivals, IntervalFacts, Paced, PacedUnit, TaskFacts, histogram_of, real};
use benchmesh_workloads::histogram::Blob;
use benchmesh_workloads::units::{Bytes, Span};
use serde::Deserialize;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::{FromRow, Row};
use std::collections::BTreeSet;

pub(crate) struct StepFacts {
    pub is_running: bool,
    pub start_us: i64,
    pub tasks: Vec<TaskFacts>,
}

pub(super) async fn stale_steps(reader: &SqlitePool) -> Result<Vec<StepId>, StoreError> {
    sqlx::query_scalar::<_, i64>(
        "SELECT id FROM steps WHERE stale_batches > 0 AND state IN ('done', 'failed', 'stopped') ORDER BY id",
    )
    .fetch_all(reader)
    .await
    .map(|ids| ids.into_iter().map(StepId).collect())
    .doing("look for steps with late data")
}

pub(super) async fn running_steps(reader: &SqlitePool) -> Result<Vec<StepId>, StoreError> {
    sqlx::query_scalar::<_, i64>(
        "SELECT s.id FROM runs AS r CROSS JOIN steps AS s ON s.run_id = r.id
         WHERE r.state = 'running' AND s.state = 'running'",
    )
    .fetch_all(reader)
    .await
    .map(|ids| ids.into_iter().map(StepId).collect())
    .doing("look for running steps")
}

/// The running steps of a run.
pub(super) async fn running_steps_of(
    reader: &SqlitePool,
    run: RunId,
) -> Result<Vec<StepId>, StoreError> {
    sqlx::query_scalar::<_, i64>("SELECT id FROM steps WHERE run_id = ? AND state = 'running'")
        .bind(run.0)
        .fetch_all(reader)
        .await
        .map(|ids| ids.into_iter().map(StepId).collect())
        .doing("look for running steps")
}

/// The start of a running step; `None` if it is not running.
pub(super) async fn running_since(
    reader: &SqlitePool,
    step: StepId,
) -> Result<Option<i64>, StoreError> {
    sqlx::query_scalar::<_, Option<i64>>(
        "SELECT start_us FROM steps WHERE id = ? AND state = 'running'",
    )
    .bind(step.0)
    .fetch_optional(reader)
    .await
    .map(Option::flatten)
    .doing("read a step")
}

pub(super) async fn newest_interval(
    reader: &SqlitePool,
    step: StepId,
) -> Result<Option<i64>, StoreError> {
    sqlx::query_scalar(
        "SELECT max((SELECT max(at_us) FROM op_intervals WHERE task_id = tasks.id))
         FROM tasks WHERE step_id = ?",
    )
    .bind(step.0)
    .fetch_one(reader)
    .await
    .doing("look for the intervals of a step")
}

/// The tasks of clients that left a running step early; empty if all did.
pub(super) async fn left_early(
    reader: &SqlitePool,
    step: StepId,
) -> Result<BTreeSet<TaskId>, StoreError> {
    let tasks: Vec<(i64, bool)> = sqlx::query_as(
        "SELECT t.id, coalesce(
                (SELECT n.state FROM tasks AS n WHERE n.step_id = t.step_id
                    AND n.client_index = coalesce(t.client_index, t.task_index) ORDER BY n.part DESC LIMIT 1),
                t.state) IN ('lost', 'failed')
         FROM tasks AS t WHERE t.step_id = ?",
    )
    .bind(step.0)
    .fetch_all(reader)
    .await
    .doing("read the tasks of a step")?;
    let left = tasks.iter().filter(|(_, left)| *left);
    let left: BTreeSet<TaskId> = left.map(|(task, _)| TaskId(*task)).collect();
    Ok(match left.len() < tasks.len() {
        true => left,
        false => BTreeSet::new(),
    })
}

/// The end of a step's stored intervals; `i64::MIN` if there are none.
pub(super) async fn stored_until(reader: &SqlitePool, step: StepId) -> Result<i64, StoreError> {
    sqlx::query_scalar::<_, Option<i64>>(
        "SELECT max(at_us + span_us) FROM step_intervals WHERE step_id = ?",
    )
    .bind(step.0)
    .fetch_one(reader)
    .await
    .map(|until| until.unwrap_or(i64::MIN))
    .doing("look for the intervals of a step")
}

/// Rows of a step before this instant were merged while it was running; `i64::MIN` if none were.
pub(super) async fn merged_until(reader: &SqlitePool, step: StepId) -> Result<i64, StoreError> {
    sqlx::query_scalar::<_, Option<i64>>("SELECT merged_10s_until_us FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_optional(reader)
        .await
        .map(|until| until.flatten().unwrap_or(i64::MIN))
        .doing("read a step")
}

/// The end of the last slice with sums, which has its part of the time line; `i64::MIN` if there is none.
pub(super) async fn summed_until(reader: &SqlitePool, step: StepId) -> Result<i64, StoreError> {
    sqlx::query_scalar::<_, Option<i64>>(
        "SELECT max(until_us) FROM step_sums WHERE step_id = ? AND sums IS NOT NULL",
    )
    .bind(step.0)
    .fetch_one(reader)
    .await
    .map(|until| until.unwrap_or(i64::MIN))
    .doing("read the sums of a step")
}

pub(super) async fn stale_batches(reader: &SqlitePool, step: StepId) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT stale_batches FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_optional(reader)
        .await
        .doing("read a step")?
        .ok_or_else(|| StoreError::NoSuch {
            what: "step",
            id: step.to_string(),
        })
}

pub(super) async fn stale_samples(reader: &SqlitePool, step: StepId) -> Result<i64, StoreError> {
    sqlx::query_scalar("SELECT stale_samples FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_one(reader)
        .await
        .doing("read a step")
}

pub(crate) async fn step(reader: &SqlitePool, step: StepId) -> Result<StepFacts, StoreError> {
    let (start_us, is_running): (Option<i64>, bool) =
        sqlx::query_as("SELECT start_us, state = 'running' FROM steps WHERE id = ?")
            .bind(step.0)
            .fetch_one(reader)
            .await
            .doing("read a step")?;
    let tasks = sqlx::query(
        "SELECT tasks.*, coalesce(g.params, s.params) AS params, coalesce(g.mode, s.mode) AS mode,
                count(*) FILTER (WHERE tasks.part = 1) OVER (PARTITION BY tasks.group_name) AS tasks_of_group,
                (SELECT nullif(own.policy ->> 'rate_bytes_per_s', 0) FROM run_agents AS own
                    WHERE own.run_id = s.run_id AND own.agent_id = tasks.agent_id) AS rate_limit_bytes_per_s,
                CASE WHEN tasks.link_bytes_per_s IS NOT NULL THEN (
                    SELECT min(o.min_ns) FROM (
                        SELECT * FROM tasks AS t
                        WHERE t.agent_id = tasks.agent_id AND t.peer_agent_id IS NOT NULL AND t.step_id <= tasks.step_id
                        ORDER BY t.step_id DESC LIMIT 1000) AS l
                    JOIN steps AS ls ON ls.id = l.step_id
                    JOIN agents AS a ON a.id = l.agent_id JOIN agents AS p ON p.id = l.peer_agent_id
                    LEFT JOIN run_agents AS ra ON ra.run_id = ls.run_id AND ra.agent_id = a.id
                    LEFT JOIN run_agents AS rp ON rp.run_id = ls.run_id AND rp.agent_id = p.id
                    JOIN task_results AS o ON o.task_id = l.id AND o.op = 'ping'
                    WHERE coalesce(ra.host_id, a.host_id) <> coalesce(rp.host_id, p.host_id)) END AS round_trip_ns,
                (SELECT max(at_us + span_us) FROM op_intervals WHERE task_id = tasks.id AND at_us >=
             (SELECT max(at_us) FROM op_intervals WHERE task_id = tasks.id)) AS last_interval_us
         FROM tasks JOIN steps AS s ON s.id = tasks.step_id
              LEFT JOIN step_groups AS g ON g.step_id = tasks.step_id AND g.name = tasks.group_name
         WHERE tasks.step_id = ? ORDER BY task_index",
    )
    .bind(step.0)
    .try_map(task_facts)
    .fetch_all(reader)
    .await
    .doing("read the tasks of a step")?;
    let start_us = start_us.or_else(|| tasks.iter().filter_map(|task| task.start_us).min());
    Ok(StepFacts {
        is_running,
        start_us: start_us.unwrap_or(0),
        tasks: tasks
            .into_iter()
            .map(|mut task| {
                // A lost task never reported its start; it was armed for the step's start.
                if task.start_us.is_none() && task.last_interval_us.is_some() {
                    task.start_us = start_us;
                }
                // The figures of a running step are computed as if it ended with its last interval.
                let is_gone = matches!(task.state, TaskState::Lost | TaskState::Failed);
                if is_running && !is_gone && task.ended_us.is_none() {
                    task.ended_us = task.last_interval_us;
                }
                task
            })
            .collect(),
    })
}

fn task_facts(row: SqliteRow) -> Result<TaskFacts, sqlx::Error> {
    let params: String = row.try_get("params")?;
    let load = LoadParams::of(&params);
    let workers: u32 = row.try_get("workers")?;
    let tasks: i64 = row.try_get("tasks_of_group")?;
    Ok(TaskFacts {
        task: TaskId(row.try_get("id")?),
        client: row
            .try_get::<Option<u32>, _>("client_index")?
            .map_or_else(|| row.try_get("task_index"), Ok)?,
        part: row.try_get("part")?,
        group: text(&row, "group_name")?,
        state: word(&row, "state", TaskState::parse)?,
        workers,
        ramp_us: load.ramp_us(),
        start_us: row.try_get("start_us")?,
        skew_us: row.try_get("skew_us")?,
        skew_error_us: row.try_get("skew_error_us")?,
        first_done_us: row.try_get("first_done_us")?,
        ended_us: row.try_get("ended_us")?,
        wait_cpu_us: row.try_get("wait_cpu_us")?,
        harness_ns_per_op: row.try_get("harness_ns_per_op")?,
        last_interval_us: row.try_get("last_interval_us")?,
        agent: AgentId(row.try_get("agent_id")?),
        link_bytes_per_s: row.try_get("link_bytes_per_s")?,
        rate_limit_bytes_per_s: row.try_get("rate_limit_bytes_per_s")?,
        mode: row.try_get("mode")?,
        paced: load.paced(workers, tasks),
        direct: load.direct.unwrap_or(false),
        round_trip_ns: row.try_get("round_trip_ns")?,
    })
}

/// The parameters of a load that its figures depend on. They were checked during planning.
#[derive(Debug, Default, Deserialize)]
struct LoadParams {
    ramp_time: Option<Span>,
    rate: Option<Bytes>,
    rate_iops: Option<u64>,
    #[serde(rename = "rate-per")]
    rate_per: Option<String>,
    rate_process: Option<String>,
    direct: Option<bool>,
}

impl LoadParams {
    fn of(params: &str) -> Self {
        serde_json::from_str(params).unwrap_or_default()
    }

    /// The ramp time, before the measurement.
    fn ramp_us(&self) -> i64 {
        self.ramp_time
            .and_then(|ramp| i64::try_from(ramp.0.as_micros()).ok())
            .unwrap_or(0)
    }

    /// The rate of one of `tasks` tasks with `workers` workers; `None` without a rate limit.
    fn paced(&self, workers: u32, tasks: i64) -> Option<Paced> {
        let (rate, unit) = match (self.rate_iops, self.rate) {
            (Some(rate), _) => (rate, PacedUnit::Operations),
            (None, Some(rate)) => (rate.0, PacedUnit::Bytes),
            (None, None) => return None,
        };
        let rate = real(i64::try_from(rate).unwrap_or(i64::MAX));
        Some(Paced {
            per_second: match self.rate_per.as_deref() {
                Some("task") => rate,
                Some("step") => rate / real(tasks.max(1)),
                // The default.
                _ => rate * f64::from(workers),
            },
            unit,
            arrivals: match self.rate_process.as_deref() {
                Some("poisson") => Arrivals::Poisson,
                _ => Arrivals::Even,
            },
        })
    }
}

/// The first instant from `from` on at which any task of the step has an interval.
pub(super) async fn next_instant(
    reader: &SqlitePool,
    step: StepId,
    from: i64,
) -> Result<Option<i64>, StoreError> {
    sqlx::query_scalar(
        "SELECT min((SELECT min(at_us) FROM op_intervals WHERE task_id = tasks.id AND at_us >= ?))
         FROM tasks WHERE step_id = ?",
    )
    .bind(from)
    .bind(step.0)
    .fetch_one(reader)
    .await
    .doing("look for the intervals of a step")
}

/// An interval with its histograms still packed.
pub(super) struct StoredInterval {
    task: i64,
    group: String,
    at_us: i64,
    span_us: i64,
    op: String,
    ramp: bool,
    ops: i64,
    bytes: i64,
    undated_bytes: i64,
    errors: i64,
    in_flight: i64,
    service: Blob,
    response: Option<Blob>,
}

/// Count, sum, sum of squares, minimum, maximum, saturated, histogram.
type Columns = [&'static str; 7];

const SERVICE: Columns = [
    "service_count",
    "service_sum_ns",
    "service_sum_squares_ns2",
    "service_min_ns",
    "service_max_ns",
    "service_saturated",
    "service_histogram",
];

const RESPONSE: Columns = [
    "response_count",
    "response_sum_ns",
    "response_sum_squares_ns2",
    "response_min_ns",
    "response_max_ns",
    "response_saturated",
    "response_histogram",
];

/// `None` without a record of its kind: only a paced load has response times.
fn distribution(row: &SqliteRow, columns: &Columns) -> Result<Option<Blob>, sqlx::Error> {
    let [count, sum, squares, least, largest, saturated, histogram] = *columns;
    let integer = |column| {
        row.try_get::<Option<i64>, _>(column)
            .map(|value| value.map(|value| u64::try_from(value).unwrap_or(0)))
    };
    let Some(count) = integer(count)? else {
        return Ok(None);
    };
    Ok(Some(Blob {
        count,
        sum_ns: row.try_get(sum)?,
        sum_squares_ns2: row.try_get(squares)?,
        min_ns: integer(least)?.unwrap_or(0),
        max_ns: integer(largest)?.unwrap_or(0),
        saturated: integer(saturated)?.unwrap_or(0),
        v2_deflate: row
            .try_get::<Option<Vec<u8>>, _>(histogram)?
            .unwrap_or_default(),
    }))
}

impl FromRow<'_, SqliteRow> for StoredInterval {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            task: row.try_get("task_id")?,
            group: text(row, "group_name")?,
            at_us: row.try_get("at_us")?,
            span_us: row.try_get("span_us")?,
            op: row.try_get("op")?,
            ramp: row.try_get("ramp")?,
            ops: row.try_get("ops")?,
            bytes: row.try_get("bytes")?,
            undated_bytes: row.try_get("undated_bytes")?,
            errors: row.try_get("errors")?,
            in_flight: row.try_get("in_flight")?,
            service: distribution(row, &SERVICE)?.unwrap_or_default(),
            response: distribution(row, &RESPONSE)?,
        })
    }
}

impl StoredInterval {
    pub(super) fn facts(self) -> Result<IntervalFacts, StoreError> {
        let unpack = |blob: &Blob| histogram_of(blob).doing("sum up a step");
        Ok(IntervalFacts {
            service: unpack(&self.service)?,
            response: self.response.as_ref().map(unpack).transpose()?,
            task: TaskId(self.task),
            group: self.group,
            at_us: self.at_us,
            span_us: self.span_us,
            op: self.op,
            ramp: self.ramp,
            ops: self.ops,
            bytes: self.bytes,
            undated_bytes: self.undated_bytes,
            errors: self.errors,
            in_flight: self.in_flight,
        })
    }
}

/// Intervals that begin in `from..until`, by time.
pub(super) async fn intervals(
    reader: &SqlitePool,
    step: StepId,
    from: i64,
    until: i64,
) -> Result<Vec<StoredInterval>, StoreError> {
    sqlx::query_as(
        "SELECT i.*, t.group_name FROM tasks AS t CROSS JOIN op_intervals AS i ON i.task_id = t.id
         WHERE t.step_id = ? AND i.at_us >= ? AND i.at_us < ? ORDER BY i.at_us, i.task_id, i.op, i.ramp",
    )
    .bind(step.0)
    .bind(from)
    .bind(until)
    .fetch_all(reader)
    .await
    .doing("read the intervals of a step")
}

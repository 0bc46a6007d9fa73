//! A run's steps with what they came to, and who took part in them.

use super::{ReportError, json, rows};
use crate::model::{RunId, StepId};
use crate::plan::links_in_words;
use crate::report::{GroupReport, OpReport, StepReport, TaskFailure};
use sqlx::{Row, SqliteConnection};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const NS_PER_MS: f64 = 1e6;

pub(super) async fn steps(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<StepReport>, ReportError> {
    rows(
        connection,
        "steps",
        "SELECT * FROM steps AS s
         WHERE run_id = ? AND state <> 'planned'
           AND attempt = (SELECT max(attempt) FROM steps AS t WHERE t.run_id = s.run_id AND t.ordinal = s.ordinal)
         ORDER BY ordinal",
        run,
        |row| {
            Ok(StepReport {
                id: StepId(row.try_get("id")?),
                ordinal: row.try_get("ordinal")?,
                repeat: row.try_get("repeat")?,
                attempt: row.try_get("attempt")?,
                phase: row.try_get("phase")?,
                target: row.try_get("target")?,
                system: row.try_get("system")?,
                workload: row.try_get("workload")?,
                mode: row.try_get("mode")?,
                params: json(row, "params")?,
                clients: row.try_get("clients")?,
                cache: row.try_get("cache")?,
                state: row.try_get("state")?,
                partial: row.try_get("partial")?,
                flags: json(row, "flags")?,
                reason: row.try_get("reason")?,
                start_us: row.try_get("start_us")?,
                ended_us: row.try_get("ended_us")?,
                skew_us: None,
                skew_error_us: None,
                links: String::new(),
                from_agent: None,
                to_agent: None,
                failures: Vec::new(),
                groups: Vec::new(),
                missing: Vec::new(),
                ops: Vec::new(),
            })
        },
    )
    .await
}

/// Where each step stands, by its id.
pub(super) fn places(steps: &[StepReport]) -> HashMap<i64, usize> {
    steps
        .iter()
        .enumerate()
        .map(|(at, step)| (step.id.0, at))
        .collect()
}

pub(super) async fn add_ops(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let ops = rows(
        connection,
        "step_results",
        "SELECT r.* FROM step_results AS r JOIN steps AS s ON s.id = r.step_id WHERE s.run_id = ? ORDER BY r.id",
        run,
        |row| {
            let ms = |column: &str| -> Result<Option<f64>, sqlx::Error> {
                // REAL for means, INTEGER for percentiles: both are numbers here.
                let ns: Option<f64> = row.try_get_unchecked(column)?;
                Ok(ns.map(|ns| ns / NS_PER_MS))
            };
            Ok((
                row.try_get::<i64, _>("step_id")?,
                OpReport {
                    group: row.try_get("group_name")?,
                    op: row.try_get("op")?,
                    ops: row.try_get("ops")?,
                    bytes: row.try_get("bytes")?,
                    errors: row.try_get("errors")?,
                    headline: row.try_get("headline")?,
                    ops_per_s: row.try_get("ops_per_s")?,
                    bytes_per_s: row.try_get("bytes_per_s")?,
                    last_done_ops_per_s: row.try_get("last_done_ops_per_s")?,
                    last_done_bytes_per_s: row.try_get("last_done_bytes_per_s")?,
                    mean_ms: ms("mean_ns")?,
                    stddev_ms: ms("stddev_ns")?,
                    p50_ms: ms("p50_ns")?,
                    p90_ms: ms("p90_ns")?,
                    p95_ms: ms("p95_ns")?,
                    p99_ms: ms("p99_ns")?,
                    p999_ms: ms("p999_ns")?,
                    max_ms: ms("max_ns")?,
                    response_p50_ms: ms("response_p50_ns")?,
                    response_p99_ms: ms("response_p99_ns")?,
                    response_max_ms: ms("response_max_ns")?,
                },
            ))
        },
    )
    .await?;
    let at = places(steps);
    for (step_id, op) in ops {
        if let Some(step) = at.get(&step_id).and_then(|at| steps.get_mut(*at)) {
            step.ops.push(op);
        }
    }
    Ok(())
}

pub(super) async fn add_groups(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let groups = rows(
        connection,
        "step_groups",
        "SELECT g.* FROM step_groups AS g JOIN steps AS s ON s.id = g.step_id WHERE s.run_id = ? ORDER BY g.step_id, g.name",
        run,
        |row| {
            Ok((
                row.try_get::<i64, _>("step_id")?,
                GroupReport {
                    name: row.try_get("name")?,
                    workload: row.try_get("workload")?,
                    mode: row.try_get("mode")?,
                    params: json(row, "params")?,
                    clients: row.try_get("clients")?,
                    tasks: row.try_get("tasks")?,
                },
            ))
        },
    )
    .await?;
    let at = places(steps);
    for (step_id, group) in groups {
        if let Some(step) = at.get(&step_id).and_then(|at| steps.get_mut(*at)) {
            step.groups.push(group);
        }
    }
    Ok(())
}

/// Skew, ends of links and failures, from the tasks.
pub(super) async fn add_tasks(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    struct TaskRow {
        step_id: i64,
        agent: String,
        peer: Option<String>,
        skew_us: Option<i64>,
        skew_error_us: Option<i64>,
        error: Option<String>,
        tasks: i64,
    }
    let tasks = rows(
        connection,
        "tasks",
        "SELECT t.step_id, a.name AS agent, p.name AS peer, t.skew_us, t.skew_error_us, t.error,
                count(*) OVER (PARTITION BY t.step_id) AS tasks
         FROM tasks AS t JOIN steps AS s ON s.id = t.step_id JOIN agents AS a ON a.id = t.agent_id
              LEFT JOIN agents AS p ON p.id = t.peer_agent_id
         WHERE s.run_id = ? ORDER BY t.step_id, t.task_index",
        run,
        |row| {
            Ok(TaskRow {
                step_id: row.try_get("step_id")?,
                agent: row.try_get("agent")?,
                peer: row.try_get("peer")?,
                skew_us: row.try_get("skew_us")?,
                skew_error_us: row.try_get("skew_error_us")?,
                error: row.try_get("error")?,
                tasks: row.try_get("tasks")?,
            })
        },
    )
    .await?;
    let at = places(steps);
    let mut ends: BTreeMap<usize, [BTreeSet<String>; 2]> = BTreeMap::new();
    for task in tasks {
        if let (Some(at), Some(peer)) = (at.get(&task.step_id), &task.peer) {
            let [from, to] = ends.entry(*at).or_default();
            from.insert(task.agent.clone());
            to.insert(peer.clone());
        }
        let Some(step) = at.get(&task.step_id).and_then(|at| steps.get_mut(*at)) else {
            continue;
        };
        if task.skew_us > step.skew_us {
            step.skew_us = task.skew_us;
            step.skew_error_us = task.skew_error_us;
        }
        if task.tasks == 1 && task.peer.is_some() {
            step.from_agent = Some(task.agent.clone());
            step.to_agent = task.peer;
        }
        if let Some(error) = task.error.filter(|error| !error.is_empty()) {
            step.failures.push(TaskFailure {
                agent: task.agent,
                error,
            });
        }
    }
    for (at, [from, to]) in &ends {
        if let Some(step) = steps.get_mut(*at) {
            step.links = links_in_words(&names(from), &names(to));
        }
    }
    Ok(())
}

fn names(agents: &BTreeSet<String>) -> BTreeSet<&str> {
    agents.iter().map(String::as_str).collect()
}

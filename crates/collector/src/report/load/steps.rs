//! A run's steps with what they came to, and who took part in them.

use super::{ReportError, Statement, json, rows};
use crate::model::{RunId, StepId};
use crate::plan::{TASKS_PER_AGENT, links_in_words};
use crate::report::{GroupReport, Judged, OpReport, SecondsReport, StepReport, TaskFailure};
use crate::results::real;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use std::collections::{BTreeMap, BTreeSet, HashMap};

const NS_PER_MS: f64 = 1e6;

pub(super) const STEPS: Statement = Statement {
    what: "steps",
    sql: "SELECT * FROM steps AS s
          WHERE run_id = ? AND state <> 'planned'
            AND attempt = (SELECT max(attempt) FROM steps AS t WHERE t.run_id = s.run_id AND t.ordinal = s.ordinal)
          ORDER BY ordinal",
};

/// Without the histograms, which are most of a row.
pub(super) const OPS: Statement = Statement {
    what: "step_results",
    sql: "SELECT r.step_id, r.group_name, r.op, r.ops, r.bytes, r.errors, r.headline, r.ops_per_s, r.bytes_per_s,
                 r.window_us, r.last_done_us, r.last_done_ops_per_s, r.last_done_bytes_per_s, r.seconds, r.zero_seconds,
                 r.ops_per_s_stddev, r.ops_per_s_min, r.ops_per_s_max, r.bytes_per_s_stddev, r.bytes_per_s_min,
                 r.bytes_per_s_max, r.mean_ns, r.stddev_ns, r.p50_ns, r.p90_ns, r.p95_ns, r.p99_ns, r.p999_ns, r.max_ns,
                 r.response_p50_ns, r.response_p99_ns, r.response_max_ns
          FROM steps AS s CROSS JOIN step_results AS r ON r.step_id = s.id WHERE s.run_id = ? ORDER BY r.id",
};

pub(super) const GROUPS: Statement = Statement {
    what: "step_groups",
    sql: "SELECT g.* FROM steps AS s CROSS JOIN step_groups AS g ON g.step_id = s.id WHERE s.run_id = ?
          ORDER BY g.step_id, g.name",
};

pub(super) const CACHES: Statement = Statement {
    what: "cache_drops",
    sql: "SELECT c.step_id, c.what, c.dropped, coalesce(e.host, h.name) AS host, coalesce(e.name, a.name) AS agent,
                 c.error
          FROM steps AS s CROSS JOIN cache_drops AS c ON c.step_id = s.id JOIN agents AS a ON a.id = c.agent_id
               LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = a.id
               JOIN hosts AS h ON h.id = a.host_id
          WHERE s.run_id = ? ORDER BY c.step_id, c.what DESC, c.id",
};

pub(super) const TASKS: Statement = Statement {
    what: "tasks",
    sql: "SELECT t.step_id, coalesce(ea.name, a.name) AS agent, coalesce(ep.name, p.name) AS peer, t.skew_us,
                 t.skew_error_us, t.error, t.cpu_user_us, t.cpu_system_us,
                 t.harness_ns_per_op IS NOT NULL AS harness, t.wait_cpu_us IS NOT NULL AS cpu,
                 t.link_bytes_per_s IS NOT NULL AS network,
                 count(*) OVER (PARTITION BY t.step_id) AS tasks
          FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id JOIN agents AS a ON a.id = t.agent_id
               LEFT JOIN agents AS p ON p.id = t.peer_agent_id
               LEFT JOIN run_agents AS ea ON ea.run_id = s.run_id AND ea.agent_id = a.id
               LEFT JOIN run_agents AS ep ON ep.run_id = s.run_id AND ep.agent_id = p.id
          WHERE s.run_id = ? ORDER BY t.step_id, t.task_index",
};

pub(super) async fn steps(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<StepReport>, ReportError> {
    rows(connection, STEPS, run, |row| {
        Ok(StepReport {
            id: StepId(row.try_get("id")?),
            ordinal: row.try_get("ordinal")?,
            repeat: row.try_get("repeat")?,
            attempt: row.try_get("attempt")?,
            phase: row.try_get("phase")?,
            target: row
                .try_get::<Option<String>, _>("target")?
                .unwrap_or_default(),
            system: row
                .try_get::<Option<String>, _>("system")?
                .unwrap_or_default(),
            workload: row.try_get("workload")?,
            mode: row.try_get("mode")?,
            params: json(row, "params")?,
            clients: row.try_get("clients")?,
            cache: row.try_get("cache")?,
            caches_kept: Vec::new(),
            caches_dropped: 0,
            caches_failed: Vec::new(),
            cpu_user_s: None,
            cpu_system_s: None,
            state: row.try_get("state")?,
            partial: row.try_get("partial")?,
            flags: json(row, "flags")?,
            reason: row.try_get("reason")?,
            start_us: row.try_get("start_us")?,
            ended_us: row.try_get("ended_us")?,
            skew_us: None,
            skew_error_us: None,
            judged: Judged::default(),
            links: String::new(),
            from_agent: None,
            to_agent: None,
            failures: Vec::new(),
            groups: Vec::new(),
            missing: Vec::new(),
            traffic: Vec::new(),
            ops: Vec::new(),
        })
    })
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
    let ops = rows(connection, OPS, run, |row| {
        let ms = |column: &str| -> Result<Option<f64>, sqlx::Error> {
            // REAL for means, INTEGER for percentiles: both are numbers here.
            let ns: Option<f64> = row.try_get_unchecked(column)?;
            Ok(ns.map(|ns| ns / NS_PER_MS))
        };
        Ok((
            row.try_get::<i64, _>("step_id")?,
            OpReport {
                group: row
                    .try_get::<Option<String>, _>("group_name")?
                    .unwrap_or_default(),
                op: row.try_get("op")?,
                ops: row.try_get("ops")?,
                bytes: row.try_get("bytes")?,
                errors: row.try_get("errors")?,
                over_s: over_s(row)?,
                headline: row.try_get("headline")?,
                ops_per_s: row.try_get("ops_per_s")?,
                bytes_per_s: row.try_get("bytes_per_s")?,
                last_done_ops_per_s: row.try_get("last_done_ops_per_s")?,
                last_done_bytes_per_s: row.try_get("last_done_bytes_per_s")?,
                last_done_s: row
                    .try_get::<Option<i64>, _>("last_done_us")?
                    .map(|us| real(us) / 1e6),
                seconds: seconds(row)?,
                clients: None,
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
                service_slots: Vec::new(),
                response_slots: Vec::new(),
            },
        ))
    })
    .await?;
    let at = places(steps);
    for (step_id, op) in ops {
        if let Some(step) = at.get(&step_id).and_then(|at| steps.get_mut(*at)) {
            step.ops.push(op);
        }
    }
    Ok(())
}

/// The time that the headline is of.
fn over_s(row: &SqliteRow) -> Result<Option<f64>, sqlx::Error> {
    let headline: String = row.try_get("headline")?;
    let us: Option<i64> = match headline.as_str() {
        "window" => row.try_get("window_us")?,
        _ => row.try_get("last_done_us")?,
    };
    Ok(us.map(|us| real(us) / 1e6))
}

fn seconds(row: &SqliteRow) -> Result<Option<SecondsReport>, sqlx::Error> {
    let Some(seconds) = row.try_get("seconds")? else {
        return Ok(None);
    };
    Ok(Some(SecondsReport {
        seconds,
        zero: row.try_get("zero_seconds")?,
        ops_per_s_stddev: row.try_get("ops_per_s_stddev")?,
        ops_per_s_min: row.try_get("ops_per_s_min")?,
        ops_per_s_max: row.try_get("ops_per_s_max")?,
        bytes_per_s_stddev: row.try_get("bytes_per_s_stddev")?,
        bytes_per_s_min: row.try_get("bytes_per_s_min")?,
        bytes_per_s_max: row.try_get("bytes_per_s_max")?,
    }))
}

pub(super) async fn add_groups(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let groups = rows(connection, GROUPS, run, |row| {
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
    })
    .await?;
    let at = places(steps);
    for (step_id, group) in groups {
        if let Some(step) = at.get(&step_id).and_then(|at| steps.get_mut(*at)) {
            step.groups.push(group);
        }
    }
    Ok(())
}

/// What a cold step could drop, what it had to leave, and what failed.
pub(super) async fn add_caches(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    struct Drop {
        step_id: i64,
        what: String,
        dropped: bool,
        host: String,
        agent: String,
        error: Option<String>,
    }
    let drops = rows(connection, CACHES, run, |row| {
        Ok(Drop {
            step_id: row.try_get("step_id")?,
            what: row.try_get("what")?,
            dropped: row.try_get("dropped")?,
            host: row.try_get("host")?,
            agent: row.try_get("agent")?,
            error: row.try_get("error")?,
        })
    })
    .await?;
    let at = places(steps);
    let mut hosts: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for drop in drops {
        let Some(at) = at.get(&drop.step_id).copied() else {
            continue;
        };
        let Some(step) = steps.get_mut(at) else {
            continue;
        };
        let inside_a_process = matches!(drop.what.as_str(), "fuse-client" | "daemon-caches");
        match (drop.dropped, inside_a_process) {
            (true, _) => {
                hosts.entry(at).or_default().insert(drop.host);
            }
            (false, true) if !step.caches_kept.contains(&drop.what) => {
                step.caches_kept.push(drop.what);
            }
            (false, true) => {}
            (false, false) => step.caches_failed.push(TaskFailure {
                agent: drop.agent,
                error: format!("{}: {}", drop.what, drop.error.unwrap_or_default()),
            }),
        }
    }
    for (at, hosts) in hosts {
        if let Some(step) = steps.get_mut(at) {
            step.caches_dropped = i64::try_from(hosts.len()).unwrap_or(i64::MAX);
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
        cpu_user_us: Option<i64>,
        cpu_system_us: Option<i64>,
        judged: Judged,
        tasks: i64,
    }
    let tasks = rows(connection, TASKS, run, |row| {
        Ok(TaskRow {
            step_id: row.try_get("step_id")?,
            agent: row.try_get("agent")?,
            peer: row.try_get("peer")?,
            skew_us: row.try_get("skew_us")?,
            skew_error_us: row.try_get("skew_error_us")?,
            error: row.try_get("error")?,
            cpu_user_us: row.try_get("cpu_user_us")?,
            cpu_system_us: row.try_get("cpu_system_us")?,
            judged: Judged {
                harness: row.try_get("harness")?,
                cpu: row.try_get("cpu")?,
                network: row.try_get("network")?,
            },
            tasks: row.try_get("tasks")?,
        })
    })
    .await?;
    let at = places(steps);
    let mut ends: BTreeMap<usize, [BTreeSet<String>; 2]> = BTreeMap::new();
    let mut tasks_of: HashMap<i64, i64> = HashMap::new();
    for task in tasks {
        if let (Some(at), Some(peer)) = (at.get(&task.step_id), &task.peer) {
            let [from, to] = ends.entry(*at).or_default();
            from.insert(task.agent.clone());
            to.insert(peer.clone());
        }
        let Some(step) = at.get(&task.step_id).and_then(|at| steps.get_mut(*at)) else {
            continue;
        };
        for (sum, us) in [
            (&mut step.cpu_user_s, task.cpu_user_us),
            (&mut step.cpu_system_s, task.cpu_system_us),
        ] {
            if let Some(us) = us {
                *sum = Some(sum.unwrap_or(0.0) + real(us) / 1e6);
            }
        }
        let apart = |skew: Option<i64>| skew.map(i64::unsigned_abs);
        if apart(task.skew_us) > apart(step.skew_us) {
            step.skew_us = task.skew_us;
        }
        step.skew_error_us = step.skew_error_us.max(task.skew_error_us);
        step.judged.harness |= task.judged.harness;
        step.judged.cpu |= task.judged.cpu;
        step.judged.network |= task.judged.network;
        if task.peer.is_none() {
            tasks_of.insert(task.step_id, task.tasks);
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
    add_tasks_per_agent(steps, &tasks_of);
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

/// `tasks-per-agent` is no parameter of a workload; it is a key of the results all the same, in a phase that has several.
fn add_tasks_per_agent(steps: &mut [StepReport], tasks_of: &HashMap<i64, i64>) {
    let per_agent = |tasks: i64, clients: i64| (clients > 0).then(|| tasks / clients);
    let of_step = |step: &StepReport| per_agent(*tasks_of.get(&step.id.0)?, step.clients);
    let of_group = |group: &GroupReport| match group.workload.as_str() {
        // A task of each link.
        "network" => None,
        _ => per_agent(group.tasks, group.clients),
    };
    let has_several = |step: &StepReport| match step.groups.as_slice() {
        [] => of_step(step) > Some(1),
        groups => groups.iter().any(|group| of_group(group) > Some(1)),
    };
    let phases: BTreeSet<String> = steps
        .iter()
        .filter(|step| has_several(step))
        .map(|step| step.phase.clone())
        .collect();
    for step in steps.iter_mut().filter(|step| phases.contains(&step.phase)) {
        let own = of_step(step);
        let groups = step.groups.iter_mut();
        let of_groups = groups.map(|group| (of_group(group), &mut group.params));
        for (several, params) in of_groups.chain([(own, &mut step.params)]) {
            if let Some(several) = several {
                params.insert(TASKS_PER_AGENT.to_owned(), several.into());
            }
        }
    }
}

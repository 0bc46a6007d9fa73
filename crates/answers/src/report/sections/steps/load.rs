//! Reads a run's steps with their results and participants.

use super::{GroupReport, Judged, OpReport, StepReport, TaskFailure, clients, places, traffic};
use crate::report::row::{ReportError, Statement, rows, rows_with, value};
use benchmesh_model::mesh::RunId;
use benchmesh_plan::{GroupLoad, TASKS_PER_AGENT, keys_beside, links_in_words};
use benchmesh_results::real;
use rusqlite::Connection;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Every statement about the steps.
#[cfg(test)]
pub(in crate::report) const STATEMENTS: [Statement; 8] = [
    STEPS,
    GROUPS,
    OPS,
    TASKS,
    CACHES,
    MISSING,
    clients::CLIENTS,
    traffic::TRAFFIC,
];

const STEPS: Statement = Statement {
    what: "steps",
    sql: "SELECT id, ordinal, loop, repeat, attempt, phase, coalesce(target, '') AS target, coalesce(system, '') AS system,
                 workload, mode, params, clients, cache, state, partial, flags, reason, start_us, ended_us, resolution_s,
                 merged_10s_until_us, merged_60s_until_us
          FROM steps AS s
          WHERE run_id = ? AND state <> 'planned'
            AND attempt = (SELECT max(attempt) FROM steps AS t WHERE t.run_id = s.run_id AND t.ordinal = s.ordinal)
          ORDER BY ordinal",
};

/// Without the histograms, which are most of a row's size.
const OPS: Statement = Statement {
    what: "step_results",
    sql: "SELECT r.step_id, coalesce(r.group_name, '') AS \"group\", r.op, r.ops, r.bytes, r.errors, r.headline,
                 r.ops_per_s, r.bytes_per_s, iif(r.headline = 'window', r.window_us, r.last_done_us) / 1e6 AS over_s,
                 r.last_done_us / 1e6 AS last_done_s, r.last_done_ops_per_s, r.last_done_bytes_per_s,
                 r.seconds AS window_seconds, r.zero_seconds,
                 r.ops_per_s_stddev, r.ops_per_s_min, r.ops_per_s_max, r.bytes_per_s_stddev, r.bytes_per_s_min,
                 r.bytes_per_s_max, r.mean_ns / 1e6 AS mean_ms, r.stddev_ns / 1e6 AS stddev_ms,
                 r.p50_ns / 1e6 AS p50_ms, r.p90_ns / 1e6 AS p90_ms, r.p95_ns / 1e6 AS p95_ms, r.p99_ns / 1e6 AS p99_ms,
                 r.p999_ns / 1e6 AS p999_ms, r.max_ns / 1e6 AS max_ms, r.response_p50_ns / 1e6 AS response_p50_ms,
                 r.response_p99_ns / 1e6 AS response_p99_ms, r.response_max_ns / 1e6 AS response_max_ms
          FROM steps AS s CROSS JOIN step_results AS r ON r.step_id = s.id WHERE s.run_id = ? ORDER BY r.id",
};

const GROUPS: Statement = Statement {
    what: "step_groups",
    sql: "SELECT g.* FROM steps AS s CROSS JOIN step_groups AS g ON g.step_id = s.id WHERE s.run_id = ?
          ORDER BY g.step_id, g.name",
};

const CACHES: Statement = Statement {
    what: "cache_drops",
    sql: "SELECT c.step_id, c.what, c.dropped, coalesce(e.host, h.name) AS host, coalesce(e.name, a.name) AS agent,
                 c.error
          FROM steps AS s CROSS JOIN cache_drops AS c ON c.step_id = s.id JOIN agents AS a ON a.id = c.agent_id
               LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = a.id
               JOIN hosts AS h ON h.id = a.host_id
          WHERE s.run_id = ? ORDER BY c.step_id, c.what DESC, c.id",
};

const TASKS: Statement = Statement {
    what: "tasks",
    sql: "SELECT t.step_id, coalesce(ea.name, a.name) AS agent, coalesce(ep.name, p.name) AS peer, t.skew_us,
                 t.skew_error_us, t.error, t.cpu_user_us, t.cpu_system_us,
                 t.harness_ns_per_op IS NOT NULL AS harness, t.wait_cpu_us IS NOT NULL AS cpu,
                 t.link_bytes_per_s IS NOT NULL AS network,
                 count(*) FILTER (WHERE t.part = 1) OVER (PARTITION BY t.step_id) AS tasks
          FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id JOIN agents AS a ON a.id = t.agent_id
               LEFT JOIN agents AS p ON p.id = t.peer_agent_id
               LEFT JOIN run_agents AS ea ON ea.run_id = s.run_id AND ea.agent_id = a.id
               LEFT JOIN run_agents AS ep ON ep.run_id = s.run_id AND ep.agent_id = p.id
          WHERE s.run_id = ? ORDER BY t.step_id, t.task_index",
};

/// Tasks that were stopped together with their whole step are not missing.
const MISSING: Statement = Statement {
    what: "tasks",
    sql: "SELECT t.step_id, coalesce(e.name, a.name) AS agent, t.state, coalesce(sum(o.ops), 0) AS ops, coalesce(sum(o.bytes), 0) AS bytes,
                 coalesce(t.ended_us, (SELECT i.at_us + i.span_us FROM op_intervals AS i WHERE i.task_id = t.id
                                       ORDER BY i.at_us DESC LIMIT 1))
                     - coalesce(t.start_us, s.start_us) AS ran_us,
                 (SELECT n.start_us FROM tasks AS n WHERE n.step_id = t.step_id AND n.part = t.part + 1
                      AND n.client_index = coalesce(t.client_index, t.task_index)
                      AND EXISTS (SELECT 1 FROM op_intervals AS i WHERE i.task_id = n.id))
                     - coalesce(t.ended_us, (SELECT i.at_us + i.span_us FROM op_intervals AS i WHERE i.task_id = t.id
                                             ORDER BY i.at_us DESC LIMIT 1), t.start_us, s.start_us) AS away_us
          FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id JOIN agents AS a ON a.id = t.agent_id
               LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
               LEFT JOIN task_results AS o ON o.task_id = t.id
          WHERE s.run_id = ? AND s.state IN ('done', 'failed', 'stopped')
            AND (t.state IN ('lost', 'failed') OR (t.state = 'stopped' AND s.state = 'done'))
            AND (t.part = 1 OR o.task_id IS NOT NULL)
          GROUP BY t.id ORDER BY t.step_id, t.task_index",
};

/// The steps of a run with their operations, groups, clients, caches and failures.
pub(in crate::report) fn load(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<StepReport>, ReportError> {
    let mut steps: Vec<StepReport> = rows(connection, STEPS, run)?;
    add_to_steps(connection, GROUPS, run, &mut steps, |step, group| {
        step.groups.push(group);
    })?;
    add_ops(connection, run, &mut steps)?;
    add_tasks(connection, run, &mut steps)?;
    steps.iter_mut().for_each(add_loads_beside);
    add_caches(connection, run, &mut steps)?;
    add_to_steps(connection, MISSING, run, &mut steps, |step, missing| {
        step.missing.push(missing);
    })?;
    clients::add(connection, run, &mut steps)?;
    add_to_steps(
        connection,
        traffic::TRAFFIC,
        run,
        &mut steps,
        |step, traffic| {
            step.traffic.push(traffic);
        },
    )?;
    Ok(steps)
}

fn add_ops(
    connection: &Connection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let ops = rows_with(connection, OPS, run, |row| {
        let mut op: OpReport = value(row)?;
        if row.get::<_, Option<i64>>("window_seconds")?.is_some() {
            op.seconds = Some(value(row)?);
        }
        Ok((row.get::<_, i64>("step_id")?, op))
    })?;
    let at = places(steps);
    for (step_id, op) in ops {
        if let Some(step) = at.get(&step_id).and_then(|at| steps.get_mut(*at)) {
            step.ops.push(op);
        }
    }
    Ok(())
}

/// The caches that a cold step dropped, left alone, or failed to drop.
fn add_caches(
    connection: &Connection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    #[derive(Deserialize)]
    struct CacheDrop {
        step_id: i64,
        what: String,
        dropped: bool,
        host: String,
        agent: String,
        error: Option<String>,
    }
    let drops: Vec<CacheDrop> = rows(connection, CACHES, run)?;
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
fn add_tasks(
    connection: &Connection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    #[derive(Deserialize)]
    struct TaskOfStep {
        step_id: i64,
        agent: String,
        peer: Option<String>,
        skew_us: Option<i64>,
        skew_error_us: Option<i64>,
        error: Option<String>,
        cpu_user_us: Option<i64>,
        cpu_system_us: Option<i64>,
        tasks: i64,
    }
    let tasks: Vec<(TaskOfStep, Judged)> =
        rows_with(connection, TASKS, run, |row| Ok((value(row)?, value(row)?)))?;
    let at = places(steps);
    let mut ends: BTreeMap<usize, [BTreeSet<String>; 2]> = BTreeMap::new();
    let mut tasks_of: HashMap<i64, i64> = HashMap::new();
    for (task, judged) in tasks {
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
        step.judged.harness |= judged.harness;
        step.judged.cpu |= judged.cpu;
        step.judged.network |= judged.network;
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

/// `tasks-per-agent` is not a parameter of a workload, but it is a key of the results in a phase with several values.
fn add_tasks_per_agent(steps: &mut [StepReport], tasks_of: &HashMap<i64, i64>) {
    let per_agent = |tasks: i64, clients: i64| (clients > 0).then(|| tasks / clients);
    let of_step = |step: &StepReport| per_agent(*tasks_of.get(&step.id.0)?, step.clients);
    let of_group = |group: &GroupReport| match group.workload.as_str() {
        // It has one task for each link.
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

/// Adds the loads of the other groups to each group.
fn add_loads_beside(step: &mut StepReport) {
    let of = |group: &GroupReport| {
        let groups = step.groups.iter().map(|group| GroupLoad {
            name: &group.name,
            mode: &group.mode,
            clients: group.clients,
            params: &group.params,
        });
        keys_beside(&group.name, groups)
    };
    let beside: Vec<Map<String, Value>> = step.groups.iter().map(of).collect();
    for (group, beside) in step.groups.iter_mut().zip(beside) {
        group.beside = beside;
    }
}

/// Adds each row to the step of its `step_id`. Only the last attempt of a step with several is present.
fn add_to_steps<T: for<'r> Deserialize<'r>>(
    connection: &Connection,
    statement: Statement,
    run: RunId,
    steps: &mut [StepReport],
    mut add: impl FnMut(&mut StepReport, T),
) -> Result<(), ReportError> {
    let rows = rows_with(connection, statement, run, |row| {
        Ok((row.get::<_, i64>("step_id")?, value(row)?))
    })?;
    let at = places(steps);
    for (step, one) in rows {
        if let Some(step) = at.get(&step).and_then(|at| steps.get_mut(*at)) {
            add(step, one);
        }
    }
    Ok(())
}

//! Clients that are slower than the others of their group: over whole steps, and in a part of a step.

use super::{Extent, Outlier, during, finding, in_steps, outliers, stretch};
use crate::findings::steps::{Step, Window};
use crate::findings::{FindingsError, POINTS, quoted, reading};
use crate::rows::all_rows;
use benchmesh_analysis::outliers::{LESS, Rule};
use benchmesh_model::mesh::RunId;
use benchmesh_results::{Finding, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Minimum duration of a step for judging clients, and for judging a part of it.
const MIN_STEP_US: i64 = 10_000_000;
const MIN_STEP_OF_PARTS_US: i64 = 300_000_000;
/// In a part of a step, in operations per second.
const RATE_OF_PART: Rule = Rule {
    difference: 5.0,
    ..LESS
};

const OF_STEP: &str = "
    SELECT coalesce(t.group_name, ''), x.op, t.agent_id, coalesce(r.name, a.name), x.ops_per_s
    FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id JOIN task_results AS x ON x.task_id = t.id
         LEFT JOIN run_agents AS r ON r.run_id = ?2 AND r.agent_id = t.agent_id
    WHERE t.step_id = ?1 AND t.state = 'done' AND x.ops_per_s > 0
    ORDER BY 1, 2, 3, t.task_index";

/// A row for each task: the sums of its operations in windows of ?4 us, as one text. A row for each window would take
/// longer than its sum.
const IN_PARTS: &str = "
    SELECT coalesce(t.group_name, ''), t.agent_id, coalesce(r.name, a.name),
           (SELECT group_concat(coalesce((SELECT sum(i.ops) FROM op_intervals AS i
                                          WHERE i.task_id = t.id AND i.at_us >= p.value AND i.at_us < p.value + ?4
                                            AND i.ramp = 0), '-'), ' ') FROM json_each(?1) AS p)
    FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id
         LEFT JOIN run_agents AS r ON r.run_id = ?3 AND r.agent_id = t.agent_id
    WHERE t.step_id = ?2 ORDER BY 1, 2";

type StepRow = (String, String, i64, String, f64);

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    let steps: Vec<&Step> = steps
        .iter()
        .filter(|step| step.workload != "network")
        .collect();
    let mut found = over_steps(connection, run, &steps)?;
    let known: Vec<Option<i64>> = found.iter().map(|one| one.agent_id).collect();
    for step in steps {
        let in_parts = in_parts(connection, run, step)?.into_iter();
        found.extend(in_parts.filter(|one| !known.contains(&one.agent_id)));
    }
    Ok(found)
}

/// The peers in a window: tasks of one group that did one operation in a step.
struct Peers<'s> {
    step: &'s Step,
    group: String,
    op: String,
}

fn over_steps(
    connection: &Connection,
    run: RunId,
    steps: &[&Step],
) -> Result<Vec<Finding>, FindingsError> {
    let mut windows: Vec<Peers<'_>> = Vec::new();
    // By agent and by the number of its task among the peers.
    let mut rates: BTreeMap<(i64, usize), Vec<Option<f64>>> = BTreeMap::new();
    let mut names: BTreeMap<i64, String> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.length_us() >= MIN_STEP_US) {
        let rows: Vec<StepRow> = all_rows(connection, OF_STEP, &[step.id.into(), run.0.into()])
            .map_err(reading("task_results"))?;
        for peers in rows.chunk_by(|one, other| (&one.0, &one.1) == (&other.0, &other.1)) {
            let Some((group, op, ..)) = peers.first().cloned() else {
                continue;
            };
            for of_agent in peers.chunk_by(|one, other| one.2 == other.2) {
                for (number, (_, _, agent, name, rate)) in of_agent.iter().enumerate() {
                    let own = rates.entry((*agent, number)).or_default();
                    own.resize(windows.len(), None);
                    own.push(Some(*rate));
                    names.insert(*agent, name.clone());
                }
            }
            windows.push(Peers { step, group, op });
        }
    }
    let (tasks, rates): (Vec<(i64, usize)>, Vec<_>) = rates.into_iter().unzip();
    let mut found: BTreeMap<i64, Outlier> = BTreeMap::new();
    for outlier in outliers(&rates, &LESS, Extent::HalfOfWindows) {
        let Some((agent, _)) = tasks.get(outlier.entity) else {
            continue;
        };
        let is_slowest = |known: &Outlier| outlier.ratio < known.ratio;
        if found.get(agent).is_none_or(is_slowest) {
            found.insert(*agent, outlier);
        }
    }
    let found = found.iter().filter_map(|(agent, outlier)| {
        let peers = windows.get(outlier.windows.start)?;
        Some(slow_in_steps(
            (*agent, names.get(agent)?.as_str()),
            peers,
            outlier,
        ))
    });
    Ok(found.collect())
}

fn slow_in_steps((agent, name): (i64, &str), peers: &Peers<'_>, outlier: &Outlier) -> Finding {
    let Peers { step, group, op } = peers;
    let clause = format!(
        "client {name} did {} {op}/s {}",
        figures::rate(outlier.value),
        in_steps(outlier, &step.label)
    );
    let sql = format!(
        "SELECT a.name, r.op, r.ops_per_s, r.p99_ns / 1e6 AS p99_ms FROM tasks AS t \
         JOIN task_results AS r ON r.task_id = t.id JOIN agents AS a ON a.id = t.agent_id \
         WHERE t.step_id = {} AND r.op = {} ORDER BY r.ops_per_s",
        step.id,
        quoted(op)
    );
    Finding {
        step_id: Some(step.id),
        group_name: Some(group.clone()).filter(|group| !group.is_empty()),
        op: Some(op.clone()),
        agent_id: Some(agent),
        from_us: Some(step.from_us),
        until_us: Some(step.until_us),
        ..finding(name, "ops_per_s", outlier, (clause, ""), sql)
    }
}

fn in_parts(
    connection: &Connection,
    run: RunId,
    step: &Step,
) -> Result<Vec<Finding>, FindingsError> {
    let windows = step.windows(POINTS);
    let width_us = windows.first().map_or(0, Window::length_us);
    if step.length_us() < MIN_STEP_OF_PARTS_US || width_us == 0 {
        return Ok(Vec::new());
    }
    let begins = serde_json::Value::from_iter(windows.iter().map(|window| window.from_us));
    let parameters = [
        begins.to_string().into(),
        step.id.into(),
        run.0.into(),
        width_us.into(),
    ];
    let rows: Vec<(String, i64, String, String)> =
        all_rows(connection, IN_PARTS, &parameters).map_err(reading("op_intervals"))?;
    let count = i64::try_from(windows.len()).unwrap_or(i64::MAX);
    let extent = stretch(step.length_us(), step.length_us() / count);
    let edge = |window: usize| windows.get(window).map(|window| window.from_us);
    let mut found = Vec::new();
    for of_group in rows.chunk_by(|one, other| one.0 == other.0) {
        let mut rates: BTreeMap<(i64, &str), Vec<Option<f64>>> = BTreeMap::new();
        for (_, agent, name, sums) in of_group {
            let own = rates.entry((*agent, name.as_str())).or_default();
            own.resize(windows.len(), None);
            for (rate, sum) in own.iter_mut().zip(sums.split(' ')) {
                if let Ok(ops) = sum.parse() {
                    *rate = Some(rate.unwrap_or(0.0) + real(ops) * 1e6 / real(width_us));
                }
            }
        }
        let (clients, rates): (Vec<(i64, &str)>, Vec<_>) = rates.into_iter().unzip();
        let group = of_group.first().map(|row| row.0.clone());
        let group = group.filter(|group| !group.is_empty());
        for outlier in outliers(&rates, &RATE_OF_PART, extent) {
            let span = (
                edge(outlier.windows.start).unwrap_or(step.from_us),
                edge(outlier.windows.end).unwrap_or(step.until_us),
            );
            let client = clients.get(outlier.entity);
            found.extend(client.map(|client| Finding {
                group_name: group.clone(),
                ..slow_in_part(*client, step, span, &outlier)
            }));
        }
    }
    Ok(found)
}

fn slow_in_part(
    (agent, name): (i64, &str),
    step: &Step,
    (from_us, until_us): (i64, i64),
    outlier: &Outlier,
) -> Finding {
    let clause = format!(
        "client {name} did {} operations/s {} in {}",
        figures::rate(outlier.value),
        during(from_us, until_us),
        step.label
    );
    let sql = format!(
        "SELECT a.name, sum(i.ops) * 1e6 / ({until_us} - {from_us}) AS ops_per_s FROM tasks AS t \
         JOIN agents AS a ON a.id = t.agent_id JOIN op_intervals AS i ON i.task_id = t.id \
         AND i.at_us >= {from_us} AND i.at_us < {until_us} WHERE t.step_id = {} AND i.ramp = 0 \
         GROUP BY t.agent_id ORDER BY ops_per_s",
        step.id
    );
    Finding {
        step_id: Some(step.id),
        agent_id: Some(agent),
        from_us: Some(from_us),
        until_us: Some(until_us),
        ..finding(name, "ops_per_s", outlier, (clause, ""), sql)
    }
}

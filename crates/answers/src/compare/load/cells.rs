//! The cells of a run: each operation of each step with its figures and, if requested, its seconds.

use super::seconds::{response_series, series};
use super::{CompareError, costs, reading};
use crate::compare::cell::{CellKey, MeasuredCell};
use crate::compare::{FigureName, RunRef};
use crate::rows::{BoxError, Row, all_rows, rows_with};
use benchmesh_model::mesh::RunId;
use benchmesh_plan::{GroupLoad, TASKS_PER_AGENT, keys_beside};
use benchmesh_results::seconds::uneven_percent;
use benchmesh_store::IS_OF_RUN;
use benchmesh_workloads::op::Op;
use benchmesh_workloads::registry;
use rusqlite::Connection;
use serde_json::{Map, Value as Json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Whether the seconds of steps are loaded, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seconds {
    Read,
    Skip,
}

/// A cell before its seconds are read.
pub(super) struct UnreadCell {
    window: Option<(i64, i64)>,
    /// When the step ran.
    span: Option<(i64, i64)>,
    pub(super) cell: MeasuredCell,
}

const CELLS: &str = "
    SELECT s.id, s.phase, coalesce(s.target, '') AS target, coalesce(g.workload, s.workload) AS workload,
           coalesce(g.mode, s.mode) AS mode, coalesce(g.params, s.params) AS params,
           coalesce(g.clients, s.clients) AS clients, s.start_us,
           -- Over all loops.
           (s.loop - 1) * (SELECT max(n.repeat) FROM steps AS n WHERE n.run_id = ?1) + s.repeat AS repeat,
           coalesce(s.last_done_us, s.ended_us) AS until_us,
           coalesce(g.tasks, (SELECT count(*) FROM tasks AS t WHERE t.step_id = s.id AND t.peer_agent_id IS NULL
                                  AND t.part = 1)) AS tasks,
           -- An agent of which one task stayed and another did not is no whole client: then there are none to divide by.
           coalesce((SELECT iif(max(a.some AND NOT a.every), 0, sum(a.every)) FROM (
               SELECT min(t.state = 'done') AS every, max(t.state = 'done') AS some FROM tasks AS t
               WHERE t.step_id = s.id AND t.peer_agent_id IS NULL
                   -- One that came back into the step counts by its last part.
                   AND NOT EXISTS (SELECT 1 FROM tasks AS n WHERE n.step_id = t.step_id AND n.part > t.part
                                       AND n.client_index = coalesce(t.client_index, t.task_index))
                   AND (o.group_name IS NULL OR t.group_name = o.group_name) GROUP BY t.agent_id) AS a), 0) AS stayed,
           s.cache, s.partial, s.flags,
           coalesce(o.group_name, '') AS group_name, o.op, o.ops, o.errors, o.headline, o.ops_per_s, o.bytes_per_s,
           o.mean_ns, o.p50_ns, o.p90_ns, o.p95_ns, o.p99_ns, o.p999_ns, o.response_p99_ns, o.window_us, o.last_done_us,
           o.seconds, o.ops_per_s_stddev,
           s.all_active_from_us, s.all_active_until_us,
           coalesce((SELECT group_concat(link, ', ') FROM (
               SELECT DISTINCT coalesce(ea.name, a.name) || ' -> ' || coalesce(ep.name, p.name) AS link
               FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id JOIN agents AS p ON p.id = t.peer_agent_id
                    LEFT JOIN run_agents AS ea ON ea.run_id = s.run_id AND ea.agent_id = a.id
                    LEFT JOIN run_agents AS ep ON ep.run_id = s.run_id AND ep.agent_id = p.id
               WHERE t.step_id = s.id ORDER BY 1)), '') AS link
    FROM steps AS s JOIN step_results AS o ON o.step_id = s.id
         LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = o.group_name
    WHERE s.run_id = ?1
        -- A search chooses the rates of its probes; `searches` compares the rate that it found.
        AND s.ordinal NOT IN (
            SELECT p.value ->> 'ordinal' FROM events AS e JOIN json_each(e.detail, '$.probes') AS p
            WHERE e.run_id = ?1 AND e.kind IN ('search-found', 'search-not-found')
                AND p.value ->> 'rate_per_s' IS NOT NULL)
        AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
    ORDER BY s.ordinal, o.group_name, o.op";

/// The cells of a run, or of one of its targets.
pub(super) fn cells_of(
    connection: &Connection,
    run: &RunRef,
    target: Option<&str>,
    seconds: Seconds,
) -> Result<Vec<MeasuredCell>, CompareError> {
    let parameters = [run.id.0.into()];
    let read = rows_with(connection, CELLS, &parameters, |row| cell_row(row, run));
    let mut found = read.map_err(reading("step_results"))?;
    add_loads_beside(connection, run.id, &mut found)?;
    found.retain(|one| target.is_none_or(|target| one.cell.target == target));
    if run.imported_from.is_none() {
        add_none_lost(&mut found);
    }
    add_datagrams(&mut found);
    costs::add(connection, run.id, &mut found)?;
    if run.imported_from.is_none() {
        add_events(connection, run.id, &mut found)?;
    }
    let mut cells = Vec::with_capacity(found.len());
    for one in found {
        let mut cell = one.cell;
        if seconds == Seconds::Read {
            let op = (cell.key.group.as_str(), cell.key.op.as_str());
            let read = series(connection, cell.step, op, one.window)?;
            cell.series = read.map(Arc::new);
            if cell.response_p99_ms.is_some() {
                let read = response_series(connection, cell.step, op, one.window)?;
                cell.response_series = read.map(Arc::new);
            }
        }
        cells.push(cell);
    }
    Ok(cells)
}

const GROUPS: &str = "
    SELECT g.step_id, g.name, g.mode, g.clients, g.params
    FROM steps AS s CROSS JOIN step_groups AS g ON g.step_id = s.id WHERE s.run_id = ? ORDER BY g.step_id, g.name";

/// A group of a step.
struct StoredGroup {
    name: String,
    mode: String,
    clients: i64,
    params: Map<String, Json>,
}

/// Adds the loads of the other groups to the parameters of each group's cells.
fn add_loads_beside(
    connection: &Connection,
    run: RunId,
    found: &mut [UnreadCell],
) -> Result<(), CompareError> {
    let read_group = |row: &Row<'_>| -> Result<(i64, StoredGroup), BoxError> {
        let params: String = row.get("params")?;
        let group = StoredGroup {
            name: row.get("name")?,
            mode: row.get("mode")?,
            clients: row.get("clients")?,
            params: serde_json::from_str(&params)?,
        };
        Ok((row.get("step_id")?, group))
    };
    let rows = rows_with(connection, GROUPS, &[run.0.into()], read_group);
    let mut steps: HashMap<i64, Vec<StoredGroup>> = HashMap::new();
    for (step, group) in rows.map_err(reading("step_groups"))? {
        steps.entry(step).or_default().push(group);
    }
    for one in found.iter_mut() {
        let groups = steps.get(&one.cell.step).into_iter().flatten();
        let groups = groups.map(|group| GroupLoad {
            name: &group.name,
            mode: &group.mode,
            clients: group.clients,
            params: &group.params,
        });
        let beside = keys_beside(&one.cell.key.group, groups);
        one.cell.key.params.extend(beside);
    }
    Ok(())
}

fn cell_row(row: &Row<'_>, run: &RunRef) -> Result<UnreadCell, BoxError> {
    let ms = |column: &str| -> rusqlite::Result<Option<f64>> {
        let ns: Option<f64> = row.get(column)?;
        Ok(ns.map(|ns| ns / 1e6))
    };
    let json = |column: &str| row.get::<_, String>(column);
    let from: Option<i64> = row.get("all_active_from_us")?;
    let until: Option<i64> = row.get("all_active_until_us")?;
    let headline: String = row.get("headline")?;
    let mut params: Map<String, Json> = serde_json::from_str(&json("params")?)?;
    let (clients, tasks): (i64, i64) = (row.get("clients")?, row.get("tasks")?);
    let link: String = row.get("link")?;
    if link.is_empty() && clients > 0 && tasks > clients {
        params.insert(TASKS_PER_AGENT.to_owned(), (tasks / clients).into());
    }
    let over_us = match headline.as_str() {
        "window" => "window_us",
        _ => "last_done_us",
    };
    let start: Option<i64> = row.get("start_us")?;
    let ended: Option<i64> = row.get("until_us")?;
    let partial: bool = row.get("partial")?;
    let ops_per_s: Option<f64> = row.get("ops_per_s")?;
    let (stddev, seconds): (Option<f64>, Option<i64>) =
        (row.get("ops_per_s_stddev")?, row.get("seconds")?);
    Ok(UnreadCell {
        span: start.zip(ended),
        window: from.zip(until).filter(|_| headline == "window"),
        cell: MeasuredCell {
            step: row.get("id")?,
            run: run.id.0,
            repeat: row.get("repeat")?,
            events: Vec::new(),
            over_us: row.get(over_us)?,
            response_p99_ms: ms("response_p99_ns")?,
            response_series: None,
            key: CellKey {
                phase: row.get("phase")?,
                group: row.get("group_name")?,
                workload: row.get("workload")?,
                mode: row.get("mode")?,
                op: row.get("op")?,
                params,
                clients,
                cache: row.get("cache")?,
                link,
            },
            target: row.get("target")?,
            flags: serde_json::from_str(&json("flags")?)?,
            partial,
            // A rate that is computed up to the last worker's end includes the work of lost tasks.
            rate_clients: match partial && headline != "window" {
                true => 0,
                false => row.get("stayed")?,
            },
            ops: row.get("ops")?,
            errors: row.get("errors")?,
            ops_per_s,
            bytes_per_s: row.get("bytes_per_s")?,
            mean_ms: ms("mean_ns")?,
            p50_ms: ms("p50_ns")?,
            p90_ms: ms("p90_ns")?,
            p95_ms: ms("p95_ns")?,
            p99_ms: ms("p99_ns")?,
            p999_ms: ms("p999_ns")?,
            uneven_percent: ops_per_s
                .zip(stddev)
                .and_then(|(rate, stddev)| uneven_percent(rate, stddev, seconds.unwrap_or(0))),
            datagrams: 0,
            cpu_us_per_op: BTreeMap::new(),
            client_us_per_op: None,
            net_bytes_per_op: None,
            series: None,
            imported: run.imported_from.is_some(),
        },
    })
}

/// Events that disturb a measurement, by the prefixes of their kinds.
const DISTURBING: [&str; 13] = [
    "agent-lost",
    "carrier-",
    "client-frozen",
    "cluster-degraded",
    "daemon-",
    "errors-limit",
    "lease-over",
    "link-",
    "operation-stuck",
    "prepare-failed",
    "stall",
    "step-failed",
    "target-lost",
];
/// The kind of marks by people and scripts.
const MARK: &str = "mark";
/// Maximum number of events of a run that are read.
const MAX_EVENTS: i64 = 4000;

/// A daemon's event has no run id; it belongs to the run that was running at the time.
const EVENTS: &str = "
    SELECT e.at_us, e.kind,
           CASE WHEN e.kind LIKE 'carrier-%' OR e.kind LIKE 'link-%' OR e.kind LIKE 'daemon-%' THEN coalesce(
               (SELECT x.name || ': ' FROM run_agents AS x WHERE x.run_id = r.id AND x.agent_id = e.agent_id), '')
               ELSE '' END || e.message || coalesce((
               SELECT ' (it served ' || group_concat(target, ', ') || ')' FROM (
                   SELECT DISTINCT s.target FROM run_agents AS a
                   CROSS JOIN daemons AS d ON d.host_id = a.host_id AND d.pid = e.detail ->> 'pid'
                       AND d.start_ticks = e.detail ->> 'start_ticks'
                   CROSS JOIN step_daemons AS u ON u.daemon_id = d.id AND u.serves_target
                   CROSS JOIN steps AS s ON s.id = u.step_id AND s.run_id = r.id
                   WHERE a.run_id = r.id AND a.agent_id = e.agent_id AND e.kind LIKE 'daemon-%' ORDER BY 1)), '')
    FROM runs AS r
    CROSS JOIN events AS e ON e.at_us BETWEEN r.started_us AND coalesce(r.ended_us, 9223372036854775807)
        AND (e.run_id IS NULL OR e.run_id = r.id)
    WHERE r.id = ?1 AND (e.severity <> 'info' OR e.kind IN ('daemon-ended', 'daemon-restarted'))
        AND e.kind NOT LIKE '%-over' AND /* IS_OF_RUN */ ORDER BY e.at_us LIMIT ?2";
const MARKS: &str = "SELECT at_us, text FROM marks WHERE run_id = ?1 ORDER BY at_us LIMIT ?2";

/// Adds the events during its step to each cell.
fn add_events(
    connection: &Connection,
    run: RunId,
    found: &mut [UnreadCell],
) -> Result<(), CompareError> {
    let parameters = [run.0.into(), MAX_EVENTS.into()];
    let mut rows: Vec<(i64, String, String)> = all_rows(
        connection,
        &EVENTS.replace("/* IS_OF_RUN */", IS_OF_RUN),
        &parameters,
    )
    .map_err(reading("events"))?;
    let marks: Vec<(i64, String)> =
        all_rows(connection, MARKS, &parameters).map_err(reading("marks"))?;
    let marked = marks
        .into_iter()
        .map(|(at, text)| (at, String::from(MARK), format!("mark `{text}`")));
    rows.extend(marked);
    rows.sort_by_key(|(at, ..)| *at);
    let disturbs =
        |kind: &str| kind == MARK || DISTURBING.iter().any(|begin| kind.starts_with(begin));
    for (at, _, message) in rows.iter().filter(|(_, kind, _)| disturbs(kind)) {
        for one in found.iter_mut() {
            if one
                .span
                .is_some_and(|(from, until)| (from..=until).contains(at))
            {
                one.cell.events.push(message.clone());
            }
        }
    }
    Ok(())
}

/// Adds a cell without any to each link whose load counts what was lost, and counted none: a step has no row of it.
fn add_none_lost(found: &mut Vec<UnreadCell>) {
    let mut added: Vec<UnreadCell> = Vec::new();
    let of_step = |cell: &MeasuredCell| (cell.step, cell.key.group.clone());
    let known: BTreeSet<((i64, String), String)> = found
        .iter()
        .map(|one| (of_step(&one.cell), one.cell.key.op.clone()))
        .collect();
    for one in found.iter().filter(|one| Op::is_work(&one.cell.key.op)) {
        let key = &one.cell.key;
        let modes = registry::find(&key.workload).map_or(&[][..], |workload| workload.modes());
        let mode = modes.iter().find(|mode| mode.name == key.mode);
        let counted = mode.map_or(&[][..], |mode| mode.ops).iter();
        for op in counted.filter(|op| FigureName::of_op(op.as_str()) == [FigureName::Share]) {
            if known.contains(&(of_step(&one.cell), op.to_string())) {
                continue;
            }
            let mut key = key.clone();
            key.op = op.to_string();
            let cell = MeasuredCell {
                key,
                ops: Some(0),
                errors: Some(0),
                ops_per_s: None,
                bytes_per_s: None,
                mean_ms: None,
                p50_ms: None,
                p99_ms: None,
                response_p99_ms: None,
                ..one.cell.clone()
            };
            added.push(UnreadCell {
                window: one.window,
                span: one.span,
                cell,
            });
        }
    }
    found.extend(added);
}

/// Adds the number of all datagrams or requests of its link to each cell that counts some of them.
fn add_datagrams(found: &mut [UnreadCell]) {
    let of_step = |cell: &MeasuredCell| (cell.step, cell.key.group.clone());
    let mut all: HashMap<(i64, String), i64> = HashMap::new();
    for one in found.iter() {
        let is_part = [Op::Receive, Op::Request, Op::Lost]
            .iter()
            .any(|op| op.as_str() == one.cell.key.op);
        if is_part {
            *all.entry(of_step(&one.cell)).or_default() += one.cell.ops.unwrap_or(0);
        }
    }
    for one in found.iter_mut() {
        let datagrams = all.get(&of_step(&one.cell));
        one.cell.datagrams = datagrams.copied().unwrap_or(0);
    }
}

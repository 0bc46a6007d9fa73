//! The cells of a run: each operation of each step with its figures and, if requested, its seconds.

use super::seconds::{response_series, series};
use super::{CompareError, reading};
use crate::compare::RunRef;
use crate::compare::cell::{CellKey, MeasuredCell};
use benchmesh_model::mesh::RunId;
use benchmesh_plan::TASKS_PER_AGENT;
use benchmesh_workloads::histogram::Histogram;
use serde_json::{Map, Value as Json};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, SqliteConnection};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Whether the seconds of steps are loaded, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seconds {
    Read,
    Skip,
}

/// A cell before its seconds are read.
struct UnreadCell {
    window: Option<(i64, i64)>,
    /// When the step ran.
    span: Option<(i64, i64)>,
    cell: MeasuredCell,
}

/// The cells of a run, or of one of its targets.
pub(super) async fn cells_of(
    connection: &mut SqliteConnection,
    run: &RunRef,
    target: Option<&str>,
    seconds: Seconds,
) -> Result<Vec<MeasuredCell>, CompareError> {
    let rows = sqlx::query(
        "SELECT s.id, s.phase, coalesce(s.target, '') AS target, coalesce(g.workload, s.workload) AS workload,
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
                coalesce(o.group_name, '') AS group_name, o.op, o.ops, o.errors, o.headline, o.ops_per_s, o.mean_ns,
                o.p50_ns, o.p99_ns, o.response_p99_ns, o.window_us, o.last_done_us, o.histogram, o.response_histogram,
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
         ORDER BY s.ordinal, o.group_name, o.op",
    )
    .bind(run.id.0)
    .fetch_all(&mut *connection)
    .await
    .map_err(reading("step_results"))?;
    let imported = run.imported_from.is_some();
    let mut found = Vec::with_capacity(rows.len());
    let mut kept = Vec::with_capacity(rows.len());
    for row in &rows {
        let one = cell_row(row, run, imported).map_err(reading("step_results"))?;
        if target.is_none_or(|target| one.cell.target == target) {
            found.push(one);
            kept.push(row);
        }
    }
    let costs = costs(connection, run.id).await?;
    add_costs(&mut found, &costs);
    if !imported {
        add_events(connection, run.id, &mut found).await?;
    }
    for (one, row) in found.iter_mut().zip(kept) {
        let step = one.cell.step;
        one.cell.histogram = histogram(row, "histogram", step)?;
        one.cell.response_histogram = histogram(row, "response_histogram", step)?;
    }
    let mut cells = Vec::with_capacity(found.len());
    for mut one in found {
        if seconds == Seconds::Read {
            let (step, key) = (one.cell.step, &one.cell.key);
            let read = series(connection, step, (&key.group, &key.op), one.window).await?;
            one.cell.series = read.map(Arc::new);
            if one.cell.response_p99_ms.is_some() {
                let read =
                    response_series(connection, step, (&key.group, &key.op), one.window).await?;
                one.cell.response_series = read.map(Arc::new);
            }
        }
        cells.push(one.cell);
    }
    Ok(cells)
}

fn cell_row(row: &SqliteRow, run: &RunRef, imported: bool) -> Result<UnreadCell, sqlx::Error> {
    let ms = |column: &str| -> Result<Option<f64>, sqlx::Error> {
        let ns: Option<f64> = match column {
            "mean_ns" => row.try_get(column)?,
            _ => row
                .try_get::<Option<i64>, _>(column)?
                .map(benchmesh_results::real),
        };
        Ok(ns.map(|ns| ns / 1e6))
    };
    let json = |column: &'static str| -> Result<String, sqlx::Error> { row.try_get(column) };
    let unreadable = |column: &str, source: serde_json::Error| sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: Box::new(source),
    };
    let from: Option<i64> = row.try_get("all_active_from_us")?;
    let until: Option<i64> = row.try_get("all_active_until_us")?;
    let headline: String = row.try_get("headline")?;
    let mut params: Map<String, Json> =
        serde_json::from_str(&json("params")?).map_err(|error| unreadable("params", error))?;
    let (clients, tasks): (i64, i64) = (row.try_get("clients")?, row.try_get("tasks")?);
    let link: String = row.try_get("link")?;
    if link.is_empty() && clients > 0 && tasks > clients {
        params.insert(TASKS_PER_AGENT.to_owned(), (tasks / clients).into());
    }
    let time: Option<i64> = match headline.as_str() {
        "window" => row.try_get("window_us")?,
        _ => row.try_get("last_done_us")?,
    };
    let start: Option<i64> = row.try_get("start_us")?;
    let partial: bool = row.try_get("partial")?;
    Ok(UnreadCell {
        span: start.zip(row.try_get::<Option<i64>, _>("until_us")?),
        window: from.zip(until).filter(|_| headline == "window"),
        cell: MeasuredCell {
            step: row.try_get("id")?,
            run: run.id.0,
            repeat: row.try_get("repeat")?,
            events: Vec::new(),
            over_us: time.map(benchmesh_results::real),
            response_p99_ms: ms("response_p99_ns")?,
            histogram: None,
            response_histogram: None,
            response_series: None,
            key: CellKey {
                phase: row.try_get("phase")?,
                group: row.try_get("group_name")?,
                workload: row.try_get("workload")?,
                mode: row.try_get("mode")?,
                op: row.try_get("op")?,
                params,
                clients,
                cache: row.try_get("cache")?,
                link,
            },
            target: row.try_get("target")?,
            flags: serde_json::from_str(&json("flags")?)
                .map_err(|error| unreadable("flags", error))?,
            partial,
            // A rate that is computed up to the last worker's end includes the work of lost tasks.
            rate_clients: match partial && headline != "window" {
                true => 0,
                false => row.try_get("stayed")?,
            },
            ops: row.try_get("ops")?,
            errors: row.try_get("errors")?,
            ops_per_s: row.try_get("ops_per_s")?,
            mean_ms: ms("mean_ns")?,
            p50_ms: ms("p50_ns")?,
            p99_ms: ms("p99_ns")?,
            cpu_us_per_op: BTreeMap::new(),
            series: None,
            imported,
        },
    })
}

fn histogram(
    row: &SqliteRow,
    column: &'static str,
    step: i64,
) -> Result<Option<Arc<Histogram>>, CompareError> {
    let blob: Option<Vec<u8>> = row.try_get(column).map_err(reading("step_results"))?;
    blob.map(|blob| Histogram::from_v2_deflate(&blob).map(Arc::new))
        .transpose()
        .map_err(|source| CompareError::Histogram { step, source })
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

/// Adds the events during its step to each cell.
async fn add_events(
    connection: &mut SqliteConnection,
    run: RunId,
    found: &mut [UnreadCell],
) -> Result<(), CompareError> {
    // A daemon's event has no run id; it belongs to the run that was running at the time.
    let mut rows: Vec<(i64, String, String)> = sqlx::query_as(
        "SELECT e.at_us, e.kind,
                e.message || coalesce((
                    SELECT ' (it served ' || group_concat(target, ', ') || ')' FROM (
                        SELECT DISTINCT s.target FROM agents AS a
                        CROSS JOIN daemons AS d ON d.host_id = a.host_id AND d.pid = e.detail ->> 'pid'
                            AND d.start_ticks = e.detail ->> 'start_ticks'
                        CROSS JOIN step_daemons AS u ON u.daemon_id = d.id AND u.serves_target
                        CROSS JOIN steps AS s ON s.id = u.step_id AND s.run_id = r.id
                        WHERE a.id = e.agent_id AND e.kind LIKE 'daemon-%' ORDER BY 1)), '')
         FROM runs AS r
         CROSS JOIN events AS e ON e.at_us BETWEEN r.started_us AND coalesce(r.ended_us, 9223372036854775807)
             AND (e.run_id IS NULL OR e.run_id = r.id)
         WHERE r.id = ?1 AND (e.severity <> 'info' OR e.kind IN ('daemon-ended', 'daemon-restarted'))
             AND e.kind NOT LIKE '%-over' ORDER BY e.at_us LIMIT ?2",
    )
    .bind(run.0)
    .bind(MAX_EVENTS)
    .fetch_all(&mut *connection)
    .await
    .map_err(reading("events"))?;
    let marks: Vec<(i64, String)> =
        sqlx::query_as("SELECT at_us, text FROM marks WHERE run_id = ?1 ORDER BY at_us LIMIT ?2")
            .bind(run.0)
            .bind(MAX_EVENTS)
            .fetch_all(&mut *connection)
            .await
            .map_err(reading("marks"))?;
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

/// Per step: CPU time per operation of each kind of daemon.
async fn costs(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<HashMap<i64, BTreeMap<String, f64>>, CompareError> {
    let rows: Vec<(i64, String, f64)> = sqlx::query_as(
        "SELECT step_id, name, cpu_us_per_op FROM v_cost
         WHERE run_id = ? AND cpu_us_per_op > 0",
    )
    .bind(run.0)
    .fetch_all(connection)
    .await
    .map_err(reading("v_cost"))?;
    let mut costs: HashMap<i64, BTreeMap<String, f64>> = HashMap::new();
    for (step, name, cost) in rows {
        costs.entry(step).or_default().insert(name, cost);
    }
    Ok(costs)
}

fn add_costs(found: &mut [UnreadCell], costs: &HashMap<i64, BTreeMap<String, f64>>) {
    let mut most: HashMap<i64, i64> = HashMap::new();
    for one in found.iter() {
        let ops = most.entry(one.cell.step).or_insert(-1);
        *ops = (*ops).max(one.cell.ops);
    }
    let mut given = BTreeSet::new();
    for one in found.iter_mut() {
        let is_main = most.get(&one.cell.step) == Some(&one.cell.ops);
        if is_main
            && let Some(cost) = costs.get(&one.cell.step)
            && given.insert(one.cell.step)
        {
            one.cell.cpu_us_per_op = cost.clone();
        }
    }
}

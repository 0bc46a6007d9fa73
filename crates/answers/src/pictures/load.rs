//! Reads the series of a run from its database, on a separate thread.

use super::{
    Mark, OpSeries, PICTURES_FORMAT, Pictures, StepPicture, Timeline, grids,
    heat::HeatMap,
    seconds::{Axis, OpSecond, Points},
    usage,
};
use crate::query::{QueryError, ReadOnly};
use crate::report::{Report, load_names};
use async_recursion::async_recursion as boxed;
use benchmesh_store::widest_row_s;
use rusqlite::{Connection, Row, params};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::runtime::Handle;

/// Number of points of daemons and hosts over the whole run.
const RUN_POINTS: i64 = 1200;
/// Maximum number of points of one step.
const STEP_POINTS: i64 = 600;
const ALL_STEP_POINTS: i64 = 30_000;
/// A step of a run with very many has this number of points at most.
const MIN_STEP_POINTS: i64 = 20;
/// Maximum number of steps with their own pictures.
const MAX_STEPS: usize = 2000;
const HEAT_COLUMNS: i64 = 240;
/// Maximum number of histograms decoded for the heat map, at some tens of microseconds each.
const HEAT_HISTOGRAMS: i64 = 8000;
const MAX_EVENTS: i64 = 500;

const SECONDS: &str = concat!(
    "
SELECT op, group_name, at_us, span_us, ops, bytes, errors, p50_ns, p99_ns, max_ns,
       CASE WHEN ?2 > 0 AND (at_us / (SELECT ",
    widest_row_s!("steps"),
    " * 1000000 FROM steps WHERE id = ?1)) % ?2 = 0
            THEN histogram END
FROM step_intervals WHERE step_id = ?1 AND at_us >= ?3 ORDER BY at_us"
);

const STEP_COUNTS: &str = "SELECT count(*) FROM step_intervals WHERE step_id = ?1";

const STEPS: &str = "
SELECT s.id, s.ordinal, s.phase, s.target, s.mode, s.params, s.state, s.flags,
       coalesce(s.start_us, s.measured_from_us), coalesce(s.last_done_us, s.ended_us), s.repeat, s.loop
FROM steps AS s
WHERE s.run_id = ?1 AND s.start_us IS NOT NULL AND coalesce(s.ended_us, ?2) >= ?2
  AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
ORDER BY s.ordinal";

/// Without starts and ends of daemons, which are among the report's marks.
const EVENTS: &str = "
SELECT e.at_us, e.severity, e.kind, coalesce(r.name, a.name), e.message
FROM events AS e LEFT JOIN agents AS a ON a.id = e.agent_id
LEFT JOIN run_agents AS r ON r.run_id = e.run_id AND r.agent_id = e.agent_id
WHERE e.run_id = ?1 AND e.severity <> 'info' AND e.kind NOT LIKE 'daemon-%'
ORDER BY e.at_us LIMIT ?2";

/// Why there are no pictures.
#[derive(Debug, thiserror::Error)]
pub enum PictureError {
    #[error(transparent)]
    Open(#[from] QueryError),
    #[error("cannot read the run's series")]
    Sqlite(#[from] rusqlite::Error),
    #[error("cannot open the database for pictures")]
    Connect(#[from] sqlx::Error),
    #[error("the thread that reads the run's series ended early")]
    Thread(#[from] tokio::task::JoinError),
}

/// The pictures of a run, given its report.
#[boxed]
#[inline(never)]
pub async fn load(path: &Path, report: Arc<Report>) -> Result<Pictures, PictureError> {
    connected(path.to_owned(), move |connection| {
        pictures(connection, &report)
    })
    .await
}

/// The load of a run since `from_us`, in at most `points` points.
#[boxed]
#[inline(never)]
pub async fn timeline(
    path: &Path,
    run_id: i64,
    from_us: i64,
    points: i64,
) -> Result<Timeline, PictureError> {
    connected(path.to_owned(), move |connection| {
        run_timeline(connection, run_id, from_us, points)
    })
    .await
}

/// Gives direct access to the connection, because reading rows by the hundred thousand must not switch threads for
/// each.
pub(super) async fn connected<T: Send + 'static>(
    path: PathBuf,
    read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error> + Send + 'static,
) -> Result<T, PictureError> {
    let runtime = Handle::current();
    tokio::task::spawn_blocking(move || {
        let mut file = runtime.block_on(ReadOnly::open(&path))?;
        let result = {
            let mut handle = runtime.block_on(file.connection.lock_handle())?;
            // SAFETY: the handle is open, and ours alone while `handle` is locked, which outlives `borrowed` and its
            // statements. A `Connection` made this way does not close the handle.
            let borrowed = unsafe { Connection::from_handle(handle.as_raw_handle().as_ptr()) };
            borrowed.and_then(|borrowed| read(&borrowed))
        };
        runtime.block_on(file.close());
        Ok(result?)
    })
    .await?
}

/// One step to be drawn.
struct DrawnStep {
    id: i64,
    ordinal: i64,
    /// Phase and mode.
    name: String,
    /// Parameters in parentheses.
    words: String,
    load: String,
    target: String,
    repeat: i64,
    loop_number: i64,
    state: String,
    flags: Vec<String>,
    from_us: i64,
    until_us: i64,
}

fn step(row: &Row<'_>) -> Result<DrawnStep, rusqlite::Error> {
    let (phase, target): (String, Option<String>) = (row.get(2)?, row.get(3)?);
    let (mode, params, flags): (String, String, String) = (row.get(4)?, row.get(5)?, row.get(7)?);
    let from_us: i64 = row.get(8)?;
    let until_us: Option<i64> = row.get(9)?;
    let target = target.unwrap_or_default();
    let params: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(&params).unwrap_or_default();
    let words: Vec<String> = [
        "size",
        "bs",
        "iodepth",
        "numjobs",
        "files",
        "rate_iops",
        "rate",
    ]
    .iter()
    .filter_map(|key| {
        let value = params.get(*key)?;
        Some(format!(
            "{key}={}",
            benchmesh_workloads::figures::parameter(value)
        ))
    })
    .collect();
    let words = match words.is_empty() {
        true => String::new(),
        false => format!(" ({})", words.join(" ")),
    };
    Ok(DrawnStep {
        id: row.get(0)?,
        ordinal: row.get(1)?,
        name: format!("{phase}: {mode}"),
        load: format!("{phase}: {mode}{words}"),
        words,
        target,
        repeat: row.get(10)?,
        loop_number: row.get(11)?,
        state: row.get(6)?,
        flags: serde_json::from_str(&flags).unwrap_or_default(),
        from_us,
        until_us: until_us.unwrap_or(0).max(from_us),
    })
}

/// The steps of a run that have begun and had not ended before `from_us`, and the last instant of any of their seconds.
fn steps(
    connection: &Connection,
    run_id: i64,
    from_us: i64,
) -> Result<(Vec<DrawnStep>, i64), rusqlite::Error> {
    let mut statement = connection.prepare(STEPS)?;
    let mut steps = statement
        .query_map(params![run_id, from_us], step)?
        .collect::<Result<Vec<_>, _>>()?;
    let mut newest =
        connection.prepare("SELECT max(at_us) FROM step_intervals WHERE step_id = ?1")?;
    for step in &mut steps {
        if step.until_us == step.from_us {
            let until: Option<i64> = newest.query_row([step.id], |row| row.get(0))?;
            step.until_us = until.map_or(step.from_us, |at| at.saturating_add(1_000_000));
        }
    }
    let until = steps.iter().map(|step| step.until_us).max();
    Ok((steps, until.unwrap_or(from_us)))
}

pub(super) fn second(row: &Row<'_>) -> Result<OpSecond, rusqlite::Error> {
    Ok(OpSecond {
        at_us: row.get(2)?,
        span_us: row.get(3)?,
        ops: row.get(4)?,
        bytes: row.get(5)?,
        errors: row.get(6)?,
        p50_ns: row.get(7)?,
        p99_ns: row.get(8)?,
        max_ns: row.get(9)?,
    })
}

pub(super) fn run_timeline(
    connection: &Connection,
    run_id: i64,
    from_us: i64,
    points: i64,
) -> Result<Timeline, rusqlite::Error> {
    let (steps, until_us) = steps(connection, run_id, from_us)?;
    let from_us = steps
        .first()
        .map_or(from_us, |step| step.from_us.max(from_us));
    let axis = Axis::new(from_us, from_us, until_us, points);
    let mut total = OpSeries {
        name: "total".to_owned(),
        ..OpSeries::default()
    };
    let mut starts = Vec::with_capacity(steps.len());
    let mut statement = connection.prepare(SECONDS)?;
    for step in &steps {
        // Points are counted in whole seconds from the start of their step, so that none is of two steps.
        let skipped_s = from_us.saturating_sub(step.from_us).max(0) / 1_000_000;
        let own = axis.beginning(step.from_us.saturating_add(skipped_s * 1_000_000));
        let mut points = Points::new(String::new(), own);
        let mut rows = statement.query(params![step.id, 0, from_us])?;
        let mut open: Option<OpSecond> = None;
        while let Some(row) = rows.next()? {
            let next = second(row)?;
            match &mut open {
                Some(sum) if sum.at_us == next.at_us => join(sum, &next),
                _ => {
                    if let Some(sum) = open.replace(next) {
                        points.add(&sum);
                    }
                }
            }
        }
        if let Some(sum) = open {
            points.add(&sum);
        }
        let of_step = points.finish();
        if !of_step.at_s.is_empty() {
            starts.push(total.at_s.len());
            total.append(of_step);
        }
    }
    Ok(Timeline {
        run_id,
        from_us,
        until_us,
        bucket_s: axis.bucket_s(),
        total,
        starts,
        steps: steps
            .into_iter()
            .map(|step| drawn(step, axis, Vec::new(), axis.bucket_s()))
            .collect(),
    })
}

/// Combines operations of the same second: their sums, and the latencies of the slowest.
fn join(sum: &mut OpSecond, other: &OpSecond) {
    sum.span_us = sum.span_us.max(other.span_us);
    let added = |one: Option<i64>, other: Option<i64>| match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    };
    sum.ops = added(sum.ops, other.ops);
    sum.bytes = added(sum.bytes, other.bytes);
    sum.errors = sum.errors.saturating_add(other.errors);
    sum.p50_ns = sum.p50_ns.max(other.p50_ns);
    sum.p99_ns = sum.p99_ns.max(other.p99_ns);
    sum.max_ns = sum.max_ns.max(other.max_ns);
}

fn drawn(step: DrawnStep, axis: Axis, series: Vec<OpSeries>, bucket_s: f64) -> StepPicture {
    let place = match step.target.is_empty() {
        true => String::new(),
        false => format!(", {}", step.target),
    };
    StepPicture {
        step_id: step.id,
        ordinal: step.ordinal,
        title: format!("{}{place}{}", step.name, step.words),
        load: step.load,
        target: step.target,
        repeat: step.repeat,
        loop_number: step.loop_number,
        state: step.state,
        flags: step.flags,
        from_s: axis.seconds_of(step.from_us),
        until_s: axis.seconds_of(step.until_us),
        bucket_s,
        series,
    }
}

fn pictures(connection: &Connection, report: &Report) -> Result<Pictures, rusqlite::Error> {
    let run_id = report.run.id.0;
    let (mut steps, until_us) = steps(connection, run_id, 0)?;
    steps.truncate(MAX_STEPS);
    let names = load_names(&report.steps);
    let known: HashMap<i64, (&str, String)> = report
        .steps
        .iter()
        .zip(names)
        .map(|(step, name)| (step.id.0, (step.place(), name)))
        .collect();
    for step in &mut steps {
        // A step that began after the report was read keeps its own name.
        if let Some((place, name)) = known.get(&step.id) {
            step.load.clone_from(name);
            step.target = (*place).to_owned();
        }
    }
    let from_us = steps.iter().map(|step| step.from_us).min();
    let from_us = from_us
        .or(report.run.started_us)
        .unwrap_or(report.run.created_us);
    let until_us = until_us.max(from_us);
    let axis = Axis::new(from_us, from_us, until_us, RUN_POINTS);
    let one_of = heat_stride(connection, &steps)?;
    let mut heat = HeatMap::new(Axis::new(from_us, from_us, until_us, HEAT_COLUMNS));
    let count = i64::try_from(steps.len()).unwrap_or(i64::MAX).max(1);
    let step_points = (ALL_STEP_POINTS / count).clamp(MIN_STEP_POINTS, STEP_POINTS);
    let mut statement = connection.prepare(SECONDS)?;
    let mut pictures = Vec::with_capacity(steps.len());
    for step in steps {
        let own = Axis::new(from_us, step.from_us, step.until_us, step_points);
        let rows = statement.query(params![step.id, one_of, 0])?;
        let series = series(rows, own, &mut heat)?;
        pictures.push(drawn(step, axis, series, own.bucket_s()));
    }
    let span = usage::Span {
        from_us,
        until_us,
        axis,
    };
    let (daemons, daemons_left_out) = usage::daemons(connection, run_id, &span)?;
    let (hosts, hosts_left_out) = usage::hosts(connection, run_id, &span)?;
    Ok(Pictures {
        format: PICTURES_FORMAT,
        from_us,
        until_us,
        bucket_s: axis.bucket_s(),
        steps: pictures,
        heat: heat.finish(one_of),
        daemons,
        daemons_left_out,
        hosts,
        hosts_left_out,
        marks: marks(connection, report, axis)?,
        grids: grids(report),
        curves: report.curves.clone(),
        links: report.links.clone(),
        run: report.run.clone(),
    })
}

/// One second out of this number is counted for the heat map.
fn heat_stride(connection: &Connection, steps: &[DrawnStep]) -> Result<i64, rusqlite::Error> {
    let mut statement = connection.prepare(STEP_COUNTS)?;
    let mut all = 0_i64;
    for step in steps {
        let count: i64 = statement.query_row([step.id], |row| row.get(0))?;
        all = all.saturating_add(count);
    }
    Ok((all / HEAT_HISTOGRAMS).saturating_add(1))
}

/// The series of a step by group and operation, in the order of their first appearance. Histograms that were read go to
/// the heat map.
fn series(
    mut rows: rusqlite::Rows<'_>,
    axis: Axis,
    heat: &mut HeatMap,
) -> Result<Vec<OpSeries>, rusqlite::Error> {
    let mut all: Vec<((String, String), Points)> = Vec::new();
    while let Some(row) = rows.next()? {
        let op: String = row.get(0)?;
        let group: Option<String> = row.get(1)?;
        let second = second(row)?;
        if let Some(blob) = row.get_ref(10)?.as_blob_or_null().unwrap_or(None) {
            heat.add(second.at_us, blob);
        }
        let key = (group.unwrap_or_default(), op);
        match all.iter_mut().find(|(known, _)| *known == key) {
            Some((_, points)) => points.add(&second),
            None => {
                let name = format!("{} {}", key.0, key.1).trim_start().to_owned();
                let mut points = Points::new(name, axis);
                points.add(&second);
                all.push((key, points));
            }
        }
    }
    Ok(all.into_iter().map(|(_, points)| points.finish()).collect())
}

/// Warnings and errors, and the report's marks, in order of time.
fn marks(
    connection: &Connection,
    report: &Report,
    axis: Axis,
) -> Result<Vec<Mark>, rusqlite::Error> {
    let mut statement = connection.prepare(EVENTS)?;
    let events = statement.query_map(params![report.run.id.0, MAX_EVENTS], |row| {
        Ok(Mark {
            at_s: axis.seconds_of(row.get(0)?),
            severity: row.get(1)?,
            kind: row.get(2)?,
            agent: row.get(3)?,
            message: row.get(4)?,
        })
    })?;
    let mut marks = events.collect::<Result<Vec<_>, _>>()?;
    marks.extend(report.marks.iter().map(|mark| {
        Mark {
            at_s: axis.seconds_of(mark.at_us),
            severity: match mark.source.as_str() {
                "daemon-restarted" | "daemon-stopped" | "carrier-lost" | "link-errors"
                | "link-silent" => "warning",
                _ => "info",
            }
            .to_owned(),
            kind: mark.source.clone(),
            agent: None,
            message: mark.text.clone(),
        }
    }));
    marks.sort_by(|a, b| a.at_s.total_cmp(&b.at_s));
    Ok(marks)
}

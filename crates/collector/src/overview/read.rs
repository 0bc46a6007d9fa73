//! What a snapshot takes from the database: a few indexed rows each, whatever the database holds.

use super::{BaselineListed, DaemonNow, EventNow, HostNow, MarkNow, RunListed};
use crate::results::usage::share_percent;
use sqlx::{Row, SqlitePool, sqlite::SqliteRow};

/// Runs in a list.
pub const MAX_LISTED_RUNS: u32 = 1000;

/// A daemon or host whose newest sample is older is not sampled now.
const SAMPLED_US: i64 = 15_000_000;
/// A rate is over at least so long, so that a dense sample at a step's start makes no rate.
const MIN_SPAN_US: i64 = 1_500_000;

/// The newest sample of each daemon that lives, and one a little earlier.
const DAEMONS: &str = "
SELECT d.id, h.name AS host, d.name, d.instance, d.pid, b.at_us, b.cpu_user_us + b.cpu_system_us AS cpu_us,
       b.rss_bytes, b.threads, b.fds,
       (b.cpu_user_us + b.cpu_system_us - a.cpu_user_us - a.cpu_system_us) * 100.0 / (b.at_us - a.at_us) AS cpu_percent,
       (b.read_bytes - a.read_bytes) * 1e6 / (b.at_us - a.at_us) AS read_rate,
       (b.write_bytes - a.write_bytes) * 1e6 / (b.at_us - a.at_us) AS write_rate
FROM daemons AS d
CROSS JOIN hosts AS h ON h.id = d.host_id
CROSS JOIN daemon_samples AS b ON b.daemon_id = d.id
    AND b.at_us = (SELECT max(x.at_us) FROM daemon_samples AS x WHERE x.daemon_id = d.id)
LEFT JOIN daemon_samples AS a ON a.daemon_id = d.id
    AND a.at_us = (SELECT max(x.at_us) FROM daemon_samples AS x WHERE x.daemon_id = d.id AND x.at_us <= b.at_us - ?)
WHERE d.ended_us IS NULL AND b.at_us > ?
ORDER BY cpu_percent DESC, h.name, d.name, d.instance
LIMIT 2000";

const HOSTS: &str = "
SELECT h.name AS host, h.cpus, b.at_us, b.memory_total_bytes, b.memory_available_bytes, b.load1,
       b.at_us - a.at_us AS span_us, b.idle_us - a.idle_us AS idle_us, b.iowait_us - a.iowait_us AS iowait_us
FROM hosts AS h
CROSS JOIN host_samples AS b ON b.host_id = h.id
    AND b.at_us = (SELECT max(x.at_us) FROM host_samples AS x WHERE x.host_id = h.id)
LEFT JOIN host_samples AS a ON a.host_id = h.id
    AND a.at_us = (SELECT max(x.at_us) FROM host_samples AS x WHERE x.host_id = h.id AND x.at_us <= b.at_us - ?)
WHERE b.at_us > ?
ORDER BY h.name
LIMIT 2000";

const EVENTS: &str = "
SELECT e.id, e.at_us, e.severity, e.kind, e.run_id, e.step_id, a.name AS agent, e.message
FROM events AS e LEFT JOIN agents AS a ON a.id = e.agent_id
WHERE e.id > ? ORDER BY e.id DESC LIMIT ?";

const RUNS: &str = "
SELECT r.id, r.uid, r.name, r.state, r.partial, r.stop_reason, r.created_us, r.started_us, r.ended_us,
       v.steps, v.steps_done, v.warnings
FROM runs AS r JOIN v_runs AS v ON v.run_id = r.id ORDER BY r.id DESC LIMIT ?";

const BASELINES: &str = "
SELECT * FROM (
    SELECT b.name AS baseline, r.id AS run_id, r.name AS run, b.saved_us
    FROM baselines AS b JOIN runs AS r ON r.id = b.run_id ORDER BY b.saved_us DESC LIMIT ?
) ORDER BY baseline";

pub async fn daemons(pool: &SqlitePool, now_us: i64) -> Result<Vec<DaemonNow>, sqlx::Error> {
    let rows = sqlx::query(DAEMONS)
        .bind(MIN_SPAN_US)
        .bind(now_us.saturating_sub(SAMPLED_US))
        .fetch_all(pool)
        .await?;
    rows.iter().map(daemon).collect()
}

fn daemon(row: &SqliteRow) -> Result<DaemonNow, sqlx::Error> {
    let instance: Option<String> = row.try_get("instance")?;
    Ok(DaemonNow {
        daemon_id: row.try_get("id")?,
        host: row.try_get("host")?,
        name: row.try_get("name")?,
        instance: instance.unwrap_or_default(),
        pid: row.try_get("pid")?,
        at_us: row.try_get("at_us")?,
        cpu_us: row.try_get("cpu_us")?,
        cpu_percent: row.try_get("cpu_percent")?,
        rss_bytes: row.try_get("rss_bytes")?,
        threads: row.try_get("threads")?,
        fds: row.try_get("fds")?,
        read_bytes_per_s: row.try_get("read_rate")?,
        write_bytes_per_s: row.try_get("write_rate")?,
    })
}

pub async fn hosts(pool: &SqlitePool, now_us: i64) -> Result<Vec<HostNow>, sqlx::Error> {
    let rows = sqlx::query(HOSTS)
        .bind(MIN_SPAN_US)
        .bind(now_us.saturating_sub(SAMPLED_US))
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            let cpus: i64 = row.try_get("cpus")?;
            let span_us: Option<i64> = row.try_get("span_us")?;
            let share = |column: &str| -> Result<Option<f64>, sqlx::Error> {
                let moved: Option<i64> = row.try_get(column)?;
                Ok(moved
                    .zip(span_us)
                    .and_then(|(moved, span)| share_percent(moved, span, cpus)))
            };
            let (idle, iowait_percent) = (share("idle_us")?, share("iowait_us")?);
            Ok(HostNow {
                host: row.try_get("host")?,
                at_us: row.try_get("at_us")?,
                cpus,
                busy_percent: idle
                    .zip(iowait_percent)
                    .map(|(idle, iowait)| (100.0 - idle - iowait).max(0.0)),
                iowait_percent,
                memory_total_bytes: row.try_get("memory_total_bytes")?,
                memory_available_bytes: row.try_get("memory_available_bytes")?,
                load1: row.try_get("load1")?,
            })
        })
        .collect()
}

/// The newest events after `after`, the newest first.
pub async fn events(
    pool: &SqlitePool,
    after: i64,
    limit: u32,
) -> Result<Vec<EventNow>, sqlx::Error> {
    let rows = sqlx::query(EVENTS)
        .bind(after)
        .bind(limit)
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(EventNow {
                event_id: row.try_get("id")?,
                at_us: row.try_get("at_us")?,
                severity: row.try_get("severity")?,
                kind: row.try_get("kind")?,
                run_id: row.try_get("run_id")?,
                step_id: row.try_get("step_id")?,
                agent: row.try_get("agent")?,
                message: row.try_get("message")?,
            })
        })
        .collect()
}

/// The newest marks of a run since an instant, the newest last.
pub async fn marks(
    pool: &SqlitePool,
    run: i64,
    since_us: i64,
    limit: u32,
) -> Result<Vec<MarkNow>, sqlx::Error> {
    let rows = sqlx::query(
        "SELECT at_us, source, text FROM v_marks WHERE run_id = ? AND at_us >= ? ORDER BY at_us DESC LIMIT ?",
    )
    .bind(run)
    .bind(since_us)
    .bind(limit)
    .fetch_all(pool)
    .await?;
    rows.iter()
        .rev()
        .map(|row| {
            Ok(MarkNow {
                at_us: row.try_get("at_us")?,
                source: row.try_get("source")?,
                text: row.try_get("text")?,
            })
        })
        .collect()
}

/// The baselines that were saved last, by name.
pub async fn baselines(pool: &SqlitePool) -> Result<Vec<BaselineListed>, sqlx::Error> {
    let rows = sqlx::query(BASELINES)
        .bind(MAX_LISTED_RUNS)
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            Ok(BaselineListed {
                baseline: row.try_get("baseline")?,
                run_id: row.try_get("run_id")?,
                run: row.try_get("run")?,
                saved_us: row.try_get("saved_us")?,
            })
        })
        .collect()
}

/// The newest runs, the newest first.
pub async fn runs(pool: &SqlitePool, limit: u32) -> Result<Vec<RunListed>, sqlx::Error> {
    let rows = sqlx::query(RUNS)
        .bind(limit.min(MAX_LISTED_RUNS))
        .fetch_all(pool)
        .await?;
    rows.iter()
        .map(|row| {
            let state: String = row.try_get("state")?;
            let stop_reason: Option<String> = row.try_get("stop_reason")?;
            let ended_us: Option<i64> = row.try_get("ended_us")?;
            Ok(RunListed {
                run_id: row.try_get("id")?,
                uid: row.try_get("uid")?,
                run: row.try_get("name")?,
                partial: row.try_get("partial")?,
                stopping: stop_reason.is_some() && matches!(state.as_str(), "queued" | "running"),
                state,
                created_us: row.try_get("created_us")?,
                started_us: row.try_get("started_us")?,
                ended_us,
                steps: row.try_get("steps")?,
                steps_done: row.try_get("steps_done")?,
                warnings: row.try_get("warnings")?,
            })
        })
        .collect()
}

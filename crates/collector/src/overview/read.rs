//! The database reads of a snapshot: a few indexed rows each, however large the database. Figures of hosts and daemons
//! come from their newest samples, which are in memory and may not be committed yet.

use benchmesh_model::figures::{DaemonFigures, HostFigures};
use benchmesh_model::mesh::HostId;
use benchmesh_results::real;
use benchmesh_results::usage::share_percent;
use benchmesh_scheduler::snapshot::{BaselineListed, DaemonNow, EventNow, HostNow, MarkNow};
use benchmesh_store::annotate::MAX_LISTED_RUNS;
use benchmesh_store::ingest::batch::Process;
use benchmesh_store::ingest::recent::{Newest, RecentSamples};
use sqlx::{Row, SqlitePool, sqlite::SqliteRow};

/// A daemon or host with an older newest sample is not sampled now.
const SAMPLED_US: i64 = 15_000_000;
/// Maximum number of daemons and hosts shown.
const MAX_SHOWN: usize = 2000;

const DAEMONS: &str = "
SELECT d.id, d.host_id, h.name AS host, d.name, d.instance, d.pid, d.start_ticks
FROM daemons AS d CROSS JOIN hosts AS h ON h.id = d.host_id
WHERE d.ended_us IS NULL";

const HOSTS: &str = "SELECT id, name AS host, cpus FROM hosts";

const EVENTS: &str = "
SELECT e.id, e.at_us, e.severity, e.kind, e.run_id, e.step_id, a.name AS agent, e.message
FROM events AS e LEFT JOIN agents AS a ON a.id = e.agent_id
WHERE e.id > ? ORDER BY e.id DESC LIMIT ?";

const BASELINES: &str = "
SELECT * FROM (
    SELECT b.name AS baseline, r.id AS run_id, r.name AS run, b.saved_us
    FROM baselines AS b JOIN runs AS r ON r.id = b.run_id ORDER BY b.saved_us DESC LIMIT ?
) ORDER BY baseline";

/// The daemons that are sampled now, busiest first.
pub async fn daemons(
    pool: &SqlitePool,
    samples: &RecentSamples,
    now_us: i64,
) -> Result<Vec<DaemonNow>, sqlx::Error> {
    let rows = sqlx::query(DAEMONS).fetch_all(pool).await?;
    let newest = samples.daemons();
    let mut daemons = Vec::with_capacity(newest.len().min(rows.len()));
    for row in &rows {
        let process = Process {
            pid: row.try_get("pid")?,
            start_ticks: row.try_get("start_ticks")?,
        };
        let host = HostId(row.try_get("host_id")?);
        if let Some(newest) = newest.get(&(host, process))
            && newest.at_us > now_us.saturating_sub(SAMPLED_US)
        {
            daemons.push(daemon(row, newest)?);
        }
    }
    daemons.sort_by(|a, b| {
        let busy = |daemon: &DaemonNow| daemon.cpu_percent.unwrap_or(f64::NEG_INFINITY);
        let key =
            |daemon: &DaemonNow| [&daemon.host, &daemon.name, &daemon.instance].map(String::clone);
        busy(b)
            .total_cmp(&busy(a))
            .then_with(|| key(a).cmp(&key(b)))
    });
    daemons.truncate(MAX_SHOWN);
    Ok(daemons)
}

fn daemon(row: &SqliteRow, newest: &Newest<DaemonFigures>) -> Result<DaemonNow, sqlx::Error> {
    let instance: Option<String> = row.try_get("instance")?;
    let cpu_us = |figures: &DaemonFigures| figures.cpu_user_us + figures.cpu_system_us;
    let figures = &newest.figures;
    let cpu = newest.earlier.map(|(before_us, before)| {
        real(cpu_us(figures) - cpu_us(&before)) / real(newest.at_us - before_us)
    });
    Ok(DaemonNow {
        daemon_id: row.try_get("id")?,
        host: row.try_get("host")?,
        name: row.try_get("name")?,
        instance: instance.unwrap_or_default(),
        pid: row.try_get("pid")?,
        cpu_us: cpu_us(figures),
        cpu_percent: cpu.map(|share| share * 100.0),
        newest: *newest,
    })
}

/// The hosts that are sampled now, by name.
pub async fn hosts(
    pool: &SqlitePool,
    samples: &RecentSamples,
    now_us: i64,
) -> Result<Vec<HostNow>, sqlx::Error> {
    let rows = sqlx::query(HOSTS).fetch_all(pool).await?;
    let newest = samples.hosts();
    let mut hosts = Vec::with_capacity(newest.len());
    for row in &rows {
        if let Some(newest) = newest.get(&HostId(row.try_get("id")?))
            && newest.at_us > now_us.saturating_sub(SAMPLED_US)
        {
            hosts.push(host(row, newest)?);
        }
    }
    hosts.sort_by(|a, b| a.host.cmp(&b.host));
    hosts.truncate(MAX_SHOWN);
    Ok(hosts)
}

fn host(row: &SqliteRow, newest: &Newest<HostFigures>) -> Result<HostNow, sqlx::Error> {
    let cpus: i64 = row.try_get("cpus")?;
    let figures = &newest.figures;
    let share = |of: fn(&HostFigures) -> i64| {
        let (before_us, before) = newest.earlier?;
        share_percent(of(figures) - of(&before), newest.at_us - before_us, cpus)
    };
    let (idle, iowait_percent) = (share(|host| host.idle_us), share(|host| host.iowait_us));
    Ok(HostNow {
        host: row.try_get("host")?,
        cpus,
        busy_percent: idle
            .zip(iowait_percent)
            .map(|(idle, iowait)| (100.0 - idle - iowait).max(0.0)),
        iowait_percent,
        newest: *newest,
    })
}

/// The newest events after `after`, newest first.
pub async fn events(
    pool: &SqlitePool,
    after: i64,
    limit: u32,
) -> Result<Vec<EventNow>, sqlx::Error> {
    sqlx::query(EVENTS)
        .bind(after)
        .bind(limit)
        .try_map(|row: SqliteRow| {
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
        .fetch_all(pool)
        .await
}

/// The newest marks of a run since an instant, newest last.
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
    sqlx::query(BASELINES)
        .bind(MAX_LISTED_RUNS)
        .try_map(|row: SqliteRow| {
            Ok(BaselineListed {
                baseline: row.try_get("baseline")?,
                run_id: row.try_get("run_id")?,
                run: row.try_get("run")?,
                saved_us: row.try_get("saved_us")?,
            })
        })
        .fetch_all(pool)
        .await
}

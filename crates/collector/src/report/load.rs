//! Reads a report from a database, in one read transaction, so that its parts belong together.
//!
//! It asks the tables and views of docs/database.md and nothing else; a person could ask the same in SQL.

mod missing;
mod steps;

use super::{
    AgentReport, CostReport, DaemonReport, EventReport, LinkReport, REPORT_FORMAT, Report,
    RunReport, curve,
};
use crate::model::{RunId, StepId};
use crate::query::{QueryError, ReadOnly};
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection, SqlitePool};
use std::path::Path;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(
        "there is no run {wanted:?} in this database; `benchmesh query \"SELECT run_id, run, state FROM v_runs\"` lists them"
    )]
    NoRun { wanted: String },
    #[error("there is no run in this database yet")]
    NoRuns,
    #[error(transparent)]
    Open(QueryError),
    #[error("this file is no benchmesh database of this version: {what} cannot be read")]
    Read {
        what: &'static str,
        #[source]
        source: sqlx::Error,
    },
}

/// The report of the run that `wanted` names: an id, a uid, a name (its newest run), or `last`.
pub async fn load(pool: &SqlitePool, wanted: &str) -> Result<Report, ReportError> {
    let mut connection = pool.acquire().await.map_err(reading("the database"))?;
    load_from(&mut connection, wanted).await
}

/// As [`load`], from a file that no collector of this process has open. Never makes or changes it.
pub async fn load_file(path: &Path, wanted: &str) -> Result<Report, ReportError> {
    let mut file = ReadOnly::open(path).await.map_err(ReportError::Open)?;
    let report = load_from(&mut file.connection, wanted).await;
    file.close().await;
    report
}

async fn load_from(connection: &mut SqliteConnection, wanted: &str) -> Result<Report, ReportError> {
    let mut transaction = connection.begin().await.map_err(reading("the database"))?;
    let run = run(&mut transaction, wanted).await?;
    let id = run.id;
    let mut steps = steps::steps(&mut transaction, id).await?;
    steps::add_groups(&mut transaction, id, &mut steps).await?;
    steps::add_ops(&mut transaction, id, &mut steps).await?;
    steps::add_tasks(&mut transaction, id, &mut steps).await?;
    missing::add(&mut transaction, id, &mut steps).await?;
    Ok(Report {
        format: REPORT_FORMAT,
        curves: curve::curves(&steps),
        agents: agents(&mut transaction, id).await?,
        daemons: daemons(&mut transaction, id).await?,
        costs: costs(&mut transaction, id).await?,
        links: links(&mut transaction, id).await?,
        events: events(&mut transaction, id).await?,
        run,
        steps,
    })
}

fn reading(what: &'static str) -> impl Fn(sqlx::Error) -> ReportError {
    move |source| ReportError::Read { what, source }
}

async fn run(connection: &mut SqliteConnection, wanted: &str) -> Result<RunReport, ReportError> {
    let row = sqlx::query(
        "SELECT id, uid, name, state, partial, reason, created_us, started_us, ended_us, order_seed, version FROM runs
         WHERE ? IN ('', 'last') OR CAST(id AS TEXT) = ? OR uid = ? OR name = ?
         ORDER BY CAST(id AS TEXT) = ? DESC, uid = ? DESC, id DESC LIMIT 1",
    )
    .bind(wanted)
    .bind(wanted)
    .bind(wanted)
    .bind(wanted)
    .bind(wanted)
    .bind(wanted)
    .fetch_optional(connection)
    .await
    .map_err(reading("runs"))?;
    let Some(row) = row else {
        return Err(match wanted {
            "" | "last" => ReportError::NoRuns,
            _ => ReportError::NoRun {
                wanted: wanted.to_owned(),
            },
        });
    };
    let read = || {
        Ok(RunReport {
            id: RunId(row.try_get("id")?),
            uid: row.try_get("uid")?,
            name: row.try_get("name")?,
            state: row.try_get("state")?,
            partial: row.try_get("partial")?,
            reason: row.try_get("reason")?,
            created_us: row.try_get("created_us")?,
            started_us: row.try_get("started_us")?,
            ended_us: row.try_get("ended_us")?,
            order_seed: row.try_get("order_seed")?,
            version: row.try_get("version")?,
        })
    };
    read().map_err(reading("runs"))
}

/// Runs one statement about one run and makes a value of each row.
async fn rows<T>(
    connection: &mut SqliteConnection,
    what: &'static str,
    sql: &'static str,
    run: RunId,
    make: fn(&SqliteRow) -> Result<T, sqlx::Error>,
) -> Result<Vec<T>, ReportError> {
    let rows = sqlx::query(sql)
        .bind(run.0)
        .fetch_all(connection)
        .await
        .map_err(reading(what))?;
    rows.iter()
        .map(|row| make(row).map_err(reading(what)))
        .collect()
}

async fn agents(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<AgentReport>, ReportError> {
    rows(
        connection,
        "agents",
        "SELECT a.name, h.name AS host, h.kernel, h.cpus, h.memory_bytes, a.labels
         FROM agents AS a JOIN hosts AS h ON h.id = a.host_id
         WHERE a.id IN (SELECT t.agent_id FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = ?1
                        UNION
                        SELECT t.peer_agent_id FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE s.run_id = ?1)
         ORDER BY a.name",
        run,
        |row| {
            Ok(AgentReport {
                name: row.try_get("name")?,
                host: row.try_get("host")?,
                kernel: row.try_get("kernel")?,
                cpus: row.try_get("cpus")?,
                memory_bytes: row.try_get("memory_bytes")?,
                labels: json(row, "labels")?,
            })
        },
    )
    .await
}

async fn daemons(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<DaemonReport>, ReportError> {
    rows(
        connection,
        "v_daemon_usage",
        "WITH ordered AS (
             SELECT *, row_number() OVER (PARTITION BY daemon_id ORDER BY step_id) AS from_first,
                    row_number() OVER (PARTITION BY daemon_id ORDER BY step_id DESC) AS from_last
             FROM v_daemon_usage WHERE run_id = ?)
         SELECT host, name, instance, pid, sum(cpu_s) AS cpu_s,
                100.0 * sum(cpu_s) / sum(sampled_s) AS cpu_percent, max(cpu_percent) AS cpu_percent_max,
                max(CASE WHEN from_first = 1 THEN rss_first_mib END) AS rss_first_mib,
                max(rss_max_mib) AS rss_max_mib,
                max(CASE WHEN from_last = 1 THEN rss_last_mib END) AS rss_last_mib,
                sum(read_mib) AS read_mib, sum(written_mib) AS written_mib
         FROM ordered GROUP BY daemon_id ORDER BY host, name, instance, pid",
        run,
        |row| {
            Ok(DaemonReport {
                host: row.try_get("host")?,
                name: row.try_get("name")?,
                instance: row.try_get("instance")?,
                pid: row.try_get("pid")?,
                cpu_s: row.try_get("cpu_s")?,
                cpu_percent: row.try_get("cpu_percent")?,
                cpu_percent_max: row.try_get("cpu_percent_max")?,
                rss_first_mib: row.try_get("rss_first_mib")?,
                rss_max_mib: row.try_get("rss_max_mib")?,
                rss_last_mib: row.try_get("rss_last_mib")?,
                read_mib: row.try_get("read_mib")?,
                written_mib: row.try_get("written_mib")?,
            })
        },
    )
    .await
}

async fn costs(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<CostReport>, ReportError> {
    rows(
        connection,
        "v_cost",
        "SELECT step_id, target, name, cpu_us_per_op, cpu_s_per_gib FROM v_cost WHERE run_id = ? ORDER BY step_id, name",
        run,
        |row| {
            Ok(CostReport {
                step_id: StepId(row.try_get("step_id")?),
                target: row.try_get("target")?,
                name: row.try_get("name")?,
                cpu_us_per_op: row.try_get("cpu_us_per_op")?,
                cpu_s_per_gib: row.try_get("cpu_s_per_gib")?,
            })
        },
    )
    .await
}

async fn links(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<LinkReport>, ReportError> {
    rows(
        connection,
        "v_links",
        "SELECT from_agent, to_agent, max(mib_per_s) AS mib_per_s,
                min(CASE WHEN wait = 'blocking' THEN rtt_p50_us END) AS rtt_p50_us,
                min(CASE WHEN wait = 'busy' THEN rtt_p50_us END) AS rtt_busy_p50_us
         FROM v_links WHERE run_id = ? GROUP BY from_agent, to_agent ORDER BY from_agent, to_agent",
        run,
        |row| {
            Ok(LinkReport {
                from_agent: row.try_get("from_agent")?,
                to_agent: row.try_get("to_agent")?,
                mib_per_s: row.try_get("mib_per_s")?,
                rtt_p50_us: row.try_get("rtt_p50_us")?,
                rtt_busy_p50_us: row.try_get("rtt_busy_p50_us")?,
            })
        },
    )
    .await
}

async fn events(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<EventReport>, ReportError> {
    rows(
        connection,
        "events",
        "SELECT e.at_us, e.severity, e.kind, e.step_id, a.name AS agent, e.message
         FROM events AS e LEFT JOIN agents AS a ON a.id = e.agent_id
         WHERE e.run_id = ? AND e.severity <> 'info' ORDER BY e.at_us, e.id",
        run,
        |row| {
            Ok(EventReport {
                at_us: row.try_get("at_us")?,
                severity: row.try_get("severity")?,
                kind: row.try_get("kind")?,
                step_id: row.try_get::<Option<i64>, _>("step_id")?.map(StepId),
                agent: row.try_get("agent")?,
                message: row.try_get("message")?,
            })
        },
    )
    .await
}

fn json<T: serde::de::DeserializeOwned>(row: &SqliteRow, column: &str) -> Result<T, sqlx::Error> {
    let text: String = row.try_get(column)?;
    serde_json::from_str(&text).map_err(|source| sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: Box::new(source),
    })
}

#[cfg(test)]
mod tests;

//! The rows that samples hang on: tasks, daemons, disks, interfaces, by the names that agents use for them.
//!
//! Each is asked of the memory first and of the table on a miss.

use super::batch::{DaemonSeen, Process};
use super::known::{Known, TaskFacts};
use crate::model::{AgentId, DaemonId, HostId, MeshMicros, RunId, StepId, TaskId};
use crate::store::error::StoreError;
use sqlx::SqliteConnection;

/// A task's agent and step; `None` when there is no such task.
pub(super) async fn task(
    known: &mut Known,
    connection: &mut SqliteConnection,
    task: TaskId,
) -> Result<Option<TaskFacts>, StoreError> {
    if let Some(facts) = known.tasks.get(&task) {
        return Ok(Some(*facts));
    }
    let row: Option<(i64, i64)> =
        sqlx::query_as("SELECT agent_id, step_id FROM tasks WHERE id = ?")
            .bind(task.0)
            .fetch_optional(connection)
            .await
            .map_err(StoreError::sql("look for a task"))?;
    let facts = row.map(|(agent, step)| TaskFacts {
        agent: AgentId(agent),
        step: StepId(step),
    });
    if let Some(facts) = facts {
        known.tasks.set(task, facts);
    }
    Ok(facts)
}

pub(super) async fn has_run(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<bool, StoreError> {
    sqlx::query_scalar::<_, i64>("SELECT id FROM runs WHERE id = ?")
        .bind(run.0)
        .fetch_optional(connection)
        .await
        .map(|found| found.is_some())
        .map_err(StoreError::sql("look for a run"))
}

pub(super) async fn has_step(
    connection: &mut SqliteConnection,
    step: StepId,
) -> Result<bool, StoreError> {
    sqlx::query_scalar::<_, i64>("SELECT id FROM steps WHERE id = ?")
        .bind(step.0)
        .fetch_optional(connection)
        .await
        .map(|found| found.is_some())
        .map_err(StoreError::sql("look for a step"))
}

/// The daemon that a process on a host is; `None` when it was never described.
pub(super) async fn daemon(
    known: &mut Known,
    connection: &mut SqliteConnection,
    host: HostId,
    process: Process,
) -> Result<Option<DaemonId>, StoreError> {
    if let Some(id) = known.daemons.get(&(host, process)) {
        return Ok(Some(*id));
    }
    let row: Option<(i64, i64)> = sqlx::query_as(
        "SELECT id, last_seen_us FROM daemons WHERE host_id = ? AND pid = ? AND start_ticks = ?",
    )
    .bind(host.0)
    .bind(process.pid)
    .bind(process.start_ticks)
    .fetch_optional(connection)
    .await
    .map_err(StoreError::sql("look for a daemon"))?;
    let Some((id, last_seen)) = row else {
        return Ok(None);
    };
    known.daemons.set((host, process), DaemonId(id));
    known.last_seen.set(DaemonId(id), last_seen);
    Ok(Some(DaemonId(id)))
}

/// Makes a daemon, or keeps what is said of it now: some set their name late.
pub(super) async fn describe_daemon(
    known: &mut Known,
    connection: &mut SqliteConnection,
    host: HostId,
    seen: &DaemonSeen,
) -> Result<(), StoreError> {
    let (id, last_seen): (i64, i64) = sqlx::query_as(
        "INSERT INTO daemons (host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us, ended_us)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (host_id, pid, start_ticks) DO UPDATE SET name = excluded.name,
             instance = iif(excluded.instance = '', instance, excluded.instance),
             cmdline = iif(excluded.cmdline = '', cmdline, excluded.cmdline),
             first_seen_us = min(first_seen_us, excluded.first_seen_us),
             last_seen_us = max(last_seen_us, excluded.last_seen_us),
             ended_us = coalesce(ended_us, excluded.ended_us)
         RETURNING id, last_seen_us",
    )
    .bind(host.0)
    .bind(seen.name.as_str())
    .bind(seen.instance.as_str())
    .bind(seen.process.pid)
    .bind(seen.process.start_ticks)
    .bind(seen.cmdline.as_str())
    .bind(seen.at.0)
    .bind(seen.at.0)
    .bind(seen.ended.then_some(seen.at.0))
    .fetch_one(connection)
    .await
    .map_err(StoreError::sql("keep a daemon"))?;
    known.daemons.set((host, seen.process), DaemonId(id));
    known.last_seen.set(DaemonId(id), last_seen);
    Ok(())
}

pub(super) async fn daemon_seen(
    known: &mut Known,
    connection: &mut SqliteConnection,
    daemon: DaemonId,
    at: MeshMicros,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE daemons SET last_seen_us = max(last_seen_us, ?), first_seen_us = min(first_seen_us, ?) WHERE id = ?",
    )
    .bind(at.0)
    .bind(at.0)
    .bind(daemon.0)
    .execute(connection)
    .await
    .map_err(StoreError::sql("keep when a daemon was seen"))?;
    known.last_seen.set(daemon, at.0);
    Ok(())
}

pub(super) async fn disk(
    known: &mut Known,
    connection: &mut SqliteConnection,
    host: HostId,
    name: &str,
) -> Result<i64, StoreError> {
    let key = (host, name.to_owned());
    if let Some(id) = known.disks.get(&key) {
        return Ok(*id);
    }
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO disks (host_id, name) VALUES (?, ?)
         ON CONFLICT (host_id, name) DO UPDATE SET name = excluded.name RETURNING id",
    )
    .bind(host.0)
    .bind(name)
    .fetch_one(connection)
    .await
    .map_err(StoreError::sql("keep a disk"))?;
    known.disks.set(key, id);
    Ok(id)
}

pub(super) async fn interface(
    known: &mut Known,
    connection: &mut SqliteConnection,
    key: (HostId, String, String),
) -> Result<i64, StoreError> {
    if let Some(id) = known.interfaces.get(&key) {
        return Ok(*id);
    }
    let (host, net_namespace, name) = &key;
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO interfaces (host_id, net_namespace, name) VALUES (?, ?, ?)
         ON CONFLICT (host_id, net_namespace, name) DO UPDATE SET name = excluded.name RETURNING id",
    )
    .bind(host.0)
    .bind(net_namespace.as_str())
    .bind(name.as_str())
    .fetch_one(connection)
    .await
    .map_err(StoreError::sql("keep an interface"))?;
    known.interfaces.set(key, id);
    Ok(id)
}

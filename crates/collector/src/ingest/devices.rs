//! The rows that samples hang on: tasks, daemons, disks, interfaces, by the names that agents use for them.
//!
//! Each is asked of the memory first and of the table on a miss.

use super::batch::{DaemonSeen, Process};
use super::known::{Known, TaskFacts};
use super::statements::{execute, find, one};
use crate::model::{AgentId, DaemonId, HostId, MeshMicros, RunId, StepId, TaskId};
use crate::store::error::StoreError;
use rusqlite::Connection;

/// A task's agent and step; `None` when there is no such task.
pub(super) fn task(
    known: &mut Known,
    connection: &Connection,
    task: TaskId,
) -> Result<Option<TaskFacts>, StoreError> {
    if let Some(facts) = known.tasks.get(&task) {
        return Ok(Some(*facts));
    }
    let facts = find(
        connection,
        "look for a task",
        "SELECT agent_id, step_id FROM tasks WHERE id = ?",
        [task.0],
        |row| {
            Ok(TaskFacts {
                agent: AgentId(row.get(0)?),
                step: StepId(row.get(1)?),
            })
        },
    )?;
    if let Some(facts) = facts {
        known.tasks.set(task, facts);
    }
    Ok(facts)
}

pub(super) fn has_run(connection: &Connection, run: RunId) -> Result<bool, StoreError> {
    const FIND: &str = "SELECT id FROM runs WHERE id = ?";
    find(connection, "look for a run", FIND, [run.0], |_| Ok(())).map(|found| found.is_some())
}

pub(super) fn has_step(connection: &Connection, step: StepId) -> Result<bool, StoreError> {
    const FIND: &str = "SELECT id FROM steps WHERE id = ?";
    find(connection, "look for a step", FIND, [step.0], |_| Ok(())).map(|found| found.is_some())
}

/// The daemon that a process on a host is; `None` when it was never described.
pub(super) fn daemon(
    known: &mut Known,
    connection: &Connection,
    host: HostId,
    process: Process,
) -> Result<Option<DaemonId>, StoreError> {
    if let Some(id) = known.daemons.get(&(host, process)) {
        return Ok(Some(*id));
    }
    let found = find(
        connection,
        "look for a daemon",
        "SELECT id, last_seen_us FROM daemons WHERE host_id = ? AND pid = ? AND start_ticks = ?",
        (host.0, process.pid, process.start_ticks),
        |row| Ok((DaemonId(row.get(0)?), row.get(1)?)),
    )?;
    let Some((id, last_seen)) = found else {
        return Ok(None);
    };
    known.daemons.set((host, process), id);
    known.last_seen.set(id, last_seen);
    Ok(Some(id))
}

/// Makes a daemon, or keeps what is said of it now: some set their name late.
pub(super) fn describe_daemon(
    known: &mut Known,
    connection: &Connection,
    host: HostId,
    seen: &DaemonSeen,
) -> Result<(), StoreError> {
    let (id, last_seen) = one(
        connection,
        "keep a daemon",
        "INSERT INTO daemons (host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us, ended_us)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)
         ON CONFLICT (host_id, pid, start_ticks) DO UPDATE SET name = excluded.name,
             instance = iif(excluded.instance = '', instance, excluded.instance),
             cmdline = iif(excluded.cmdline = '', cmdline, excluded.cmdline),
             first_seen_us = min(first_seen_us, excluded.first_seen_us),
             last_seen_us = max(last_seen_us, excluded.last_seen_us),
             ended_us = coalesce(ended_us, excluded.ended_us)
         RETURNING id, last_seen_us",
        (
            host.0,
            &seen.name,
            &seen.instance,
            seen.process.pid,
            seen.process.start_ticks,
            &seen.cmdline,
            seen.at.0,
            seen.ended.then_some(seen.at.0),
        ),
        |row| Ok((DaemonId(row.get(0)?), row.get(1)?)),
    )?;
    known.daemons.set((host, seen.process), id);
    known.last_seen.set(id, last_seen);
    Ok(())
}

pub(super) fn daemon_seen(
    known: &mut Known,
    connection: &Connection,
    daemon: DaemonId,
    at: MeshMicros,
) -> Result<(), StoreError> {
    execute(
        connection,
        "keep when a daemon was seen",
        "UPDATE daemons SET last_seen_us = max(last_seen_us, ?1), first_seen_us = min(first_seen_us, ?1) WHERE id = ?2",
        [at.0, daemon.0],
    )?;
    known.last_seen.set(daemon, at.0);
    Ok(())
}

pub(super) fn disk(
    known: &mut Known,
    connection: &Connection,
    host: HostId,
    name: &str,
) -> Result<i64, StoreError> {
    let key = (host, name.to_owned());
    if let Some(id) = known.disks.get(&key) {
        return Ok(*id);
    }
    let id: i64 = one(
        connection,
        "keep a disk",
        "INSERT INTO disks (host_id, name) VALUES (?, ?)
         ON CONFLICT (host_id, name) DO UPDATE SET name = excluded.name RETURNING id",
        (host.0, name),
        |row| row.get(0),
    )?;
    known.disks.set(key, id);
    Ok(id)
}

pub(super) fn interface(
    known: &mut Known,
    connection: &Connection,
    key: (HostId, String, String),
) -> Result<i64, StoreError> {
    if let Some(id) = known.interfaces.get(&key) {
        return Ok(*id);
    }
    let (host, net_namespace, name) = &key;
    let id: i64 = one(
        connection,
        "keep an interface",
        "INSERT INTO interfaces (host_id, net_namespace, name) VALUES (?, ?, ?)
         ON CONFLICT (host_id, net_namespace, name) DO UPDATE SET name = excluded.name RETURNING id",
        (host.0, net_namespace, name),
        |row| row.get(0),
    )?;
    known.interfaces.set(key, id);
    Ok(id)
}

//! The rows that samples refer to (tasks, daemons, disks, interfaces, targets), found by the names that agents use.
//!
//! Each is looked up in the cache first and in the table on a miss. Targets have few samples, so they are looked up
//! in the table only. New daemons, disks, interfaces and targets are added.

use super::batch::{DaemonSeen, Process, TargetSample};
use super::cache::{Caches, TaskFacts};
use super::source::BatchSource;
use super::statements::{execute, find, one};
use crate::database::StoreError;
use benchmesh_model::mesh::{AgentId, DaemonId, HostId, MeshMicros, RunId, StepId, TaskId};
use benchmesh_workloads::registry;
use rusqlite::Connection;

/// The agent's name, for messages.
pub(super) fn agent_name(connection: &Connection, agent: AgentId) -> Result<String, StoreError> {
    const FIND: &str = "SELECT name FROM agents WHERE id = ?";
    let name = find(connection, "look for an agent", FIND, [agent.0], |row| {
        row.get(0)
    })?;
    Ok(name.unwrap_or_default())
}

/// A task's agent, run and step; `None` if the task does not exist.
pub(super) fn task(
    caches: &mut Caches,
    connection: &Connection,
    task: TaskId,
) -> Result<Option<TaskFacts>, StoreError> {
    if let Some(facts) = caches.tasks.get(&task) {
        return Ok(Some(facts.clone()));
    }
    let facts = find(
        connection,
        "look for a task",
        "SELECT t.agent_id, t.step_id, coalesce(g.workload, s.workload), r.uid
         FROM tasks AS t JOIN steps AS s ON s.id = t.step_id JOIN runs AS r ON r.id = s.run_id
              LEFT JOIN step_groups AS g ON g.step_id = t.step_id AND g.name = t.group_name
         WHERE t.id = ?",
        [task.0],
        |row| {
            let workload: String = row.get(2)?;
            let run_uid: String = row.get(3)?;
            Ok(TaskFacts {
                agent: AgentId(row.get(0)?),
                run_uid: run_uid.into(),
                step: StepId(row.get(1)?),
                workload: registry::all()
                    .iter()
                    .map(|known| known.name())
                    .find(|known| *known == workload),
            })
        },
    )?;
    if let Some(facts) = &facts {
        caches.tasks.set(task, facts.clone());
    }
    Ok(facts)
}

/// Whether any mode of a workload records operations of this kind.
pub(super) fn records(workload: &str, op: &str) -> bool {
    registry::all()
        .iter()
        .filter(|known| known.name() == workload)
        .flat_map(|known| known.modes())
        .flat_map(|mode| mode.ops)
        .any(|known| known.as_str() == op)
}

/// `None` if the run does not exist.
pub(super) fn run_uid(connection: &Connection, run: RunId) -> Result<Option<String>, StoreError> {
    const FIND: &str = "SELECT uid FROM runs WHERE id = ?";
    find(connection, "look for a run", FIND, [run.0], |row| {
        row.get(0)
    })
}

/// The run with this uid.
pub(super) fn run_of_uid(connection: &Connection, uid: &str) -> Result<Option<RunId>, StoreError> {
    const FIND: &str = "SELECT id FROM runs WHERE uid = ?";
    find(connection, "look for a run", FIND, [uid], |row| {
        Ok(RunId(row.get(0)?))
    })
}

/// The run of a step, with the run's uid; `None` if the step does not exist.
pub(super) fn run_of_step(
    connection: &Connection,
    step: StepId,
) -> Result<Option<(RunId, String)>, StoreError> {
    const FIND: &str =
        "SELECT r.id, r.uid FROM steps AS s JOIN runs AS r ON r.id = s.run_id WHERE s.id = ?";
    find(connection, "look for a step", FIND, [step.0], |row| {
        Ok((RunId(row.get(0)?), row.get(1)?))
    })
}

/// The run of a fact, and its step at that instant: the run that the agent names, if it had begun by then and the
/// agent takes part in it.
pub(super) fn sampled_run(
    connection: &Connection,
    agent: AgentId,
    named: Option<RunId>,
    at: MeshMicros,
) -> Result<(Option<RunId>, Option<StepId>), StoreError> {
    const BEGUN: &str =
        "SELECT id FROM runs WHERE id = ?1 AND started_us <= ?2 AND imported_from IS NULL";
    const STEP: &str = "SELECT id FROM steps WHERE run_id = ?1 AND start_us <= ?2
        AND (ended_us IS NULL OR ended_us >= ?2) ORDER BY id DESC LIMIT 1";
    let Some(run) = named else {
        return Ok((None, None));
    };
    let doing = "look for the run of a fact";
    let begun = find(connection, doing, BEGUN, [run.0, at.0], |row| {
        row.get::<_, i64>(0)
    })?;
    if begun.is_none() || !takes_part(connection, agent, run)? {
        return Ok((None, None));
    }
    let doing = "look for the step of a fact";
    let step = find(connection, doing, STEP, [run.0, at.0], |row| {
        Ok(StepId(row.get(0)?))
    })?;
    Ok((Some(run), step))
}

/// Whether an agent takes part in a run: it was present when the run began, or has a task of the run. While a run
/// begins, its agents are not stored yet, so every agent is accepted.
pub(super) fn takes_part(
    connection: &Connection,
    agent: AgentId,
    run: RunId,
) -> Result<bool, StoreError> {
    const FIND: &str =
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM run_agents WHERE run_id = ?1 AND agent_id = ?2)
        OR EXISTS (SELECT 1 FROM steps AS s JOIN tasks AS t ON t.step_id = s.id
            WHERE s.run_id = ?1 AND ?2 IN (t.agent_id, t.peer_agent_id))
        OR (NOT EXISTS (SELECT 1 FROM run_agents WHERE run_id = ?1)
            AND EXISTS (SELECT 1 FROM runs WHERE id = ?1 AND ended_us IS NULL))";
    let found = find(
        connection,
        "look for an agent's run",
        FIND,
        [run.0, agent.0],
        |row| row.get::<_, i64>(0),
    )?;
    Ok(found.is_some())
}

/// The daemon for a process on a host; `None` if it was never described.
pub(super) fn daemon(
    caches: &mut Caches,
    connection: &Connection,
    host: HostId,
    process: Process,
) -> Result<Option<DaemonId>, StoreError> {
    if let Some(id) = caches.daemons.get(&(host, process)) {
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
    caches.daemons.set((host, process), id);
    caches.last_seen.set(id, last_seen);
    Ok(Some(id))
}

/// Inserts a daemon, or updates its description, because some daemons set their name late. A
/// stand-in for the host's sampler can only report the end of daemons that were found before its appointment.
pub(super) fn describe_daemon(
    caches: &mut Caches,
    connection: &Connection,
    source: &BatchSource,
    seen: &DaemonSeen,
    stands_in_since: Option<MeshMicros>,
) -> Result<(), StoreError> {
    let host = source.host;
    let known = daemon(caches, connection, host, seen.process)?;
    if let (Some(id), Some(since)) = (known, stands_in_since) {
        const FIND: &str = "SELECT 1 FROM daemons WHERE id = ? AND first_seen_us < ?";
        let is_of_before = find(
            connection,
            "look for a daemon",
            FIND,
            [id.0, since.0],
            |row| row.get::<_, i64>(0),
        )?;
        if is_of_before.is_some() {
            return execute(
                connection,
                "store the end of a daemon",
                "UPDATE daemons SET ended_us = coalesce(ended_us, ?1) WHERE id = ?2 AND last_seen_us <= ?1",
                (seen.ended.then_some(seen.at.0), id.0),
            )
            .map(drop);
        }
    }
    let (id, last_seen) = one(
        connection,
        "store a daemon",
        "INSERT INTO daemons (host_id, name, instance, pid, start_ticks, cmdline, first_seen_us, last_seen_us, ended_us,
                              born_us, is_parent, version, is_replaced)
         VALUES (?1, ?2, nullif(?3, ''), ?4, ?5, nullif(?6, ''), ?7, ?7, ?8, ?9, ?10, nullif(?11, ''), ?12)
         ON CONFLICT (host_id, pid, start_ticks) DO UPDATE SET name = excluded.name,
             instance = coalesce(excluded.instance, instance),
             cmdline = coalesce(excluded.cmdline, cmdline),
             first_seen_us = min(first_seen_us, excluded.first_seen_us),
             last_seen_us = max(last_seen_us, excluded.last_seen_us),
             ended_us = coalesce(ended_us, excluded.ended_us),
             born_us = coalesce(born_us, excluded.born_us),
             is_parent = max(is_parent, excluded.is_parent),
             version = coalesce(excluded.version, version),
             is_replaced = max(is_replaced, excluded.is_replaced)
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
            seen.born.map(|at| at.0),
            seen.is_parent,
            &seen.version,
            seen.is_replaced,
        ),
        |row| Ok((DaemonId(row.get(0)?), row.get(1)?)),
    )?;
    if seen.is_parent {
        execute(
            connection,
            "have a step's daemons computed again",
            "UPDATE steps SET stale_samples = stale_samples + 1
             WHERE resolution_s = 1 AND id IN (SELECT step_id FROM step_daemons WHERE daemon_id = ?)",
            [id.0],
        )?;
    }
    caches.daemons.set((host, seen.process), id);
    caches.last_seen.set(id, last_seen);
    Ok(())
}

/// The births of parent and child may appear in the wrong order by this much: the kernel dates them in ticks of 10
/// ms.
const BIRTH_TICKS_US: i64 = 20_000;

/// A daemon's start is reported for the first process that was found. If that process only started the daemon in the
/// background, the event is changed to name the daemon. Daemons and events of the parent's batch have to be stored
/// before.
pub(super) fn name_child(
    connection: &Connection,
    source: &BatchSource,
    parent: &DaemonSeen,
) -> Result<(), StoreError> {
    execute(
        connection,
        "name the daemon that a process has started",
        "UPDATE events SET message = replace(message, '(pid ' || ?2 || ')', '(pid ' || child.pid || ')'),
                detail = json_set(detail, '$.pid', child.pid, '$.start_ticks', child.start_ticks)
         FROM (SELECT pid, start_ticks FROM daemons
               WHERE host_id = ?1 AND name = ?4 AND instance IS nullif(?5, '') AND is_parent = 0 AND ended_us IS NULL
                 AND (born_us IS NULL OR ?7 IS NULL OR born_us >= ?7 - ?8)
               ORDER BY id DESC LIMIT 1) AS child
         WHERE agent_id = ?6 AND kind IN ('daemon-started', 'daemon-restarted') AND detail ->> 'pid' = ?2
           AND detail ->> 'start_ticks' = ?3",
        (
            source.host.0,
            parent.process.pid,
            parent.process.start_ticks,
            &parent.name,
            &parent.instance,
            source.agent.0,
            parent.born.map(|at| at.0),
            BIRTH_TICKS_US,
        ),
    )
    .map(drop)
}

pub(super) fn daemon_seen(
    caches: &mut Caches,
    connection: &Connection,
    daemon: DaemonId,
    at: MeshMicros,
) -> Result<(), StoreError> {
    execute(
        connection,
        "store when a daemon was seen",
        "UPDATE daemons SET last_seen_us = max(last_seen_us, ?1), first_seen_us = min(first_seen_us, ?1) WHERE id = ?2",
        [at.0, daemon.0],
    )?;
    caches.last_seen.set(daemon, at.0);
    Ok(())
}

/// The disk's id.
pub(super) fn disk(
    caches: &mut Caches,
    connection: &Connection,
    source: &BatchSource,
    name: &str,
    stacked: bool,
    is_own: bool,
) -> Result<i64, StoreError> {
    let key = (source.host, name.to_owned());
    let known = match caches.disks.get(&key) {
        Some(known) => Some(*known),
        None => find(
            connection,
            "look for a disk",
            "SELECT id, stacked FROM disks WHERE host_id = ? AND name = ?",
            (source.host.0, name),
            |row| Ok((row.get(0)?, row.get(1)?)),
        )?,
    };
    let id = match known {
        Some((id, was)) if was == stacked || !is_own => id,
        Some((id, _)) => {
            execute(
                connection,
                "store the disks beneath a disk",
                "UPDATE disks SET stacked = ? WHERE id = ?",
                (stacked, id),
            )?;
            id
        }
        None => one(
            connection,
            "keep a disk",
            "INSERT INTO disks (host_id, name, stacked) VALUES (?, ?, ?) RETURNING id",
            (source.host.0, name, stacked),
            |row| row.get(0),
        )?,
    };
    let stacked = match known {
        Some((_, was)) if !is_own => was,
        _ => stacked,
    };
    if known != Some((id, stacked)) || caches.disks.get(&key).is_none() {
        caches.disks.set(key, (id, stacked));
    }
    Ok(id)
}

/// The interface's id.
pub(super) fn interface(
    caches: &mut Caches,
    connection: &Connection,
    source: &BatchSource,
    name: &str,
) -> Result<i64, StoreError> {
    let net_namespace = source.net_namespace.as_str();
    let key = (source.host, net_namespace.to_owned(), name.to_owned());
    if let Some(id) = caches.interfaces.get(&key) {
        return Ok(*id);
    }
    let known: Option<i64> = find(
        connection,
        "look for an interface",
        "SELECT id FROM interfaces WHERE host_id = ? AND net_namespace = ? AND name = ?",
        (source.host.0, net_namespace, name),
        |row| row.get(0),
    )?;
    let id = match known {
        Some(id) => id,
        None => one(
            connection,
            "store an interface",
            "INSERT INTO interfaces (host_id, net_namespace, name) VALUES (?, ?, ?) RETURNING id",
            (source.host.0, net_namespace, name),
            |row| row.get(0),
        )?,
    };
    caches.interfaces.set(key, id);
    Ok(id)
}

/// `None` if the target is left out: the agent has no directory of a running run there. The directory is stored before a
/// task is prepared in it, and removed after the rows of all tasks have arrived.
pub(super) fn target(
    connection: &Connection,
    agent: AgentId,
    sample: &TargetSample,
) -> Result<Option<i64>, StoreError> {
    let known: Option<i64> = find(
        connection,
        "look for a target",
        "SELECT id FROM targets WHERE agent_id = ? AND nonce = ? AND path = ?",
        (agent.0, &sample.nonce, &sample.target),
        |row| row.get(0),
    )?;
    if known.is_some() {
        return Ok(known);
    }
    let run: Option<i64> = find(
        connection,
        "look for the run of a target",
        "SELECT run_id FROM run_directories WHERE agent_id = ? AND nonce = ? AND path = ?",
        (agent.0, &sample.nonce, &sample.target),
        |row| row.get(0),
    )?;
    let Some(run) = run else {
        return Ok(None);
    };
    one(
        connection,
        "store a target",
        "INSERT INTO targets (run_id, agent_id, path, nonce, device) VALUES (?, ?, ?, ?, ?) RETURNING id",
        (run, agent.0, &sample.target, &sample.nonce, &sample.device),
        |row| row.get(0),
    )
    .map(Some)
}

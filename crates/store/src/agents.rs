//! Agents and hosts: which agents attached, from which hosts, and the stored position of each spool.

use super::rows::{AgentRow, NewAgent, NewEvent, NewHost};
use super::runs::add_event;
use super::writer::Haste;
use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use async_recursion::async_recursion as boxed;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row, SqliteConnection};
use std::collections::HashSet;

/// How far the ids of runs are raised at most for what agents claim, from the first claim after an opening of the
/// database until it is closed: more runs than are usually lost with an old copy, and few enough that ids can still be
/// typed if an agent claims too much.
const MOST_RUNS_AHEAD: i64 = 1000;

impl Store {
    /// Finds or inserts the agent (by uid) and its host (by boot id and PID namespace), and stores their current
    /// descriptions. A uid stays bound to its name unless a rename is allowed.
    #[boxed]
    #[inline(never)]
    pub async fn attach_agent(&self, agent: NewAgent) -> Result<(AgentId, HostId), StoreError> {
        self.note(agent.at);
        // Committed together with the batches of an earlier session, which the agent would otherwise send again.
        self.write_in(Haste::Watched, agent, |agent, connection| {
            Box::pin(attach(agent, connection))
        })
        .await
    }

    /// The name that an agent's uid is bound to; `None` if the uid is unknown.
    pub async fn agent_known_as(&self, uid: &str) -> Result<Option<String>, StoreError> {
        sqlx::query_scalar("SELECT name FROM agents WHERE uid = ?")
            .bind(uid)
            .fetch_optional(self.reader())
            .await
            .doing("look up an agent")
    }

    /// Returns those of `agents` that have taken part in no run. Empty if the mesh has had no run yet: then no agent
    /// is new.
    pub async fn new_agents(&self, agents: Vec<AgentId>) -> Result<Vec<AgentId>, StoreError> {
        let ids: Vec<i64> = agents.iter().map(|agent| agent.0).collect();
        let ids = serde_json::to_string(&ids).unwrap_or_default();
        let new: Vec<i64> = sqlx::query_scalar(
            "SELECT a.value FROM json_each(?) AS a
            WHERE NOT EXISTS (SELECT 1 FROM tasks WHERE agent_id = a.value)
                AND NOT EXISTS (SELECT 1 FROM tasks WHERE peer_agent_id = a.value)
                AND EXISTS (SELECT 1 FROM tasks AS t JOIN steps AS s ON s.id = t.step_id
                    JOIN runs AS r ON r.id = s.run_id AND r.imported_from IS NULL)",
        )
        .bind(ids)
        .fetch_all(self.reader())
        .await
        .doing("look up which agents are new")?;
        Ok(new.into_iter().map(AgentId).collect())
    }

    /// Events of these kinds that no agent sent, with their details, oldest first.
    pub async fn trust_events(
        &self,
        kinds: [EventKind; 3],
    ) -> Result<Vec<(String, String)>, StoreError> {
        let [first, second, third] = kinds.map(EventKind::as_str);
        sqlx::query_as(
            "SELECT kind, detail FROM events
            WHERE source = 'collector' AND kind IN (?, ?, ?) AND detail IS NOT NULL ORDER BY id",
        )
        .bind(first)
        .bind(second)
        .bind(third)
        .fetch_all(self.reader())
        .await
        .doing("read the trust events")
    }

    /// Binds an agent's uid to another name, if it is still bound to the previous one.
    pub async fn rename_agent(
        &self,
        uid: &str,
        former: &str,
        name: &str,
        at: MeshMicros,
    ) -> Result<(), StoreError> {
        self.note(at);
        let names = [uid, former, name].map(str::to_owned);
        self.write(names, |names, connection| {
            Box::pin(rename(names, connection))
        })
        .await
    }

    /// Stores when agents were last seen.
    pub async fn agents_seen(&self, seen: Vec<(AgentId, MeshMicros)>) -> Result<(), StoreError> {
        for (_, at) in &seen {
            self.note(*at);
        }
        self.write_in(Haste::WithOthers, seen, |seen, connection| {
            Box::pin(async move {
                for (agent, at) in seen {
                    sqlx::query(
                        "UPDATE agents SET last_seen_us = max(last_seen_us, ?) WHERE id = ?",
                    )
                    .bind(at.0)
                    .bind(agent.0)
                    .write(connection, "store when an agent was seen")
                    .await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// Removes from `tasks` those for which the agent is neither the client nor the receiving end. Ids without a row
    /// stay, because their agent is unknown.
    pub async fn without_tasks_of_others(
        &self,
        agent: AgentId,
        tasks: Vec<i64>,
    ) -> Result<Vec<i64>, StoreError> {
        if tasks.is_empty() {
            return Ok(tasks);
        }
        let ids = serde_json::Value::from(tasks.clone()).to_string();
        let others: Vec<i64> = sqlx::query_scalar(
            "SELECT id FROM tasks WHERE id IN (SELECT value FROM json_each(?1))
                 AND agent_id <> ?2 AND coalesce(peer_agent_id, agent_id) <> ?2",
        )
        .bind(ids)
        .bind(agent.0)
        .fetch_all(self.reader())
        .await
        .doing("look up whose tasks an agent holds")?;
        let others: HashSet<i64> = others.into_iter().collect();
        Ok(tasks
            .into_iter()
            .filter(|task| !others.contains(task))
            .collect())
    }

    /// Continues the ids of runs after `newest`, an id that an agent has seen: the database may have been restored
    /// from a copy older than that run. Raises them by at most `MOST_RUNS_AHEAD` while the database is open.
    pub async fn raise_run_ids(&self, newest: i64) -> Result<(), StoreError> {
        let given = self.given_run_id().await?;
        let first = async || Ok(given.saturating_add(MOST_RUNS_AHEAD));
        let bound = self.shared.run_ids_bound.get_or_try_init(first).await?;
        let newest = newest.min(*bound);
        if newest <= given {
            return Ok(());
        }
        self.write(newest, |newest, connection| {
            Box::pin(async move {
                for statement in [
                    "INSERT INTO sqlite_sequence (name, seq) SELECT 'runs', 0
                     WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'runs')",
                    "UPDATE sqlite_sequence SET seq = max(seq, ?1) WHERE name = 'runs'",
                ] {
                    sqlx::query(statement)
                        .bind(*newest)
                        .write(connection, "raise the ids of runs")
                        .await?;
                }
                Ok(())
            })
        })
        .await
    }

    /// The largest id that a run has or had.
    async fn given_run_id(&self) -> Result<i64, StoreError> {
        sqlx::query_scalar("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'runs'")
            .fetch_one(self.reader())
            .await
            .doing("read the largest id of a run")
    }

    /// Removes an agent from the list. Its rows stay, and it is listed again when it attaches. Returns `false` if an
    /// unfinished run needs it.
    #[boxed]
    #[inline(never)]
    pub async fn forget_agent(&self, agent: AgentId, at: MeshMicros) -> Result<bool, StoreError> {
        self.write((agent, at), |(agent, at), connection| {
            Box::pin(async move {
                let forgotten = sqlx::query(
                    "UPDATE agents SET forgotten_us = ?1 WHERE id = ?2 AND NOT EXISTS (
                         SELECT 1 FROM runs AS r, json_each(r.agents) AS j
                         WHERE r.state IN ('queued', 'running') AND j.value ->> 'uid' = agents.uid)",
                )
                .bind(at.0)
                .bind(agent.0)
                .execute(&mut *connection)
                .await
                .map(|done| done.rows_affected() > 0)
                .doing("forget an agent")?;
                if forgotten {
                    sqlx::query("DELETE FROM samplers WHERE agent_id = ?")
                        .bind(agent.0)
                        .write(connection, "forget the sampling of an agent")
                        .await?;
                }
                Ok(forgotten)
            })
        })
        .await
    }

    /// The last stored sequence of each spool that the agent has written.
    pub async fn spool_positions(&self, agent: AgentId) -> Result<Vec<(String, u64)>, StoreError> {
        let rows: Vec<(String, i64)> =
            sqlx::query_as("SELECT spool_id, last_sequence FROM spools WHERE agent_id = ?")
                .bind(agent.0)
                .fetch_all(self.reader())
                .await
                .doing("read the positions of an agent's spools")?;
        Ok(rows
            .into_iter()
            .map(|(spool, last)| (spool, last.unsigned_abs()))
            .collect())
    }

    pub(super) async fn position(&self, agent: AgentId, spool_id: &str) -> Result<u64, StoreError> {
        sqlx::query_scalar::<_, i64>(
            "SELECT last_sequence FROM spools WHERE agent_id = ? AND spool_id = ?",
        )
        .bind(agent.0)
        .bind(spool_id)
        .fetch_optional(self.reader())
        .await
        .map(|last| last.unwrap_or(0).unsigned_abs())
        .doing("read the position of a spool")
    }

    /// Every agent that has ever attached, by name.
    #[boxed]
    #[inline(never)]
    pub async fn agents(&self) -> Result<Vec<AgentRow>, StoreError> {
        sqlx::query_as(
            "SELECT a.*, h.boot_id, h.pid_namespace, h.name AS host_name, h.kernel, h.cpus, h.memory_bytes
             FROM agents AS a JOIN hosts AS h ON h.id = a.host_id
             WHERE a.forgotten_us IS NULL ORDER BY a.name, a.id",
        )
        .fetch_all(self.reader())
        .await
        .doing("list the agents")
    }
}

impl FromRow<'_, SqliteRow> for AgentRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: AgentId(row.try_get("id")?),
            uid: row.try_get("uid")?,
            name: row.try_get("name")?,
            host: HostId(row.try_get("host_id")?),
            on: NewHost {
                boot_id: row.try_get("boot_id")?,
                pid_namespace: row.try_get("pid_namespace")?,
                name: row.try_get("host_name")?,
                kernel: row.try_get("kernel")?,
                cpus: row.try_get("cpus")?,
                memory_bytes: row.try_get("memory_bytes")?,
            },
            labels_json: row.try_get("labels")?,
            version: row.try_get("version")?,
            first_seen: MeshMicros(row.try_get("first_seen_us")?),
            last_seen: MeshMicros(row.try_get("last_seen_us")?),
        })
    }
}

async fn rename(
    [uid, former, name]: &[String; 3],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE agents SET name = ?1 WHERE uid = ?2 AND name = ?3")
        .bind(name.as_str())
        .bind(uid.as_str())
        .bind(former.as_str())
        .write(connection, "rename an agent")
        .await
}

async fn attach(
    agent: &NewAgent,
    connection: &mut SqliteConnection,
) -> Result<(AgentId, HostId), StoreError> {
    if !agent.may_rename {
        let other: Option<String> =
            sqlx::query_scalar("SELECT name FROM agents WHERE uid = ? AND name <> ?")
                .bind(agent.uid.as_str())
                .bind(agent.name.as_str())
                .fetch_optional(&mut *connection)
                .await
                .doing("look up an agent")?;
        if let Some(known_as) = other {
            return Err(StoreError::UidBound { known_as });
        }
    }
    record_change(agent, connection).await?;
    let host = attach_host(agent, connection).await?;
    let id: i64 = sqlx::query_scalar(
        "INSERT INTO agents (uid, name, host_id, labels, version, first_seen_us, last_seen_us)
         VALUES (?, ?, ?, ?, ?, ?, ?)
         ON CONFLICT (uid) DO UPDATE SET name = excluded.name, host_id = excluded.host_id, labels = excluded.labels,
             version = excluded.version, last_seen_us = max(last_seen_us, excluded.last_seen_us), forgotten_us = NULL
         RETURNING id",
    )
    .bind(agent.uid.as_str())
    .bind(agent.name.as_str())
    .bind(host.0)
    .bind(agent.labels_json.as_str())
    .bind(agent.version.as_str())
    .bind(agent.at.0)
    .bind(agent.at.0)
    .fetch_one(&mut *connection)
    .await
    .doing("store an agent")?;
    Ok((AgentId(id), host))
}

/// Finds or inserts the agent's host. An agent with `describes_host` replaces the stored description.
async fn attach_host(
    agent: &NewAgent,
    connection: &mut SqliteConnection,
) -> Result<HostId, StoreError> {
    let host = &agent.host;
    sqlx::query_scalar(
        "INSERT INTO hosts (boot_id, pid_namespace, name, kernel, cpus, memory_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (boot_id, pid_namespace) DO UPDATE SET name = iif(?7, excluded.name, name),
             kernel = iif(?7, excluded.kernel, kernel), cpus = iif(?7, excluded.cpus, cpus),
             memory_bytes = iif(?7, excluded.memory_bytes, memory_bytes)
         RETURNING id",
    )
    .bind(host.boot_id.as_str())
    .bind(host.pid_namespace.as_str())
    .bind(host.name.as_str())
    .bind(host.kernel.as_str())
    .bind(host.cpus)
    .bind(host.memory_bytes)
    .bind(agent.describes_host)
    .fetch_one(connection)
    .await
    .map(HostId)
    .doing("keep a host")
}

/// Records in the running runs that the agent reattached with another description of itself or its host. `run_agents`
/// keeps the description from the start of each run.
async fn record_change(
    agent: &NewAgent,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    let host = &agent.host;
    let changed: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT e.run_id, e.agent_id FROM agents AS a JOIN hosts AS h ON h.id = a.host_id
         JOIN run_agents AS e ON e.agent_id = a.id JOIN runs AS r ON r.id = e.run_id AND r.state = 'running'
         WHERE a.uid = ?1 AND ((a.name, a.labels, a.version, h.boot_id, h.pid_namespace) <> (?2, ?3, ?4, ?5, ?6)
             OR (?7 AND (h.name, h.kernel, h.cpus, h.memory_bytes) <> (?8, ?9, ?10, ?11)))",
    )
    .bind(agent.uid.as_str())
    .bind(agent.name.as_str())
    .bind(agent.labels_json.as_str())
    .bind(agent.version.as_str())
    .bind(host.boot_id.as_str())
    .bind(host.pid_namespace.as_str())
    .bind(agent.describes_host)
    .bind(host.name.as_str())
    .bind(host.kernel.as_str())
    .bind(host.cpus)
    .bind(host.memory_bytes)
    .fetch_all(&mut *connection)
    .await
    .doing("compare an agent with its earlier state")?;
    for (run, id) in changed {
        let message = format!(
            "agent {} attached with another host, name, labels or version than before; this run's views and reports \
             show those from the run's start",
            agent.name
        );
        let event = NewEvent {
            run: Some(RunId(run)),
            agent: Some(AgentId(id)),
            ..NewEvent::new(agent.at, EventKind::AgentChanged, message)
        };
        add_event(&event, connection).await?;
    }
    Ok(())
}

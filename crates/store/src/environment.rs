//! The environment of a run at its start: its agents, and what each of them found at each target.
//!
//! It is copied from `agents` and `hosts` in the transaction that inserts the run's steps, and never changes.

use super::Store;
use super::read::text;
use super::rows::{NewRunAgent, NewRunTarget};
use crate::database::{Doing, StoreError, WriteRows};
use benchmesh_model::mesh::{AgentId, RunId};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

pub(super) async fn store(
    run: RunId,
    agents: &[NewRunAgent],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    for agent in agents {
        sqlx::query(
            "INSERT OR REPLACE INTO run_agents (run_id, agent_id, host_id, name, host, version, labels, kernel,
                 distribution, cpu_model, cpus, memory_bytes, interfaces, disks, packages, policy)
             SELECT ?, a.id, h.id, a.name, h.name, a.version, a.labels, h.kernel,
                 nullif(?, ''), nullif(?, ''), h.cpus, h.memory_bytes, ?, ?, ?, ?
             FROM agents AS a JOIN hosts AS h ON h.id = a.host_id WHERE a.id = ?",
        )
        .bind(run.0)
        .bind(agent.distribution.as_str())
        .bind(agent.cpu_model.as_str())
        .bind(agent.interfaces_json.as_deref())
        .bind(agent.disks_json.as_deref())
        .bind(agent.packages_json.as_deref())
        .bind(agent.policy_json.as_deref())
        .bind(agent.agent.0)
        .write(connection, "store the agents of a run")
        .await?;
        for target in &agent.targets {
            store_target(run, agent.agent, target, connection).await?;
        }
    }
    Ok(())
}

impl Store {
    /// What each agent of a run found at each target when the run began. Empty if the run has not begun.
    pub async fn run_targets(
        &self,
        run: RunId,
    ) -> Result<Vec<(AgentId, NewRunTarget)>, StoreError> {
        let read = |row: SqliteRow| {
            let target = NewRunTarget {
                target: text(&row, "target")?,
                system: text(&row, "system")?,
                path: text(&row, "path")?,
                mount_source: text(&row, "mount_source")?,
                mount_type: text(&row, "mount_type")?,
                mount_options: text(&row, "mount_options")?,
                beneath_json: row.try_get("beneath")?,
                size_bytes: row.try_get("size_bytes")?,
                free_bytes: row.try_get("free_bytes")?,
                packages_json: row.try_get("packages")?,
            };
            Ok((AgentId(row.try_get("agent_id")?), target))
        };
        sqlx::query("SELECT * FROM run_targets WHERE run_id = ? ORDER BY agent_id, target")
            .bind(run.0)
            .try_map(read)
            .fetch_all(self.reader())
            .await
            .doing("read the targets of a run")
    }
}

async fn store_target(
    run: RunId,
    agent: AgentId,
    target: &NewRunTarget,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT OR REPLACE INTO run_targets (run_id, agent_id, target, system, path, mount_source, mount_type, mount_options,
             beneath, size_bytes, free_bytes, packages)
         VALUES (?, ?, ?, ?, ?, nullif(?, ''), nullif(?, ''), nullif(?, ''), ?, ?, ?, ?)",
    )
    .bind(run.0)
    .bind(agent.0)
    .bind(target.target.as_str())
    .bind(target.system.as_str())
    .bind(target.path.as_str())
    .bind(target.mount_source.as_str())
    .bind(target.mount_type.as_str())
    .bind(target.mount_options.as_str())
    .bind(target.beneath_json.as_deref())
    .bind(target.size_bytes)
    .bind(target.free_bytes)
    .bind(target.packages_json.as_deref())
    .write(connection, "store the targets of a run")
    .await
}

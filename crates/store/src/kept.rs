//! Data sets that stay on targets. A set is stored before an agent is asked to make it, and deleted when all agents
//! have removed their parts.

use super::rows::NewKeptData;
use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use benchmesh_model::mesh::{AgentId, MeshMicros};
use benchmesh_plan::{KeptFacts, Shape};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row, SqliteConnection};
use std::collections::BTreeSet;

/// A data set, and the agents that have a part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSet {
    pub id: i64,
    pub facts: KeptFacts,
    /// The uid of the last run that used it.
    pub used_run_uid: String,
    pub agents: BTreeSet<AgentId>,
}

impl Store {
    /// All data sets, by name and path.
    pub async fn kept_data(&self) -> Result<Vec<KeptSet>, StoreError> {
        const DOING: &str = "look for data that are kept";
        let mut sets: Vec<KeptSet> = sqlx::query_as(
            "SELECT id, name, path, shape, tasks, is_whole, used_run_uid FROM kept_data ORDER BY name, path",
        )
        .fetch_all(self.reader())
        .await
        .doing(DOING)?;
        let parts: Vec<(i64, i64)> =
            sqlx::query_as("SELECT kept_data_id, agent_id FROM kept_data_agents")
                .fetch_all(self.reader())
                .await
                .doing(DOING)?;
        for set in &mut sets {
            let own = parts.iter().filter(|(of, _)| *of == set.id);
            set.agents = own.map(|(_, agent)| AgentId(*agent)).collect();
        }
        Ok(sets)
    }

    /// Records that an agent has removed its part of a set. The set is deleted with its last part.
    pub async fn kept_data_removed(&self, set: i64, agent: AgentId) -> Result<(), StoreError> {
        self.write((set, agent), |(set, agent), connection| {
            Box::pin(remove_part(*set, *agent, connection))
        })
        .await
    }
}

/// A row of `kept_data`, still without agents.
impl FromRow<'_, SqliteRow> for KeptSet {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let shape: String = row.try_get("shape")?;
        Ok(Self {
            id: row.try_get("id")?,
            facts: KeptFacts {
                name: row.try_get("name")?,
                path: row.try_get("path")?,
                // An unreadable shape matches no other.
                shape: serde_json::from_str(&shape).unwrap_or_else(|_| Shape::new()),
                tasks: row.try_get("tasks")?,
                is_whole: row.try_get("is_whole")?,
            },
            used_run_uid: row.try_get("used_run_uid")?,
            agents: BTreeSet::new(),
        })
    }
}

async fn remove_part(
    set: i64,
    agent: AgentId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    for statement in [
        "DELETE FROM kept_data_agents WHERE kept_data_id = ?1 AND agent_id = ?2",
        // The other agents keep parts of an incomplete set.
        "UPDATE kept_data SET is_whole = 0 WHERE id = ?1 AND ?2 IS NOT NULL",
        "DELETE FROM kept_data WHERE id = ?1 AND ?2 IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM kept_data_agents AS a WHERE a.kept_data_id = ?1)",
    ] {
        sqlx::query(statement)
            .bind(set)
            .bind(agent.0)
            .write(connection, "forget data that were kept")
            .await?;
    }
    Ok(())
}

/// Stores the set. Call it before agents are asked to prepare tasks on it.
pub(super) async fn note(
    data: &NewKeptData,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    const DOING: &str = "note data that are kept";
    let shape = serde_json::to_string(&data.shape).unwrap_or_default();
    let set: i64 = sqlx::query_scalar(
        "INSERT INTO kept_data (name, path, target, system, workload, shape, tasks, bytes, files, is_whole,
             made_run_uid, made_us, used_run_uid, used_us)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?11, ?10, ?11)
         ON CONFLICT (name, path) DO UPDATE SET target = excluded.target, system = excluded.system,
             bytes = iif(excluded.tasks > tasks, excluded.bytes, bytes),
             files = iif(excluded.tasks > tasks, excluded.files, files),
             is_whole = is_whole AND NOT ?12 AND excluded.tasks <= tasks,
             tasks = max(tasks, excluded.tasks),
             made_run_uid = iif(?12, excluded.made_run_uid, made_run_uid),
             made_us = iif(?12, excluded.made_us, made_us),
             used_run_uid = excluded.used_run_uid, used_us = excluded.used_us
         RETURNING id",
    )
    .bind(data.name.as_str())
    .bind(data.path.as_str())
    .bind(data.target.as_str())
    .bind(data.system.as_str())
    .bind(data.workload.as_str())
    .bind(shape)
    .bind(data.tasks)
    .bind(i64::try_from(data.bytes).unwrap_or(i64::MAX))
    .bind(i64::try_from(data.files).unwrap_or(i64::MAX))
    .bind(data.run_uid.as_str())
    .bind(data.at.0)
    .bind(data.remakes)
    .fetch_one(&mut *connection)
    .await
    .doing(DOING)?;
    for agent in &data.agents {
        sqlx::query(
            "INSERT OR IGNORE INTO kept_data_agents (kept_data_id, agent_id) VALUES (?, ?)",
        )
        .bind(set)
        .bind(agent.0)
        .write(connection, DOING)
        .await?;
    }
    Ok(())
}

/// Marks the set as complete, after a step that laid it out, or found it complete, ended well.
pub(super) async fn whole(
    name: &str,
    path: &str,
    at: MeshMicros,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE kept_data SET is_whole = 1, used_us = ?3 WHERE name = ?1 AND path = ?2")
        .bind(name)
        .bind(path)
        .bind(at.0)
        .write(connection, "note that data are kept whole")
        .await
}

//! The environment of a run as it was when the run began: its agents, and what each of them found at each target.
//!
//! Written in the transaction that makes the run's steps, and never changed: `agents` and `hosts` say what is true today.

use super::rows::{NewRunAgent, NewRunTarget};
use crate::database::StoreError;
use crate::model::{AgentId, RunId};
use sqlx::SqliteConnection;

pub(super) async fn store(
    run: RunId,
    agents: &[NewRunAgent],
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    // Earlier versions wrote these rows when they accepted the run.
    for statement in [
        "DELETE FROM run_targets WHERE run_id = ?",
        "DELETE FROM run_agents WHERE run_id = ?",
    ] {
        sqlx::query(statement)
            .bind(run.0)
            .execute(&mut *connection)
            .await
            .map_err(StoreError::sql("replace the environment of a run"))?;
    }
    for agent in agents {
        sqlx::query(
            "INSERT INTO run_agents (run_id, agent_id, host_id, name, host, version, labels, kernel, distribution,
                 cpu_model, cpus, memory_bytes, interfaces, disks, packages, policy)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, nullif(?, ''), nullif(?, ''), ?, ?, ?, ?, ?, ?)",
        )
        .bind(run.0)
        .bind(agent.agent.0)
        .bind(agent.host.0)
        .bind(agent.name.as_str())
        .bind(agent.host_name.as_str())
        .bind(agent.version.as_str())
        .bind(agent.labels_json.as_str())
        .bind(agent.kernel.as_str())
        .bind(agent.distribution.as_str())
        .bind(agent.cpu_model.as_str())
        .bind(agent.cpus)
        .bind(agent.memory_bytes)
        .bind(agent.interfaces_json.as_deref())
        .bind(agent.disks_json.as_deref())
        .bind(agent.packages_json.as_deref())
        .bind(agent.policy_json.as_deref())
        .execute(&mut *connection)
        .await
        .map_err(StoreError::sql("store the agents of a run"))?;
        for target in &agent.targets {
            store_target(run, agent.agent, target, connection).await?;
        }
    }
    Ok(())
}

async fn store_target(
    run: RunId,
    agent: AgentId,
    target: &NewRunTarget,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO run_targets (run_id, agent_id, target, system, path, mount_source, mount_type, mount_options,
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
    .execute(connection)
    .await
    .map(drop)
    .map_err(StoreError::sql("store the targets of a run"))
}

//! Which agents were appointed to sample a host, and when.

use super::read::instant;
use super::rows::{NewSampler, SamplerRow};
use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use benchmesh_model::mesh::{AgentId, MeshMicros};
use sqlx::sqlite::SqliteRow;
use sqlx::{FromRow, Row};

impl Store {
    /// The appointments of all hosts that an agent is on, in their order.
    pub async fn samplers(&self) -> Result<Vec<SamplerRow>, StoreError> {
        sqlx::query_as(
            "SELECT h.boot_id, h.pid_namespace, s.net_namespace, s.agent_id, a.name, s.from_us, s.until_us
             FROM samplers AS s JOIN hosts AS h ON h.id = s.host_id JOIN agents AS a ON a.id = s.agent_id
             WHERE s.host_id IN (SELECT host_id FROM agents WHERE forgotten_us IS NULL) ORDER BY s.id",
        )
        .fetch_all(self.reader())
        .await
        .doing("read the samplers of hosts")
    }

    /// Appoints an agent to sample a host from now on, in place of the previous one.
    pub async fn appoint_sampler(&self, sampler: NewSampler) -> Result<(), StoreError> {
        self.note(sampler.from);
        self.write(sampler, |sampler, connection| {
            Box::pin(async move {
                for statement in [
                    "UPDATE samplers SET until_us = ?4
                     WHERE host_id = ?1 AND net_namespace IS ?2 AND until_us IS NULL AND agent_id <> ?3",
                    "INSERT INTO samplers (host_id, net_namespace, agent_id, from_us) VALUES (?1, ?2, ?3, ?4)",
                ] {
                    sqlx::query(statement)
                        .bind(sampler.host.0)
                        .bind(sampler.net_namespace.as_deref())
                        .bind(sampler.agent.0)
                        .bind(sampler.from.0)
                        .write(connection, "store the sampler of a host")
                        .await?;
                }
                Ok(())
            })
        })
        .await
    }
}

impl FromRow<'_, SqliteRow> for SamplerRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            boot_id: row.try_get("boot_id")?,
            pid_namespace: row.try_get("pid_namespace")?,
            net_namespace: row.try_get("net_namespace")?,
            agent: AgentId(row.try_get("agent_id")?),
            name: row.try_get("name")?,
            from: MeshMicros(row.try_get("from_us")?),
            until: instant(row, "until_us")?,
        })
    }
}

//! What was tested: agents with their hosts, and targets, as they were when the run was accepted.

use super::{ReportError, Statement, json, json_if_any, rows};
use crate::model::RunId;
use crate::report::{AgentReport, TargetReport};
use sqlx::{Row, SqliteConnection};

/// Those that were attached when the run was accepted, and those that had a task of it.
pub(super) const AGENTS: Statement = Statement {
    what: "agents",
    sql: "WITH clients AS (
              SELECT t.agent_id FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id WHERE s.run_id = ?1
              UNION
              SELECT t.peer_agent_id FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id
              WHERE s.run_id = ?1 AND t.peer_agent_id IS NOT NULL),
          there AS (SELECT agent_id FROM clients UNION SELECT agent_id FROM run_agents WHERE run_id = ?1)
          SELECT coalesce(e.name, a.name) AS name, coalesce(e.host, h.name) AS host, coalesce(e.kernel, h.kernel) AS kernel,
                 coalesce(e.cpus, h.cpus) AS cpus, coalesce(e.memory_bytes, h.memory_bytes) AS memory_bytes,
                 coalesce(e.labels, a.labels) AS labels, coalesce(e.version, a.version) AS version, e.distribution,
                 e.cpu_model, e.interfaces, e.disks, e.packages,
                 a.id IN (SELECT agent_id FROM clients) AS is_client
          FROM there CROSS JOIN agents AS a ON a.id = there.agent_id CROSS JOIN hosts AS h ON h.id = a.host_id
               LEFT JOIN run_agents AS e ON e.run_id = ?1 AND e.agent_id = a.id
          ORDER BY 1",
};

pub(super) const TARGETS: Statement = Statement {
    what: "run_targets",
    sql: "SELECT target, system, path, count(*) AS agents, mount_type, mount_source, mount_options,
                 max(size_bytes) AS size_bytes, packages
          FROM run_targets WHERE run_id = ?
          GROUP BY target, system, path, mount_type, mount_source, mount_options, packages ORDER BY target, agents DESC",
};

pub(super) async fn agents(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<AgentReport>, ReportError> {
    rows(connection, AGENTS, run, |row| {
        Ok(AgentReport {
            name: row.try_get("name")?,
            host: row.try_get("host")?,
            kernel: row.try_get("kernel")?,
            cpus: row.try_get("cpus")?,
            memory_bytes: row.try_get("memory_bytes")?,
            labels: json(row, "labels")?,
            version: row.try_get("version")?,
            distribution: row.try_get("distribution")?,
            cpu_model: row.try_get("cpu_model")?,
            is_client: row.try_get("is_client")?,
            interfaces: json_if_any(row, "interfaces")?,
            disks: json_if_any(row, "disks")?,
            packages: json_if_any(row, "packages")?,
        })
    })
    .await
}

pub(super) async fn targets(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<TargetReport>, ReportError> {
    rows(connection, TARGETS, run, |row| {
        Ok(TargetReport {
            target: row.try_get("target")?,
            system: row.try_get("system")?,
            agents: row.try_get("agents")?,
            mount_type: row.try_get("mount_type")?,
            mount_source: row.try_get("mount_source")?,
            mount_options: row.try_get("mount_options")?,
            path: row.try_get("path")?,
            size_bytes: row.try_get("size_bytes")?,
            packages: json_if_any(row, "packages")?,
        })
    })
    .await
}

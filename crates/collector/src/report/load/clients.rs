//! Who did what: each client's part of a step's operations, from the results of its tasks.

use super::steps::places;
use super::{ReportError, Statement, rows};
use crate::model::RunId;
use crate::report::{CLIENTS_LISTED, ClientReport, ClientsReport, StepReport};
use crate::results::real;
use sqlx::{Row, SqliteConnection};

/// A row per step, group, operation and agent. Rates of the tasks of one agent run at the same time, and are added.
pub(super) const CLIENTS: Statement = Statement {
    what: "task_results",
    sql: "SELECT t.step_id, coalesce(t.group_name, '') AS group_name, o.op, coalesce(e.name, a.name) AS agent,
                 count(*) AS tasks, sum(o.ops) AS ops, sum(o.bytes) AS bytes, sum(o.errors) AS errors,
                 coalesce(sum(o.ops_per_s), 0.0) AS ops_per_s, coalesce(sum(o.bytes_per_s), 0.0) AS bytes_per_s,
                 max(o.p50_ns) / 1e6 AS p50_ms, max(o.p99_ns) / 1e6 AS p99_ms, max(o.max_ns) / 1e6 AS max_ms
          FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id CROSS JOIN task_results AS o ON o.task_id = t.id
               CROSS JOIN agents AS a ON a.id = t.agent_id
               LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
          WHERE s.run_id = ? AND t.peer_agent_id IS NULL
          GROUP BY t.step_id, t.group_name, o.op, t.agent_id ORDER BY t.step_id, 2, o.op, 4",
};

#[derive(Debug)]
struct ClientRow {
    step_id: i64,
    group: String,
    op: String,
    client: ClientReport,
}

pub(super) async fn add(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let clients = rows(connection, CLIENTS, run, |row| {
        Ok(ClientRow {
            step_id: row.try_get("step_id")?,
            group: row.try_get("group_name")?,
            op: row.try_get("op")?,
            client: ClientReport {
                agent: row.try_get("agent")?,
                tasks: row.try_get("tasks")?,
                ops: row.try_get("ops")?,
                bytes: row.try_get("bytes")?,
                errors: row.try_get("errors")?,
                ops_per_s: row.try_get("ops_per_s")?,
                bytes_per_s: row.try_get("bytes_per_s")?,
                p50_ms: row.try_get("p50_ms")?,
                p99_ms: row.try_get("p99_ms")?,
                max_ms: row.try_get("max_ms")?,
            },
        })
    })
    .await?;
    let at = places(steps);
    let same =
        |a: &ClientRow, b: &ClientRow| (a.step_id, &a.group, &a.op) == (b.step_id, &b.group, &b.op);
    for of_op in clients.chunk_by(same) {
        let Some(first) = of_op.first() else { continue };
        let step = at.get(&first.step_id).and_then(|at| steps.get_mut(*at));
        let op = step.and_then(|step| {
            let mut ops = step.ops.iter_mut();
            ops.find(|op| op.group == first.group && op.op == first.op)
        });
        if let Some(op) = op {
            op.clients = summary(of_op.iter().map(|row| row.client.clone()).collect());
        }
    }
    Ok(())
}

fn summary(clients: Vec<ClientReport>) -> Option<ClientsReport> {
    let by_rate = |a: &&ClientReport, b: &&ClientReport| a.ops_per_s.total_cmp(&b.ops_per_s);
    let slowest = clients.iter().min_by(by_rate)?.clone();
    let fastest = clients.iter().max_by(by_rate)?.clone();
    let count = i64::try_from(clients.len()).unwrap_or(i64::MAX);
    let rates = || clients.iter().map(|client| client.ops_per_s);
    let mean = rates().sum::<f64>() / real(count);
    let squares: f64 = rates().map(|rate| (rate - mean).powi(2)).sum();
    Some(ClientsReport {
        clients: count,
        mean_ops_per_s: mean,
        stddev_ops_per_s: if count > 1 {
            (squares / real(count - 1)).sqrt()
        } else {
            0.0
        },
        slowest,
        fastest,
        each: if clients.len() <= CLIENTS_LISTED {
            clients
        } else {
            Vec::new()
        },
    })
}

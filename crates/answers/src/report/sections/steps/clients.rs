//! Each client's share of a step's operations, from the results of its tasks, and the variation of each step between
//! seconds.

use super::{OpReport, StepReport, places};
use crate::report::row::{ReportError, Statement, rows_with, value};
use crate::report::{Report, Table};
use benchmesh_model::mesh::RunId;
use benchmesh_results::real;
use benchmesh_workloads::figures;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};

const MIB: f64 = 1_048_576.0;

/// The whole seconds of a step's all-active window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondsReport {
    #[serde(alias = "window_seconds")]
    pub seconds: i64,
    /// Seconds in which nothing completed.
    #[serde(alias = "zero_seconds")]
    pub zero: i64,
    pub ops_per_s_stddev: f64,
    pub ops_per_s_min: f64,
    pub ops_per_s_max: f64,
    pub bytes_per_s_stddev: f64,
    pub bytes_per_s_min: f64,
    pub bytes_per_s_max: f64,
}

/// The clients of one operation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientsReport {
    pub clients: i64,
    pub mean_ops_per_s: f64,
    /// Between the clients.
    pub stddev_ops_per_s: f64,
    pub slowest: ClientReport,
    pub fastest: ClientReport,
    /// Each client by name; empty if there are more than [`CLIENTS_LISTED`].
    #[serde(default)]
    pub each: Vec<ClientReport>,
}

/// Maximum number of clients that are listed for a step.
pub const CLIENTS_LISTED: usize = 64;

/// One operation of a step on one agent, all its tasks together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientReport {
    pub agent: String,
    pub tasks: i64,
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
    pub ops_per_s: f64,
    pub bytes_per_s: f64,
    /// The value of the slowest of its tasks.
    pub p50_ms: Option<f64>,
    pub p99_ms: Option<f64>,
    pub max_ms: Option<f64>,
}

/// A row per step, group, operation and agent. Clients of one agent run at the same time, so their rates are added.
/// The parts of a client that returned are consecutive, and its rate is computed over their total time.
pub(in crate::report) const CLIENTS: Statement = Statement {
    what: "task_results",
    sql: "SELECT step_id, group_name, op, agent, count(DISTINCT client) AS tasks, sum(ops) AS ops, sum(bytes) AS bytes,
                 sum(errors) AS errors, coalesce(sum(ops_per_s * share), 0.0) AS ops_per_s,
                 coalesce(sum(bytes_per_s * share), 0.0) AS bytes_per_s,
                 max(p50_ns) / 1e6 AS p50_ms, max(p99_ns) / 1e6 AS p99_ms, max(max_ns) / 1e6 AS max_ms
          FROM (SELECT t.step_id, coalesce(t.group_name, '') AS group_name, o.op, t.agent_id,
                       coalesce(e.name, a.name) AS agent, coalesce(t.client_index, t.task_index) AS client,
                       o.ops, o.bytes, o.errors, o.ops_per_s, o.bytes_per_s, o.p50_ns, o.p99_ns, o.max_ns,
                       coalesce(o.busy_us * 1.0 / nullif(sum(o.busy_us) OVER (
                           PARTITION BY t.step_id, o.op, coalesce(t.client_index, t.task_index)), 0), 1.0) AS share
                FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id CROSS JOIN task_results AS o ON o.task_id = t.id
                     CROSS JOIN agents AS a ON a.id = t.agent_id
                     LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
                WHERE s.run_id = ? AND t.peer_agent_id IS NULL)
          GROUP BY step_id, group_name, op, agent_id ORDER BY step_id, group_name, op, agent",
};

#[derive(Debug)]
struct ClientOfOp {
    step_id: i64,
    group: String,
    op: String,
    client: ClientReport,
}

pub(in crate::report) fn add(
    connection: &Connection,
    run: RunId,
    steps: &mut [StepReport],
) -> Result<(), ReportError> {
    let clients = rows_with(connection, CLIENTS, run, |row| {
        Ok(ClientOfOp {
            step_id: row.get("step_id")?,
            group: row.get("group_name")?,
            op: row.get("op")?,
            client: value(row)?,
        })
    })?;
    let at = places(steps);
    let same = |a: &ClientOfOp, b: &ClientOfOp| {
        (a.step_id, &a.group, &a.op) == (b.step_id, &b.group, &b.op)
    };
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

/// A row per step, operation and client; `None` if no step had more than one.
pub(in crate::report) fn each(report: &Report) -> Option<Table> {
    let rows: Vec<(&StepReport, &OpReport, &ClientReport)> = report
        .steps
        .iter()
        .flat_map(|step| step.ops.iter().map(move |op| (step, op)))
        .filter_map(|(step, op)| {
            Some((step, op, op.clients.as_ref().filter(|all| all.clients > 1)?))
        })
        .flat_map(|(step, op, clients)| clients.each.iter().map(move |client| (step, op, client)))
        .collect();
    Table::of("Clients in each step", &rows)
        .figure("step", |(step, ..)| step.ordinal)
        .text("phase", |(step, ..)| &step.phase)
        .text("mode", |(step, ..)| &step.mode)
        .text("op", |(_, op, _)| &op.op)
        .text("client", |(.., client)| &client.agent)
        .rate("ops/s", |(.., client)| client.ops_per_s)
        .rate("% of mean", |(_, op, client)| {
            let mean = op.clients.as_ref()?.mean_ops_per_s;
            (mean > 0.0).then(|| 100.0 * client.ops_per_s / mean)
        })
        .rate("MiB/s", |(.., client)| client.bytes_per_s / MIB)
        .millis("p50 ms", |(.., client)| client.p50_ms)
        .millis("p99 ms", |(.., client)| client.p99_ms)
        .millis("max ms", |(.., client)| client.max_ms)
        .figure("errors", |(.., client)| figures::count(client.errors))
        .spare(&["errors", "p50 ms", "MiB/s", "phase"])
        .done()
}

/// The figures that `rados bench` prints at its end: mean, standard deviation and extremes of the rates per second.
pub(in crate::report) fn seconds(report: &Report) -> Option<Table> {
    let rows: Vec<(&StepReport, &OpReport, &SecondsReport)> = report
        .steps
        .iter()
        .flat_map(|step| step.ops.iter().map(move |op| (step, op)))
        .filter_map(|(step, op)| Some((step, op, op.seconds.as_ref()?)))
        .collect();
    Table::of("Seconds of each step", &rows)
        .figure("step", |(step, ..)| step.ordinal)
        .text("phase", |(step, ..)| &step.phase)
        .text("target", |(step, ..)| &step.target)
        .if_any()
        .text("mode", |(step, ..)| &step.mode)
        .text("op", |(_, op, _)| &op.op)
        .figure("seconds", |(.., one)| one.seconds)
        .figure("at zero", |(.., one)| one.zero)
        .rate("mean", |(_, op, _)| op.bytes_per_s.unwrap_or(0.0) / MIB)
        .band("MiB/s")
        .rate("stddev", |(.., one)| one.bytes_per_s_stddev / MIB)
        .band("MiB/s")
        .rate("max", |(.., one)| one.bytes_per_s_max / MIB)
        .band("MiB/s")
        .rate("min", |(.., one)| one.bytes_per_s_min / MIB)
        .band("MiB/s")
        .rate("mean", |(_, op, _)| op.ops_per_s.unwrap_or(0.0))
        .band("ops/s")
        .rate("stddev", |(.., one)| one.ops_per_s_stddev)
        .band("ops/s")
        .rate("max", |(.., one)| one.ops_per_s_max)
        .band("ops/s")
        .rate("min", |(.., one)| one.ops_per_s_min)
        .band("ops/s")
        .note(format!(
            "Each second, as rados bench prints it: benchmesh query --example rados-bench --run {}.",
            report.run.id
        ))
        .spare(&["phase", "op", "target"])
        .done()
}

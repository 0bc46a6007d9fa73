//! Each client's share of a step's operations, from the results of its tasks, and the variation of each step between
//! seconds.

use super::{OpReport, StepReport, places};
use crate::report::row::{ReportError, Statement, rows_with, value};
use crate::report::{Report, Table};
use benchmesh_model::mesh::RunId;
use benchmesh_results::real;
use benchmesh_workloads::figures;
use benchmesh_workloads::op::Op;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const MIB: f64 = 1_048_576.0;

/// The whole seconds of a step's all-active window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondsReport {
    #[serde(alias = "window_seconds")]
    pub seconds: i64,
    /// Seconds in which nothing completed.
    #[serde(alias = "zero_seconds")]
    pub zero: i64,
    /// `None` for an imported log that does not count operations, or bytes.
    pub ops_per_s_stddev: Option<f64>,
    pub ops_per_s_min: Option<f64>,
    pub ops_per_s_max: Option<f64>,
    pub bytes_per_s_stddev: Option<f64>,
    pub bytes_per_s_min: Option<f64>,
    pub bytes_per_s_max: Option<f64>,
}

/// The clients of one operation of a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientsReport {
    pub clients: i64,
    pub mean_ops_per_s: f64,
    /// Each client by name; empty if there are more than [`CLIENTS_LISTED`].
    #[serde(default)]
    pub each: Vec<ClientReport>,
}

/// The clients of a step, or of one of its groups, compared by everything that each of them did per second: of a random
/// mix only the sum is the client's, and which operations it drew is chance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgressReport {
    /// Empty if the step has no groups.
    pub group: String,
    pub slowest: ClientProgress,
    pub fastest: ClientProgress,
}

/// A client's progress per second in percent of the clients' mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientProgress {
    pub agent: String,
    pub percent: f64,
}

/// With fewer operations of any client, progress is counted in bytes where operations move bytes: a client that was lost
/// within its first copy has finished none.
const MIN_OPS: i64 = 100;

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
    let same_group =
        |a: &ClientOfOp, b: &ClientOfOp| (a.step_id, &a.group) == (b.step_id, &b.group);
    for of_group in clients.chunk_by(same_group) {
        let step = of_group.first().and_then(|first| at.get(&first.step_id));
        if let Some(step) = step.and_then(|at| steps.get_mut(*at)) {
            step.progress.extend(progress(of_group));
        }
    }
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
    let count = i64::try_from(clients.len())
        .ok()
        .filter(|count| *count > 0)?;
    let sum: f64 = clients.iter().map(|client| client.ops_per_s).sum();
    Some(ClientsReport {
        clients: count,
        mean_ops_per_s: sum / real(count),
        each: if clients.len() <= CLIENTS_LISTED {
            clients
        } else {
            Vec::new()
        },
    })
}

/// Work of one client, all its operations together.
#[derive(Debug, Default)]
struct ClientWork {
    ops: i64,
    ops_per_s: f64,
    bytes_per_s: f64,
}

/// Compares the clients of one group; `None` for a single one, and if none made progress.
fn progress(of_group: &[ClientOfOp]) -> Option<ProgressReport> {
    let is_work = |row: &&ClientOfOp| Op::is_work(&row.op);
    let mut clients: BTreeMap<&str, ClientWork> = BTreeMap::new();
    for ClientOfOp { client, .. } in of_group.iter().filter(is_work) {
        let work = clients.entry(&client.agent).or_default();
        work.ops += client.ops;
        work.ops_per_s += client.ops_per_s;
        work.bytes_per_s += client.bytes_per_s;
    }
    let has_few_ops = clients.values().any(|work| work.ops < MIN_OPS);
    let moves_bytes = clients.values().any(|work| work.bytes_per_s > 0.0);
    let rate = |work: &ClientWork| match has_few_ops && moves_bytes {
        true => work.bytes_per_s,
        false => work.ops_per_s,
    };
    let mean = clients.values().map(rate).sum::<f64>() / real(i64::try_from(clients.len()).ok()?);
    if clients.len() < 2 || mean <= 0.0 {
        return None;
    }
    let progress = |(agent, work): (&&str, &ClientWork)| ClientProgress {
        agent: (*agent).to_owned(),
        percent: 100.0 * rate(work) / mean,
    };
    let by_percent = |a: &ClientProgress, b: &ClientProgress| a.percent.total_cmp(&b.percent);
    Some(ProgressReport {
        group: of_group.first()?.group.clone(),
        slowest: clients.iter().map(progress).min_by(by_percent)?,
        fastest: clients.iter().map(progress).max_by(by_percent)?,
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

/// The rate of each step, which is that of its window, beside the standard deviation and the extremes of its whole
/// seconds, as `rados bench` prints them at its end.
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
        .rate("rate", |(_, op, _)| op.bytes_per_s.map(|rate| rate / MIB))
        .band("MiB/s")
        .rate("stddev", |(.., one)| one.bytes_per_s_stddev.map(|rate| rate / MIB))
        .band("MiB/s")
        .rate("max", |(.., one)| one.bytes_per_s_max.map(|rate| rate / MIB))
        .band("MiB/s")
        .rate("min", |(.., one)| one.bytes_per_s_min.map(|rate| rate / MIB))
        .band("MiB/s")
        .rate("rate", |(_, op, _)| op.ops_per_s)
        .band("ops/s")
        .rate("stddev", |(.., one)| one.ops_per_s_stddev)
        .band("ops/s")
        .rate("max", |(.., one)| one.ops_per_s_max)
        .band("ops/s")
        .rate("min", |(.., one)| one.ops_per_s_min)
        .band("ops/s")
        .note("rate: of the step's whole window, as in the results; the others: of its whole seconds.")
        .note(format!(
            "Each second, as rados bench prints it: benchmesh query --example rados-bench --run {}.",
            report.run.id
        ))
        .spare(&["phase", "op", "target"])
        .done()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn row(agent: &str, op: &str, ops: i64, ops_per_s: f64, bytes_per_s: f64) -> ClientOfOp {
        ClientOfOp {
            step_id: 1,
            group: String::new(),
            op: op.to_owned(),
            client: ClientReport {
                agent: agent.to_owned(),
                tasks: 1,
                ops,
                bytes: 0,
                errors: 0,
                ops_per_s,
                bytes_per_s,
                p50_ms: None,
                p99_ms: None,
                max_ms: None,
            },
        }
    }

    fn percents(rows: &[ClientOfOp]) -> (f64, f64) {
        let found = progress(rows).unwrap();
        (found.slowest.percent, found.fastest.percent)
    }

    #[test]
    fn a_client_that_was_lost_in_a_long_copy_is_compared_by_its_bytes() {
        let rows = [
            row("a", "copy", 3, 0.3, 120e6),
            row("b", "copy", 0, 0.0, 120e6),
            row("c", "copy", 3, 0.3, 120e6),
        ];
        assert_eq!(percents(&rows), (100.0, 100.0));
    }

    #[test]
    fn of_a_random_mix_the_sum_is_compared() {
        let rows = [
            row("a", "read", 2_000, 106.4, 4e6),
            row("a", "write", 2_000, 93.6, 4e6),
            row("b", "read", 2_000, 93.6, 4e6),
            row("b", "write", 2_000, 106.4, 4e6),
            // What the other end observed is not the client's work.
            row("b", "lost", 5_000, 500.0, 0.0),
        ];
        assert_eq!(percents(&rows), (100.0, 100.0));
        assert_eq!(progress(&rows[..2]), None);
        let rows = [
            row("a", "stat", 1_000, 150.0, 0.0),
            row("b", "stat", 1_000, 50.0, 0.0),
        ];
        assert_eq!(percents(&rows), (50.0, 150.0));
    }
}

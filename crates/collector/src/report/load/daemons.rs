//! The watched processes: over the run, and by name what an operation of each step cost them.

use super::{ReportError, Statement, rows};
use crate::model::{RunId, StepId};
use crate::report::{CostReport, DaemonReport, RunReport};
use sqlx::{Row, SqliteConnection};
use std::collections::{BTreeMap, HashMap};

/// A row per step and daemon, each daemon's in the order of the steps.
pub(super) const USAGE: Statement = Statement {
    what: "v_daemon_usage",
    sql: "SELECT u.step_id, u.daemon_id, u.host, u.name, u.instance, u.pid, u.serves_target, u.sampled_s, u.cpu_s,
                 u.cpu_percent, u.idle_cpu_percent, u.rss_first_mib, u.rss_max_mib, u.rss_peak_mib, u.rss_last_mib,
                 u.read_mib, u.written_mib, d.born_us, d.ended_us
          FROM v_daemon_usage AS u JOIN daemons AS d ON d.id = u.daemon_id
          WHERE u.run_id = ? ORDER BY u.host, u.name, u.instance, u.pid, u.daemon_id, u.step_id",
};

pub(super) const COSTS: Statement = Statement {
    what: "v_cost",
    sql: "SELECT step_id, target, name, daemons, cpu_us_per_op, cpu_us_per_op_until_idle, cpu_s_per_gib, cpu_s,
                 after_cpu_s, after_s, after_idle, ops, bytes FROM v_cost
          WHERE run_id = ? ORDER BY step_id, name",
};

/// One daemon in one step.
#[derive(Debug)]
struct Usage {
    step: StepId,
    daemon: DaemonReport,
    idle_percent: Option<f64>,
    sampled_s: f64,
}

/// What all daemons of one name did in one step.
#[derive(Debug, Default)]
struct OfName {
    cpu_percent: Option<f64>,
    daemons: usize,
    /// Of those of which it is known.
    idle: Vec<f64>,
    rss_max_mib: Option<f64>,
    read_mib: Option<f64>,
    written_mib: Option<f64>,
    busiest: String,
    busiest_percent: Option<f64>,
}

pub(super) async fn load(
    connection: &mut SqliteConnection,
    run: &RunReport,
) -> Result<(Vec<DaemonReport>, Vec<CostReport>), ReportError> {
    let usage = usage(connection, run.id).await?;
    let mut costs = costs(connection, run.id).await?;
    let names = by_name(&usage);
    for cost in &mut costs {
        if let Some(all) = names.get(&(cost.step_id, cost.name.as_str())) {
            cost.cpu_percent = all.cpu_percent;
            cost.idle_percent = (all.idle.len() == all.daemons).then(|| all.idle.iter().sum());
            cost.rss_max_mib = all.rss_max_mib;
            cost.read_mib = all.read_mib;
            cost.written_mib = all.written_mib;
            cost.busiest.clone_from(&all.busiest);
            cost.busiest_percent = all.busiest_percent;
        }
    }
    Ok((over_the_run(run, usage), costs))
}

async fn usage(connection: &mut SqliteConnection, run: RunId) -> Result<Vec<Usage>, ReportError> {
    rows(connection, USAGE, run, |row| {
        let cpu_percent = row.try_get("cpu_percent")?;
        Ok(Usage {
            step: StepId(row.try_get("step_id")?),
            sampled_s: row.try_get("sampled_s")?,
            idle_percent: row.try_get("idle_cpu_percent")?,
            daemon: DaemonReport {
                daemon_id: row.try_get("daemon_id")?,
                host: row.try_get("host")?,
                name: row.try_get("name")?,
                instance: row
                    .try_get::<Option<String>, _>("instance")?
                    .unwrap_or_default(),
                pid: row.try_get("pid")?,
                cpu_s: row.try_get("cpu_s")?,
                cpu_percent,
                cpu_percent_max: cpu_percent,
                rss_first_mib: row.try_get("rss_first_mib")?,
                rss_max_mib: row.try_get("rss_max_mib")?,
                rss_peak_mib: row.try_get("rss_peak_mib")?,
                rss_last_mib: row.try_get("rss_last_mib")?,
                read_mib: row.try_get("read_mib")?,
                written_mib: row.try_get("written_mib")?,
                serves: row.try_get("serves_target")?,
                born_us: row.try_get("born_us")?,
                ended_us: row.try_get("ended_us")?,
            },
        })
    })
    .await
}

async fn costs(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Vec<CostReport>, ReportError> {
    rows(connection, COSTS, run, |row| {
        Ok(CostReport {
            step_id: StepId(row.try_get("step_id")?),
            target: row
                .try_get::<Option<String>, _>("target")?
                .unwrap_or_default(),
            name: row.try_get("name")?,
            cpu_us_per_op: row.try_get("cpu_us_per_op")?,
            cpu_us_per_op_until_idle: row.try_get("cpu_us_per_op_until_idle")?,
            cpu_s_per_gib: row.try_get("cpu_s_per_gib")?,
            idle_percent: None,
            after_cpu_s: row.try_get("after_cpu_s")?,
            after_s: row.try_get("after_s")?,
            after_idle: row.try_get("after_idle")?,
            cpu_s: row.try_get("cpu_s")?,
            ops: row.try_get("ops")?,
            bytes: row.try_get("bytes")?,
            daemons: row.try_get("daemons")?,
            cpu_percent: None,
            rss_max_mib: None,
            read_mib: None,
            written_mib: None,
            busiest: String::new(),
            busiest_percent: None,
        })
    })
    .await
}

/// Of the daemons that serve the step's target, and those that no rule knows.
fn by_name(usage: &[Usage]) -> HashMap<(StepId, &str), OfName> {
    let mut names: HashMap<(StepId, &str), OfName> = HashMap::new();
    for one in usage.iter().filter(|one| one.daemon.serves != Some(false)) {
        let daemon = &one.daemon;
        let all = names.entry((one.step, daemon.name.as_str())).or_default();
        add(&mut all.cpu_percent, daemon.cpu_percent);
        all.daemons += 1;
        all.idle.extend(one.idle_percent);
        add(&mut all.read_mib, daemon.read_mib);
        add(&mut all.written_mib, daemon.written_mib);
        let peak = most(daemon.rss_max_mib, daemon.rss_peak_mib);
        all.rss_max_mib = most(all.rss_max_mib, peak);
        if daemon.cpu_percent > all.busiest_percent {
            all.busiest_percent = daemon.cpu_percent;
            all.busiest = match daemon.instance.as_str() {
                "" => format!("{} pid {}", daemon.host, daemon.pid),
                instance => format!("{} {instance}", daemon.host),
            };
        }
    }
    names
}

/// Each daemon over the steps in which it was seen.
fn over_the_run(run: &RunReport, usage: Vec<Usage>) -> Vec<DaemonReport> {
    let mut daemons: Vec<DaemonReport> = Vec::new();
    let mut sampled: BTreeMap<i64, f64> = BTreeMap::new();
    let during = |at: Option<i64>| {
        at.filter(|at| run.started_us.is_some_and(|from| from <= *at))
            .filter(|at| run.ended_us.is_none_or(|until| *at <= until))
    };
    for Usage {
        daemon, sampled_s, ..
    } in usage
    {
        *sampled.entry(daemon.daemon_id).or_default() += sampled_s;
        match daemons.last_mut() {
            Some(known) if known.daemon_id == daemon.daemon_id => {
                add(&mut known.cpu_s, daemon.cpu_s);
                add(&mut known.read_mib, daemon.read_mib);
                add(&mut known.written_mib, daemon.written_mib);
                known.cpu_percent_max = most(known.cpu_percent_max, daemon.cpu_percent);
                known.rss_max_mib = most(known.rss_max_mib, daemon.rss_max_mib);
                known.rss_peak_mib = most(known.rss_peak_mib, daemon.rss_peak_mib);
                known.rss_last_mib = daemon.rss_last_mib;
                known.serves = known.serves.max(daemon.serves);
            }
            _ => daemons.push(DaemonReport {
                born_us: during(daemon.born_us),
                ended_us: during(daemon.ended_us),
                ..daemon
            }),
        }
    }
    for daemon in &mut daemons {
        let seconds = sampled.get(&daemon.daemon_id).copied().unwrap_or(0.0);
        daemon.cpu_percent = daemon
            .cpu_s
            .filter(|_| seconds > 0.0)
            .map(|cpu_s| 100.0 * cpu_s / seconds);
    }
    daemons
}

fn add(sum: &mut Option<f64>, value: Option<f64>) {
    if let Some(value) = value {
        *sum = Some(sum.unwrap_or(0.0) + value);
    }
}

fn most(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

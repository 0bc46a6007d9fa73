//! Hosts: CPU by state, disks and interfaces of clients and servers, by phase or for each host in each step; other
//! busy processes, and hosts with outstanding samples.

use super::steps::{StepReport, places};
use crate::report::row::{ReportError, Statement, rows, rows_with};
use crate::report::{Report, Table};
use benchmesh_model::mesh::{RunId, StepId};
use benchmesh_results::real;
use benchmesh_workloads::figures::plural;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// Usage of a host during one step. Shares are of all its CPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    pub step_id: StepId,
    pub host: String,
    /// Whether a task of the step ran on it.
    pub is_client: bool,
    pub cpus: i64,
    pub user_percent: Option<f64>,
    /// Includes hard and soft interrupts.
    pub system_percent: Option<f64>,
    pub iowait_percent: Option<f64>,
    pub steal_percent: Option<f64>,
    pub busy_percent: Option<f64>,
    pub disk_read_mib_per_s: Option<f64>,
    pub disk_written_mib_per_s: Option<f64>,
    pub busiest_disk_percent: Option<f64>,
    #[serde(default)]
    pub busiest_disk: Option<String>,
    pub received_mib_per_s: Option<f64>,
    pub sent_mib_per_s: Option<f64>,
}

/// Processes of one name that are not monitored, in one step on the host of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BusyOther {
    pub step_id: StepId,
    pub host: String,
    pub name: String,
    /// Percent of one CPU, over the whole step; a lower bound.
    pub percent: f64,
}

pub(in crate::report) const HOSTS: Statement = Statement {
    what: "v_host_usage",
    sql: "SELECT u.* FROM v_host_usage AS u
          WHERE u.run_id = ?1 AND u.host_id IN (SELECT host_id FROM run_agents WHERE run_id = ?1)
          ORDER BY u.step_id, u.host",
};

/// Hosts that were sampled until the end of the last step and have no sample of that end.
pub(in crate::report) const AWAITED: Statement = Statement {
    what: "host_samples",
    sql: benchmesh_store::HOSTS_AWAITED,
};

/// A reading may extend beyond a step, and counts by the part of its time within the step.
pub(in crate::report) const OTHERS: Statement = Statement {
    what: "host_samples",
    sql: "WITH meant AS (
              SELECT s.id AS step_id, coalesce(s.measured_from_us, s.start_us) AS from_us, s.last_done_us AS until_us,
                     e.host_id, min(e.host) AS host
              FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id
                   CROSS JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = t.agent_id
              WHERE s.run_id = ?1 AND s.last_done_us > coalesce(s.measured_from_us, s.start_us)
                    AND EXISTS (SELECT 1 FROM json_each(s.flags) WHERE value IN ('tool-bound', 'cpu-short'))
              GROUP BY s.id, e.host_id)
          SELECT m.step_id, m.host, p.value ->> 'name' AS name,
                 100.0 / (m.until_us - m.from_us)
                     * sum((p.value ->> 'cpu_us') * max(0.0, min(x.busy_others ->> 'until_us', m.until_us)
                                                           - max(x.busy_others ->> 'from_us', m.from_us))
                           / max(1, (x.busy_others ->> 'until_us') - (x.busy_others ->> 'from_us'))) AS percent
          FROM meant AS m
               CROSS JOIN host_samples AS x ON x.host_id = m.host_id
                   AND x.at_us BETWEEN m.from_us AND m.until_us + 30000000
               CROSS JOIN json_each(x.busy_others, '$.processes') AS p
          WHERE x.busy_others IS NOT NULL
          GROUP BY m.step_id, m.host_id, 3 HAVING percent >= 1 ORDER BY percent DESC, name, m.step_id",
};

/// Reads the hosts of each step. If a step has several attempts, only the last one counts.
pub(in crate::report) fn hosts(
    connection: &Connection,
    run: RunId,
    steps: &[StepReport],
) -> Result<Vec<HostReport>, ReportError> {
    let mut hosts: Vec<HostReport> = rows(connection, HOSTS, run)?;
    let at = places(steps);
    hosts.retain(|host| at.contains_key(&host.step_id.0));
    Ok(hosts)
}

/// Other processes with CPU time in the steps with this kind of flag, the busiest first.
pub(in crate::report) fn busy_others(
    connection: &Connection,
    run: RunId,
    steps: &[StepReport],
) -> Result<Vec<BusyOther>, ReportError> {
    let mut others: Vec<BusyOther> = rows(connection, OTHERS, run)?;
    let at = places(steps);
    others.retain(|other| at.contains_key(&other.step_id.0));
    Ok(others)
}

pub(in crate::report) fn awaited(
    connection: &Connection,
    run: RunId,
) -> Result<Vec<String>, ReportError> {
    rows_with(connection, AWAITED, run, |row| row.get(0))
}

type HostFigure = fn(&HostReport) -> Option<f64>;

/// Shares of all CPUs: averaged over hosts and steps.
const SHARES: [(&str, HostFigure); 6] = [
    ("busy %", |host| host.busy_percent),
    ("user %", |host| host.user_percent),
    ("system %", |host| host.system_percent),
    ("iowait %", |host| host.iowait_percent),
    ("steal %", |host| {
        host.steal_percent.filter(|steal| *steal >= 0.05)
    }),
    ("busiest disk %", |host| host.busiest_disk_percent),
];
/// Sums over all hosts of a step, averaged over steps.
const RATES: [(&str, HostFigure); 4] = [
    ("disk in", |host| host.disk_read_mib_per_s),
    ("out", |host| host.disk_written_mib_per_s),
    ("net in", |host| host.received_mib_per_s),
    ("net out", |host| host.sent_mib_per_s),
];
const DROPPABLE: [&str; 6] = [
    "disk",
    "steal %",
    "iowait %",
    "user %",
    "system %",
    "busiest disk %",
];

/// All clients or all servers in one phase.
struct Part<'r> {
    phase: &'r str,
    is_client: bool,
    hosts: Vec<&'r HostReport>,
}

impl Part<'_> {
    /// For example `2 clients`.
    fn hosts(&self) -> String {
        let role = if self.is_client { "client" } else { "server" };
        plural(self.count(), role)
    }

    fn count(&self) -> usize {
        let mut names: Vec<&str> = self.hosts.iter().map(|host| host.host.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    }

    /// The mean over hosts and steps.
    fn share(&self, figure: HostFigure) -> Option<f64> {
        mean(self.hosts.iter().filter_map(|host| figure(host)))
    }

    /// Sum over all hosts, the mean over steps.
    fn rate(&self, figure: HostFigure) -> Option<f64> {
        let mut steps: BTreeMap<i64, f64> = BTreeMap::new();
        for host in &self.hosts {
            if let Some(value) = figure(host) {
                *steps.entry(host.step_id.0).or_default() += value;
            }
        }
        mean(steps.into_values())
    }

    /// The busiest disk, with its host's name if there are several hosts.
    fn busiest_disk(&self) -> String {
        let most = self
            .hosts
            .iter()
            .filter_map(|host| Some((host.busiest_disk_percent?, *host)))
            .max_by(|(a, _), (b, _)| a.total_cmp(b));
        let Some((_, host)) = most else {
            return String::new();
        };
        let disk = host.busiest_disk.as_deref().unwrap_or_default();
        match self.hosts.iter().any(|other| other.host != host.host) {
            true => format!("{} {disk}", host.host),
            false => disk.to_owned(),
        }
    }
}

/// Clients and servers of each phase.
pub(in crate::report) fn by_phase(report: &Report) -> Option<Table> {
    let phases: HashMap<StepId, &str> = report
        .steps
        .iter()
        .map(|step| (step.id, step.phase.as_str()))
        .collect();
    let mut parts: Vec<Part<'_>> = Vec::new();
    for host in &report.hosts {
        let Some(phase) = phases.get(&host.step_id) else {
            continue;
        };
        let is_same =
            |part: &&mut Part<'_>| (part.phase, part.is_client) == (*phase, host.is_client);
        match parts.iter_mut().find(is_same) {
            Some(part) => part.hosts.push(host),
            None => parts.push(Part {
                phase,
                is_client: host.is_client,
                hosts: vec![host],
            }),
        }
    }
    let mut table = Table::of("Load of the hosts", &parts)
        .text("phase", |part| part.phase)
        .text("hosts", Part::hosts);
    for (title, figure) in SHARES {
        table = table.rate(title, |part| part.share(figure)).if_any();
    }
    table = table.text("disk", Part::busiest_disk).if_any();
    for (title, figure) in RATES {
        table = table.rate(title, |part| part.rate(figure)).if_any();
    }
    table
        .spare(&DROPPABLE)
        .note(
            "Shares of all CPUs, mean over hosts and steps; MiB/s of disks and interfaces, sum of all hosts, without \
             devices that lie on other disks; disk: the busiest of all; `report RUN hosts` shows each.",
        )
        .done()
}

/// Each host in each step.
pub(in crate::report) fn each(report: &Report) -> Option<Table> {
    let steps: HashMap<StepId, &StepReport> =
        report.steps.iter().map(|step| (step.id, step)).collect();
    let of_step = |host: &HostReport, cell: fn(&StepReport) -> String| -> String {
        let step = steps.get(&host.step_id);
        step.map(|step| cell(step)).unwrap_or_default()
    };
    let mut table = Table::of("Hosts in each step", &report.hosts)
        .figure("step", |host| {
            of_step(host, |step| step.ordinal.to_string())
        })
        .text("what", |host| {
            of_step(host, |step| format!("{} {}", step.phase, step.mode))
        })
        .text("host", |host| &host.host)
        .text("role", |host| role(host.is_client));
    for (title, figure) in SHARES.into_iter().chain(RATES) {
        table = table.rate(title, figure).if_any();
    }
    table
        .text("disk", |host| {
            host.busiest_disk.as_deref().unwrap_or_default()
        })
        .if_any()
        .spare(&DROPPABLE)
        .done()
}

fn role(is_client: bool) -> &'static str {
    if is_client { "clients" } else { "servers" }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.collect();
    let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
    (count > 0).then(|| values.iter().sum::<f64>() / real(count))
}

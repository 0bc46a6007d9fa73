//! CPU by state, disks and interfaces of clients and servers: by phase, or each host in each step.

use super::Table;
use crate::figures;
use crate::model::StepId;
use crate::report::{HostReport, Report, StepReport};
use crate::results::real;
use std::collections::{BTreeMap, HashMap};

type Figure = fn(&HostReport) -> Option<f64>;

/// Shares of all CPUs: averaged over hosts and steps.
const SHARES: [(&str, Figure); 6] = [
    ("busy %", |host| host.busy_percent),
    ("user %", |host| host.user_percent),
    ("system %", |host| host.system_percent),
    ("iowait %", |host| host.iowait_percent),
    ("steal %", |host| {
        host.steal_percent.filter(|steal| *steal >= 0.05)
    }),
    ("busiest disk %", |host| host.busiest_disk_percent),
];
/// Of all hosts of a step together: averaged over steps.
const RATES: [(&str, Figure); 4] = [
    ("disk in", |host| host.disk_read_mib_per_s),
    ("out", |host| host.disk_written_mib_per_s),
    ("net in", |host| host.received_mib_per_s),
    ("net out", |host| host.sent_mib_per_s),
];
const SPARE: [&str; 6] = [
    "disk",
    "steal %",
    "iowait %",
    "user %",
    "system %",
    "busiest disk %",
];

/// Clients and servers of each phase.
pub(super) fn by_phase(report: &Report) -> Option<Table> {
    let phases: HashMap<StepId, &str> = report
        .steps
        .iter()
        .map(|step| (step.id, step.phase.as_str()))
        .collect();
    let mut order: Vec<(&str, bool)> = Vec::new();
    let mut hosts: BTreeMap<(&str, bool), Vec<&HostReport>> = BTreeMap::new();
    for host in &report.hosts {
        let Some(phase) = phases.get(&host.step_id) else {
            continue;
        };
        let key = (*phase, host.is_client);
        let all = hosts.entry(key).or_default();
        if all.is_empty() {
            order.push(key);
        }
        all.push(host);
    }
    if order.is_empty() {
        return None;
    }
    let rows: Vec<(&str, bool, &Vec<&HostReport>)> = order
        .iter()
        .filter_map(|key| Some((key.0, key.1, hosts.get(key)?)))
        .collect();
    let count = |hosts: &[&HostReport]| {
        let mut names: Vec<&str> = hosts.iter().map(|host| host.host.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        names.len().to_string()
    };
    let mut table = Table::titled("Load of the hosts")
        .text("phase", rows.iter().map(|row| row.0.to_owned()))
        .text("hosts", rows.iter().map(|row| role(row.1).to_owned()))
        .figures("", rows.iter().map(|row| count(row.2)));
    for (title, figure) in SHARES {
        let cells = rows
            .iter()
            .map(|row| mean(row.2.iter().filter_map(|host| figure(host))));
        table = table.figures_if_any(title, cells.collect());
    }
    let busiest = rows.iter().map(|row| busiest_disk(row.2));
    table = table.text_if_any("disk", busiest.collect());
    for (title, figure) in RATES {
        let cells = rows.iter().map(|row| {
            let mut steps: BTreeMap<i64, f64> = BTreeMap::new();
            for host in row.2 {
                if let Some(value) = figure(host) {
                    *steps.entry(host.step_id.0).or_default() += value;
                }
            }
            mean(steps.into_values())
        });
        table = table.figures_if_any(title, cells.collect());
    }
    table.spare = SPARE.to_vec();
    Some(table.note(
        "Shares of all CPUs, mean over hosts and steps; MiB/s of disks and interfaces, all hosts together, without \
         what stands on other disks; disk: the busiest of all; --all shows each.",
    ))
}

/// The disk that was busiest of all: its name, and where there are several hosts the host's.
fn busiest_disk(hosts: &[&HostReport]) -> String {
    let most = hosts
        .iter()
        .filter_map(|host| Some((host.busiest_disk_percent?, *host)))
        .max_by(|(a, _), (b, _)| a.total_cmp(b));
    let Some((_, host)) = most else {
        return String::new();
    };
    let disk = host.busiest_disk.as_deref().unwrap_or_default();
    match hosts.iter().any(|other| other.host != host.host) {
        true => format!("{} {disk}", host.host),
        false => disk.to_owned(),
    }
}

/// Each host in each step.
pub(super) fn each(report: &Report) -> Option<Table> {
    if report.hosts.is_empty() {
        return None;
    }
    let steps: HashMap<StepId, &StepReport> =
        report.steps.iter().map(|step| (step.id, step)).collect();
    let hosts = || report.hosts.iter();
    let of_step = |cell: fn(&StepReport) -> String| -> Vec<String> {
        hosts()
            .map(|host| {
                steps
                    .get(&host.step_id)
                    .map(|step| cell(step))
                    .unwrap_or_default()
            })
            .collect()
    };
    let mut table = Table::titled("Hosts in each step")
        .figures("step", of_step(|step| step.ordinal.to_string()))
        .text(
            "what",
            of_step(|step| format!("{} {}", step.phase, step.mode)),
        )
        .text("host", hosts().map(|host| host.host.clone()))
        .text("role", hosts().map(|host| role(host.is_client).to_owned()));
    for (title, figure) in SHARES.into_iter().chain(RATES) {
        table = table.figures_if_any(
            title,
            hosts().map(|host| mean(figure(host).into_iter())).collect(),
        );
    }
    let disks = hosts().map(|host| host.busiest_disk.clone().unwrap_or_default());
    table = table.text_if_any("disk", disks.collect());
    table.spare = SPARE.to_vec();
    Some(table)
}

fn role(is_client: bool) -> &'static str {
    if is_client { "clients" } else { "servers" }
}

fn mean(values: impl Iterator<Item = f64>) -> String {
    let values: Vec<f64> = values.collect();
    let count = i64::try_from(values.len()).unwrap_or(i64::MAX);
    figures::maybe_rate((count > 0).then(|| values.iter().sum::<f64>() / real(count)))
}

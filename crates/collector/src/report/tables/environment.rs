//! What was tested: hosts of a kind together, and the targets with their mounts.

use super::Table;
use crate::figures::{self, plural};
use crate::report::{AgentReport, Report, TargetReport};
use crate::results::real;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const GIB: f64 = 1_073_741_824.0;
/// Hosts that are named in a row.
const NAMED: usize = 3;

/// The agents' hosts, those that are the same in one row.
pub(super) fn hosts(report: &Report) -> Option<Table> {
    if report.agents.is_empty() {
        return None;
    }
    let mut kinds: Vec<(Vec<String>, BTreeMap<&str, usize>)> = Vec::new();
    let mut seen = BTreeSet::new();
    for agent in &report.agents {
        let host = agent.host.as_str();
        if !seen.insert(host) {
            continue;
        }
        let agents = report.agents.iter().filter(|one| one.host == host);
        let agents: Vec<Vec<String>> = agents.map(cells).collect();
        let cells = of_host(&agents);
        match kinds.iter_mut().find(|(known, _)| *known == cells) {
            Some((_, hosts)) => {
                hosts.insert(host, agents.len());
            }
            None => kinds.push((cells, BTreeMap::from([(host, agents.len())]))),
        }
    }
    let heads = [
        "does",
        "distribution",
        "kernel",
        "CPUs",
        "CPU",
        "GiB",
        "NIC",
        "labels",
        "packages",
        "benchmesh",
    ];
    let mut table =
        Table::titled("Hosts").text("hosts", kinds.iter().map(|(_, hosts)| names(hosts)));
    for (at, head) in heads.iter().enumerate() {
        let cells: Vec<String> = kinds
            .iter()
            .map(|(cells, _)| cells.get(at).cloned().unwrap_or_default())
            .collect();
        table = match *head {
            "CPUs" | "GiB" => table.figures(head, cells),
            head => table.text_if_any(head, cells),
        };
    }
    table.spare = vec!["packages", "labels", "benchmesh", "CPU", "distribution"];
    Some(table)
}

/// `node1, node2, node3 and 5 more`; with the agents where a host has several.
fn names(hosts: &BTreeMap<&str, usize>) -> String {
    let named: Vec<String> = hosts
        .iter()
        .take(NAMED)
        .map(|(host, agents)| match agents {
            1 => (*host).to_owned(),
            agents => format!("{host} ({})", plural(*agents, "agent")),
        })
        .collect();
    match hosts.len().saturating_sub(NAMED) {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// The cells of a host with several agents: where these differ, all that they say.
fn of_host(agents: &[Vec<String>]) -> Vec<String> {
    let columns = agents.iter().map(Vec::len).max().unwrap_or(0);
    let column = |at: usize| {
        let mut said: Vec<&str> = Vec::new();
        for cell in agents.iter().filter_map(|cells| cells.get(at)) {
            if !cell.is_empty() && !said.contains(&cell.as_str()) {
                said.push(cell);
            }
        }
        said.join("; ")
    };
    (0..columns).map(column).collect()
}

fn cells(agent: &AgentReport) -> Vec<String> {
    let labels = agent.labels.as_object().into_iter().flatten();
    let labels: Vec<String> = labels
        .map(|(key, value)| format!("{key}={}", figures::parameter(value)))
        .collect();
    vec![
        if agent.is_client { "load" } else { "samples" }.to_owned(),
        agent.distribution.clone().unwrap_or_default(),
        agent.kernel.clone(),
        agent.cpus.to_string(),
        agent.cpu_model.clone().unwrap_or_default(),
        figures::rate(real(agent.memory_bytes) / GIB),
        interfaces(agent.interfaces.as_ref()),
        labels.join(" "),
        agent.packages.as_ref().map(versions).unwrap_or_default(),
        agent.version.clone(),
    ]
}

/// The speeds of the interfaces that have one: `10 Gbit/s`, `2 x 25 Gbit/s`.
fn interfaces(interfaces: Option<&Value>) -> String {
    let mut speeds: BTreeMap<i64, usize> = BTreeMap::new();
    let all = interfaces.and_then(Value::as_array).into_iter().flatten();
    for mbits in all.filter_map(|one| one.get("mbits").and_then(Value::as_i64)) {
        if mbits > 0 {
            *speeds.entry(mbits).or_default() += 1;
        }
    }
    let shown: Vec<String> = speeds
        .iter()
        .rev()
        .map(|(mbits, count)| {
            let speed = match mbits % 1000 {
                0 => format!("{} Gbit/s", mbits / 1000),
                _ => format!("{mbits} Mbit/s"),
            };
            match count {
                1 => speed,
                count => format!("{count} x {speed}"),
            }
        })
        .collect();
    shown.join(", ")
}

/// What was found at each target.
pub(super) fn targets(targets: &[TargetReport]) -> Option<Table> {
    if targets.is_empty() {
        return None;
    }
    let cells = |cell: fn(&TargetReport) -> String| targets.iter().map(cell).collect::<Vec<_>>();
    let mut table = Table::titled("Targets")
        .text("target", cells(|one| one.target.clone()))
        .text("system", cells(|one| one.system.clone()))
        .figures("agents", cells(|one| one.agents.to_string()))
        .text_if_any("path", cells(|one| one.path.clone()))
        .text_if_any(
            "type",
            cells(|one| one.mount_type.clone().unwrap_or_default()),
        )
        .text_if_any(
            "source",
            cells(|one| one.mount_source.clone().unwrap_or_default()),
        )
        .figures(
            "GiB",
            cells(|one| figures::maybe_rate(one.size_bytes.map(|bytes| real(bytes) / GIB))),
        )
        .text_if_any(
            "packages",
            cells(|one| one.packages.as_ref().map(versions).unwrap_or_default()),
        )
        .text_if_any(
            "options",
            cells(|one| one.mount_options.clone().unwrap_or_default()),
        );
    table.spare = vec!["options", "packages", "path"];
    Some(table)
}

/// `ceph-common 18.2.4-1, ceph-fuse 18.2.4-1`
fn versions(packages: &Value) -> String {
    let all = packages.as_object().into_iter().flatten();
    all.map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(", ")
}

//! Agents with their hosts, as of the time when the run was accepted; equal hosts are combined.

use crate::report::Table;
use crate::report::row::Statement;
use benchmesh_results::real;
use benchmesh_workloads::figures::{self, plural};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

const GIB: f64 = 1_073_741_824.0;
/// Maximum number of hosts named in a row.
const NAMED: usize = 3;

/// One agent that was attached when the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentReport {
    pub name: String,
    pub host: String,
    pub kernel: String,
    pub cpus: i64,
    pub memory_bytes: i64,
    pub labels: Map<String, Value>,
    #[serde(default)]
    pub version: String,
    #[serde(default)]
    pub distribution: Option<String>,
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// Whether it had a task of the run; the others only sampled their hosts.
    #[serde(default = "yes")]
    pub is_client: bool,
    /// Objects: `name`, `mbits`, `mtu`, `hardware`.
    #[serde(default)]
    pub interfaces: Option<Vec<Value>>,
    /// Objects: `name`, `model`, `size_bytes`, `rotational`.
    #[serde(default)]
    pub disks: Option<Vec<Value>>,
    /// Versions of the storage systems' packages, by name.
    #[serde(default)]
    pub packages: Option<Map<String, Value>>,
}

/// The default of `is_client`: older collectors listed only agents that had tasks.
fn yes() -> bool {
    true
}

/// Agents that were attached when the run was accepted, and those that had a task of it.
pub(in crate::report) const AGENTS: Statement = Statement {
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

/// A heading, and the text of an agent below it.
type Column = (&'static str, fn(&AgentReport) -> String);

/// The columns of the hosts' table after the names of the hosts.
const COLUMNS: [Column; 10] = [
    ("does", |agent| {
        if agent.is_client { "load" } else { "samples" }.to_owned()
    }),
    ("distribution", |agent| {
        agent.distribution.clone().unwrap_or_default()
    }),
    ("kernel", |agent| agent.kernel.clone()),
    ("CPUs", |agent| agent.cpus.to_string()),
    ("CPU", |agent| agent.cpu_model.clone().unwrap_or_default()),
    ("GiB", |agent| figures::rate(real(agent.memory_bytes) / GIB)),
    ("NIC", |agent| interfaces(agent.interfaces.as_deref())),
    ("labels", |agent| {
        let labels = agent.labels.iter();
        let labels = labels.map(|(key, value)| format!("{key}={}", figures::parameter(value)));
        labels.collect::<Vec<_>>().join(" ")
    }),
    ("packages", |agent| versions(agent.packages.as_ref())),
    ("benchmesh", |agent| agent.version.clone()),
];

/// The descriptions of equal hosts, with each host's number of agents.
type HostKind<'r> = (Vec<String>, BTreeMap<&'r str, usize>);

/// The agents' hosts, equal ones in one row.
pub(in crate::report) fn table(agents: &[AgentReport]) -> Option<Table> {
    let mut kinds: Vec<HostKind<'_>> = Vec::new();
    let mut seen = BTreeSet::new();
    for host in agents.iter().map(|agent| agent.host.as_str()) {
        if !seen.insert(host) {
            continue;
        }
        let of_host: Vec<&AgentReport> = agents.iter().filter(|one| one.host == host).collect();
        let cells = COLUMNS
            .map(|(_, cell)| distinct_cells(&of_host, cell))
            .to_vec();
        match kinds.iter_mut().find(|(known, _)| *known == cells) {
            Some((_, hosts)) => {
                hosts.insert(host, of_host.len());
            }
            None => kinds.push((cells, BTreeMap::from([(host, of_host.len())]))),
        }
    }
    let mut table = Table::of("Hosts", &kinds).text("hosts", |(_, hosts)| names(hosts));
    for (at, (head, _)) in COLUMNS.iter().enumerate() {
        let cell = |(cells, _): &HostKind<'_>| cells.get(at).cloned().unwrap_or_default();
        table = match *head {
            "CPUs" | "GiB" => table.figure(head, cell),
            head => table.text(head, cell).if_any(),
        };
    }
    table
        .spare(&["packages", "labels", "benchmesh", "CPU", "distribution"])
        .done()
}

/// `node1, node2, node3 and 5 more`; with the number of agents if a host has several.
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

/// The description of a host by its agents; all variants if they differ.
fn distinct_cells(agents: &[&AgentReport], cell: fn(&AgentReport) -> String) -> String {
    let mut distinct: Vec<String> = Vec::new();
    for text in agents.iter().map(|agent| cell(agent)) {
        if !text.is_empty() && !distinct.contains(&text) {
            distinct.push(text);
        }
    }
    distinct.join("; ")
}

/// The speeds of the interfaces that have one: `10 Gbit/s`, `2 x 25 Gbit/s`.
fn interfaces(interfaces: Option<&[Value]>) -> String {
    let mut speeds: BTreeMap<i64, usize> = BTreeMap::new();
    let all = interfaces.into_iter().flatten();
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

/// `ceph-common 18.2.4-1, ceph-fuse 18.2.4-1`
pub(super) fn versions(packages: Option<&Map<String, Value>>) -> String {
    let all = packages.into_iter().flatten();
    all.map(|(name, version)| format!("{name} {}", version.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(", ")
}

//! Links that are slower than their peers: those of `network` steps, each judged by its rate over all steps of its
//! load.

use super::outliers::finding;
use super::steps::Step;
use super::{FindingsError, quoted, reading};
use crate::rows::all_rows;
use benchmesh_analysis::outliers::{Extent, LESS, Outlier, outliers};
use benchmesh_analysis::start::median;
use benchmesh_model::mesh::RunId;
use benchmesh_results::Finding;
use benchmesh_workloads::figures;
use benchmesh_workloads::op::Op;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Minimum length of a step for judging links.
const MIN_US: i64 = 5_000_000;

/// Excludes links from a host to itself, which are not comparable with others.
const LINKS: &str = "
    SELECT coalesce(t.group_name, ''), x.op, t.agent_id, t.peer_agent_id, a.name, p.name, x.ops_per_s
    FROM tasks AS t JOIN run_agents AS a ON a.run_id = ?2 AND a.agent_id = t.agent_id
         JOIN run_agents AS p ON p.run_id = ?2 AND p.agent_id = t.peer_agent_id
         JOIN task_results AS x ON x.task_id = t.id
    WHERE t.step_id = ?1 AND t.state = 'done' AND x.ops_per_s > 0 AND a.host_id <> p.host_id
    ORDER BY 1, 2, 3, 4";

type LinkRow = (String, String, i64, i64, String, String, f64);

/// The key that links must share to be peers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LinkKey {
    load: String,
    group: String,
    op: String,
}

/// A link over the steps of its load.
#[derive(Debug, Default)]
struct Link {
    agent: i64,
    name: String,
    rates: Vec<f64>,
    /// The last step with the link.
    step: i64,
    from_us: i64,
    until_us: i64,
}

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    let mut all: BTreeMap<LinkKey, BTreeMap<(i64, i64), Link>> = BTreeMap::new();
    for step in steps {
        if step.length_us() < MIN_US {
            continue;
        }
        let rows: Vec<LinkRow> = all_rows(connection, LINKS, &[step.id.into(), run.0.into()])
            .map_err(reading("task_results"))?;
        for (group, op, agent, peer, from, to, rate) in rows {
            if !Op::is_work(&op) {
                continue;
            }
            let key = LinkKey {
                load: step.load.clone(),
                group,
                op,
            };
            let link = all
                .entry(key)
                .or_default()
                .entry((agent, peer))
                .or_default();
            if link.rates.is_empty() {
                link.from_us = step.from_us;
            }
            link.agent = agent;
            link.name = format!("{from} -> {to}");
            link.rates.push(rate);
            link.step = step.id;
            link.until_us = step.until_us;
        }
    }
    let found = all
        .iter()
        .flat_map(|(key, links)| of_load(key, links, steps));
    Ok(found.collect())
}

fn of_load(key: &LinkKey, links: &BTreeMap<(i64, i64), Link>, steps: &[Step]) -> Vec<Finding> {
    let links: Vec<&Link> = links.values().collect();
    let rates: Vec<_> = links
        .iter()
        .map(|link| vec![Some(median(&link.rates))])
        .collect();
    let found = outliers(&rates, &LESS, Extent::HalfOfWindows).into_iter();
    let found = found.filter_map(|outlier| {
        let link = links.get(outlier.entity)?;
        let step = steps.iter().find(|step| step.id == link.step)?;
        Some(slow(key, link, step, &outlier))
    });
    found.collect()
}

fn slow(key: &LinkKey, link: &Link, step: &Step, outlier: &Outlier) -> Finding {
    let op = &key.op;
    let clause = format!(
        "link {} did {} {op}/s in {} (median of {})",
        link.name,
        figures::rate(outlier.value),
        step.label,
        figures::plural(link.rates.len(), "step"),
    );
    let sql = format!(
        "SELECT a.name AS sender, p.name AS receiver, r.ops_per_s, r.bytes_per_s, r.p99_ns / 1e6 AS p99_ms \
         FROM steps AS l JOIN steps AS s USING (run_id, phase, mode, workload, params) \
         JOIN tasks AS t ON t.step_id = s.id JOIN task_results AS r ON r.task_id = t.id \
         JOIN agents AS a ON a.id = t.agent_id JOIN agents AS p ON p.id = t.peer_agent_id \
         WHERE l.id = {} AND r.op = {} ORDER BY r.ops_per_s",
        step.id,
        quoted(op)
    );
    let subject = format!("link {}", link.name);
    Finding {
        step_id: Some(step.id),
        group_name: Some(key.group.clone()).filter(|group| !group.is_empty()),
        op: Some(op.clone()),
        agent_id: Some(link.agent),
        from_us: Some(link.from_us),
        until_us: Some(link.until_us),
        ..finding(&subject, "ops_per_s", outlier, (clause, ""), sql)
    }
}

//! Outliers among peers, over whole steps: daemons of one name by their CPU time, clients by their rate.
//! [`stretches`] finds outliers in a part of the run.

use super::daemon::{self, FIRST_FIGURE, NamedDaemon, has_equals, select_daemons};
use super::mesh::Mesh;
use super::steps::Step;
use super::stretches::{self, MIN_CPU_PERCENT};
use super::{FindingsError, finite, quoted, reading};
use crate::rows::all_rows;
use benchmesh_analysis::equals::{LESS, MORE, Rule, since, unlike};
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Minimum duration of a step for judging daemons and clients.
const MIN_DAEMONS_US: i64 = 30_000_000;
const MIN_CLIENTS_US: i64 = 10_000_000;
/// Number of points at which the beginning is searched.
const POINTS: usize = 60;
/// Maximum number of peers that are read for it.
const MAX_PEERS: usize = 40;

/// The CPU time of each daemon in step `?2`, in percent of a CPU.
const DAEMONS: &str = select_daemons!(
    "(u.cpu_user_us + u.cpu_system_us) * 100.0 / (u.until_us - u.from_us)",
    "step_daemons AS u JOIN daemons AS d ON d.id = u.daemon_id",
    "u.step_id = ?2 AND u.cpu_user_us IS NOT NULL AND u.cpu_system_us IS NOT NULL
      AND (u.until_us - u.from_us) * 2 >= ?3
    ORDER BY d.name, u.daemon_id"
);

const CLIENTS: &str = "
    SELECT t.agent_id, coalesce(r.name, a.name), coalesce(t.group_name, ''), x.op, x.ops_per_s
    FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id JOIN task_results AS x ON x.task_id = t.id
         LEFT JOIN run_agents AS r ON r.run_id = ?2 AND r.agent_id = t.agent_id
    WHERE t.step_id = ?1 AND t.state = 'done' AND x.ops_per_s > 0
    ORDER BY 3, 4, 1";

/// CPU time of a daemon at some instants, from the last sample before each.
const CPU_AT: &str = "
    SELECT p.key, (SELECT x.cpu_user_us + x.cpu_system_us FROM daemon_samples AS x
                   WHERE x.daemon_id = ?2 AND x.at_us <= p.value ORDER BY x.at_us DESC LIMIT 1)
    FROM json_each(?1) AS p ORDER BY p.key";

/// An outlier, over its steps.
#[derive(Clone, Debug)]
struct Unlike<W> {
    who: W,
    /// Number of steps in which it was judged, and in which it was an outlier.
    judged: usize,
    times: usize,
    /// The largest deviation: index of the step, own value, median and number of the others.
    worst: Option<(usize, f64, f64, usize)>,
}

impl<W> Unlike<W> {
    fn new(who: W) -> Self {
        Self {
            who,
            judged: 0,
            times: 0,
            worst: None,
        }
    }

    fn add(&mut self, step: usize, value: f64, others: usize, usual: Option<f64>) {
        self.judged += 1;
        let Some(usual) = usual else { return };
        self.times += 1;
        let distance = |value: f64, usual: f64| (value / usual).ln().abs();
        let is_worse = self
            .worst
            .is_none_or(|(_, v, u, _)| distance(value, usual) > distance(v, u));
        if is_worse {
            self.worst = Some((step, value, usual, others));
        }
    }

    fn is_found(&self) -> bool {
        self.times > 0 && self.times * 2 >= self.judged
    }

    fn where_it_was(&self, label: &str) -> String {
        match self.judged {
            1 => format!("in {label}"),
            judged => format!("in {} of {judged} steps, most in {label}", self.times),
        }
    }
}

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = daemons(connection, run, steps)?;
    let known: Vec<i64> = found.iter().filter_map(|one| one.daemon_id).collect();
    found.extend(stretches::daemons(mesh, &known));
    found.extend(stretches::disks(mesh));
    let over_steps = clients(connection, run, steps)?;
    let known: Vec<i64> = over_steps.iter().filter_map(|one| one.agent_id).collect();
    found.extend(over_steps);
    for step in steps.iter().filter(|step| step.workload != "network") {
        found.extend(stretches::clients(connection, run, step, &known)?);
    }
    Ok(found)
}

fn daemons(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    let mut all: BTreeMap<i64, Unlike<NamedDaemon>> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        if step.length_us() < MIN_DAEMONS_US {
            continue;
        }
        let parameters = [run.0.into(), step.id.into(), step.length_us().into()];
        let rows: Vec<(NamedDaemon, f64)> = daemon::load(connection, DAEMONS, &parameters, |row| {
            row.get(FIRST_FIGURE)
        })
        .map_err(reading("step_daemons"))?;
        let by_name = rows.chunk_by(|(one, _), (other, _)| one.name == other.name);
        for equals in by_name.filter(|equals| equals.iter().all(|(one, _)| has_equals(&one.name))) {
            let values: Vec<f64> = equals.iter().map(|(_, cpu)| *cpu).collect();
            for (at, (daemon, cpu)) in equals.iter().enumerate() {
                let usual =
                    unlike(&values, at, MORE).filter(|usual| cpu - usual >= MIN_CPU_PERCENT);
                let own = all
                    .entry(daemon.id)
                    .or_insert_with(|| Unlike::new(daemon.clone()));
                own.add(place, *cpu, values.len() - 1, usual);
            }
        }
    }
    let mut found = Vec::new();
    for unlike in all.values().filter(|unlike| unlike.is_found()) {
        let Some((place, value, usual, others)) = unlike.worst else {
            continue;
        };
        let Some(step) = steps.get(place) else {
            continue;
        };
        let from_us = began(connection, step, &unlike.who)?;
        found.push(daemon(unlike, step, (value, usual, others), from_us));
    }
    Ok(found)
}

/// The instant within a step from which a daemon was an outlier among those of its name.
fn began(connection: &Connection, step: &Step, daemon: &NamedDaemon) -> Result<i64, FindingsError> {
    let windows = step.windows(POINTS);
    let instants: Vec<i64> = windows
        .iter()
        .map(|window| window.from_us)
        .chain([step.until_us])
        .collect();
    let instants_json = serde_json::Value::from(instants.clone()).to_string();
    let peers: Vec<(i64,)> = all_rows(
        connection,
        "SELECT u.daemon_id FROM step_daemons AS u JOIN daemons AS d ON d.id = u.daemon_id
         WHERE u.step_id = ? AND d.name = ? AND d.id <> ? ORDER BY d.id",
        &[step.id.into(), daemon.name.clone().into(), daemon.id.into()],
    )
    .map_err(reading("step_daemons"))?;
    let mut rates = Vec::new();
    let peers = peers.into_iter().take(MAX_PEERS).map(|(id,)| id);
    for id in std::iter::once(daemon.id).chain(peers) {
        let used: Vec<(i64, Option<i64>)> = all_rows(
            connection,
            CPU_AT,
            &[instants_json.clone().into(), id.into()],
        )
        .map_err(reading("daemon_samples"))?;
        let later = used.iter().skip(1);
        let used = used.iter().zip(later).map(|((_, one), (_, other))| {
            one.zip(*other)
                .map_or(0.0, |(one, other)| real(other - one))
        });
        rates.push(used.collect::<Vec<f64>>());
    }
    let mut all = rates.into_iter();
    let own = all.next().unwrap_or_default();
    let others: Vec<Vec<f64>> = all.collect();
    let pairs: Vec<(f64, f64)> = own
        .iter()
        .enumerate()
        .map(|(at, own)| {
            let mut at_once: Vec<f64> = others
                .iter()
                .filter_map(|one| one.get(at).copied())
                .collect();
            at_once.sort_by(f64::total_cmp);
            let median = at_once.get(at_once.len() / 2).copied().unwrap_or(0.0);
            (*own, median)
        })
        .collect();
    let at = since(&pairs, MORE).and_then(|at| instants.get(at).copied());
    Ok(at.unwrap_or(step.from_us))
}

fn daemon(
    unlike: &Unlike<NamedDaemon>,
    step: &Step,
    (value, usual, others): (f64, f64, usize),
    from_us: i64,
) -> Finding {
    let NamedDaemon {
        id,
        name,
        label,
        host_id,
        ..
    } = &unlike.who;
    let sentence = format!(
        "{label} used {} % of a CPU {}, {} times the {} % of its {} peers, from {} on",
        figures::rate(value),
        unlike.where_it_was(&step.label),
        figures::rate(value / usual.max(0.1)),
        figures::rate(usual),
        others,
        figures::instant(from_us),
    );
    Finding {
        figure: Some("cpu_percent".to_owned()),
        step_id: Some(step.id),
        host_id: Some(*host_id),
        daemon_id: Some(*id),
        from_us: Some(from_us),
        until_us: Some(step.until_us),
        size: finite(value / usual.max(0.1)),
        unit: Some("times".to_owned()),
        sql: Some(format!(
            "SELECT host, instance, cpu_percent, rss_last_mib, read_mib, written_mib FROM v_daemon_usage \
             WHERE step_id = {} AND name = {} ORDER BY cpu_percent DESC",
            step.id,
            quoted(name)
        )),
        ..Finding::new(
            Severity::Warning,
            FindingKind::Outlier,
            FindingVerdict::Found,
            label,
            sentence,
        )
    }
}

type ClientRow = (i64, String, String, String, f64);

fn clients(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    const RULE: Rule = LESS;
    let mut all: BTreeMap<i64, Unlike<(String, String, String)>> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        if step.length_us() < MIN_CLIENTS_US || step.workload == "network" {
            continue;
        }
        let rows: Vec<ClientRow> = all_rows(connection, CLIENTS, &[step.id.into(), run.0.into()])
            .map_err(reading("task_results"))?;
        for equals in rows.chunk_by(|one, other| (&one.2, &one.3) == (&other.2, &other.3)) {
            let values: Vec<f64> = equals.iter().map(|row| row.4).collect();
            for (at, (agent, name, group, op, value)) in equals.iter().enumerate() {
                let own = all
                    .entry(*agent)
                    .or_insert_with(|| Unlike::new((name.clone(), group.clone(), op.clone())));
                let before = own.worst;
                own.add(place, *value, values.len() - 1, unlike(&values, at, RULE));
                if own.worst != before {
                    own.who = (name.clone(), group.clone(), op.clone());
                }
            }
        }
    }
    let found = all.iter().filter(|(_, unlike)| unlike.is_found());
    let found = found.filter_map(|(agent, unlike)| {
        let (place, value, usual, others) = unlike.worst?;
        let finding = client(unlike, steps.get(place)?, (value, usual, others));
        Some(Finding {
            agent_id: Some(*agent),
            ..finding
        })
    });
    Ok(found.collect())
}

fn client(
    unlike: &Unlike<(String, String, String)>,
    step: &Step,
    (value, usual, others): (f64, f64, usize),
) -> Finding {
    let (name, group, op) = &unlike.who;
    let sentence = format!(
        "client {name} did {} {op}/s {}, {} % of the {} of its {others} peers",
        figures::rate(value),
        unlike.where_it_was(&step.label),
        figures::rate(100.0 * value / usual),
        figures::rate(usual),
    );
    Finding {
        figure: Some("ops_per_s".to_owned()),
        step_id: Some(step.id),
        group_name: Some(group.clone()).filter(|group| !group.is_empty()),
        op: Some(op.clone()),
        from_us: Some(step.from_us),
        until_us: Some(step.until_us),
        size: finite(value / usual),
        unit: Some("times".to_owned()),
        sql: Some(format!(
            "SELECT a.name, r.op, r.ops_per_s, r.p99_ns / 1e6 AS p99_ms FROM tasks AS t \
             JOIN task_results AS r ON r.task_id = t.id JOIN agents AS a ON a.id = t.agent_id \
             WHERE t.step_id = {} AND r.op = {} ORDER BY r.ops_per_s",
            step.id,
            quoted(op)
        )),
        ..Finding::new(
            Severity::Warning,
            FindingKind::Outlier,
            FindingVerdict::Found,
            name,
            sentence,
        )
    }
}

//! Daemons that ended, were restarted, were stopped, or stalled while their peers worked.

use super::daemon::NamedDaemon;
use super::mesh::{Mesh, WatchedDaemon};
use super::{FindingsError, reading, span};
use crate::rows::{all_rows, first_row};
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Processes with a shorter life are helpers.
const MIN_LIFE_US: i64 = 60_000_000;
/// A successor that starts within this time is the same daemon, restarted.
const MAX_AWAY_US: i64 = 3_600_000_000;
/// The end of a daemon may be detected this much later than the birth of its successor.
const EARLY_US: i64 = 2_000_000;
/// Minimum duration of a reported stall, in time and in windows.
const MIN_STILL_US: i64 = 10_000_000;
const MIN_STILL_WINDOWS: usize = 2;
/// A daemon whose usual CPU usage, in percent of a CPU, is lower may pause normally and is not judged.
const MIN_USUAL_PERCENT: f64 = 2.0;
/// During a stall, the peers do at least this share of their usual work.
const PEERS_WORK: f64 = 0.5;

/// Reports of agents that a daemon was stopped by a signal or a frozen cgroup, and when it continued.
const STOPPED: &str = "
    SELECT d.id, e.at_us,
           (SELECT min(c.at_us) FROM events AS c
            WHERE c.agent_id = e.agent_id AND c.kind = 'daemon-continued' AND c.at_us >= e.at_us
              AND c.detail ->> 'pid' = d.pid)
    FROM run_agents AS r CROSS JOIN events AS e ON e.agent_id = r.agent_id AND e.kind = 'daemon-stopped'
         JOIN daemons AS d ON d.host_id = r.host_id AND d.pid = e.detail ->> 'pid'
                              AND d.start_ticks = e.detail ->> 'start_ticks'
    WHERE r.run_id = ?1 AND e.at_us >= ?2 AND e.at_us < ?3 ORDER BY e.at_us";

/// From when to when a daemon has the CPU time that it has at an instant: halfway between the first and the last such
/// sample and their neighbours.
const STILL: &str = "
    SELECT s.first - coalesce(s.first - (SELECT max(b.at_us) FROM daemon_samples AS b
                                         WHERE b.daemon_id = ?1 AND b.at_us < s.first), 0) / 2,
           s.last + coalesce((SELECT min(a.at_us) FROM daemon_samples AS a
                              WHERE a.daemon_id = ?1 AND a.at_us > s.last) - s.last, 0) / 2
    FROM (SELECT min(x.at_us) AS first, max(x.at_us) AS last FROM daemon_samples AS x
          WHERE x.daemon_id = ?1 AND x.at_us >= ?2 AND x.at_us <= ?3
            AND x.cpu_user_us + x.cpu_system_us = (
                SELECT y.cpu_user_us + y.cpu_system_us FROM daemon_samples AS y
                WHERE y.daemon_id = ?1 AND y.at_us <= ?4 ORDER BY y.at_us DESC LIMIT 1)) AS s";

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = ended(mesh);
    let stopped: Vec<(i64, i64, Option<i64>)> = all_rows(
        connection,
        STOPPED,
        &[run.0.into(), mesh.from_us.into(), mesh.until_us.into()],
    )
    .map_err(reading("events"))?;
    let mut times: BTreeMap<i64, Vec<(i64, i64)>> = BTreeMap::new();
    for (id, from_us, until_us) in stopped {
        let Some(watched) = mesh.daemons.iter().find(|one| one.daemon.id == id) else {
            continue;
        };
        let end_us = until_us.unwrap_or(mesh.until_us);
        times.entry(id).or_default().push((from_us, end_us));
        found.push(stopped_at(&watched.daemon, from_us, until_us, mesh));
    }
    for (place, watched) in mesh.daemons.iter().enumerate() {
        for (from_us, until_us) in still(connection, mesh, place, watched)? {
            let mut known = times.get(&watched.daemon.id).into_iter().flatten();
            if !known.any(|(from, until)| *from < until_us && from_us < *until) {
                found.push(stood_still(watched, mesh, from_us, until_us));
            }
        }
    }
    Ok(found)
}

fn base(daemon: &NamedDaemon, severity: Severity, sentence: String) -> Finding {
    Finding {
        host_id: Some(daemon.host_id),
        daemon_id: Some(daemon.id),
        ..Finding::new(
            severity,
            FindingKind::Daemon,
            FindingVerdict::Found,
            &daemon.label,
            sentence,
        )
    }
}

fn samples_sql(id: i64, from_us: i64, until_us: i64) -> String {
    format!(
        "SELECT datetime(at_us / 1000000, 'unixepoch') AS at, cpu_user_us + cpu_system_us AS cpu_us, rss_bytes \
         FROM daemon_samples WHERE daemon_id = {id} AND at_us BETWEEN {} AND {}",
        from_us - 10_000_000,
        until_us + 10_000_000
    )
}

/// Daemons that ended while the load ran, and their successors.
fn ended(mesh: &Mesh) -> Vec<Finding> {
    let during = |watched: &&WatchedDaemon| {
        watched.ended_us.is_some_and(|ended| {
            ended > mesh.from_us
                && ended < mesh.until_us
                && ended - watched.born_us.min(ended) >= MIN_LIFE_US
        })
    };
    let of = |watched: &WatchedDaemon| {
        let daemon = &watched.daemon;
        let ended_us = watched.ended_us?;
        let successor = mesh
            .daemons
            .iter()
            .filter(|other| {
                other.daemon.id != daemon.id
                    && other.daemon.host_id == daemon.host_id
                    && other.daemon.name == daemon.name
                    && other.daemon.instance == daemon.instance
                    && (ended_us - EARLY_US..ended_us + MAX_AWAY_US).contains(&other.born_us)
            })
            .min_by_key(|other| other.born_us);
        let (severity, what, until_us) = match successor {
            Some(next) => {
                let away = span((next.born_us - ended_us).max(0));
                (
                    Severity::Warning,
                    format!("and was started again {away} later"),
                    next.born_us,
                )
            }
            None => (
                Severity::Error,
                "and was not started again".to_owned(),
                mesh.until_us,
            ),
        };
        let sentence = format!(
            "{} ended at {} {what}",
            daemon.label,
            figures::instant(ended_us)
        );
        Some(Finding {
            from_us: Some(ended_us),
            until_us: Some(until_us.max(ended_us)),
            size: successor.map(|next| real((next.born_us - ended_us).max(0)) / 1e6),
            unit: successor.map(|_| "s".to_owned()),
            sql: Some(format!(
                "SELECT name, instance, pid, datetime(first_seen_us / 1000000, 'unixepoch') AS first_seen, \
                 datetime(ended_us / 1000000, 'unixepoch') AS ended FROM daemons WHERE host_id = {} AND name = {} \
                 ORDER BY first_seen_us",
                daemon.host_id,
                super::quoted(&daemon.name)
            )),
            ..base(daemon, severity, sentence)
        })
    };
    mesh.daemons.iter().filter(during).filter_map(of).collect()
}

fn stopped_at(daemon: &NamedDaemon, from_us: i64, until_us: Option<i64>, mesh: &Mesh) -> Finding {
    let end_us = until_us.unwrap_or(mesh.until_us);
    let until = match until_us {
        Some(_) => format!("for {}", span(end_us - from_us)),
        None => "and did not run again before the end".to_owned(),
    };
    let sentence = format!(
        "{} was stopped by a signal or with its cgroup at {} {until}",
        daemon.label,
        figures::instant(from_us)
    );
    Finding {
        figure: Some("cpu_percent".to_owned()),
        from_us: Some(from_us),
        until_us: Some(end_us),
        size: Some(real(end_us - from_us) / 1e6),
        unit: Some("s".to_owned()),
        sql: Some(samples_sql(daemon.id, from_us, end_us)),
        ..base(daemon, Severity::Error, sentence)
    }
}

/// The spans in which a daemon used no CPU time at all while its peers worked.
fn still(
    connection: &Connection,
    mesh: &Mesh,
    place: usize,
    watched: &WatchedDaemon,
) -> Result<Vec<(i64, i64)>, FindingsError> {
    let own = mesh.rates(&watched.samples, 0);
    if usual(&own) < MIN_USUAL_PERCENT / 100.0 {
        return Ok(Vec::new());
    }
    let is_still: Vec<usize> = own
        .iter()
        .enumerate()
        .filter(|(_, rate)| **rate == Some(0.0))
        .map(|(at, _)| at)
        .collect();
    if is_still.is_empty() {
        return Ok(Vec::new());
    }
    let peers: Vec<(f64, Vec<Option<f64>>)> = mesh
        .daemons
        .iter()
        .enumerate()
        .filter(|(other, peer)| *other != place && peer.daemon.name == watched.daemon.name)
        .map(|(_, peer)| mesh.rates(&peer.samples, 0))
        .map(|rates| (usual(&rates), rates))
        .filter(|(usual, _)| *usual >= MIN_USUAL_PERCENT / 100.0)
        .collect();
    // Most of the peers work.
    let works = |at: usize| {
        let work = |(usual, rates): &&(f64, Vec<Option<f64>>)| {
            rates
                .get(at)
                .copied()
                .flatten()
                .is_some_and(|rate| rate >= PEERS_WORK * usual)
        };
        !peers.is_empty() && 2 * peers.iter().filter(work).count() > peers.len()
    };
    let mut found = Vec::new();
    for windows in is_still.chunk_by(|one, other| one + 1 == *other) {
        let (Some(first), Some(last)) = (windows.first(), windows.last()) else {
            continue;
        };
        let (from_us, until_us) = (mesh.instant(*first), mesh.instant(last + 1));
        let is_long = windows.len() >= MIN_STILL_WINDOWS && until_us - from_us >= MIN_STILL_US;
        if !is_long || !windows.iter().all(|at| works(*at)) {
            continue;
        }
        let window_us = mesh.window_us();
        let parameters = [
            watched.daemon.id.into(),
            (from_us - window_us).into(),
            (until_us + window_us).into(),
            until_us.into(),
        ];
        let edges: Option<(Option<i64>, Option<i64>)> =
            first_row(connection, STILL, &parameters).map_err(reading("daemon_samples"))?;
        let (from, until) = edges.unwrap_or_default();
        found.push((from.unwrap_or(from_us), until.unwrap_or(until_us)));
    }
    Ok(found)
}

/// The median.
fn usual(rates: &[Option<f64>]) -> f64 {
    let mut known: Vec<f64> = rates.iter().copied().flatten().collect();
    known.sort_by(f64::total_cmp);
    known.get(known.len() / 2).copied().unwrap_or(0.0)
}

fn stood_still(watched: &WatchedDaemon, mesh: &Mesh, from_us: i64, until_us: i64) -> Finding {
    let daemon = &watched.daemon;
    let seconds = real(until_us - from_us) / 1e6;
    let sentence = format!(
        "{} stood still for {} from {}: it used no CPU at all (usually {} %), while other daemons of its name worked",
        daemon.label,
        span(until_us - from_us),
        figures::instant(from_us),
        figures::rate(100.0 * usual(&mesh.rates(&watched.samples, 0))),
    );
    Finding {
        figure: Some("cpu_percent".to_owned()),
        from_us: Some(from_us),
        until_us: Some(until_us),
        size: Some(seconds),
        unit: Some("s".to_owned()),
        sql: Some(samples_sql(daemon.id, from_us, until_us)),
        ..base(daemon, Severity::Error, sentence)
    }
}

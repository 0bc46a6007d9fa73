//! Clocks that jumped, and gaps in the samples.

use super::mesh::Mesh;
use super::{FindingsError, reading, span};
use crate::rows::{all_rows, first_row};
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Minimum length of a reported gap. In a long run only gaps of two windows are detected.
const MIN_GAP_US: i64 = 10_000_000;
const MIN_EDGE_US: i64 = 60_000_000;
/// If the last sample before an instant is older than this, the surrounding samples are read.
const LATE_US: i64 = 5_000_000;

/// Clock jumps that agents and the collector detected, in microseconds.
const CLOCKS: &str = "
    SELECT coalesce(r.name, 'the collector'), e.agent_id, e.kind, e.at_us,
           CAST(coalesce(e.detail ->> 'ahead_us', e.detail ->> 'step_us', 0) AS INTEGER)
    FROM events AS e LEFT JOIN run_agents AS r ON r.run_id = ?1 AND r.agent_id = e.agent_id
    WHERE e.at_us >= ?2 AND e.at_us < ?3 AND e.kind IN ('clock-gap', 'wall-clock-step')
      AND (r.agent_id IS NOT NULL OR e.agent_id IS NULL)
    ORDER BY 1, 3, 4";

/// The sample before and the one after an instant.
const AROUND: &str = "
    SELECT (SELECT max(x.at_us) FROM host_samples AS x WHERE x.host_id = ?1 AND x.at_us <= ?2),
           (SELECT min(x.at_us) FROM host_samples AS x WHERE x.host_id = ?1 AND x.at_us > ?2)";

const FIRST: &str = "
    SELECT at_us FROM host_samples WHERE host_id = ? AND at_us >= ? ORDER BY at_us LIMIT 20";

const LOSSES: &str = "
    SELECT r.name, l.agent_id, l.what, sum(l.rows), min(l.from_us), max(l.until_us)
    FROM run_agents AS r CROSS JOIN losses AS l ON l.agent_id = r.agent_id
    WHERE r.run_id = ?1 AND l.until_us > ?2 AND l.from_us < ?3
    GROUP BY l.agent_id, l.what ORDER BY r.name, l.what";

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = clocks(connection, run, mesh)?;
    found.extend(gaps(connection, mesh)?);
    found.extend(losses(connection, run, mesh)?);
    Ok(found)
}

type ClockRow = (String, Option<i64>, String, i64, i64);

fn clocks(connection: &Connection, run: RunId, mesh: &Mesh) -> Result<Vec<Finding>, FindingsError> {
    let rows: Vec<ClockRow> = all_rows(
        connection,
        CLOCKS,
        &[run.0.into(), mesh.from_us.into(), mesh.until_us.into()],
    )
    .map_err(reading("events"))?;
    let of_one = rows.chunk_by(|one, other| (&one.0, &one.2) == (&other.0, &other.2));
    let found = of_one.filter_map(|rows| {
        let (name, agent, kind, from_us, _) = rows.first()?;
        let (_, _, _, worst_us, by_us) = rows.iter().max_by_key(|row| row.4.abs())?;
        let what = match kind.as_str() {
            "clock-gap" => "clock and mesh time jumped apart",
            _ => "wall clock was set",
        };
        let sentence = format!(
            "{name}: its {what} {}, most at {} by {}",
            figures::plural(rows.len(), "time"),
            figures::instant(*worst_us),
            span(by_us.abs()),
        );
        let severity = match kind.as_str() {
            "clock-gap" => Severity::Warning,
            _ => Severity::Info,
        };
        Some(Finding {
            figure: Some(kind.clone()),
            agent_id: *agent,
            from_us: Some(*from_us),
            until_us: rows.last().map(|row| row.3),
            size: Some(real(*by_us) / 1e6),
            unit: Some("s".to_owned()),
            sql: Some(format!(
                "SELECT datetime(at_us / 1000000, 'unixepoch') AS at, message, detail FROM events \
                 WHERE kind = '{kind}' AND agent_id IS {} AND at_us BETWEEN {} AND {} ORDER BY at_us",
                agent.map_or_else(|| "NULL".to_owned(), |id| id.to_string()),
                mesh.from_us,
                mesh.until_us
            )),
            ..Finding::new(severity, FindingKind::Clock, FindingVerdict::Found, name, sentence)
        })
    });
    Ok(found.collect())
}

/// Gaps in the samples of a host.
fn gaps(connection: &Connection, mesh: &Mesh) -> Result<Vec<Finding>, FindingsError> {
    let mut found = Vec::new();
    for host in &mesh.hosts {
        if host.samples.iter().all(Option::is_none) {
            continue;
        }
        let usual_us = usual_us(connection, host.id, mesh)?;
        let (late_us, least_us) = (LATE_US.max(2 * usual_us), MIN_GAP_US.max(3 * usual_us));
        let mut gaps: BTreeMap<i64, i64> = BTreeMap::new();
        let mut known_until_us = mesh.from_us;
        for (instant, sample) in mesh.instants.iter().zip(&host.samples) {
            let is_late = sample.is_none_or(|one| instant - one.at_us >= late_us);
            if !is_late || *instant < known_until_us {
                continue;
            }
            let around: Option<(Option<i64>, Option<i64>)> =
                first_row(connection, AROUND, &[host.id.into(), (*instant).into()])
                    .map_err(reading("host_samples"))?;
            let (before, after) = around.unwrap_or_default();
            let from_us = before.unwrap_or(mesh.from_us).max(mesh.from_us);
            let until_us = after.unwrap_or(mesh.until_us).min(mesh.until_us);
            known_until_us = until_us;
            // At the edges, samples may still arrive.
            let least_us = match before.is_some() && after.is_some() {
                true => least_us,
                false => least_us.max(MIN_EDGE_US),
            };
            if until_us - from_us >= least_us && !mesh.was_paused(from_us, until_us) {
                gaps.insert(from_us, until_us);
            }
        }
        let lengths = gaps.iter().map(|(from, until)| (until - from, *from));
        let Some((longest_us, longest_from_us)) = lengths.clone().max() else {
            continue;
        };
        let all_us: i64 = lengths.map(|(length, _)| length).sum();
        let (from_us, until_us) = (gaps.keys().next().copied(), gaps.values().last().copied());
        let sentence = format!(
            "{} has no samples for {} ({}), the longest from {} for {}",
            host.name,
            span(all_us),
            figures::plural(gaps.len(), "gap"),
            figures::instant(longest_from_us),
            span(longest_us),
        );
        found.push(Finding {
            figure: Some("samples".to_owned()),
            host_id: Some(host.id),
            from_us,
            until_us,
            size: Some(real(all_us) / 1e6),
            unit: Some("s".to_owned()),
            sql: Some(format!(
                "SELECT datetime(at_us / 1000000, 'unixepoch') AS at, (after_us - at_us) / 1e6 AS seconds FROM \
                 (SELECT at_us, lead(at_us) OVER (ORDER BY at_us) AS after_us FROM host_samples \
                 WHERE host_id = {} AND at_us BETWEEN {} AND {}) ORDER BY seconds DESC LIMIT 10",
                host.id, mesh.from_us, mesh.until_us
            )),
            ..Finding::new(Severity::Warning, FindingKind::Telemetry, FindingVerdict::Found, &host.name, sentence)
        });
    }
    Ok(found)
}

/// The usual distance of samples at the beginning of a run: 1 s, or 10 s or 60 s in an old one.
fn usual_us(connection: &Connection, host: i64, mesh: &Mesh) -> Result<i64, FindingsError> {
    let times: Vec<(i64,)> = all_rows(connection, FIRST, &[host.into(), mesh.from_us.into()])
        .map_err(reading("host_samples"))?;
    let mut apart: Vec<i64> = times
        .iter()
        .zip(times.iter().skip(1))
        .map(|((one,), (other,))| other - one)
        .collect();
    apart.sort_unstable();
    Ok(apart.get(apart.len() / 2).copied().unwrap_or(0))
}

fn losses(connection: &Connection, run: RunId, mesh: &Mesh) -> Result<Vec<Finding>, FindingsError> {
    let rows: Vec<(String, i64, String, i64, i64, i64)> = all_rows(
        connection,
        LOSSES,
        &[run.0.into(), mesh.from_us.into(), mesh.until_us.into()],
    )
    .map_err(reading("losses"))?;
    let found = rows.into_iter().map(|(name, agent, what, lost, from_us, until_us)| {
        let sentence = format!(
            "{name} lost {} of {what} between {} and {}",
            figures::count(lost),
            figures::instant(from_us),
            figures::instant(until_us),
        );
        Finding {
            figure: Some(what),
            agent_id: Some(agent),
            from_us: Some(from_us),
            until_us: Some(until_us),
            size: Some(real(lost)),
            unit: Some("rows".to_owned()),
            sql: Some(format!(
                "SELECT what, rows, datetime(from_us / 1000000, 'unixepoch') AS lost_from, \
                 datetime(until_us / 1000000, 'unixepoch') AS lost_until FROM losses WHERE agent_id = {agent} \
                 AND until_us > {} AND from_us < {}",
                mesh.from_us, mesh.until_us
            )),
            ..Finding::new(Severity::Warning, FindingKind::Telemetry, FindingVerdict::Found, &name, sentence)
        }
    });
    Ok(found.collect())
}

//! Usage of daemons and hosts, read at the edges of the points: the cost depends on the picture, not on the run.

use super::{
    DaemonSeries, HostSeries,
    seconds::{Axis, real},
    short,
};
use benchmesh_results::usage::{MIN_SPAN_US, share_percent};
use rusqlite::{Connection, Row, params};

/// Edges per daemon or host; each is one lookup in an index.
const EDGES: i64 = 400;
const MAX_DAEMONS: usize = 40;
const MAX_HOSTS: usize = 40;

const BUSIEST: &str = "
SELECT d.id, coalesce(f.host, h.name), d.name, coalesce(d.instance, ''), d.pid, sum(u.cpu_user_us + u.cpu_system_us) AS cpu_us
FROM steps AS s
CROSS JOIN step_daemons AS u ON u.step_id = s.id
CROSS JOIN daemons AS d ON d.id = u.daemon_id
CROSS JOIN hosts AS h ON h.id = d.host_id
LEFT JOIN run_agents AS f ON f.run_id = ?1
    AND f.agent_id = (SELECT min(x.agent_id) FROM run_agents AS x WHERE x.run_id = ?1 AND x.host_id = h.id)
WHERE s.run_id = ?1
GROUP BY d.id ORDER BY cpu_us DESC";

const DAEMON_AT: &str = "
SELECT at_us, cpu_user_us + cpu_system_us, rss_bytes FROM daemon_samples
WHERE daemon_id = ?1 AND at_us <= ?2 ORDER BY at_us DESC LIMIT 1";

const HOSTS: &str = "
SELECT a.host_id, min(a.host), max(a.cpus) FROM run_agents AS a
WHERE a.run_id = ?1 GROUP BY a.host_id ORDER BY 2, 1";

const HOST_AT: &str = "
SELECT at_us, idle_us, iowait_us, memory_available_bytes FROM host_samples
WHERE host_id = ?1 AND at_us <= ?2 ORDER BY at_us DESC LIMIT 1";

/// The drawn time.
pub struct Span {
    pub from_us: i64,
    pub until_us: i64,
    pub axis: Axis,
}

impl Span {
    fn edges(&self) -> impl Iterator<Item = i64> {
        let length = self.until_us.saturating_sub(self.from_us).max(1);
        // There is one sample per second.
        let count = (length / 1_000_000).clamp(1, EDGES);
        let from_us = self.from_us;
        // Usage before the first edge is unknown.
        (0..=count).map(move |edge| from_us.saturating_add(edge.saturating_mul(length) / count))
    }
}

/// One reading at an edge: its instant and its values.
type UsageReading = (i64, [i64; 3]);

/// The readings at the edges. Readings that are too close together for a meaningful share are skipped; of those
/// before the drawn time, only the last is kept.
fn readings(
    connection: &Connection,
    sql: &str,
    id: i64,
    span: &Span,
    read: fn(&Row<'_>) -> Result<UsageReading, rusqlite::Error>,
) -> Result<Vec<UsageReading>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut readings: Vec<UsageReading> = Vec::new();
    for edge in span.edges() {
        let mut rows = statement.query(params![id, edge])?;
        let Some(row) = rows.next()? else { continue };
        let reading = read(row)?;
        if readings
            .last()
            .is_none_or(|(at_us, _)| reading.0.saturating_sub(*at_us) >= MIN_SPAN_US)
        {
            readings.push(reading);
        }
    }
    Ok(readings)
}

pub fn daemons(
    connection: &Connection,
    run_id: i64,
    span: &Span,
) -> Result<(Vec<DaemonSeries>, usize), rusqlite::Error> {
    let mut statement = connection.prepare(BUSIEST)?;
    let mut found = statement
        .query_map([run_id], |row| {
            let series = DaemonSeries {
                host: row.get(1)?,
                name: row.get(2)?,
                instance: row.get(3)?,
                pid: row.get(4)?,
                at_s: Vec::new(),
                cpu_percent: Vec::new(),
                rss_mib: Vec::new(),
            };
            Ok((row.get::<_, i64>(0)?, series))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    let left_out = found.len().saturating_sub(MAX_DAEMONS);
    found.truncate(MAX_DAEMONS);
    let mut all = Vec::with_capacity(found.len());
    for (id, mut series) in found {
        let readings = readings(connection, DAEMON_AT, id, span, |row| {
            Ok((row.get(0)?, [row.get(1)?, row.get(2)?, 0]))
        })?;
        for pair in readings.windows(2) {
            let [(from_us, [cpu_from, ..]), (at_us, [cpu_at, rss, _])] = pair else {
                continue;
            };
            let cpu = real(cpu_at.saturating_sub(*cpu_from).max(0));
            series.at_s.push(span.axis.seconds_of(*at_us));
            series.cpu_percent.push(short(
                cpu * 100.0 / real(at_us.saturating_sub(*from_us).max(1)),
            ));
            series.rss_mib.push(short(real(*rss) / 1_048_576.0));
        }
        if !series.at_s.is_empty() {
            all.push(series);
        }
    }
    Ok((all, left_out))
}

pub fn hosts(
    connection: &Connection,
    run_id: i64,
    span: &Span,
) -> Result<(Vec<HostSeries>, usize), rusqlite::Error> {
    let mut statement = connection.prepare(HOSTS)?;
    let mut found = statement
        .query_map([run_id], |row| {
            Ok((
                row.get::<_, i64>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, i64>(2)?,
            ))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    let left_out = found.len().saturating_sub(MAX_HOSTS);
    found.truncate(MAX_HOSTS);
    let mut all = Vec::with_capacity(found.len());
    for (id, host, cpus) in found {
        let readings = readings(connection, HOST_AT, id, span, |row| {
            Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?]))
        })?;
        let mut series = HostSeries {
            host,
            at_s: Vec::new(),
            busy_percent: Vec::new(),
            iowait_percent: Vec::new(),
            available_mib: Vec::new(),
        };
        for pair in readings.windows(2) {
            let [
                (from_us, [idle_from, wait_from, _]),
                (at_us, [idle, wait, available]),
            ] = pair
            else {
                continue;
            };
            let span_us = at_us.saturating_sub(*from_us);
            let share = |from: &i64, until: &i64| {
                share_percent(until.saturating_sub(*from), span_us, cpus.max(1)).unwrap_or(0.0)
            };
            let (idle, wait) = (share(idle_from, idle), share(wait_from, wait));
            series.at_s.push(span.axis.seconds_of(*at_us));
            series
                .busy_percent
                .push(short((100.0 - idle - wait).max(0.0)));
            series.iowait_percent.push(short(wait));
            series
                .available_mib
                .push(short(real(*available) / 1_048_576.0));
        }
        if !series.at_s.is_empty() {
            all.push(series);
        }
    }
    Ok((all, left_out))
}

//! The daemons, disks and hosts of a run, and their usage over time: counters at a limited number of instants, each
//! read by one seek, so that a span of days costs no more than one of minutes.

use super::daemon::{self, FIRST_FIGURE, NamedDaemon, select_daemons};
use super::{FindingsError, reading};
use crate::rows::{all_rows, first_row};
use benchmesh_analysis::gaps::Gap;
use benchmesh_model::mesh::RunId;
use benchmesh_results::real;
use benchmesh_workloads::figures;
use rusqlite::Connection;

/// Minimum distance of two instants, and their maximum number.
const MIN_WINDOW_US: i64 = 5_000_000;
const MAX_WINDOWS: i64 = 1024;
const MAX_WINDOWS_WANTED: usize = 1024;
/// Maximum number of daemons and disks that are read.
const MAX_DAEMONS: i64 = 2000;
const MAX_DISKS: i64 = 2000;
/// Samples further apart than this many windows are a gap.
const MAX_APART: i64 = 3;
/// Usual usage is measured over this time before an outage.
const BEFORE_US: i64 = 60_000_000;
/// Minimum usual usage, in percent of a CPU, of a daemon that is considered in an outage; and the percentage of the
/// time from which a disk counts as busy.
const MIN_USUAL_PERCENT: f64 = 2.0;
const BUSY_PERCENT: f64 = 90.0;
const AROUND_PAUSE_US: i64 = 15_000_000;
/// Maximum number of daemons and disks mentioned for an outage.
const SHOWN: usize = 3;

const DAEMONS: &str = select_daemons!(
    "coalesce(d.born_us, d.first_seen_us), d.ended_us",
    "daemons AS d",
    "d.first_seen_us < ?3 AND d.last_seen_us > ?2
    ORDER BY d.name, h.name, d.instance, d.id LIMIT ?4"
);

const DISKS: &str = "
    SELECT k.id, k.name || ' on ' || h.name, k.name, k.host_id
    FROM (SELECT host_id, min(host) AS name FROM run_agents WHERE run_id = ?1 GROUP BY host_id) AS h
         JOIN disks AS k ON k.host_id = h.host_id
    WHERE k.stacked = 0 ORDER BY h.name, k.name LIMIT ?2";

const HOSTS: &str = "
    SELECT host_id, min(host) FROM run_agents WHERE run_id = ? GROUP BY host_id ORDER BY 2";

const PAUSES: &str = "
    SELECT coalesce((SELECT max(b.at_us) FROM events AS b WHERE b.run_id = e.run_id AND b.at_us < e.at_us
                     AND b.kind IN ('run-done', 'run-failed', 'run-stopped')), e.at_us), e.at_us
    FROM events AS e WHERE e.run_id = ? AND e.kind = 'run-resumed'";

/// The last sample before each of some instants: its instant and its figures.
macro_rules! counters {
    ($table:literal, $key:literal, $($figure:literal),+) => {
        concat!(
            "SELECT group_concat(coalesce((SELECT x.at_us", $(" || ' ' || coalesce(", $figure, ", 0)",)+
            " FROM ", $table, " AS x WHERE x.", $key, " = ?2 AND x.at_us <= p.value ORDER BY x.at_us DESC LIMIT 1), '-'), \
             char(10)) FROM json_each(?1) AS p"
        )
    };
}

/// CPU time.
const DAEMON_COUNTERS: &str = counters!(
    "daemon_samples",
    "daemon_id",
    "x.cpu_user_us + x.cpu_system_us"
);
/// Busy time, operations, their waiting time, bytes.
const DISK_COUNTERS: &str = counters!(
    "disk_samples",
    "disk_id",
    "x.busy_us",
    "x.reads + x.writes",
    "x.read_us + x.write_us",
    "x.read_bytes + x.write_bytes"
);
/// Idle time, total time, stolen time, memory pressure; then available memory, total memory, and swap.
const HOST_COUNTERS: &str = counters!(
    "host_samples",
    "host_id",
    "x.idle_us + x.iowait_us",
    "x.user_us + x.nice_us + x.system_us + x.idle_us + x.iowait_us + x.irq_us + x.softirq_us + x.steal_us",
    "x.steal_us",
    "x.memory_full_us",
    "x.memory_available_bytes",
    "x.memory_total_bytes",
    "x.swap_used_bytes"
);

/// The figures of a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample<const N: usize> {
    pub at_us: i64,
    pub figures: [i64; N],
}

/// The sample at each instant, if there is one.
pub(super) type Samples<const N: usize> = Vec<Option<Sample<N>>>;

/// A daemon and its samples over the run.
#[derive(Debug)]
pub(super) struct WatchedDaemon {
    pub daemon: NamedDaemon,
    pub born_us: i64,
    pub ended_us: Option<i64>,
    pub samples: Samples<1>,
}

#[derive(Debug)]
pub(super) struct Disk {
    pub id: i64,
    /// `sdb on node3`.
    pub label: String,
    /// `sdb`.
    pub name: String,
    pub host_id: i64,
    pub samples: Samples<4>,
}

#[derive(Debug)]
pub(super) struct Host {
    pub id: i64,
    pub name: String,
    pub samples: Samples<7>,
}

#[derive(Debug)]
pub(super) struct Mesh {
    /// From the first step's start to the last step's end.
    pub from_us: i64,
    pub until_us: i64,
    pub instants: Vec<i64>,
    /// Sorted by name.
    pub daemons: Vec<WatchedDaemon>,
    pub disks: Vec<Disk>,
    pub hosts: Vec<Host>,
    /// From each end of the run to its resumption: nothing was measured, and the hosts may have been changed
    /// arbitrarily.
    pauses: Vec<(i64, i64)>,
}

impl Mesh {
    pub fn load(
        connection: &Connection,
        run: RunId,
        (from_us, until_us): (i64, i64),
    ) -> Result<Self, FindingsError> {
        let instants = instants(from_us, until_us);
        let json = json(&instants);
        let parameters = [
            run.0.into(),
            from_us.into(),
            until_us.into(),
            MAX_DAEMONS.into(),
        ];
        let rows = daemon::load(connection, DAEMONS, &parameters, |row| {
            Ok((row.get(FIRST_FIGURE)?, row.get(FIRST_FIGURE + 1)?))
        })
        .map_err(reading("daemons"))?;
        let mut daemons = Vec::with_capacity(rows.len());
        for (daemon, (born_us, ended_us)) in rows {
            daemons.push(WatchedDaemon {
                samples: samples(connection, DAEMON_COUNTERS, &json, daemon.id)?,
                daemon,
                born_us,
                ended_us,
            });
        }
        let rows: Vec<(i64, String, String, i64)> =
            all_rows(connection, DISKS, &[run.0.into(), MAX_DISKS.into()])
                .map_err(reading("disks"))?;
        let mut disks = Vec::with_capacity(rows.len());
        for (id, label, name, host_id) in rows {
            disks.push(Disk {
                id,
                label,
                name,
                host_id,
                samples: samples(connection, DISK_COUNTERS, &json, id)?,
            });
        }
        let rows: Vec<(i64, String)> =
            all_rows(connection, HOSTS, &[run.0.into()]).map_err(reading("hosts"))?;
        let mut hosts = Vec::with_capacity(rows.len());
        for (id, name) in rows {
            hosts.push(Host {
                id,
                name,
                samples: samples(connection, HOST_COUNTERS, &json, id)?,
            });
        }
        let pauses = all_rows(connection, PAUSES, &[run.0.into()]).map_err(reading("events"))?;
        Ok(Self {
            from_us,
            until_us,
            instants,
            daemons,
            disks,
            hosts,
            pauses,
        })
    }

    /// Whether the run was paused all that time. Sampling may end a little later than a run, and begin a little
    /// later.
    pub fn was_paused(&self, from_us: i64, until_us: i64) -> bool {
        let within = |&(from, until): &(i64, i64)| {
            from - AROUND_PAUSE_US <= from_us && until_us <= until + AROUND_PAUSE_US
        };
        self.pauses.iter().any(within)
    }

    /// The beginning of a window, or the end of the run.
    pub fn instant(&self, window: usize) -> i64 {
        self.instants.get(window).copied().unwrap_or(self.until_us)
    }

    pub fn window_us(&self) -> i64 {
        match self.instants.as_slice() {
            [first, second, ..] => second - first,
            _ => MIN_WINDOW_US,
        }
    }

    /// The growth of a figure per microsecond in each window; `None` if samples are missing.
    pub fn rates<const N: usize>(&self, samples: &Samples<N>, figure: usize) -> Vec<Option<f64>> {
        samples
            .iter()
            .zip(samples.iter().skip(1))
            .map(|(one, other)| rate((*one)?, (*other)?, figure, MAX_APART * self.window_us()))
            .collect()
    }

    /// Activity of daemons and disks in an outage that differs from the minute before: `; meanwhile ...`, or empty.
    pub fn meanwhile(&self, connection: &Connection, gap: Gap) -> Result<String, FindingsError> {
        // From samples within the gap, because those at its edges include time outside of it.
        let instants = [gap.from_us - BEFORE_US, gap.from_us, gap.until_us];
        let json = json(&instants);
        let percent = |samples: &[Option<Sample<1>>]| match samples {
            [Some(before), Some(from), Some(until)] => {
                let of = |a, b| rate(a, b, 0, 2 * BEFORE_US + gap.length_us());
                Some((100.0 * of(*before, *from)?, 100.0 * of(*from, *until)?))
            }
            _ => None,
        };
        let mut used = Vec::new();
        for watched in &self.daemons {
            let found = samples(connection, DAEMON_COUNTERS, &json, watched.daemon.id)?;
            used.extend(percent(&found).map(|(usual, now)| (&watched.daemon, usual, now)));
        }
        let mut notes = Vec::new();
        for (daemon, usual, now) in &used {
            let peers = used
                .iter()
                .filter(|(other, _, _)| other.name == daemon.name && other.id != daemon.id);
            let peers_work = peers.clone().any(|(_, _, now)| *now >= 0.1);
            if *usual >= MIN_USUAL_PERCENT && *now <= 0.0 && peers_work {
                notes.push(format!(
                    "{} used no CPU (before: {} %)",
                    daemon.label,
                    figures::rate(*usual)
                ));
            } else if *now >= usual + 50.0 && *now >= 2.0 * usual {
                notes.push(format!(
                    "{} used {} % of a CPU (before: {} %)",
                    daemon.label,
                    figures::rate(*now),
                    figures::rate(*usual)
                ));
            }
        }
        for disk in &self.disks {
            let found: Samples<4> = samples(connection, DISK_COUNTERS, &json, disk.id)?;
            let busy = |one: &Option<Sample<4>>| {
                one.map(|one| Sample {
                    at_us: one.at_us,
                    figures: [one.figures[0]],
                })
            };
            let busy: Vec<Option<Sample<1>>> = found.iter().map(busy).collect();
            if let Some((usual, now)) = percent(&busy)
                && now >= BUSY_PERCENT
                && usual < 0.7 * now
            {
                notes.push(format!(
                    "{} was {} % busy (before: {} %)",
                    disk.label,
                    figures::rate(now.min(100.0)),
                    figures::rate(usual)
                ));
            }
        }
        if notes.is_empty() {
            return Ok(String::new());
        }
        let more = notes.len().saturating_sub(SHOWN);
        notes.truncate(SHOWN);
        let more = if more > 0 {
            format!(" and {more} more")
        } else {
            String::new()
        };
        Ok(format!("; meanwhile {}{more}", notes.join(", ")))
    }

    /// The daemon and the disk whose work in the first spans most exceeds that in the second ones of the same length,
    /// in at least four of five pairs: its label, and the difference in percent of a CPU or of the time.
    pub fn busiest(
        &self,
        connection: &Connection,
        spans: &[(Gap, Gap)],
    ) -> Result<Vec<(String, f64)>, FindingsError> {
        let instants: Vec<i64> = spans
            .iter()
            .flat_map(|(one, other)| [one.from_us, one.until_us, other.from_us, other.until_us])
            .collect();
        let json = json(&instants);
        let mut daemons: Vec<(String, f64)> = Vec::new();
        for watched in &self.daemons {
            let found: Samples<1> = samples(connection, DAEMON_COUNTERS, &json, watched.daemon.id)?;
            daemons.extend(excess(&found).map(|more| (watched.daemon.label.clone(), more)));
        }
        let mut disks: Vec<(String, f64)> = Vec::new();
        for disk in &self.disks {
            let found: Samples<4> = samples(connection, DISK_COUNTERS, &json, disk.id)?;
            disks.extend(excess(&found).map(|more| (disk.label.clone(), more)));
        }
        let most = |all: Vec<(String, f64)>| all.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Ok([most(daemons), most(disks)].into_iter().flatten().collect())
    }
}

/// The mean difference between a daemon's or a disk's work in the first and in the second spans, in percent.
fn excess<const N: usize>(samples: &[Option<Sample<N>>]) -> Option<f64> {
    const MIN_PERCENT: f64 = 10.0;
    const MIN_SHARE: f64 = 0.8;
    let pairs: Vec<f64> = samples
        .chunks_exact(4)
        .filter_map(|four| match four {
            [Some(a), Some(b), Some(c), Some(d)] => {
                Some(100.0 * (rate(*a, *b, 0, i64::MAX)? - rate(*c, *d, 0, i64::MAX)?))
            }
            _ => None,
        })
        .collect();
    let count = |all: usize| real(i64::try_from(all).unwrap_or(i64::MAX));
    let more = pairs.iter().filter(|more| **more > 0.0).count();
    let mean = pairs.iter().sum::<f64>() / count(pairs.len().max(1));
    let is_shown =
        pairs.len() >= 4 && mean >= MIN_PERCENT && count(more) >= MIN_SHARE * count(pairs.len());
    is_shown.then_some(mean)
}

/// `None` if the samples are the same or too far apart, or the counter was reset.
fn rate<const N: usize>(
    one: Sample<N>,
    other: Sample<N>,
    figure: usize,
    most_us: i64,
) -> Option<f64> {
    let span_us = other.at_us - one.at_us;
    let grown = other.figures.get(figure)? - one.figures.get(figure)?;
    (span_us > 0 && span_us <= most_us && grown >= 0).then(|| real(grown) / real(span_us))
}

/// The edges of the windows.
fn instants(from_us: i64, until_us: i64) -> Vec<i64> {
    let length_us = (until_us - from_us).max(1);
    let window_us = (length_us / MAX_WINDOWS).max(MIN_WINDOW_US);
    let all = (0..).map(|number| from_us + number * window_us);
    all.take_while(|at| *at <= until_us)
        .take(MAX_WINDOWS_WANTED + 1)
        .collect()
}

fn json(instants: &[i64]) -> String {
    serde_json::Value::from(instants).to_string()
}

fn samples<const N: usize>(
    connection: &Connection,
    sql: &'static str,
    instants: &str,
    id: i64,
) -> Result<Samples<N>, FindingsError> {
    let parameters = [instants.to_owned().into(), id.into()];
    let packed: Option<(Option<String>,)> =
        first_row(connection, sql, &parameters).map_err(reading("samples"))?;
    Ok(packed
        .and_then(|(text,)| text)
        .unwrap_or_default()
        .lines()
        .map(sample)
        .collect())
}

fn sample<const N: usize>(text: &str) -> Option<Sample<N>> {
    let mut numbers = text.split(' ').map(str::parse::<i64>);
    let at_us = numbers.next()?.ok()?;
    let mut figures = [0; N];
    for figure in &mut figures {
        *figure = numbers.next()?.ok()?;
    }
    Some(Sample { at_us, figures })
}

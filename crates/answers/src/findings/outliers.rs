//! Outliers among peers: daemons of one name by their CPU time and bytes, disks by the time per operation and bytes,
//! [`clients`] by their rate. Each figure is a matrix of entities and windows (the steps, parts of the run, or all of
//! it), which `analysis::outliers` judges.

mod clients;

use super::daemon::has_equals;
use super::mesh::{Disk, Mesh, WatchedDaemon};
use super::steps::Step;
use super::{FindingsError, finite, quoted, reading, span};
use crate::rows::all_rows;
use benchmesh_analysis::outliers::{Extent, MORE, Outlier, Rule, coarser, outliers};
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

const MIB: f64 = 1_048_576.0;
/// In percent of a CPU.
const CPU: Rule = Rule {
    difference: 20.0,
    min_median: 0.1,
    ..MORE
};
/// A daemon is reported as an outlier from the window on in which it was halfway to one.
const CPU_BEGIN: Rule = Rule {
    factor: 1.5,
    factor_of_two: 1.5,
    ..MORE
};
/// In MiB/s. A peer with a lower rate is assumed to serve something else: another pool, another class of
/// devices.
const BYTES: Rule = Rule {
    difference: 1.0,
    min_peer: 1.0 / 64.0,
    ..MORE
};
const WAIT_MS: Rule = Rule {
    difference: 2.0,
    min_median: 0.001,
    ..MORE
};
/// Minimum duration of a step for judging daemons.
const MIN_STEP_US: i64 = 30_000_000;
/// Number of windows of a step in which the beginning is searched.
const POINTS: usize = 60;
/// Minimum share of the run that a mean of bytes must cover.
const MIN_SHARE: f64 = 0.5;
/// Minimum rate of a judged disk, in operations per second.
const MIN_DISK_OPS: f64 = 20.0;

/// Usage of daemons in a step: CPU time and bytes, which may be unknown, the time, and whether it serves a target.
const USAGE: &str = "
    SELECT daemon_id, cpu_user_us + cpu_system_us, read_bytes + write_bytes, until_us - from_us,
           coalesce(serves_target, 0)
    FROM step_daemons WHERE step_id = ? AND until_us > from_us";

type UsageRow = (i64, Option<i64>, Option<i64>, i64, bool);

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = daemons(connection, run, steps, mesh)?;
    found.extend(waits(mesh));
    found.extend(disk_bytes(mesh));
    found.extend(clients::find(connection, run, steps)?);
    Ok(found)
}

/// A stretch of time takes at least a minute, six windows and a fiftieth of the whole time.
fn stretch(length_us: i64, window_us: i64) -> Extent {
    let min_us = (length_us / 50).max(60_000_000);
    let windows = (min_us + window_us - 1) / window_us.max(1);
    Extent::Stretch(usize::try_from(windows.max(6)).unwrap_or(usize::MAX))
}

/// A finding about an outlier; the caller adds what it is about. `clause`: the subject with its value, as a clause.
/// `unit`: that of the median, with a space before it.
pub(super) fn finding(
    subject: &str,
    figure: &str,
    outlier: &Outlier,
    (clause, unit): (String, &str),
    sql: String,
) -> Finding {
    let ratio = match outlier.ratio < 1.0 {
        true => format!("{} % of", figures::rate(100.0 * outlier.ratio)),
        false => format!("{} times", figures::rate(outlier.ratio)),
    };
    let (usual, peers) = (figures::rate(outlier.usual), outlier.peers);
    Finding {
        figure: Some(figure.to_owned()),
        size: finite(outlier.ratio),
        unit: Some("times".to_owned()),
        sql: Some(sql),
        ..Finding::new(
            Severity::Warning,
            FindingKind::Outlier,
            FindingVerdict::Found,
            subject,
            format!("{clause}, {ratio} the {usual}{unit} of its {peers} peers"),
        )
    }
}

/// `in 3 of 5 steps, most in records randread`.
fn in_steps(outlier: &Outlier, label: &str) -> String {
    match (outlier.differing, outlier.judged) {
        (_, 1) => format!("in {label}"),
        (differing, judged) => format!("in {differing} of {judged} steps, most in {label}"),
    }
}

/// What a daemon used in the steps of the run.
#[derive(Default)]
struct Usage {
    /// In percent of a CPU; `None` for a step in which it is not judged.
    cpu: Vec<Option<f64>>,
    /// Bytes and time of each step in which it served a target.
    served: Vec<(Option<i64>, i64)>,
}

impl Usage {
    fn served_us(&self) -> i64 {
        self.served.iter().map(|(_, us)| us).sum()
    }

    /// Over the run; `None` if it served no target, or the bytes of a step are unknown.
    fn mib_per_s(&self) -> Option<f64> {
        let bytes: Option<i64> = self.served.iter().map(|(bytes, _)| *bytes).sum();
        let bytes = bytes.filter(|_| !self.served.is_empty())?;
        Some(real(bytes) / MIB * 1e6 / real(self.served_us()))
    }
}

fn usage(connection: &Connection, steps: &[Step]) -> Result<BTreeMap<i64, Usage>, FindingsError> {
    let mut all: BTreeMap<i64, Usage> = BTreeMap::new();
    for (place, step) in steps.iter().enumerate() {
        let rows: Vec<UsageRow> =
            all_rows(connection, USAGE, &[step.id.into()]).map_err(reading("step_daemons"))?;
        for (daemon, cpu, bytes, us, serves_target) in rows {
            let own = all.entry(daemon).or_default();
            let is_judged = step.length_us() >= MIN_STEP_US && us * 2 >= step.length_us();
            own.cpu.resize(place, None);
            own.cpu.push(
                cpu.filter(|_| is_judged)
                    .map(|cpu| 100.0 * real(cpu) / real(us)),
            );
            if serves_target {
                own.served.push((bytes, us));
            }
        }
    }
    Ok(all)
}

fn daemons(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let usage = usage(connection, steps)?;
    let longest = real(usage.values().map(Usage::served_us).max().unwrap_or(0));
    let mut found = Vec::new();
    let by_name = |one: &WatchedDaemon, other: &WatchedDaemon| one.daemon.name == other.daemon.name;
    for peers in mesh.daemons.chunk_by(by_name) {
        if peers.iter().any(|one| !has_equals(&one.daemon.name)) {
            continue;
        }
        let of = |one: &WatchedDaemon| usage.get(&one.daemon.id);
        let by_step = peers.iter().map(|one| of(one).map(|own| own.cpu.clone()));
        let by_step: Vec<_> = by_step.map(Option::unwrap_or_default).collect();
        let by_window: Vec<_> = peers.iter().map(|one| cpu_percent(mesh, one)).collect();
        let mut known = Vec::new();
        for outlier in outliers(&by_step, &CPU, Extent::HalfOfWindows) {
            let places = (peers.get(outlier.entity), steps.get(outlier.windows.start));
            if let (Some(watched), Some(step)) = places {
                let from_us = began(mesh, step, &by_window, outlier.entity);
                found.push(cpu_of_steps(watched, step, &outlier, from_us));
                known.push(outlier.entity);
            }
        }
        let extent = stretch(mesh.until_us - mesh.from_us, mesh.window_us());
        for outlier in outliers(&by_window, &CPU, extent) {
            let watched = peers.get(outlier.entity);
            if let Some(watched) = watched.filter(|_| !known.contains(&outlier.entity)) {
                found.push(cpu_of_stretch(watched, mesh, &outlier));
            }
        }
        let is_long = |own: &&Usage| real(own.served_us()) >= MIN_SHARE * longest;
        let bytes = |one: &WatchedDaemon| vec![of(one).filter(is_long).and_then(Usage::mib_per_s)];
        let bytes: Vec<_> = peers.iter().map(bytes).collect();
        for outlier in outliers(&bytes, &BYTES, Extent::HalfOfWindows) {
            found.extend(
                peers
                    .get(outlier.entity)
                    .map(|one| bytes_of(run, one, &outlier)),
            );
        }
    }
    Ok(found)
}

/// The CPU time of a daemon in each window, in percent of a CPU.
fn cpu_percent(mesh: &Mesh, watched: &WatchedDaemon) -> Vec<Option<f64>> {
    let rates = mesh.rates(&watched.samples, 0).into_iter();
    rates.map(|rate| rate.map(|rate| 100.0 * rate)).collect()
}

/// The instant within a step from which a daemon was an outlier among those of its name.
fn began(mesh: &Mesh, step: &Step, by_window: &[Vec<Option<f64>>], daemon: usize) -> i64 {
    let first = mesh.instants.partition_point(|at| *at < step.from_us);
    let until = mesh.instants.partition_point(|at| *at <= step.until_us);
    let windows = first..until.saturating_sub(1).max(first);
    let count = windows.len();
    let of_step = by_window
        .iter()
        .map(|row| coarser(row.get(windows.clone()).unwrap_or_default(), POINTS));
    let of_step: Vec<_> = of_step.collect();
    let found = outliers(&of_step, &CPU_BEGIN, Extent::Stretch(1));
    let own = found.into_iter().find(|outlier| outlier.entity == daemon);
    own.map_or(step.from_us, |own| {
        mesh.instant(first + own.windows.start * count.div_ceil(POINTS))
    })
}

fn cpu_of_steps(watched: &WatchedDaemon, step: &Step, outlier: &Outlier, from_us: i64) -> Finding {
    let clause = format!(
        "used {} % of a CPU {} from {} on",
        figures::rate(outlier.value),
        in_steps(outlier, &step.label),
        figures::instant(from_us),
    );
    let sql = format!(
        "SELECT host, instance, cpu_percent, rss_last_mib, read_mib, written_mib FROM v_daemon_usage \
         WHERE step_id = {} AND name = {} ORDER BY cpu_percent DESC",
        step.id,
        quoted(&watched.daemon.name)
    );
    Finding {
        step_id: Some(step.id),
        from_us: Some(from_us),
        until_us: Some(step.until_us),
        ..of_daemon(watched, "cpu_percent", outlier, (clause, " %"), sql)
    }
}

fn cpu_of_stretch(watched: &WatchedDaemon, mesh: &Mesh, outlier: &Outlier) -> Finding {
    let (from_us, until_us) = instants(mesh, outlier);
    let clause = format!(
        "used {} % of a CPU {}",
        figures::rate(outlier.value),
        during(from_us, until_us)
    );
    let sql = format!(
        "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, 100.0 * (max(cpu_user_us + cpu_system_us) - \
         min(cpu_user_us + cpu_system_us)) / (max(at_us) - min(at_us)) AS cpu_percent FROM daemon_samples \
         WHERE daemon_id = {} AND at_us BETWEEN {from_us} AND {until_us} GROUP BY (at_us - {from_us}) / {}",
        watched.daemon.id,
        ((until_us - from_us) / 24).max(1)
    );
    Finding {
        from_us: Some(from_us),
        until_us: Some(until_us),
        ..of_daemon(watched, "cpu_percent", outlier, (clause, " %"), sql)
    }
}

fn bytes_of(run: RunId, watched: &WatchedDaemon, outlier: &Outlier) -> Finding {
    let clause = format!(
        "read and wrote {} MiB/s over the run",
        figures::rate(outlier.value)
    );
    let sql = format!(
        "SELECT host, instance, sum(read_mib) AS read_mib, sum(written_mib) AS written_mib FROM v_daemon_usage \
         WHERE run_id = {} AND name = {} GROUP BY daemon_id ORDER BY sum(read_mib) + sum(written_mib) DESC",
        run.0,
        quoted(&watched.daemon.name)
    );
    of_daemon(watched, "bytes_per_s", outlier, (clause, ""), sql)
}

fn of_daemon(
    watched: &WatchedDaemon,
    figure: &str,
    outlier: &Outlier,
    (clause, unit): (String, &str),
    sql: String,
) -> Finding {
    let label = &watched.daemon.label;
    Finding {
        host_id: Some(watched.daemon.host_id),
        daemon_id: Some(watched.daemon.id),
        ..finding(
            label,
            figure,
            outlier,
            (format!("{label} {clause}"), unit),
            sql,
        )
    }
}

/// `for 2h 05m from 2025-06-15T15:23:20Z on`.
fn during(from_us: i64, until_us: i64) -> String {
    let (lasted, from) = (span(until_us - from_us), figures::instant(from_us));
    format!("for {lasted} from {from} on")
}

fn instants(mesh: &Mesh, outlier: &Outlier) -> (i64, i64) {
    let windows = &outlier.windows;
    (mesh.instant(windows.start), mesh.instant(windows.end))
}

/// Disks with longer waits per operation than others with similar rates.
fn waits(mesh: &Mesh) -> Vec<Finding> {
    let figure = |disk: &Disk, figure| mesh.rates(&disk.samples, figure);
    let per_s = |rate: Option<f64>| rate.map(|rate| 1e6 * rate);
    let rates: Vec<Vec<Option<f64>>> = mesh
        .disks
        .iter()
        .map(|disk| figure(disk, 1).into_iter().map(per_s).collect())
        .collect();
    let usual = |at: usize| {
        let rates = rates
            .iter()
            .filter_map(|row| row.get(at).copied().flatten());
        let mut busy: Vec<f64> = rates.filter(|rate| *rate >= MIN_DISK_OPS).collect();
        busy.sort_by(f64::total_cmp);
        busy.get(busy.len() / 2).copied().unwrap_or(f64::INFINITY)
    };
    let usual: Vec<f64> = (0..mesh.instants.len()).map(usual).collect();
    let wait = |((waited, rate), usual): ((Option<f64>, &Option<f64>), &f64)| {
        let rate = rate.filter(|rate| *rate >= MIN_DISK_OPS && *rate >= 0.5 * usual)?;
        Some(1e3 * waited.unwrap_or(0.0) / rate)
    };
    let of_disk = |(disk, rates): (&Disk, &Vec<Option<f64>>)| {
        let windows = figure(disk, 2).into_iter().zip(rates).zip(&usual);
        windows.map(wait).collect()
    };
    let waits: Vec<Vec<Option<f64>>> = mesh.disks.iter().zip(&rates).map(of_disk).collect();
    let extent = stretch(mesh.until_us - mesh.from_us, mesh.window_us());
    let found = outliers(&waits, &WAIT_MS, extent).into_iter();
    found
        .filter_map(|outlier| {
            let disk = mesh.disks.get(outlier.entity)?;
            let (from_us, until_us) = instants(mesh, &outlier);
            let clause = format!(
                "an operation at disk {} took {} ms {}",
                disk.label,
                figures::rate(outlier.value),
                during(from_us, until_us)
            );
            let sql = format!(
                "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, (max(read_us + write_us) - \
                 min(read_us + write_us)) / 1e3 / (max(reads + writes) - min(reads + writes)) AS wait_ms \
                 FROM disk_samples WHERE disk_id = {} AND at_us BETWEEN {from_us} AND {until_us} \
                 GROUP BY (at_us - {from_us}) / {}",
                disk.id,
                ((until_us - from_us) / 24).max(1)
            );
            let subject = format!("disk {}", disk.label);
            Some(Finding {
                host_id: Some(disk.host_id),
                from_us: Some(from_us),
                until_us: Some(until_us),
                ..finding(&subject, "wait_ms", &outlier, (clause, " ms"), sql)
            })
        })
        .collect()
}

/// From the first to the last sample.
fn mib_per_s(mesh: &Mesh, disk: &Disk) -> Option<f64> {
    let mut known = disk.samples.iter().flatten();
    let first = known.next()?;
    let last = known.last()?;
    let [_, _, _, before] = first.figures;
    let [_, _, _, after] = last.figures;
    let time_us = last.at_us - first.at_us;
    let is_long = real(time_us) >= MIN_SHARE * real(mesh.until_us - mesh.from_us);
    (is_long && after >= before).then(|| real(after - before) / MIB * 1e6 / real(time_us))
}

/// Disks of one name on different hosts.
fn disk_bytes(mesh: &Mesh) -> Vec<Finding> {
    let mut by_name: BTreeMap<&str, Vec<&Disk>> = BTreeMap::new();
    for disk in &mesh.disks {
        by_name.entry(&disk.name).or_default().push(disk);
    }
    let mut found = Vec::new();
    for (name, peers) in by_name {
        let rates: Vec<_> = peers
            .iter()
            .map(|disk| vec![mib_per_s(mesh, disk)])
            .collect();
        for outlier in outliers(&rates, &BYTES, Extent::HalfOfWindows) {
            let Some(disk) = peers.get(outlier.entity) else {
                continue;
            };
            let rate = figures::rate(outlier.value);
            let clause = format!("disk {} moved {rate} MiB/s over the run", disk.label);
            let sql = format!(
                "SELECT h.name AS host, k.name AS disk, (max(x.read_bytes) - min(x.read_bytes)) / {MIB} AS read_mib, \
                 (max(x.write_bytes) - min(x.write_bytes)) / {MIB} AS written_mib FROM disks AS k \
                 JOIN hosts AS h ON h.id = k.host_id JOIN disk_samples AS x ON x.disk_id = k.id \
                 WHERE k.name = {} AND x.at_us BETWEEN {} AND {} GROUP BY k.id ORDER BY read_mib + written_mib DESC",
                quoted(name),
                mesh.from_us,
                mesh.until_us
            );
            let subject = format!("disk {}", disk.label);
            found.push(Finding {
                host_id: Some(disk.host_id),
                from_us: Some(mesh.from_us),
                until_us: Some(mesh.until_us),
                ..finding(&subject, "bytes_per_s", &outlier, (clause, ""), sql)
            });
        }
    }
    found
}

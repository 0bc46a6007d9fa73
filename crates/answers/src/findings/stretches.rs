//! Outliers in a part of the run: daemons by their CPU time, disks by the time per operation, clients by their rate.
//! Each is compared with its peers at the same time, so that a change of load has no effect.

use super::daemon::has_equals;
use super::mesh::Mesh;
use super::steps::{Step, Window};
use super::{FindingsError, POINTS, finite, reading, span};
use crate::rows::all_rows;
use benchmesh_analysis::equals::{LESS, MORE, Rule, Stretch, longest_stretch, unlike};
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Minimum length of an outlier's stretch: this time, this number of windows of the mesh's counters, and the run's
/// length divided by the third constant.
const MIN_TIME_US: i64 = 60_000_000;
const MIN_WINDOWS: usize = 6;
const MIN_TIME_SHARE: i64 = 50;
/// Minimum rate of a judged disk, in operations per second, and minimum relevant difference of the wait.
const MIN_DISK_OPS: f64 = 20.0;
const MIN_WAIT_MS: f64 = 2.0;
/// Minimum relevant difference to the peers, in percent of a CPU.
pub(super) const MIN_CPU_PERCENT: f64 = 20.0;
/// Minimum length of a step for judging a part of it.
const MIN_CLIENTS_US: i64 = 300_000_000;
/// Minimum relevant difference to the others, in operations per second.
const MIN_LESS: f64 = 5.0;

/// A row for each task: the sums of its operations in windows of ?4 us, as one text. A row for each window would take
/// longer than its sum.
const CLIENTS: &str = "
    SELECT coalesce(t.group_name, ''), t.agent_id, coalesce(r.name, a.name),
           (SELECT group_concat(coalesce((SELECT sum(i.ops) FROM op_intervals AS i
                                          WHERE i.task_id = t.id AND i.at_us >= p.value AND i.at_us < p.value + ?4
                                            AND i.ramp = 0), '-'), ' ') FROM json_each(?1) AS p)
    FROM tasks AS t JOIN agents AS a ON a.id = t.agent_id
         LEFT JOIN run_agents AS r ON r.run_id = ?3 AND r.agent_id = t.agent_id
    WHERE t.step_id = ?2 ORDER BY 1, 2";

/// The length of all windows together, and of one of them.
struct Time {
    length_us: i64,
    window_us: i64,
}

impl Time {
    fn of(mesh: &Mesh) -> Self {
        Self {
            length_us: mesh.until_us - mesh.from_us,
            window_us: mesh.window_us(),
        }
    }
}

/// The longest stretch in which each series is an outlier; `None` in `values` means that it cannot be judged.
fn stretches(
    values: &[Vec<Option<f64>>],
    least: f64,
    rule: Rule,
    time: &Time,
) -> Vec<(usize, usize, Stretch)> {
    let count = values.iter().map(Vec::len).max().unwrap_or(0);
    let mut pairs: Vec<Vec<Option<(f64, f64)>>> = vec![vec![None; count]; values.len()];
    let mut peers = 0;
    for at in 0..count {
        let known: Vec<(usize, f64)> = values
            .iter()
            .enumerate()
            .filter_map(|(place, series)| Some((place, series.get(at).copied().flatten()?)))
            .collect();
        let at_once: Vec<f64> = known.iter().map(|(_, value)| *value).collect();
        peers = peers.max(at_once.len().saturating_sub(1));
        for (number, (place, value)) in known.iter().enumerate() {
            let is_apart = |other: &f64| (other - value).abs() >= least;
            let usual = match at_once.iter().any(is_apart) {
                true => unlike(&at_once, number, rule).filter(is_apart),
                false => None,
            };
            if let Some(slot) = pairs.get_mut(*place).and_then(|own| own.get_mut(at)) {
                *slot = usual.map(|usual| (*value, usual));
            }
        }
    }
    let share_us = time.length_us / MIN_TIME_SHARE;
    let is_long = |stretch: &Stretch| {
        let windows = stretch.range.len();
        let length_us = i64::try_from(windows).unwrap_or(0) * time.window_us;
        windows >= MIN_WINDOWS && length_us >= MIN_TIME_US.max(share_us)
    };
    let found = pairs.iter().enumerate();
    found
        .filter_map(|(place, own)| Some((place, peers, longest_stretch(own).filter(is_long)?)))
        .collect()
}

/// Daemons that used more CPU time than those of the same name for a part of the run.
pub(super) fn daemons(mesh: &Mesh, known: &[i64]) -> Vec<Finding> {
    let mut found = Vec::new();
    for equals in mesh
        .daemons
        .chunk_by(|one, other| one.daemon.name == other.daemon.name)
        .filter(|equals| equals.iter().all(|one| has_equals(&one.daemon.name)))
    {
        let percent = |rate: Option<f64>| rate.map(|rate| 100.0 * rate);
        let values: Vec<Vec<Option<f64>>> = equals
            .iter()
            .map(|watched| {
                mesh.rates(&watched.samples, 0)
                    .into_iter()
                    .map(percent)
                    .collect()
            })
            .collect();
        for (place, peers, stretch) in stretches(&values, MIN_CPU_PERCENT, MORE, &Time::of(mesh)) {
            let Some(watched) = equals.get(place) else {
                continue;
            };
            if known.contains(&watched.daemon.id) {
                continue;
            }
            let (from_us, until_us) = (
                mesh.instant(stretch.range.start),
                mesh.instant(stretch.range.end),
            );
            let times = stretch.value / stretch.usual.max(0.1);
            let sentence = format!(
                "{} used {} % of a CPU for {} from {} on, {} times the {} % of its {peers} peers",
                watched.daemon.label,
                figures::rate(stretch.value),
                span(until_us - from_us),
                figures::instant(from_us),
                figures::rate(times),
                figures::rate(stretch.usual),
            );
            let step = ((until_us - from_us) / 24).max(1);
            found.push(Finding {
                figure: Some("cpu_percent".to_owned()),
                host_id: Some(watched.daemon.host_id),
                daemon_id: Some(watched.daemon.id),
                from_us: Some(from_us),
                until_us: Some(until_us),
                size: finite(times),
                unit: Some("times".to_owned()),
                sql: Some(format!(
                    "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, 100.0 * (max(cpu_user_us + cpu_system_us) - \
                     min(cpu_user_us + cpu_system_us)) / (max(at_us) - min(at_us)) AS cpu_percent FROM daemon_samples \
                     WHERE daemon_id = {} AND at_us BETWEEN {from_us} AND {until_us} GROUP BY (at_us - {from_us}) / {step}",
                    watched.daemon.id
                )),
                ..Finding::new(
                    Severity::Warning,
                    FindingKind::Outlier,
                    FindingVerdict::Found,
                    &watched.daemon.label,
                    sentence,
                )
            });
        }
    }
    found
}

/// Disks with longer waits per operation than others with similar rates.
pub(super) fn disks(mesh: &Mesh) -> Vec<Finding> {
    let rates: Vec<Vec<Option<f64>>> = mesh
        .disks
        .iter()
        .map(|disk| mesh.rates(&disk.samples, 1))
        .collect();
    let per_s = |place: usize, at: usize| Some(1e6 * rates.get(place)?.get(at).copied().flatten()?);
    let windows = mesh.instants.len().saturating_sub(1);
    let usual: Vec<f64> = (0..windows)
        .map(|at| {
            let mut busy: Vec<f64> = (0..rates.len())
                .filter_map(|place| per_s(place, at))
                .filter(|rate| *rate >= MIN_DISK_OPS)
                .collect();
            busy.sort_by(f64::total_cmp);
            busy.get(busy.len() / 2).copied().unwrap_or(f64::INFINITY)
        })
        .collect();
    let values: Vec<Vec<Option<f64>>> = mesh
        .disks
        .iter()
        .enumerate()
        .map(|(place, disk)| {
            let waits = mesh.rates(&disk.samples, 2).into_iter().enumerate();
            waits
                .map(|(at, waited)| {
                    let rate = per_s(place, at)?;
                    let does_as_much = rate >= MIN_DISK_OPS && rate >= 0.5 * usual.get(at)?;
                    does_as_much.then(|| 1e3 * waited.unwrap_or(0.0) / (rate / 1e6) / 1e6)
                })
                .collect()
        })
        .collect();
    let found = stretches(&values, MIN_WAIT_MS, MORE, &Time::of(mesh)).into_iter();
    found
        .filter_map(|(place, peers, stretch)| {
            let disk = mesh.disks.get(place)?;
            let (from_us, until_us) = (mesh.instant(stretch.range.start), mesh.instant(stretch.range.end));
            let times = stretch.value / stretch.usual.max(0.001);
            let sentence = format!(
                "an operation at disk {} took {} ms for {} from {} on, {} times the {} ms of {peers} others that did as much",
                disk.label,
                figures::rate(stretch.value),
                span(until_us - from_us),
                figures::instant(from_us),
                figures::rate(times),
                figures::rate(stretch.usual),
            );
            let step = ((until_us - from_us) / 24).max(1);
            Some(Finding {
                figure: Some("wait_ms".to_owned()),
                host_id: Some(disk.host_id),
                from_us: Some(from_us),
                until_us: Some(until_us),
                size: finite(times),
                unit: Some("times".to_owned()),
                sql: Some(format!(
                    "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, (max(read_us + write_us) - \
                     min(read_us + write_us)) / 1e3 / (max(reads + writes) - min(reads + writes)) AS wait_ms \
                     FROM disk_samples WHERE disk_id = {} AND at_us BETWEEN {from_us} AND {until_us} \
                     GROUP BY (at_us - {from_us}) / {step}",
                    disk.id
                )),
                ..Finding::new(
                    Severity::Warning,
                    FindingKind::Outlier,
                    FindingVerdict::Found,
                    &format!("disk {}", disk.label),
                    sentence,
                )
            })
        })
        .collect()
}

/// Clients that were slower than the others of their group for a part of a step.
pub(super) fn clients(
    connection: &Connection,
    run: RunId,
    step: &Step,
    known: &[i64],
) -> Result<Vec<Finding>, FindingsError> {
    if step.length_us() < MIN_CLIENTS_US {
        return Ok(Vec::new());
    }
    let windows = step.windows(POINTS);
    let Some(width_us) = windows.first().map(Window::length_us) else {
        return Ok(Vec::new());
    };
    let begins = serde_json::Value::from_iter(windows.iter().map(|window| window.from_us));
    let parameters = [
        begins.to_string().into(),
        step.id.into(),
        run.0.into(),
        width_us.into(),
    ];
    let rows: Vec<(String, i64, String, String)> =
        all_rows(connection, CLIENTS, &parameters).map_err(reading("op_intervals"))?;
    let time = Time {
        length_us: step.length_us(),
        window_us: step.length_us() / i64::try_from(windows.len().max(1)).unwrap_or(1),
    };
    let mut found = Vec::new();
    for of_group in rows.chunk_by(|one, other| one.0 == other.0) {
        let mut clients: BTreeMap<(i64, &str), Vec<Option<f64>>> = BTreeMap::new();
        for (_, agent, name, sums) in of_group {
            let own = clients
                .entry((*agent, name.as_str()))
                .or_insert_with(|| vec![None; windows.len()]);
            for (rate, sum) in own.iter_mut().zip(sums.split(' ')) {
                if let Ok(ops) = sum.parse() {
                    *rate = Some(rate.unwrap_or(0.0) + real(ops) * 1e6 / real(width_us));
                }
            }
        }
        let values: Vec<Vec<Option<f64>>> = clients.values().cloned().collect();
        let names: Vec<(i64, &str)> = clients.into_keys().collect();
        for (place, peers, stretch) in stretches(&values, MIN_LESS, LESS, &time) {
            let Some((agent, name)) = names.get(place).filter(|(id, _)| !known.contains(id)) else {
                continue;
            };
            let edge = |window: usize| windows.get(window).map(|window| window.from_us);
            let (from_us, until_us) = (
                edge(stretch.range.start).unwrap_or(step.from_us),
                edge(stretch.range.end).unwrap_or(step.until_us),
            );
            let share = stretch.value / stretch.usual;
            let group = of_group
                .first()
                .map(|row| row.0.clone())
                .unwrap_or_default();
            let sentence = format!(
                "client {name} did {} operations/s for {} from {} on in {}, {} % of the {} of its {peers} peers",
                figures::rate(stretch.value),
                span(until_us - from_us),
                figures::instant(from_us),
                step.label,
                figures::rate(100.0 * share),
                figures::rate(stretch.usual),
            );
            found.push(Finding {
                figure: Some("ops_per_s".to_owned()),
                step_id: Some(step.id),
                group_name: Some(group).filter(|group| !group.is_empty()),
                agent_id: Some(*agent),
                from_us: Some(from_us),
                until_us: Some(until_us),
                size: finite(share),
                unit: Some("times".to_owned()),
                sql: Some(format!(
                    "SELECT a.name, sum(i.ops) * 1e6 / ({until_us} - {from_us}) AS ops_per_s FROM tasks AS t \
                     JOIN agents AS a ON a.id = t.agent_id JOIN op_intervals AS i ON i.task_id = t.id \
                     AND i.at_us >= {from_us} AND i.at_us < {until_us} WHERE t.step_id = {} AND i.ramp = 0 \
                     GROUP BY t.agent_id ORDER BY ops_per_s",
                    step.id
                )),
                ..Finding::new(
                    Severity::Warning,
                    FindingKind::Outlier,
                    FindingVerdict::Found,
                    name,
                    sentence,
                )
            });
        }
    }
    Ok(found)
}

//! Targets that ran out of space or inodes, or nearly did, and those that will at their rate of growth.
//!
//! During a load of workload `fill`, a full target is intended, so those steps are excluded. Data that another load
//! writes and removes again do not count as growth. Therefore a load with several loops is compared with itself at
//! the same position of its step in other loops, and a load with few loops is only judged over its steps if it keeps
//! its data.

use super::hosts::{LEFT_SHARE, LEFT_SHARE_ERROR, MinDuration, Scarce, Subject};
use super::leaks::{MAX_STEP_WARMUP_US, MIN_WARMUP_US, SOON_H, US_PER_H, number_loads};
use super::mesh::Mesh;
use super::steps::{Step, Window, json, windows};
use super::{FindingsError, MIN_SPAN_US, POINTS, finite, reading, span};
use crate::rows::all_rows;
use benchmesh_analysis::growth::{Growth, Verdict, growths};
use benchmesh_analysis::slope::Point;
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use benchmesh_workloads::registry;
use rusqlite::Connection;
use std::collections::{BTreeMap, BTreeSet};

/// A sample is valid for two sampling periods.
const SAMPLE_LASTS_US: i64 = 20_000_000;
/// Minimum number of loops for comparing a load with itself in other loops.
const MIN_LOOPS: usize = 6;
/// Maximum number of positions of a step that are compared over its loops.
const MAX_PLACES: usize = 4;
/// A point is the mean of at most this time, which contains samples even where old ones are thinned.
const POINT_US: i64 = 60_000_000;
/// A target that will be full later than this is not mentioned.
const MAX_LEFT_H: f64 = 90.0 * 24.0;
/// The amount left at the end is the minimum over the last sixth of the points.
const LAST_PART: usize = 6;

/// A resource that may run out.
struct Filling {
    /// The column of `target_samples` with the amount left.
    column: &'static str,
    percent: &'static str,
    name: &'static str,
    /// How sentences describe a target with nothing, or little, left.
    ran_out: &'static str,
    nearly: &'static str,
    /// A larger amount left is not scarce, whatever its share. Less than a tenth of it may be an error.
    max_scarce: f64,
    /// A smaller amount left counts as nothing.
    min_usable: f64,
    /// Minimum relevant growth of the used amount over the run.
    min_growth: f64,
    is_bytes: bool,
}

/// In the order of the columns of [`USED`] and [`LOWEST`].
const FIGURES: [Filling; 2] = [
    Filling {
        column: "free_bytes",
        percent: "free_percent",
        name: "free space",
        ran_out: "ran out of space",
        nearly: "was nearly full",
        max_scarce: 107_374_182_400.0,
        min_usable: 1_048_576.0,
        min_growth: 16_777_216.0,
        is_bytes: true,
    },
    Filling {
        column: "free_files",
        percent: "free_files_percent",
        name: "number of free inodes",
        ran_out: "ran out of inodes",
        nearly: "was nearly out of inodes",
        max_scarce: 1e6,
        min_usable: 1.0,
        min_growth: 1000.0,
        is_bytes: false,
    },
];

impl Filling {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "to be shown: not below 0, and rounded"
    )]
    fn amount(&self, value: f64) -> String {
        match self.is_bytes {
            true => figures::bytes(value.max(0.0) as u64),
            false => figures::rate(value.max(0.0)),
        }
    }
}

const TARGETS: &str = "
    SELECT t.id, t.path, t.nonce, t.device, t.agent_id, a.host_id, a.host,
           (SELECT min(r.target) FROM run_targets AS r
            WHERE r.run_id = ?1 AND r.agent_id = t.agent_id AND r.path = t.path),
           count(*), max(x.size_bytes)
    FROM targets AS t JOIN run_agents AS a ON a.run_id = t.run_id AND a.agent_id = t.agent_id
         JOIN target_samples AS x ON x.target_id = t.id AND x.at_us BETWEEN ?2 AND ?3
    WHERE t.run_id = ?1 GROUP BY t.id ORDER BY t.id";

/// The minimum left in each window, in percent and absolute, for some targets in some spans.
const LOWEST: &str = "
    SELECT (x.at_us - ?3) / ?4, min(100.0 * x.free_bytes / nullif(x.size_bytes, 0)),
           min(100.0 * x.free_files / nullif(x.files, 0)), min(x.free_bytes), min(x.free_files)
    FROM json_each(?2) AS p CROSS JOIN json_each(?1) AS t
         CROSS JOIN target_samples AS x
             ON x.target_id = t.value AND x.at_us >= p.value ->> 0 AND x.at_us < p.value ->> 1
    GROUP BY 1";

const USED: &str = "
    SELECT p.key, avg(x.size_bytes - x.free_bytes), avg(x.files - x.free_files), avg(x.free_bytes), avg(x.free_files)
    FROM json_each(?1) AS p CROSS JOIN json_each(?2) AS t
         CROSS JOIN target_samples AS x
             ON x.target_id = t.value AND x.at_us >= p.value ->> 0 AND x.at_us < p.value ->> 1
    GROUP BY p.key ORDER BY p.key";

type TargetRow = (
    i64,
    String,
    String,
    Option<String>,
    i64,
    i64,
    String,
    Option<String>,
    i64,
    i64,
);
/// A window, and the minimum left in it of each figure: in percent, and absolute.
type LowestRow = (i64, Option<f64>, Option<f64>, Option<i64>, Option<i64>);
/// The index of a window, the used amount of each figure, and the amounts left.
type UsedRow = (i64, Option<f64>, Option<f64>, Option<f64>, Option<f64>);

/// A target as one agent sees it.
#[derive(Clone, Debug)]
struct AgentTarget {
    id: i64,
    path: String,
    nonce: String,
    device: Option<String>,
    agent_id: i64,
    host_id: i64,
    host: String,
    /// The name in the plan.
    name: Option<String>,
    samples: i64,
    size_bytes: i64,
}

impl From<TargetRow> for AgentTarget {
    fn from(row: TargetRow) -> Self {
        let (id, path, nonce, device, agent_id, host_id, host, name, samples, size_bytes) = row;
        Self {
            id,
            path,
            nonce,
            device,
            agent_id,
            host_id,
            host,
            name,
            samples,
            size_bytes,
        }
    }
}

impl AgentTarget {
    /// Whether both share the same free space. Directories with quotas of their own are on one file system, but
    /// differ in size.
    fn shares(&self, other: &Self) -> bool {
        let is_one_file_system = self.device.is_some()
            && (self.host_id, &self.device, self.size_bytes)
                == (other.host_id, &other.device, other.size_bytes);
        self.nonce == other.nonce || is_one_file_system
    }
}

/// A target that several agents may share. The description is that of the agent with the most samples.
#[derive(Debug)]
struct Target {
    /// Ids of all its agents' targets, because each agent samples only while it has a task there.
    ids: Vec<i64>,
    agent_id: i64,
    /// `None` if several hosts share it.
    host_id: Option<i64>,
    /// `cephfs`, `local on node1`
    name: String,
    /// `target cephfs (/mnt/cephfs)`
    label: String,
    size_bytes: i64,
}

impl Target {
    fn of(group: &[AgentTarget]) -> Option<Self> {
        let most = group
            .iter()
            .max_by_key(|one| (one.samples, std::cmp::Reverse(one.id)))?;
        let hosts: BTreeSet<i64> = group.iter().map(|one| one.host_id).collect();
        let names: BTreeSet<&str> = group
            .iter()
            .map(|one| one.name.as_deref().unwrap_or(&one.path))
            .collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        let (host_id, on) = match hosts.len() {
            1 => (Some(most.host_id), format!(" on {}", most.host)),
            _ => (None, String::new()),
        };
        Some(Self {
            ids: group.iter().map(|one| one.id).collect(),
            agent_id: most.agent_id,
            host_id,
            name: format!("{names}{on}"),
            label: format!("target {names} ({}){on}", most.path),
            size_bytes: most.size_bytes,
        })
    }

    fn ids_json(&self) -> String {
        serde_json::Value::from(self.ids.as_slice()).to_string()
    }

    /// The SQL condition for its samples.
    fn condition(&self) -> String {
        let ids: Vec<String> = self.ids.iter().map(i64::to_string).collect();
        format!("target_id IN ({})", ids.join(", "))
    }
}

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let targets = load(connection, run, mesh)?;
    let mut found = Vec::new();
    let spans = json(&without_fills(steps, mesh));
    for target in &targets {
        found.extend(ran_out(connection, target, &spans, mesh)?);
    }
    found.extend(filling(connection, &targets, steps)?);
    Ok(found)
}

/// The sampled targets of a run, each once.
fn load(connection: &Connection, run: RunId, mesh: &Mesh) -> Result<Vec<Target>, FindingsError> {
    let rows: Vec<TargetRow> = all_rows(
        connection,
        TARGETS,
        &[run.0.into(), mesh.from_us.into(), mesh.until_us.into()],
    )
    .map_err(reading("targets"))?;
    let groups = shared(rows.into_iter().map(AgentTarget::from));
    Ok(groups.iter().filter_map(|one| Target::of(one)).collect())
}

/// The run without steps that fill a target on purpose. Each excluded span reaches from the end of the step before to
/// the beginning of the step after: a target is also sampled during preparation, and may be full until the last
/// client has ended.
fn without_fills(steps: &[Step], mesh: &Mesh) -> Vec<Window> {
    let mut spans = Vec::new();
    let mut from_us = mesh.from_us;
    let mut ended_us = mesh.from_us;
    let mut fills = false;
    for step in steps {
        if step.is_fill && !fills {
            spans.push(Window {
                from_us,
                until_us: ended_us,
            });
        } else if fills && !step.is_fill {
            from_us = step.from_us;
        }
        fills = step.is_fill;
        ended_us = ended_us.max(step.until_us);
    }
    if !fills {
        spans.push(Window {
            from_us,
            until_us: mesh.until_us,
        });
    }
    spans.retain(|span| span.from_us < span.until_us);
    spans
}

/// Groups the targets that are the same one.
fn shared(all: impl Iterator<Item = AgentTarget>) -> Vec<Vec<AgentTarget>> {
    let mut groups: Vec<Vec<AgentTarget>> = Vec::new();
    for new in all {
        let is_same = |group: &Vec<AgentTarget>| group.iter().any(|one| one.shares(&new));
        let (same, mut others): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_same);
        others.push(same.into_iter().flatten().chain([new]).collect());
        groups = others;
    }
    groups.sort_by_key(|group| group.iter().map(|one| one.id).min());
    groups
}

/// Whether the target ran out of space or inodes, or nearly did.
fn ran_out(
    connection: &Connection,
    target: &Target,
    spans: &str,
    mesh: &Mesh,
) -> Result<Vec<Finding>, FindingsError> {
    let rows: Vec<LowestRow> = all_rows(
        connection,
        LOWEST,
        &[
            target.ids_json().into(),
            spans.to_owned().into(),
            mesh.from_us.into(),
            mesh.window_us().into(),
        ],
    )
    .map_err(reading("target_samples"))?;
    let subject = Subject {
        name: &target.name,
        label: &target.label,
        host_id: target.host_id,
        agent_id: Some(target.agent_id),
        samples: ("target_samples", target.condition()),
    };
    let found = FIGURES.iter().enumerate().filter_map(|(place, figure)| {
        let mut windows = vec![None; mesh.instants.len()];
        let mut least = f64::INFINITY;
        for (window, bytes_percent, files_percent, bytes, files) in &rows {
            let percent = [*bytes_percent, *files_percent].get(place).copied();
            let left = [*bytes, *files].get(place).copied();
            let (Some(percent), Some(left)) = (percent.flatten(), left.flatten()) else {
                continue;
            };
            least = least.min(real(left));
            let window = usize::try_from(*window).ok();
            if let Some(window) = window.and_then(|window| windows.get_mut(window)) {
                let is_scarce = percent < 100.0 * LEFT_SHARE && real(left) < figure.max_scarce;
                *window = Some((is_scarce, percent));
            }
        }
        hold(&mut windows, mesh.window_us());
        let severity = |percent: f64| {
            let is_error = percent < 100.0 * LEFT_SHARE_ERROR && least < 0.1 * figure.max_scarce;
            if is_error {
                Severity::Error
            } else {
                Severity::Warning
            }
        };
        let text = |percent: f64| {
            let what = match least < figure.min_usable {
                true => figure.ran_out,
                false => figure.nearly,
            };
            let of = match figure.is_bytes {
                true => format!(" of {}", figure.amount(real(target.size_bytes))),
                false => String::new(),
            };
            let (left, percent) = (figure.amount(least), figures::rate(percent));
            format!("{what}: {left} ({percent} %{of}) was free")
        };
        let scarce = Scarce {
            figure: figure.percent,
            unit: "%",
            windows,
            severity: &severity,
            most: false,
            min_duration: MinDuration::None,
            sql: figure.column,
            text: &text,
        };
        scarce.finding(mesh, &subject)
    });
    Ok(found.collect())
}

/// Fills windows without a sample with the previous value, for up to [`SAMPLE_LASTS_US`].
fn hold(windows: &mut [Option<(bool, f64)>], window_us: i64) {
    let mut last = None;
    for window in windows {
        match window {
            Some(value) => last = Some((*value, SAMPLE_LASTS_US)),
            None => {
                let left_us = |(value, us): ((bool, f64), i64)| (value, us - window_us);
                last = last.map(left_us).filter(|(_, left_us)| *left_us >= 0);
                *window = last.map(|(value, _)| value);
            }
        }
    }
}

/// The points at which the used amounts are comparable.
#[derive(Debug, Default)]
struct Schedule {
    /// In order of time, each with its stratum.
    windows: Vec<(Window, usize)>,
}

impl Schedule {
    fn begin_us(&self) -> i64 {
        self.windows.first().map_or(0, |(window, _)| window.from_us)
    }

    fn end_us(&self) -> i64 {
        let ends = self.windows.iter().map(|(window, _)| window.until_us);
        ends.max().unwrap_or(0)
    }
}

fn schedule(steps: &[Step]) -> Schedule {
    let mut schedule = Schedule::default();
    let (Some(first), Some(until_us)) =
        (steps.first(), steps.iter().map(|step| step.until_us).max())
    else {
        return schedule;
    };
    // The same warm-up as for leaks.
    let warm_us = first.from_us + ((until_us - first.from_us) / 10).max(MIN_WARMUP_US);
    let mut loads: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
    for step in steps.iter().filter(|step| !step.is_fill) {
        loads.entry(&step.load).or_default().push(step);
    }
    let begin = |step: &Step| step.from_us + (step.length_us() / 10).min(MAX_STEP_WARMUP_US);
    let mut next_stratum = 0;
    for steps in loads.values() {
        // Only complete steps, because the positions within a partial step differ.
        let whole: Vec<&Step> = steps
            .iter()
            .copied()
            .filter(|step| step.from_us >= warm_us && step.has_ended)
            .collect();
        if whole.len() >= MIN_LOOPS {
            let places = (POINTS / whole.len()).clamp(1, MAX_PLACES);
            for step in whole.iter().step_by(whole.len().div_ceil(POINTS)) {
                let own = windows(begin(step), step.until_us, places, POINT_US);
                let strata = next_stratum..;
                schedule.windows.extend(own.into_iter().zip(strata));
            }
            next_stratum += places;
            continue;
        }
        let spans: Vec<(i64, i64)> = steps
            .iter()
            .filter(|step| keeps_its_data(step))
            .map(|step| (begin(step).max(warm_us), step.until_us))
            .filter(|(from_us, until_us)| from_us < until_us)
            .collect();
        for (from_us, until_us) in &spans {
            let own = windows(*from_us, *until_us, POINTS / spans.len().max(1), POINT_US);
            let of_load = own.into_iter().map(|window| (window, next_stratum));
            schedule.windows.extend(of_load);
        }
        next_stratum += 1;
    }
    schedule.windows.sort_by_key(|(window, _)| window.from_us);
    schedule
}

fn keeps_its_data(step: &Step) -> bool {
    let mode = registry::find(&step.workload).and_then(|it| it.mode(&step.mode).ok());
    mode.is_some_and(|mode| mode.keeps_its_data())
}

/// The targets that will be full at their rate of growth.
fn filling(
    connection: &Connection,
    targets: &[Target],
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    let schedule = schedule(steps);
    if schedule.end_us() - schedule.begin_us() < MIN_SPAN_US {
        return Ok(Vec::new());
    }
    let windows: Vec<Window> = schedule.windows.iter().map(|(window, _)| *window).collect();
    let windows = json(&windows);
    let mut subjects = Vec::new();
    let mut series = Vec::new();
    for target in targets {
        let rows: Vec<UsedRow> = all_rows(
            connection,
            USED,
            &[windows.clone().into(), target.ids_json().into()],
        )
        .map_err(reading("target_samples"))?;
        let mut points: [Vec<Point>; 2] = Default::default();
        let mut left: [Vec<f64>; 2] = Default::default();
        for (key, bytes, files, free_bytes, free_files) in rows {
            let key = usize::try_from(key).unwrap_or(usize::MAX);
            let Some((window, stratum)) = schedule.windows.get(key) else {
                continue;
            };
            let values = [(bytes, free_bytes), (files, free_files)];
            for ((points, left), (used, free)) in points.iter_mut().zip(&mut left).zip(values) {
                points.extend(used.map(|value| Point {
                    at: real(window.from_us - schedule.begin_us()) / US_PER_H,
                    value,
                    stratum: *stratum,
                }));
                left.extend(free);
            }
        }
        for ((figure, mut points), left) in FIGURES.iter().zip(points).zip(left) {
            number_loads(&mut points);
            let last = left.len() - left.len() / LAST_PART.max(1);
            let left = left.get(last..).unwrap_or_default().iter();
            subjects.push((target, figure, left.copied().fold(f64::INFINITY, f64::min)));
            series.push((points, figure.min_growth));
        }
    }
    let judged = growths(&series);
    let found = subjects.into_iter().zip(judged);
    let found = found.filter_map(|((target, figure, left), growth)| {
        let growth = growth.filter(|growth| growth.verdict == Verdict::Leaks)?;
        fills_up(target, figure, left, &growth, &schedule)
    });
    Ok(found.collect())
}

/// `None` if it will be full too late to be relevant.
fn fills_up(
    target: &Target,
    figure: &Filling,
    left: f64,
    growth: &Growth,
    schedule: &Schedule,
) -> Option<Finding> {
    let (from_us, until_us) = (schedule.begin_us(), schedule.end_us());
    let hours_left = left / growth.slope;
    if hours_left.is_nan() || hours_left >= MAX_LEFT_H {
        return None;
    }
    let full_us = until_us.saturating_add(micros(hours_left));
    let all = match figure.is_bytes {
        true => format!(" of {}", figure.amount(real(target.size_bytes))),
        false => String::new(),
    };
    let sentence = format!(
        "{} of {} falls by {} an hour (95 % interval {} to {}): {}{all} left after {}; full at {} at this pace",
        figure.name,
        target.label,
        figure.amount(growth.slope),
        figure.amount(growth.low),
        figure.amount(growth.high),
        figure.amount(left),
        span(until_us - from_us),
        figures::instant(full_us),
    );
    let severity = match hours_left < SOON_H {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let (column, condition) = (figure.column, target.condition());
    let step = ((until_us - from_us) / 24).max(1);
    Some(Finding {
        figure: Some(column.to_owned()),
        host_id: target.host_id,
        agent_id: Some(target.agent_id),
        from_us: Some(from_us),
        until_us: Some(until_us),
        size: finite(growth.slope),
        unit: Some(if figure.is_bytes { "bytes/h" } else { "1/h" }.to_owned()),
        low: finite(growth.low),
        high: finite(growth.high),
        p: finite(growth.p),
        sql: Some(format!(
            "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, min({column}) AS least, max({column}) AS most \
             FROM target_samples WHERE {condition} AND at_us BETWEEN {from_us} AND {until_us} \
             GROUP BY (at_us - {from_us}) / {step}"
        )),
        ..Finding::new(
            severity,
            FindingKind::Host,
            FindingVerdict::Found,
            &target.name,
            sentence,
        )
    })
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "some months at most; and `as` saturates"
)]
fn micros(hours: f64) -> i64 {
    (hours * US_PER_H) as i64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]

    use super::*;

    fn of_agent(
        id: i64,
        host_id: i64,
        nonce: &str,
        device: Option<&str>,
        size_bytes: i64,
    ) -> AgentTarget {
        AgentTarget {
            id,
            path: format!("/mnt/{id}"),
            nonce: nonce.to_owned(),
            device: device.map(str::to_owned),
            agent_id: id,
            host_id,
            host: format!("node{host_id}"),
            name: Some("t".to_owned()),
            samples: id,
            size_bytes,
        }
    }

    #[test]
    fn one_target_of_many_agents_is_one() {
        let all = [
            // Shared by two hosts, and by another target of the first one.
            of_agent(1, 1, "a", Some("0:50"), 100),
            of_agent(2, 2, "a", Some("0:61"), 100),
            of_agent(3, 1, "b", Some("0:50"), 100),
            // A directory with its own quota; the same device number on another host; pools.
            of_agent(4, 1, "c", Some("0:50"), 10),
            of_agent(5, 2, "d", Some("0:50"), 100),
            of_agent(6, 1, "e", None, 100),
            of_agent(7, 1, "f", None, 100),
        ];
        let groups = shared(all.into_iter());
        let ids: Vec<Vec<i64>> = groups
            .iter()
            .map(|group| group.iter().map(|one| one.id).collect())
            .collect();
        assert_eq!(ids, [vec![1, 2, 3], vec![4], vec![5], vec![6], vec![7]]);
        let of_all = Target::of(&groups[0]).unwrap();
        assert_eq!((of_all.ids, of_all.host_id), (vec![1, 2, 3], None));
        assert_eq!(of_all.label, "target t (/mnt/3)");
        let own = Target::of(&groups[1]).unwrap();
        assert_eq!((own.host_id, own.name.as_str()), (Some(1), "t on node1"));
    }

    fn step(load: &str, mode: &str, from_s: i64, length_s: i64) -> Step {
        Step {
            id: from_s,
            label: load.to_owned(),
            workload: "io".to_owned(),
            mode: mode.to_owned(),
            load: load.to_owned(),
            is_fill: false,
            from_us: from_s * 1_000_000,
            until_us: (from_s + length_s) * 1_000_000,
            has_ended: true,
            period_us: 1_000_000,
        }
    }

    #[test]
    fn loops_are_compared_place_by_place_and_a_single_step_if_it_keeps_its_data() {
        let strata = |steps: &[Step]| -> BTreeMap<usize, usize> {
            let mut count = BTreeMap::new();
            for (_, stratum) in schedule(steps).windows {
                *count.entry(stratum).or_default() += 1;
            }
            count
        };
        assert_eq!(strata(&[step("a", "write", 0, 7200)]), BTreeMap::new());
        assert_eq!(
            strata(&[step("a", "randwrite", 0, 7200)]),
            BTreeMap::from([(0, 128)])
        );
        let grows = Step {
            workload: "files".to_owned(),
            ..step("a", "append", 0, 7200)
        };
        assert_eq!(strata(&[grows]), BTreeMap::new());
        let loops: Vec<Step> = (0..10)
            .flat_map(|number| {
                let at = number * 1000;
                [
                    step("a", "write", at, 400),
                    step("b", "read", at + 500, 400),
                ]
            })
            .collect();
        // The first loop of each load begins within the warm-up.
        let nine: BTreeMap<usize, usize> = (0..8).map(|stratum| (stratum, 9)).collect();
        assert_eq!(strata(&loops), nine);
    }
}

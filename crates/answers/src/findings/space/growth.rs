//! Targets that will be full, or out of inodes, at their rate of growth.
//!
//! Data that another load writes and removes again do not count as growth. Therefore a load with several loops is
//! compared with itself at the same position of its step in other loops, and a load with few loops is only judged over
//! its steps if it keeps its data.

use super::resources::{RESOURCES, Resource};
use super::targets::SampledTarget;
use crate::findings::leaks::{
    ERROR_BEFORE_H, MAX_STEP_WARMUP_US, MIN_WARMUP_US, US_PER_H, number_loads,
};
use crate::findings::steps::{Step, Window, json, windows};
use crate::findings::{FindingsError, MIN_SPAN_US, POINTS, finite, reading, span};
use crate::rows::all_rows;
use benchmesh_analysis::growth::{Growth, Verdict, growths};
use benchmesh_analysis::slope::Point;
use benchmesh_model::mesh::{FindingVerdict, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use benchmesh_workloads::registry;
use rusqlite::Connection;
use std::collections::BTreeMap;

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

/// The means of the used amounts and of those left, in each span, over some targets.
const USED: &str = "
    SELECT p.key, avg(x.size_bytes - x.free_bytes), avg(x.files - x.free_files), avg(x.free_bytes), avg(x.free_files)
    FROM json_each(?1) AS p CROSS JOIN json_each(?2) AS t
         CROSS JOIN target_samples AS x
             ON x.target_id = t.value AND x.at_us >= p.value ->> 0 AND x.at_us < p.value ->> 1
    GROUP BY p.key ORDER BY p.key";

/// The index of a window, the used amount of each figure, and the amounts left.
type UsedRow = (i64, Option<f64>, Option<f64>, Option<f64>, Option<f64>);

/// The targets that will be full at their rate of growth.
pub(super) fn find(
    connection: &Connection,
    targets: &[SampledTarget],
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
        for ((resource, mut points), left) in RESOURCES.iter().zip(points).zip(left) {
            number_loads(&mut points);
            let last = left.len() - left.len() / LAST_PART.max(1);
            let left = left.get(last..).unwrap_or_default().iter();
            subjects.push((
                target,
                resource,
                left.copied().fold(f64::INFINITY, f64::min),
            ));
            series.push((points, resource.min_growth));
        }
    }
    let judged = growths(&series);
    let found = subjects.into_iter().zip(judged);
    let found = found.filter_map(|((target, resource, left), growth)| {
        let growth = growth.filter(|growth| growth.verdict == Verdict::Leaks)?;
        fills_up(target, resource, left, &growth, &schedule)
    });
    Ok(found.collect())
}

/// `None` if it will be full too late to be relevant.
fn fills_up(
    target: &SampledTarget,
    resource: &Resource,
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
    let sentence = format!(
        "{} of {} falls by {} an hour (95 % interval {} to {}): {}{} left after {}; full at {} at this pace",
        resource.name,
        target.label,
        resource.amount(growth.slope),
        resource.amount(growth.low),
        resource.amount(growth.high),
        resource.amount(left),
        resource.of_size(target.size_bytes),
        span(until_us - from_us),
        figures::instant(full_us),
    );
    let severity = match hours_left < ERROR_BEFORE_H {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let (column, condition) = (resource.column, target.condition());
    let step = ((until_us - from_us) / 24).max(1);
    Some(Finding {
        figure: Some(column.to_owned()),
        host_id: target.host_id,
        agent_id: Some(target.agent_id),
        from_us: Some(from_us),
        until_us: Some(until_us),
        size: finite(growth.slope),
        unit: Some(if resource.is_bytes { "bytes/h" } else { "1/h" }.to_owned()),
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
    let mode = registry::find(&step.workload).and_then(|workload| workload.mode(&step.mode).ok());
    mode.is_some_and(|mode| mode.keeps_its_data())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(load: &str, mode: &str, from_s: i64, length_s: i64) -> Step {
        Step {
            id: from_s,
            label: load.to_owned(),
            workload: "io".to_owned(),
            mode: mode.to_owned(),
            load: load.to_owned(),
            is_fill: false,
            pauses: false,
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

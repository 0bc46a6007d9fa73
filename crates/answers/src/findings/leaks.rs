//! Leaks: memory, threads and open files of each daemon over the steps of a run.

use super::daemon::{self, FIRST_FIGURE, NamedDaemon, select_daemons};
use super::steps::{Step, Window, json, windows};
use super::{FindingsError, MIN_SPAN_US, POINTS, POINTS_WANTED, finite, reading, some_of, span};
use crate::rows::{all_rows, first_row};
use benchmesh_analysis::growth::{Growth, Verdict, growths};
use benchmesh_analysis::slope::Point;
use benchmesh_model::mesh::{FindingVerdict, RunId, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;
use std::collections::BTreeMap;

/// Minimum warm-up of the run, and maximum warm-up of each step.
pub(super) const MIN_WARMUP_US: i64 = 60_000_000;
pub(super) const MAX_STEP_WARMUP_US: i64 = 10_000_000;
/// Maximum number of judged daemons.
const MAX_DAEMONS: i64 = 2000;
/// If a resource runs out within this time, the finding is an error.
pub(super) const ERROR_BEFORE_H: f64 = 7.0 * 24.0;
pub(super) const US_PER_H: f64 = 3.6e9;

/// One figure that may leak.
struct Leaking {
    /// The column of `daemon_samples`.
    column: &'static str,
    name: &'static str,
    /// Minimum relevant growth over the run.
    least: f64,
    is_bytes: bool,
}

/// In the order of the columns of [`SAMPLES`].
const FIGURES: [Leaking; 3] = [
    Leaking {
        column: "rss_bytes",
        name: "memory",
        least: 1_048_576.0,
        is_bytes: true,
    },
    Leaking {
        column: "threads",
        name: "threads",
        least: 3.0,
        is_bytes: false,
    },
    Leaking {
        column: "fds",
        name: "open files",
        least: 5.0,
        is_bytes: false,
    },
];

impl Leaking {
    fn amount(&self, value: f64) -> String {
        match self.is_bytes {
            true => format!("{} MiB", figures::rate(value / 1_048_576.0)),
            false => figures::rate(value),
        }
    }
}

const DAEMONS: &str = select_daemons!(
    "coalesce(d.born_us, d.first_seen_us)",
    "daemons AS d",
    "min(coalesce(d.ended_us, ?3), ?3) - max(d.first_seen_us, ?2) >= ?4
    ORDER BY h.name, d.name, d.instance, d.id LIMIT ?5"
);

const SAMPLES: &str = "
    SELECT p.key, avg(x.rss_bytes), avg(x.threads), avg(x.fds)
    FROM json_each(?1) AS p
         CROSS JOIN daemon_samples AS x ON x.daemon_id = ?2 AND x.at_us >= p.value ->> 0 AND x.at_us < p.value ->> 1
    GROUP BY p.key ORDER BY p.key";

const MEMORY: &str =
    "SELECT memory_available_bytes FROM host_samples WHERE host_id = ? AND at_us <= ?
    ORDER BY at_us DESC LIMIT 1";

/// A daemon, and the time of its birth or of its first sample.
type Candidate = (NamedDaemon, i64);
/// The index of a window, and the three figures.
type SampleRow = (i64, Option<f64>, Option<f64>, Option<f64>);

/// The windows of the points, and the load of each.
struct Schedule {
    windows: Vec<Window>,
    loads: Vec<usize>,
    from_us: i64,
    until_us: i64,
    /// Total duration of the judged load.
    judged_us: i64,
    warmup_us: i64,
}

fn schedule(steps: &[Step]) -> Option<Schedule> {
    let run_from = steps.first()?.from_us;
    let run_until = steps.iter().map(|step| step.until_us).max()?;
    let warmup_us = ((run_until - run_from) / 10).max(MIN_WARMUP_US);
    let spans: Vec<(&Step, i64)> = steps
        .iter()
        .filter_map(|step| {
            let own = (step.length_us() / 10).min(MAX_STEP_WARMUP_US);
            let from = (step.from_us + own).max(run_from + warmup_us);
            (from < step.until_us).then_some((step, from))
        })
        .collect();
    let judged_us: i64 = spans.iter().map(|(step, from)| step.until_us - from).sum();
    let mut schedule = Schedule {
        windows: Vec::new(),
        loads: Vec::new(),
        from_us: spans.first().map_or(run_from, |(_, from)| *from),
        until_us: run_until,
        judged_us,
        warmup_us,
    };
    let mut loads: BTreeMap<&str, usize> = BTreeMap::new();
    for (step, from) in spans.iter().step_by(spans.len().div_ceil(POINTS).max(1)) {
        let next = loads.len();
        let load = *loads.entry(&step.load).or_insert(next);
        let share = (step.until_us - from) * POINTS_WANTED / judged_us.max(1);
        let points = usize::try_from(share).unwrap_or(1).max(1);
        let own = windows(*from, step.until_us, points, step.period_us);
        schedule.loads.extend(own.iter().map(|_| load));
        schedule.windows.extend(own);
    }
    Some(schedule)
}

/// The indexes of the daemon and the figure of a series.
type Subject = (usize, usize);

pub(super) fn find(
    connection: &Connection,
    run: RunId,
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    let not_judged = |why: &str| {
        let sentence = format!("memory, threads and open files of daemons were not judged: {why}");
        Ok(vec![Finding::new(
            Severity::Info,
            FindingKind::Leak,
            FindingVerdict::NotJudged,
            "daemons",
            sentence,
        )])
    };
    let Some(schedule) = schedule(steps) else {
        return not_judged("no step has been measured");
    };
    if schedule.judged_us < MIN_SPAN_US {
        let why = format!(
            "the run is too short: {} s of load after the warm-up, and the judgement needs {} s",
            schedule.judged_us.max(0) / 1_000_000,
            MIN_SPAN_US / 1_000_000
        );
        return not_judged(&why);
    }
    let parameters = [
        run.0.into(),
        schedule.from_us.into(),
        schedule.until_us.into(),
        MIN_SPAN_US.into(),
        MAX_DAEMONS.into(),
    ];
    let daemons: Vec<Candidate> = daemon::load(connection, DAEMONS, &parameters, |row| {
        row.get(FIRST_FIGURE)
    })
    .map_err(reading("daemons"))?;
    let (subjects, series) = series(connection, &daemons, &schedule)?;
    let judged = growths(&series);
    let judged: Vec<(Subject, Growth)> = subjects
        .into_iter()
        .zip(judged)
        .filter_map(|(subject, growth)| Some((subject, growth?)))
        .collect();
    if judged.is_empty() {
        return not_judged("no daemon was sampled for long enough");
    }
    let mut found = Vec::new();
    for (place, figure) in FIGURES.iter().enumerate() {
        let of_figure: Vec<(&NamedDaemon, &Growth)> = judged
            .iter()
            .filter(|((_, figure), _)| *figure == place)
            .filter_map(|((daemon, _), growth)| Some((&daemons.get(*daemon)?.0, growth)))
            .collect();
        for (daemon, growth) in &of_figure {
            if growth.verdict == Verdict::Leaks {
                let left = match figure.is_bytes {
                    true => memory_left(connection, daemon.host_id, schedule.until_us)?,
                    false => None,
                };
                found.push(leak(figure, daemon, growth, &schedule, left));
            }
        }
        found.extend(summary(figure, &of_figure, &schedule));
    }
    Ok(found)
}

/// The points of a figure, and its minimum relevant growth.
type LeakSeries = (Vec<Point>, f64);

/// The series of all daemons and figures.
fn series(
    connection: &Connection,
    daemons: &[Candidate],
    schedule: &Schedule,
) -> Result<(Vec<Subject>, Vec<LeakSeries>), FindingsError> {
    let windows = json(&schedule.windows);
    let mut subjects = Vec::new();
    let mut series = Vec::new();
    for (place, (daemon, born_us)) in daemons.iter().enumerate() {
        let rows: Vec<SampleRow> = all_rows(
            connection,
            SAMPLES,
            &[windows.clone().into(), daemon.id.into()],
        )
        .map_err(reading("daemon_samples"))?;
        let mut points: [Vec<Point>; 3] = Default::default();
        // A daemon that was born during the run has its own warm-up.
        let born_late = *born_us > schedule.from_us - schedule.warmup_us;
        let from_us = born_us + if born_late { schedule.warmup_us } else { 0 };
        for (key, rss, threads, fds) in rows {
            let key = usize::try_from(key).unwrap_or(usize::MAX);
            let (Some(window), Some(load)) = (schedule.windows.get(key), schedule.loads.get(key))
            else {
                continue;
            };
            if window.from_us < from_us {
                continue;
            }
            for (points, value) in points.iter_mut().zip([rss, threads, fds]) {
                points.extend(value.map(|value| Point {
                    at: real(window.from_us - schedule.from_us) / US_PER_H,
                    value,
                    stratum: *load,
                }));
            }
        }
        for (figure, (mut points, facts)) in points.into_iter().zip(&FIGURES).enumerate() {
            number_loads(&mut points);
            subjects.push((place, figure));
            series.push((points, facts.least));
        }
    }
    Ok((subjects, series))
}

/// Numbers the loads of a series from 0, in the order of their first appearance.
pub(super) fn number_loads(points: &mut [Point]) {
    let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
    for point in points {
        let next = numbers.len();
        point.stratum = *numbers.entry(point.stratum).or_insert(next);
    }
}

fn memory_left(
    connection: &Connection,
    host: i64,
    at_us: i64,
) -> Result<Option<f64>, FindingsError> {
    let left: Option<(i64,)> = first_row(connection, MEMORY, &[host.into(), at_us.into()])
        .map_err(reading("host_samples"))?;
    Ok(left.map(|(bytes,)| real(bytes)))
}

fn leak(
    figure: &Leaking,
    daemon: &NamedDaemon,
    growth: &Growth,
    schedule: &Schedule,
    left: Option<f64>,
) -> Finding {
    let NamedDaemon {
        id,
        label,
        host_id,
        host,
        ..
    } = daemon;
    let percent = 100.0 * growth.slope / growth.first.max(1.0);
    let mut sentence = format!(
        "{} of {label} leaks: {} more per hour ({} %; 95 % interval {} to {}), from {} to {} in {}",
        figure.name,
        figure.amount(growth.slope),
        figures::rate(percent),
        figure.amount(growth.low),
        figure.amount(growth.high),
        figure.amount(growth.first),
        figure.amount(growth.last),
        span(schedule.until_us - schedule.from_us),
    );
    let hours_left = left.map(|left| left / growth.slope);
    if let Some(hours) = hours_left.filter(|hours| *hours < 24.0 * 365.0) {
        let left = match hours < 48.0 {
            true => format!("{} hours", figures::rate(hours)),
            false => format!("{} days", figures::rate(hours / 24.0)),
        };
        sentence.push_str(&format!(
            "; at this rate the memory of {host} is used up {left} later"
        ));
    }
    let severity = match hours_left.is_some_and(|hours| hours < ERROR_BEFORE_H) {
        true => Severity::Error,
        false => Severity::Warning,
    };
    let (from, until) = (schedule.from_us, schedule.until_us);
    let column = figure.column;
    let step = ((until - from) / 24).max(1);
    Finding {
        figure: Some(column.to_owned()),
        host_id: Some(*host_id),
        daemon_id: Some(*id),
        from_us: Some(from),
        until_us: Some(until),
        size: finite(growth.slope),
        unit: Some(if figure.is_bytes { "bytes/h" } else { "1/h" }.to_owned()),
        low: finite(growth.low),
        high: finite(growth.high),
        p: finite(growth.p),
        sql: Some(format!(
            "SELECT datetime(min(at_us) / 1000000, 'unixepoch') AS at, avg({column}) AS {column} FROM daemon_samples \
             WHERE daemon_id = {id} AND at_us BETWEEN {from} AND {until} GROUP BY (at_us - {from}) / {step}"
        )),
        ..Finding::new(
            severity,
            FindingKind::Leak,
            FindingVerdict::Found,
            label,
            sentence,
        )
    }
}

/// The numbers of daemons without a leak and of undecided ones. `None` if all leak, or the figure was not sampled.
fn summary(
    figure: &Leaking,
    judged: &[(&NamedDaemon, &Growth)],
    schedule: &Schedule,
) -> Option<Finding> {
    let steady = judged
        .iter()
        .filter(|(_, growth)| growth.verdict == Verdict::Steady)
        .count();
    let unsure: Vec<String> = judged
        .iter()
        .filter(|(_, growth)| growth.verdict == Verdict::Unsure)
        .map(|(daemon, growth)| match finite(growth.high) {
            Some(high) => format!(
                "{} (at most {} per hour)",
                daemon.label,
                figure.amount(high)
            ),
            None => daemon.label.clone(),
        })
        .collect();
    let over = span(schedule.judged_us);
    let daemons = |count: usize| figures::plural(count, "daemon");
    let (verdict, sentence) = match (steady, unsure.len()) {
        (0, 0) => return None,
        (steady, 0) => (
            FindingVerdict::Steady,
            format!(
                "{}: steady for {} over {over} of load",
                figure.name,
                daemons(steady)
            ),
        ),
        (steady, count) => (
            FindingVerdict::Unsure,
            format!(
                "{}: steady for {} over {over} of load, unsure for {}: {}",
                figure.name,
                daemons(steady),
                daemons(count),
                some_of(&unsure)
            ),
        ),
    };
    let summary = Finding::new(
        Severity::Info,
        FindingKind::Leak,
        verdict,
        "daemons",
        sentence,
    );
    Some(Finding {
        figure: Some(figure.column.to_owned()),
        from_us: Some(schedule.from_us),
        until_us: Some(schedule.until_us),
        ..summary
    })
}

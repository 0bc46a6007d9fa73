//! Drift: rate and p99 of each operation over a step.

use super::steps::{Step, json, windows};
use super::{FindingsError, MIN_SPAN_US, POINTS, finite, quoted, reading, span};
use crate::figures;
use crate::model::{FindingVerdict, Severity};
use crate::results::{Finding, FindingKind, real};
use benchmesh_analysis::correct::holm;
use benchmesh_analysis::slope::{Point, Slope, slope};
use benchmesh_workloads::op::Op;
use sqlx::SqliteConnection;
use std::collections::BTreeMap;
use tokio::task::spawn_blocking;

/// The probability of a false drift among all operations of the run.
const ALPHA: f64 = 0.01;
const INTERVAL: f64 = 0.05;
/// Maximum length of a step's start, which is excluded from every series.
const MAX_START_US: i64 = 10_000_000;

/// One figure that may drift.
#[derive(Debug)]
struct Drifting {
    name: &'static str,
    figure: &'static str,
    unit: &'static str,
    /// Minimum relevant change over the step.
    least: f64,
    /// Maximum change of a steady operation.
    steady: f64,
    more_is_worse: bool,
}

const RATE: Drifting = Drifting {
    name: "rate",
    figure: "ops_per_s",
    unit: "ops/s",
    least: 0.02,
    steady: 0.05,
    more_is_worse: false,
};
const P99: Drifting = Drifting {
    name: "p99",
    figure: "p99_ms",
    unit: "ms",
    least: 0.1,
    steady: 0.2,
    more_is_worse: true,
};

const POINTS_OF: &str = "
    SELECT p.key, coalesce(i.group_name, ''), i.op, sum(i.ops) * 1e6 / sum(i.span_us), avg(i.p99_ns) / 1e6
    FROM json_each(?1) AS p
         CROSS JOIN step_intervals AS i ON i.step_id = ?2 AND i.at_us >= p.value ->> 0 AND i.at_us < p.value ->> 1
    WHERE i.ramp = 0
    GROUP BY p.key, i.group_name, i.op ORDER BY p.key";

/// One figure of one operation of a step: its natural logarithm over time in hours.
#[derive(Debug)]
struct Drift<'s> {
    step: &'s Step,
    group: String,
    op: String,
    facts: &'static Drifting,
    points: Vec<Point>,
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    steps: &[Step],
) -> Result<Vec<Finding>, FindingsError> {
    let mut series = Vec::new();
    for step in steps.iter().filter(|step| step.length_us() >= MIN_SPAN_US) {
        series.extend(read(connection, step).await?);
    }
    let mut found = Vec::new();
    let longest = steps.iter().map(Step::length_us).max().unwrap_or(0);
    if longest < MIN_SPAN_US {
        let sentence = format!(
            "drift of rates and p99 was not judged: too short: the longest step took {} s, and it takes {} s",
            longest / 1_000_000,
            MIN_SPAN_US / 1_000_000
        );
        found.push(info(FindingVerdict::NotJudged, sentence));
        return Ok(found);
    }
    let points: Vec<Vec<Point>> = series.iter().map(|drift| drift.points.clone()).collect();
    let slopes =
        spawn_blocking(move || points.iter().map(|one| slope(one)).collect::<Vec<_>>()).await?;
    let judged: Vec<(&Drift<'_>, Slope)> = series
        .iter()
        .zip(slopes)
        .filter_map(|(drift, slope)| Some((drift, slope?)))
        .collect();
    let values: Vec<f64> = judged.iter().map(|(_, slope)| slope.p).collect();
    let (mut steady, mut unsure) = (0, 0);
    for ((drift, slope), corrected) in judged.iter().zip(holm(&values, ALPHA)) {
        match drift.judged(slope, corrected.p) {
            Judged::Drifts(finding) => found.push(*finding),
            Judged::Steady => steady += 1,
            Judged::Unsure => unsure += 1,
        }
    }
    let mut rest = Vec::new();
    if steady > 0 {
        rest.push(format!("{steady} steady"));
    }
    if unsure > 0 {
        rest.push(format!("{unsure} unsure"));
    }
    if !rest.is_empty() {
        let verdict = match unsure {
            0 => FindingVerdict::Steady,
            _ => FindingVerdict::Unsure,
        };
        let sentence = format!(
            "rates and p99 of operations in steps of {} s or more: {}",
            MIN_SPAN_US / 1_000_000,
            rest.join(", ")
        );
        found.push(info(verdict, sentence));
    }
    Ok(found)
}

fn info(verdict: FindingVerdict, sentence: String) -> Finding {
    Finding::new(
        Severity::Info,
        FindingKind::Drift,
        verdict,
        "operations",
        sentence,
    )
}

type PointRow = (i64, String, String, Option<f64>, Option<f64>);

async fn read<'s>(
    connection: &mut SqliteConnection,
    step: &'s Step,
) -> Result<Vec<Drift<'s>>, FindingsError> {
    let start = (step.length_us() / 10).min(MAX_START_US);
    let windows = windows(step.from_us + start, step.until_us, POINTS, step.period_us);
    let rows: Vec<PointRow> = sqlx::query_as(POINTS_OF)
        .bind(json(&windows))
        .bind(step.id)
        .fetch_all(connection)
        .await
        .map_err(reading("step_intervals"))?;
    let mut series: BTreeMap<(String, String), [Vec<Point>; 2]> = BTreeMap::new();
    for (key, group, op, rate, p99) in rows {
        let window = usize::try_from(key).ok().and_then(|key| windows.get(key));
        let Some(window) = window.filter(|_| !Op::parse(&op).is_some_and(Op::is_observed)) else {
            continue;
        };
        let at = real(window.from_us - step.from_us) / 3.6e9;
        let both = series.entry((group, op)).or_default();
        for (points, value) in both.iter_mut().zip([rate, p99]) {
            let value = value.filter(|value| *value > 0.0).map(f64::ln);
            points.extend(value.map(|value| Point {
                at,
                value,
                stratum: 0,
            }));
        }
    }
    let series = series.into_iter().flat_map(|((group, op), points)| {
        points
            .into_iter()
            .zip([&RATE, &P99])
            .map(move |(points, facts)| Drift {
                step,
                group: group.clone(),
                op: op.clone(),
                facts,
                points,
            })
    });
    Ok(series.collect())
}

enum Judged {
    Drifts(Box<Finding>),
    Steady,
    Unsure,
}

impl Drift<'_> {
    fn judged(&self, slope: &Slope, p: f64) -> Judged {
        let hours = match (self.points.first(), self.points.last()) {
            (Some(first), Some(last)) => last.at - first.at,
            _ => return Judged::Unsure,
        };
        let change = |slope: f64| (slope * hours).exp_m1();
        let (low, high) = slope.interval(INTERVAL);
        let (low, size, high) = (change(low), change(slope.slope), change(high));
        let (first, last) = self.tenths();
        let tenths = last / first - 1.0;
        let matters = size.abs() >= self.facts.least && tenths.abs() >= self.facts.least / 2.0;
        if p < ALPHA && matters && tenths * size > 0.0 {
            return Judged::Drifts(Box::new(self.finding([low, size, high], p, (first, last))));
        }
        match low > -self.facts.steady && high < self.facts.steady {
            true => Judged::Steady,
            false => Judged::Unsure,
        }
    }

    /// The figure in the first tenth and in the last, by its geometric mean.
    fn tenths(&self) -> (f64, f64) {
        let tenth = self.points.len().div_ceil(10);
        let mean = |points: &mut dyn Iterator<Item = &Point>| {
            let (sum, count) = points.fold((0.0, 0.0), |(sum, count), point| {
                (sum + point.value, count + 1.0)
            });
            (sum / count).exp()
        };
        (
            mean(&mut self.points.iter().take(tenth)),
            mean(&mut self.points.iter().rev().take(tenth)),
        )
    }

    fn finding(&self, [low, size, high]: [f64; 3], p: f64, (first, last): (f64, f64)) -> Finding {
        let Self { step, facts, .. } = self;
        let is_worse = (size > 0.0) == facts.more_is_worse;
        let verb = if size > 0.0 { "rises" } else { "falls" };
        let percent = |change: f64| figures::rate(100.0 * change);
        let level = |value: f64| match facts.more_is_worse {
            true => figures::millis(value),
            false => figures::rate(value),
        };
        // The interval in the direction of the change.
        let (least, most) = match size > 0.0 {
            true => (low, high),
            false => (-high, -low),
        };
        let subject = match self.group.as_str() {
            "" => format!("{} of {}", self.op, step.label),
            group => format!("{} of {group} in {}", self.op, step.label),
        };
        let sentence = format!(
            "the {} of {subject} {verb} by {} % over {} (95 % interval {} to {} %): {} {} in the first tenth, {} in the \
             last",
            facts.name,
            percent(size.abs()),
            span(step.length_us()),
            percent(least),
            percent(most),
            level(first),
            facts.unit,
            level(last),
        );
        let (id, from, until) = (step.id, step.from_us, step.until_us);
        let length = (until - from).max(1);
        Finding {
            figure: Some(facts.figure.to_owned()),
            step_id: Some(id),
            group_name: Some(self.group.clone()).filter(|group| !group.is_empty()),
            op: Some(self.op.clone()),
            from_us: Some(from),
            until_us: Some(until),
            size: finite(100.0 * size),
            unit: Some("%".to_owned()),
            low: finite(100.0 * low),
            high: finite(100.0 * high),
            p: finite(p),
            sql: Some(format!(
                "SELECT (at_us - {from}) * 10 / {length} AS tenth, sum(ops) * 1e6 / sum(span_us) AS ops_per_s, \
                 avg(p99_ns) / 1e6 AS p99_ms FROM step_intervals WHERE step_id = {id} AND op = {} \
                 AND coalesce(group_name, '') = {} AND ramp = 0 AND at_us >= {from} AND at_us < {until} GROUP BY tenth",
                quoted(&self.op),
                quoted(&self.group)
            )),
            ..Finding::new(
                if is_worse {
                    Severity::Warning
                } else {
                    Severity::Info
                },
                FindingKind::Drift,
                FindingVerdict::Found,
                &subject,
                sentence,
            )
        }
    }
}

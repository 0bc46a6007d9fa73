//! Periodic disturbances: seconds that are slower at regular intervals, and the daemon and the disk that are active
//! then.

use super::mesh::Mesh;
use super::seconds::{OpTimeline, TimelineSecond};
use super::steps::Step;
use super::{FindingsError, finite};
use benchmesh_analysis::gaps::{Gap, MIN_RATE};
use benchmesh_analysis::period::{Period, period};
use benchmesh_model::mesh::{FindingVerdict, Severity};
use benchmesh_results::{Finding, FindingKind, real};
use benchmesh_workloads::figures;
use rusqlite::Connection;

/// The probability of a false finding in a series.
const LEVEL: f64 = 1e-3;
/// Minimum number of seconds of a judged step.
const MIN_SECONDS: usize = 180;
/// Minimum loss of rate, and minimum growth of the p99, in a disturbance.
const MIN_LOSS: f64 = 0.1;
const MIN_GROWTH: f64 = 0.5;
/// Maximum number of disturbances for which daemons and disks are read.
const MAX_EXAMINED: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeriodFigure {
    Rate,
    P99,
}

pub(super) fn find(
    connection: &Connection,
    step: &Step,
    totals: &[OpTimeline],
    mesh: Option<&Mesh>,
) -> Result<Vec<Finding>, FindingsError> {
    let mut found = Vec::new();
    for line in totals {
        for figure in [PeriodFigure::Rate, PeriodFigure::P99] {
            let Some(values) = values(line, figure, step.period_us) else {
                continue;
            };
            let Some(period) = period(&values, LEVEL) else {
                continue;
            };
            let least = match figure {
                PeriodFigure::Rate => MIN_LOSS,
                PeriodFigure::P99 => MIN_GROWTH.ln_1p(),
            };
            if period.size < least {
                continue;
            }
            let begin_us = line
                .seconds
                .first()
                .map_or(step.from_us, |second| second.at_us);
            let disturbances: Vec<Gap> = period
                .places
                .iter()
                .map(|place| gap(begin_us, step.period_us, *place, period.width))
                .collect();
            let with = match mesh {
                Some(mesh) => goes_with(connection, mesh, &disturbances, &period, step)?,
                None => String::new(),
            };
            found.push(finding(step, line, figure, &period, &disturbances, &with));
            // The other figure would show the same disturbance.
            break;
        }
    }
    Ok(found)
}

/// Equally spaced values; higher means slower. `None` if there are too few, or the load is too slow.
fn values(line: &OpTimeline, figure: PeriodFigure, period_us: i64) -> Option<Vec<f64>> {
    let (first, last) = (line.seconds.first()?, line.seconds.last()?);
    let length = usize::try_from((last.at_us - first.at_us) / period_us + 1).ok()?;
    if length < MIN_SECONDS || length > 2 * line.seconds.len() {
        return None;
    }
    // A partly merged step has rows of several widths; all are combined to the largest width.
    let mut rows: Vec<Option<TimelineSecond>> = vec![None; length];
    for second in &line.seconds {
        let place = usize::try_from((second.at_us - first.at_us) / period_us).ok()?;
        match rows.get_mut(place)? {
            Some(row) => {
                row.span_us += second.span_us;
                row.ops += second.ops;
                row.p99_ns = row.p99_ns.max(second.p99_ns);
            }
            row => *row = Some(*second),
        }
    }
    let of = |second: &TimelineSecond| match figure {
        PeriodFigure::Rate => Some(real(second.ops) * 1e6 / real(second.span_us.max(1))),
        PeriodFigure::P99 => second.p99_ns.map(real),
    };
    let mut sorted: Vec<f64> = rows.iter().flatten().filter_map(of).collect();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted.get(sorted.len() / 2).copied()?;
    let enough = match figure {
        PeriodFigure::Rate => MIN_RATE,
        PeriodFigure::P99 => 1.0,
    };
    if usual < enough {
        return None;
    }
    let value = |row: &TimelineSecond| match (figure, of(row)) {
        (_, None) => 0.0,
        (PeriodFigure::Rate, Some(value)) => (1.0 - value / usual).max(-1.0),
        (PeriodFigure::P99, Some(value)) => (value / usual).ln().clamp(-2.0, 3.0),
    };
    Some(
        rows.iter()
            .map(|row| row.as_ref().map_or(0.0, value))
            .collect(),
    )
}

fn gap(begin_us: i64, period_us: i64, place: usize, width: usize) -> Gap {
    let whole = |count: usize| i64::try_from(count).unwrap_or(0) * period_us;
    Gap {
        from_us: begin_us + whole(place),
        until_us: begin_us + whole(place + width),
    }
}

/// The daemon and disk that work more in the disturbances than between them.
fn goes_with(
    connection: &Connection,
    mesh: &Mesh,
    disturbances: &[Gap],
    period: &Period,
    step: &Step,
) -> Result<String, FindingsError> {
    let length_us = period.period * real(step.period_us);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "half of a period in microseconds"
    )]
    let half_us = (length_us / 2.0) as i64;
    let spread = disturbances.len().div_ceil(MAX_EXAMINED).max(1);
    let spans: Vec<(Gap, Gap)> = disturbances
        .iter()
        .step_by(spread)
        .map(|one| {
            // Samples are a second apart.
            let one = Gap {
                from_us: one.from_us,
                until_us: one.until_us + step.period_us,
            };
            let between = Gap {
                from_us: one.from_us + half_us,
                until_us: one.until_us + half_us,
            };
            (one, between)
        })
        .filter(|(_, between)| between.until_us < mesh.until_us)
        .collect();
    let with = mesh.busiest(connection, &spans)?;
    if with.is_empty() {
        return Ok(String::new());
    }
    let with: Vec<String> = with
        .into_iter()
        .map(|(label, more)| format!("{label} is {} % busier", figures::rate(more)))
        .collect();
    Ok(format!("; in them {}", with.join(" and ")))
}

fn finding(
    step: &Step,
    line: &OpTimeline,
    figure: PeriodFigure,
    period: &Period,
    disturbances: &[Gap],
    with: &str,
) -> Finding {
    let subject = match line.group.as_str() {
        "" => step.label.clone(),
        group => format!("{group} in {}", step.label),
    };
    let every_s = period.period * real(step.period_us) / 1e6;
    let (size, what) = match figure {
        PeriodFigure::Rate => (
            100.0 * period.size,
            format!("its rate is {} % lower", figures::rate(100.0 * period.size)),
        ),
        PeriodFigure::P99 => (
            period.size.exp(),
            format!(
                "its p99 is {} times as long",
                figures::rate(period.size.exp())
            ),
        ),
    };
    let first_us = disturbances.first().map_or(step.from_us, |gap| gap.from_us);
    let width_us = disturbances
        .first()
        .map_or(step.period_us, |gap| gap.length_us());
    let sentence = format!(
        "{subject} is disturbed every {} s for {} s: {what}, first at {}, in {} of {} periods of the second half{with}",
        figures::rate(every_s),
        figures::rate(real(width_us) / 1e6),
        figures::instant(first_us),
        period.hits,
        period.cycles,
    );
    #[expect(clippy::cast_possible_truncation, reason = "a period in microseconds")]
    let every_us = (every_s * 1e6) as i64;
    Finding {
        figure: Some(match figure {
            PeriodFigure::Rate => "ops_per_s".to_owned(),
            PeriodFigure::P99 => "p99_ms".to_owned(),
        }),
        step_id: Some(step.id),
        group_name: Some(line.group.clone()).filter(|group| !group.is_empty()),
        from_us: Some(first_us),
        until_us: disturbances.last().map(|gap| gap.until_us),
        size: finite(size),
        unit: Some(match figure {
            PeriodFigure::Rate => "%".to_owned(),
            PeriodFigure::P99 => "times".to_owned(),
        }),
        p: finite(period.p),
        sql: Some(format!(
            "SELECT (at_us - {first_us} + {every_us}) % {every_us} * 20 / {every_us} AS twentieth, \
             sum(ops) * 1e6 / sum(span_us) AS ops_per_s, avg(p99_ns) / 1e6 AS p99_ms FROM step_intervals \
             WHERE step_id = {} AND ramp = 0 AND at_us >= {first_us} GROUP BY twentieth",
            step.id
        )),
        ..Finding::new(
            Severity::Warning,
            FindingKind::Periodic,
            FindingVerdict::Found,
            &subject,
            sentence,
        )
    }
}

//! Both sides of a comparison over time, drawn on the same axes: each load from its start, and two whole runs.

use super::load::{connected, run_timeline, second};
use super::seconds::{Axis, Points};
use super::{OpSeries, PictureError};
use crate::compare::words::subject;
use crate::compare::{CompareAnswer, Comparison, ComparisonRow, FigureName, Side, SideValue};
use async_recursion::async_recursion as boxed;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use std::path::Path;

/// Maximum number of points of one load.
const POINTS: i64 = 400;
/// Maximum number of points of a whole run.
const RUN_POINTS: i64 = 800;
/// Maximum number of drawn loads; the first are drawn.
const MAX_OVERLAYS: usize = 80;
/// Maximum number of drawn repeats of one side; the first are drawn.
const MAX_REPEATS: usize = 3;

const SPAN: &str = "
SELECT coalesce(start_us, measured_from_us), coalesce(last_done_us, ended_us), repeat, loop FROM steps WHERE id = ?1";

const SECONDS: &str = "
SELECT op, group_name, at_us, span_us, ops, bytes, errors, p50_ns, p99_ns, max_ns FROM step_intervals
WHERE step_id = ?1 AND op = ?2 AND coalesce(group_name, '') = ?3 ORDER BY at_us";

/// The drawn parts of a comparison.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Overlays {
    /// In the order of the answer's comparisons and rows.
    pub loads: Vec<Overlay>,
    pub loads_left_out: usize,
    /// For a comparison of two runs: all operations together, from the start of each run.
    pub runs: Vec<Overlay>,
}

/// One load on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct Overlay {
    /// The index of its comparison in the answer.
    pub comparison: usize,
    pub title: String,
    pub bucket_s: f64,
    pub until_s: f64,
    pub lines: Vec<OverlayLine>,
}

/// One repeat of one side.
#[derive(Clone, Debug, Serialize)]
pub struct OverlayLine {
    /// Whether it belongs to side B.
    pub is_b: bool,
    /// Whether it is the first of its side; the others are drawn thinner.
    pub is_first: bool,
    pub series: OpSeries,
    /// The indices of the points that are not joined to the one before, because a step begins.
    pub starts: Vec<usize>,
}

/// Reads the series of an answer from its database, on a separate thread.
#[boxed]
#[inline(never)]
pub async fn overlays(path: &Path, answer: CompareAnswer) -> Result<Overlays, PictureError> {
    connected(path.to_owned(), move |connection| read(connection, &answer)).await
}

fn read(connection: &Connection, answer: &CompareAnswer) -> Result<Overlays, rusqlite::Error> {
    let mut overlays = Overlays::default();
    for (place, comparison) in answer.comparisons.iter().enumerate() {
        overlays.runs.extend(runs(connection, place, comparison)?);
        let rates = comparison.rows.iter();
        for row in rates.filter(|row| row.figure == FigureName::Ops) {
            if overlays.loads.len() == MAX_OVERLAYS {
                overlays.loads_left_out += 1;
            } else {
                overlays
                    .loads
                    .push(load(connection, place, comparison, row)?);
            }
        }
    }
    Ok(overlays)
}

/// A step's start, its end and its repeat.
struct Span {
    step: i64,
    from_us: i64,
    until_us: i64,
    repeat: i64,
    loop_number: i64,
}

impl Span {
    fn name(&self) -> String {
        match self.loop_number {
            1 => format!("repeat {}", self.repeat),
            number => format!("loop {number}, repeat {}", self.repeat),
        }
    }
}

fn spans(connection: &Connection, value: &SideValue) -> Result<Vec<Span>, rusqlite::Error> {
    let mut statement = connection.prepare_cached(SPAN)?;
    let mut spans = Vec::new();
    for step in value.steps.iter().take(MAX_REPEATS) {
        let found: Option<(Option<i64>, Option<i64>, i64, i64)> = statement
            .query_row([step], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
            })
            .optional()?;
        if let Some((Some(from_us), Some(until_us), repeat, loop_number)) = found {
            spans.push(Span {
                step: *step,
                from_us,
                until_us,
                repeat,
                loop_number,
            });
        }
    }
    Ok(spans)
}

fn load(
    connection: &Connection,
    place: usize,
    comparison: &Comparison,
    row: &ComparisonRow,
) -> Result<Overlay, rusqlite::Error> {
    let sides = [
        (&comparison.a, spans(connection, &row.a)?),
        (&comparison.b, spans(connection, &row.b)?),
    ];
    let longest = sides
        .iter()
        .flat_map(|(_, spans)| spans)
        .map(|span| span.until_us - span.from_us)
        .max()
        .unwrap_or(0);
    let bucket_s = Axis::new(0, 0, longest, POINTS).bucket_s();
    let mut lines = Vec::new();
    for (is_b, (side, spans)) in [false, true].into_iter().zip(&sides) {
        for (number, span) in spans.iter().enumerate() {
            let axis = Axis::new(span.from_us, span.from_us, span.from_us + longest, POINTS);
            let name = match spans.len() {
                1 => side.label.clone(),
                _ => format!("{}, {}", side.label, span.name()),
            };
            let mut points = Points::new(name, axis);
            let mut statement = connection.prepare_cached(SECONDS)?;
            let mut rows = statement.query(params![span.step, row.op, row.group])?;
            while let Some(row) = rows.next()? {
                points.add(&second(row)?);
            }
            lines.push(OverlayLine {
                is_b,
                is_first: number == 0,
                series: points.finish(),
                starts: Vec::new(),
            });
        }
    }
    Ok(Overlay {
        comparison: place,
        title: subject(row),
        bucket_s,
        until_s: super::seconds::real(longest) / 1e6,
        lines,
    })
}

/// Two whole runs; a side of several runs, or one target of a run, is not a whole run.
fn runs(
    connection: &Connection,
    place: usize,
    comparison: &Comparison,
) -> Result<Option<Overlay>, rusqlite::Error> {
    let whole = |side: &'_ Side| match side.runs.as_slice() {
        [one] if side.target.is_none() => Some(one.id.0),
        _ => None,
    };
    let (Some(a), Some(b)) = (whole(&comparison.a), whole(&comparison.b)) else {
        return Ok(None);
    };
    let mut lines = Vec::new();
    let (mut bucket_s, mut until_s) = (1.0_f64, 0.0_f64);
    for (is_b, run, side) in [(false, a, &comparison.a), (true, b, &comparison.b)] {
        let timeline = run_timeline(connection, run, 0, RUN_POINTS)?;
        let mut series = timeline.total;
        series.name.clone_from(&side.label);
        bucket_s = bucket_s.max(timeline.bucket_s);
        let took = super::seconds::real(timeline.until_us - timeline.from_us) / 1e6;
        until_s = until_s.max(took);
        lines.push(OverlayLine {
            is_b,
            is_first: true,
            series,
            starts: timeline.starts,
        });
    }
    Ok(Some(Overlay {
        comparison: place,
        title: "Whole runs, all operations together".to_owned(),
        bucket_s,
        until_s,
        lines,
    }))
}

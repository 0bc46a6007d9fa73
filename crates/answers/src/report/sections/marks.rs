//! Marks on the time line of a run, each with the load before, during and after it.
//!
//! The rate of a span is the number of its operations divided by the time of its intervals, its p99 that of its
//! merged histograms. Spans consist of whole intervals. The interval that contains the mark is the first of `during`,
//! so that no effect of the mark is in `before`.

use crate::report::row::{ReportError, Row, Statement, invalid, reading, rows};
use crate::report::{Report, StepReport, Table};
use crate::rows::rows_with;
use benchmesh_model::mesh::{RunId, StepId};
use benchmesh_results::outage::{LoadSecond, Outage, outage};
use benchmesh_results::{PERIOD_US, real};
use benchmesh_workloads::figures::{self, NONE};
use benchmesh_workloads::histogram::Histogram;
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const BEFORE_US: i64 = 30_000_000;
const DURING_US: i64 = 10_000_000;
const AFTER_US: i64 = 30_000_000;
/// Maximum number of loaded marks: a restart loop makes thousands.
const MARKS_LOADED: usize = 500;
/// Maximum number of marks with figures: each costs some seventy histograms per operation.
const MARKS_MEASURED: usize = 50;

/// Maximum number of shown marks; the others are counted.
const MARKS_SHOWN: usize = 20;

/// Maximum number of shown characters of a mark's text.
const TEXT_SHOWN: usize = 80;

/// A dated mark, and the load around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkReport {
    pub at_us: i64,
    /// `mark`, or the kind of an event: `daemon-started`, `daemon-stopped`, `carrier-lost`, ...
    pub source: String,
    pub text: String,
    /// The running step.
    pub step_id: Option<StepId>,
    #[serde(default)]
    pub ordinal: Option<i64>,
    /// The operations of that step.
    #[serde(default)]
    pub ops: Vec<MarkedOp>,
}

/// One operation of a step around a mark. The second of the mark itself is the first one of `during`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkedOp {
    pub group: String,
    pub op: String,
    /// The 30 s before the mark.
    pub before: MarkedSpan,
    /// The 10 s from the mark on.
    pub during: MarkedSpan,
    /// The 30 s after `during`.
    pub after: MarkedSpan,
    /// The loss in the 40 s of `during` and `after`; `None` if the step has no load before the mark as a reference.
    #[serde(default)]
    pub outage: Option<Outage>,
}

/// A span of one operation; `None` if the step does not cover it, or nothing completed in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MarkedSpan {
    pub seconds: f64,
    pub ops_per_s: Option<f64>,
    pub mib_per_s: Option<f64>,
    pub p99_ms: Option<f64>,
}

pub(in crate::report) const MARKS: Statement = Statement {
    what: "v_marks",
    sql: "SELECT at_us, source, text, step_id FROM v_marks WHERE run_id = ? ORDER BY at_us LIMIT 500",
};

const AROUND: &str =
    "SELECT coalesce(group_name, '') AS group_name, op, at_us, span_us, ops, coalesce(bytes, 0) AS bytes, max_ns, response_max_ns, histogram
     FROM step_intervals
     WHERE step_id = ?1 AND at_us > ?2 AND at_us < ?3 AND ramp = 0 AND ops IS NOT NULL
       -- Rows of 10 or 60 s do not tell what was before a mark from what was after.
       AND EXISTS (SELECT 1 FROM steps AS s WHERE s.id = step_id AND s.resolution_s = 1
                   AND coalesce(s.merged_10s_until_us <= ?2, 1))
     ORDER BY at_us";

pub(in crate::report) fn marks(
    connection: &Connection,
    run: RunId,
    steps: &[StepReport],
) -> Result<Vec<MarkReport>, ReportError> {
    let mut marks: Vec<MarkReport> = rows(connection, MARKS, run)?;
    marks.truncate(MARKS_LOADED);
    for mark in &mut marks {
        let step = steps.iter().find(|step| Some(step.id) == mark.step_id);
        mark.ordinal = step.map(|step| step.ordinal);
    }
    // People's marks first.
    let mut measured: Vec<&mut MarkReport> = marks
        .iter_mut()
        .filter(|mark| mark.ordinal.is_some())
        .collect();
    measured.sort_by_key(|mark| mark.source != "mark");
    for mark in measured.into_iter().take(MARKS_MEASURED) {
        if let Some(step) = mark.step_id {
            mark.ops = ops_around(connection, step, mark.at_us)?;
        }
    }
    Ok(marks)
}

fn ops_around(
    connection: &Connection,
    step: StepId,
    at_us: i64,
) -> Result<Vec<MarkedOp>, ReportError> {
    let parameters = [
        step.0.into(),
        (at_us - BEFORE_US - PERIOD_US).into(),
        (at_us + DURING_US + AFTER_US).into(),
    ];
    let intervals = rows_with(connection, AROUND, &parameters, Interval::read)
        .map_err(reading("step_intervals"))?;
    let mut ops: BTreeMap<(String, String), ([IntervalSum; 3], Vec<LoadSecond>)> = BTreeMap::new();
    for interval in intervals {
        let sums = ops.entry((interval.group.clone(), interval.op.clone()));
        let ([before, during, after], seconds) = sums.or_default();
        let until = interval.until_us();
        let sum = if until <= at_us {
            Some(before)
        } else if until <= at_us + DURING_US {
            Some(during)
        } else if until <= at_us + DURING_US + AFTER_US {
            Some(after)
        } else {
            None
        };
        if let Some(sum) = sum {
            sum.add(&interval).map_err(reading("step_intervals"))?;
        }
        if until > at_us {
            seconds.push(interval.second());
        }
    }
    Ok(ops
        .into_iter()
        .map(
            |((group, op), ([before, during, after], seconds))| MarkedOp {
                group,
                op,
                outage: before.rate().and_then(|rate| outage(at_us, rate, &seconds)),
                before: before.figures(),
                during: during.figures(),
                after: after.figures(),
            },
        )
        .collect())
}

struct Interval {
    group: String,
    op: String,
    at_us: i64,
    span_us: i64,
    ops: i64,
    bytes: i64,
    max_ns: Option<i64>,
    response_max_ns: Option<i64>,
    /// Encoded: decoded it takes 37 KB.
    histogram: Option<Vec<u8>>,
}

impl Interval {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            group: row.get("group_name")?,
            op: row.get("op")?,
            at_us: row.get("at_us")?,
            span_us: row.get("span_us")?,
            ops: row.get("ops")?,
            bytes: row.get("bytes")?,
            max_ns: row.get("max_ns")?,
            response_max_ns: row.get("response_max_ns")?,
            histogram: row.get("histogram")?,
        })
    }

    fn second(&self) -> LoadSecond {
        LoadSecond {
            at_us: self.at_us,
            until_us: self.until_us(),
            ops: self.ops,
            slowest_ns: self.max_ns,
            response_ns: self.response_max_ns,
        }
    }

    fn until_us(&self) -> i64 {
        self.at_us.saturating_add(self.span_us)
    }
}

#[derive(Default)]
struct IntervalSum {
    span_us: i64,
    ops: i64,
    bytes: i64,
    latencies: Histogram,
}

impl IntervalSum {
    fn add(&mut self, interval: &Interval) -> rusqlite::Result<()> {
        self.span_us = self.span_us.saturating_add(interval.span_us);
        self.ops = self.ops.saturating_add(interval.ops);
        self.bytes = self.bytes.saturating_add(interval.bytes);
        if let Some(encoded) = &interval.histogram {
            let histogram = Histogram::from_v2_deflate(encoded).map_err(invalid)?;
            self.latencies.add(&histogram);
        }
        Ok(())
    }

    /// Operations per second; `None` if there were none.
    fn rate(&self) -> Option<f64> {
        (self.ops > 0 && self.span_us > 0).then(|| real(self.ops) * 1e6 / real(self.span_us))
    }

    fn figures(&self) -> MarkedSpan {
        let seconds = real(self.span_us) / 1e6;
        let per_second = |count: i64| (seconds > 0.0).then(|| real(count) / seconds);
        MarkedSpan {
            seconds,
            ops_per_s: per_second(self.ops),
            mib_per_s: per_second(self.bytes).map(|bytes| bytes / 1_048_576.0),
            p99_ms: (!self.latencies.is_empty())
                .then(|| nanos(self.latencies.quantile(0.99)) / 1e6),
        }
    }
}

fn nanos(value: u64) -> f64 {
    real(i64::try_from(value).unwrap_or(i64::MAX))
}

type SpanOf = fn(&MarkedOp) -> &MarkedSpan;
/// A mark, an operation of the running step, and whether it is the first row of its mark.
struct MarkRow<'r> {
    mark: &'r MarkReport,
    op: Option<&'r MarkedOp>,
    first: bool,
}

/// Title of the band with an outage's figures.
const FROM_THE_MARK: &str = "from the mark on";

/// A row per mark and operation of the running step; `None` if there are no marks.
pub(in crate::report) fn table(report: &Report) -> Option<Table> {
    let shown = report.marks.get(..MARKS_SHOWN).unwrap_or(&report.marks);
    let rows: Vec<MarkRow<'_>> = shown
        .iter()
        .flat_map(|mark| {
            let ops: Vec<Option<&MarkedOp>> = match mark.ops.as_slice() {
                [] => vec![None],
                ops => ops.iter().map(Some).collect(),
            };
            let rows = ops.into_iter().enumerate();
            rows.map(move |(at, op)| MarkRow {
                mark,
                op,
                first: at == 0,
            })
        })
        .collect();
    let label = |mark: &MarkReport| match mark.source.as_str() {
        "mark" => shortened(&mark.text),
        source => shortened(&format!("{source}: {}", mark.text)),
    };
    let once = |row: &MarkRow<'_>, cell: &dyn Fn(&MarkReport) -> String| match row.first {
        true => cell(row.mark),
        false => String::new(),
    };
    let mut table = Table::of("Marks", &rows)
        .text("when", |row| {
            once(row, &|mark| figures::instant(mark.at_us))
        })
        .text("mark", |row| once(row, &label))
        .figure("step", |row| {
            once(row, &|mark| {
                mark.ordinal.map_or_else(String::new, |at| at.to_string())
            })
        })
        .text("op", |row| row.op.map_or_else(String::new, named))
        .if_any();
    if rows.iter().any(|row| row.op.is_some()) {
        let spans: [(&str, SpanOf); 3] = [
            ("before", |op| &op.before),
            ("during", |op| &op.during),
            ("after", |op| &op.after),
        ];
        let by_bytes = rows.iter().filter_map(|row| row.op).any(is_bulk);
        for (title, span) in spans {
            table = match by_bytes {
                true => table
                    .rate(title, |row| span(row.op?).mib_per_s)
                    .band("MiB/s"),
                false => table
                    .rate(title, |row| span(row.op?).ops_per_s)
                    .band("ops/s"),
            };
        }
        for (title, span) in spans {
            table = table
                .millis(title, |row| span(row.op?).p99_ms)
                .band("p99 ms");
        }
        let outage = |row: &MarkRow<'_>| row.op.and_then(|op| op.outage.as_ref()).cloned();
        table = table
            .millis("gap ms", |row| Some(outage(row)?.longest_gap_ms))
            .band(FROM_THE_MARK)
            .figure("back after s", |row| {
                outage(row).map_or_else(|| NONE.to_owned(), |one| match one.recovered_s {
                    Some(0.0) => NONE.to_owned(),
                    Some(seconds) => figures::rate(seconds),
                    None => "not back".to_owned(),
                })
            })
            .band(FROM_THE_MARK)
            .rate("ops lost", |row| Some(outage(row)?.ops_lost))
            .band(FROM_THE_MARK)
            .millis("response max ms", |row| outage(row)?.response_max_ms)
            .band(FROM_THE_MARK)
            .if_any()
            .note(
                "Gap: the longest time without progress: seconds in which nothing completed, or one long operation; \
                 back after: time until the end of the last second below half of the rate before; lost: operations \
                 missing until then, compared with the rate before.",
            )
            .note(
                "Before: the 30 s before the mark; during: the 10 s from it on; after: the 30 s after those; all within the step.",
            );
    }
    let more = report.marks.len() - shown.len();
    table
        .note_if(more > 0, || {
            format!(
                "{more} more: benchmesh query \"SELECT * FROM v_marks WHERE run_id = {}\"",
                report.run.id
            )
        })
        .done()
}

/// The text, shortened for the table; JSON and `v_marks` have the whole text.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_SHOWN) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn named(op: &MarkedOp) -> String {
    match op.group.as_str() {
        "" => op.op.clone(),
        group => format!("{group} {}", op.op),
    }
}

/// Whether its operations move enough bytes to be shown as throughput, as in the tables of results.
fn is_bulk(op: &MarkedOp) -> bool {
    let spans = [&op.before, &op.during, &op.after];
    spans.iter().any(|span| {
        let rates = span.mib_per_s.zip(span.ops_per_s);
        rates.is_some_and(|(mib, ops)| ops > 0.0 && mib / ops >= 0.0625)
    })
}

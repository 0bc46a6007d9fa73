//! Marks on the time line of a run, each with the load before, during and after it.
//!
//! The rate of a span is its operations over the time of its intervals, its p99 that of its merged histograms. Interval by
//! interval: the one that holds the mark is the first of `during`, so that nothing of the mark is in `before`.

use super::outage::{Second, outage};
use super::{ReportError, Statement, reading, rows};
use crate::model::{RunId, StepId};
use crate::report::{MarkReport, MarkedOp, MarkedSpan, StepReport};
use crate::results::{PERIOD_US, real};
use benchmesh_workloads::histogram::Histogram;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};
use std::collections::BTreeMap;

const BEFORE_US: i64 = 30_000_000;
const DURING_US: i64 = 10_000_000;
const AFTER_US: i64 = 30_000_000;
/// A restart loop makes marks by the thousand.
const MARKS_LOADED: usize = 500;
/// Marks whose figures are read: each costs some seventy histograms per operation.
const MARKS_MEASURED: usize = 50;

pub(super) const MARKS: Statement = Statement {
    what: "v_marks",
    sql: "SELECT at_us, source, text, step_id FROM v_marks WHERE run_id = ? ORDER BY at_us LIMIT 500",
};

const AROUND: &str =
    "SELECT coalesce(group_name, '') AS group_name, op, at_us, span_us, ops, bytes, max_ns, response_max_ns, histogram
     FROM step_intervals
     WHERE step_id = ? AND at_us > ? AND at_us < ? AND ramp = 0 ORDER BY at_us";

pub(super) async fn marks(
    connection: &mut SqliteConnection,
    run: RunId,
    steps: &[StepReport],
) -> Result<Vec<MarkReport>, ReportError> {
    let mut marks = rows(connection, MARKS, run, |row| {
        Ok(MarkReport {
            at_us: row.try_get("at_us")?,
            source: row.try_get("source")?,
            text: row.try_get("text")?,
            step_id: row.try_get::<Option<i64>, _>("step_id")?.map(StepId),
            ordinal: None,
            ops: Vec::new(),
        })
    })
    .await?;
    marks.truncate(MARKS_LOADED);
    for mark in &mut marks {
        let step = steps.iter().find(|step| Some(step.id) == mark.step_id);
        mark.ordinal = step.map(|step| step.ordinal);
    }
    // What a person said first.
    let mut measured: Vec<&mut MarkReport> = marks
        .iter_mut()
        .filter(|mark| mark.ordinal.is_some())
        .collect();
    measured.sort_by_key(|mark| mark.source != "mark");
    for mark in measured.into_iter().take(MARKS_MEASURED) {
        if let Some(step) = mark.step_id {
            mark.ops = around(connection, step, mark.at_us).await?;
        }
    }
    Ok(marks)
}

async fn around(
    connection: &mut SqliteConnection,
    step: StepId,
    at_us: i64,
) -> Result<Vec<MarkedOp>, ReportError> {
    let rows = sqlx::query(AROUND)
        .bind(step.0)
        .bind(at_us - BEFORE_US - PERIOD_US)
        .bind(at_us + DURING_US + AFTER_US)
        .fetch_all(connection)
        .await
        .map_err(reading("step_intervals"))?;
    let mut ops: BTreeMap<(String, String), ([Sum; 3], Vec<Second>)> = BTreeMap::new();
    for row in &rows {
        let interval = Interval::read(row).map_err(reading("step_intervals"))?;
        let sums = ops.entry((interval.group.clone(), interval.op.clone()));
        let ([before, during, after], seconds) = sums.or_default();
        let until = interval.until_us();
        if until <= at_us {
            before.add(&interval);
        } else if until <= at_us + DURING_US {
            during.add(&interval);
        } else if until <= at_us + DURING_US + AFTER_US {
            after.add(&interval);
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
    histogram: Option<Histogram>,
}

impl Interval {
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let blob: Option<Vec<u8>> = row.try_get("histogram")?;
        let histogram = blob.as_deref().map(Histogram::from_v2_deflate);
        Ok(Self {
            group: row.try_get("group_name")?,
            op: row.try_get("op")?,
            at_us: row.try_get("at_us")?,
            span_us: row.try_get("span_us")?,
            ops: row.try_get("ops")?,
            bytes: row.try_get("bytes")?,
            max_ns: row.try_get("max_ns")?,
            response_max_ns: row.try_get("response_max_ns")?,
            histogram: histogram
                .transpose()
                .map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
        })
    }

    fn second(&self) -> Second {
        Second {
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
struct Sum {
    span_us: i64,
    ops: i64,
    bytes: i64,
    latencies: Histogram,
}

impl Sum {
    fn add(&mut self, interval: &Interval) {
        self.span_us = self.span_us.saturating_add(interval.span_us);
        self.ops = self.ops.saturating_add(interval.ops);
        self.bytes = self.bytes.saturating_add(interval.bytes);
        if let Some(histogram) = &interval.histogram {
            self.latencies.add(histogram);
        }
    }

    /// Operations per second; `None`: there were none.
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

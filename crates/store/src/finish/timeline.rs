//! The stored time line of a step, and the changes it needs.
//!
//! It is computed as a whole. Only the intervals that late data have changed are written, in one transaction with the
//! results, so that a concurrent reader sees the old time line or the new one.

use crate::database::{Doing, StoreError, WriteRows};
use crate::read::text;
use benchmesh_model::mesh::StepId;
use benchmesh_results::StepInterval;
use benchmesh_workloads::histogram::Histogram;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{FromRow, Row, SqliteConnection};
use std::collections::BTreeMap;

/// Maximum number of changes in one transaction, of some hundred bytes each. More changes are written in several
/// transactions, in the order of time.
const MAX_CHANGES: usize = 16_384;

/// A row of `step_intervals`, without its id and step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TimelineRow {
    key: TimelineKey,
    span_us: i64,
    tasks: u32,
    ops: i64,
    bytes: i64,
    errors: i64,
    mean_ns: Option<f64>,
    p50_ns: Option<i64>,
    p99_ns: Option<i64>,
    max_ns: Option<i64>,
    histogram: Option<Vec<u8>>,
    response_p50_ns: Option<i64>,
    response_p99_ns: Option<i64>,
    response_max_ns: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TimelineKey {
    at_us: i64,
    op: String,
    ramp: bool,
    /// Empty if the step has no groups.
    group: String,
}

impl From<StepInterval> for TimelineRow {
    fn from(interval: StepInterval) -> Self {
        let service = Some(&interval.service).filter(|histogram| !histogram.is_empty());
        let response = (interval.response.as_ref()).filter(|histogram| !histogram.is_empty());
        let quantile = |histogram: Option<&Histogram>, q| {
            histogram.map(|histogram| count(histogram.quantile(q)))
        };
        Self {
            span_us: interval.span_us,
            tasks: interval.tasks,
            ops: interval.ops,
            bytes: interval.bytes,
            errors: interval.errors,
            mean_ns: service.map(Histogram::mean_ns),
            p50_ns: quantile(service, 0.5),
            p99_ns: quantile(service, 0.99),
            max_ns: service.map(|histogram| count(histogram.max_ns())),
            histogram: service.map(Histogram::to_v2_deflate),
            response_p50_ns: quantile(response, 0.5),
            response_p99_ns: quantile(response, 0.99),
            response_max_ns: response.map(|histogram| count(histogram.max_ns())),
            key: TimelineKey {
                at_us: interval.at_us,
                op: interval.op,
                ramp: interval.ramp,
                group: interval.group,
            },
        }
    }
}

fn count(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl FromRow<'_, SqliteRow> for TimelineRow {
    fn from_row(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            key: TimelineKey {
                at_us: row.try_get("at_us")?,
                op: row.try_get("op")?,
                ramp: row.try_get("ramp")?,
                group: text(row, "group_name")?,
            },
            span_us: row.try_get("span_us")?,
            tasks: row.try_get("tasks")?,
            ops: row.try_get("ops")?,
            bytes: row.try_get("bytes")?,
            errors: row.try_get("errors")?,
            mean_ns: row.try_get("mean_ns")?,
            p50_ns: row.try_get("p50_ns")?,
            p99_ns: row.try_get("p99_ns")?,
            max_ns: row.try_get("max_ns")?,
            histogram: row.try_get("histogram")?,
            response_p50_ns: row.try_get("response_p50_ns")?,
            response_p99_ns: row.try_get("response_p99_ns")?,
            response_max_ns: row.try_get("response_max_ns")?,
        })
    }
}

impl TimelineKey {
    /// Binds group, instant, operation and ramp.
    fn bind<'q>(
        &'q self,
        query: Query<'q, Sqlite, SqliteArguments>,
    ) -> Query<'q, Sqlite, SqliteArguments> {
        query
            .bind(self.group.as_str())
            .bind(self.at_us)
            .bind(self.op.as_str())
            .bind(self.ramp)
    }
}

/// Changes of the stored time line.
#[derive(Debug, Default)]
pub(super) struct Changes {
    gone: Vec<TimelineKey>,
    put: Vec<TimelineRow>,
}

impl Changes {
    /// Rows to be stored; they replace those with the same key.
    pub(super) fn put(rows: Vec<TimelineRow>) -> Self {
        Self {
            gone: Vec::new(),
            put: rows,
        }
    }

    fn len(&self) -> usize {
        self.gone.len() + self.put.len()
    }
}

/// Compares a time line, which is computed in the order of time, with the stored one.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    /// Computed and not compared yet: earlier rows may still be added.
    computed: BTreeMap<TimelineKey, TimelineRow>,
    /// Rows before this instant are compared.
    compared_until: Option<i64>,
    changes: Changes,
}

impl Comparison {
    pub(super) fn add(&mut self, rows: Vec<TimelineRow>) {
        let by_key = rows.into_iter().map(|row| (row.key.clone(), row));
        self.computed.extend(by_key);
    }

    /// Compares the rows that begin before `until`. All of them must have been added.
    pub(super) async fn compare_before(
        &mut self,
        reader: &SqlitePool,
        step: StepId,
        until: i64,
    ) -> Result<(), StoreError> {
        let from = self.compared_until.unwrap_or(i64::MIN);
        if until <= from {
            return Ok(());
        }
        let stored = stored(reader, step, from, until).await?;
        self.compare(stored, until);
        Ok(())
    }

    /// Leaves the stored rows before `until` as they are.
    pub(super) fn skip_to(&mut self, until: i64) {
        self.compared_until = self.compared_until.max(Some(until));
    }

    /// `stored`: the stored rows from the last comparison up to `until`.
    fn compare(&mut self, stored: Vec<TimelineRow>, until: i64) {
        for old in stored {
            match self.computed.remove(&old.key) {
                Some(new) if new == old => {}
                Some(new) => self.changes.put.push(new),
                None => self.changes.gone.push(old.key),
            }
        }
        let later = self.computed.split_off(&TimelineKey {
            at_us: until,
            op: String::new(),
            ramp: false,
            group: String::new(),
        });
        let new = std::mem::replace(&mut self.computed, later);
        self.changes.put.extend(new.into_values());
        self.compared_until = Some(until);
    }

    /// The collected changes, if there are enough to be written now.
    pub(super) fn overflow(&mut self) -> Option<Changes> {
        (self.changes.len() > MAX_CHANGES).then(|| std::mem::take(&mut self.changes))
    }

    pub(super) fn finish(self) -> Changes {
        self.changes
    }
}

/// Stored rows that begin in `from..until`, by time.
async fn stored(
    reader: &SqlitePool,
    step: StepId,
    from: i64,
    until: i64,
) -> Result<Vec<TimelineRow>, StoreError> {
    sqlx::query_as(
        "SELECT * FROM step_intervals WHERE step_id = ? AND at_us >= ? AND at_us < ? ORDER BY at_us",
    )
    .bind(step.0)
    .bind(from)
    .bind(until)
    .fetch_all(reader)
    .await
    .doing("read the time line of a step")
}

pub(super) async fn write(
    step: StepId,
    changes: &Changes,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    for key in &changes.gone {
        let delete = sqlx::query(
            "DELETE FROM step_intervals
             WHERE step_id = ?1 AND coalesce(group_name, '') = ?2 AND at_us = ?3 AND op = ?4 AND ramp = ?5",
        );
        key.bind(delete.bind(step.0))
            .write(connection, "store the time line of a step")
            .await?;
    }
    for row in &changes.put {
        let put = sqlx::query(
            "INSERT OR REPLACE INTO step_intervals (step_id, group_name, at_us, op, ramp, span_us, tasks, ops, bytes,
                 errors, mean_ns, p50_ns, p99_ns, max_ns, histogram, response_p50_ns, response_p99_ns, response_max_ns)
             VALUES (?, nullif(?, ''), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        );
        row.key
            .bind(put.bind(step.0))
            .bind(row.span_us)
            .bind(row.tasks)
            .bind(row.ops)
            .bind(row.bytes)
            .bind(row.errors)
            .bind(row.mean_ns)
            .bind(row.p50_ns)
            .bind(row.p99_ns)
            .bind(row.max_ns)
            .bind(row.histogram.as_deref())
            .bind(row.response_p50_ns)
            .bind(row.response_p99_ns)
            .bind(row.response_max_ns)
            .write(connection, "store the time line of a step")
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(at_us: i64, ops: i64) -> TimelineRow {
        let mut service = Histogram::new();
        service.record(ops.unsigned_abs());
        TimelineRow::from(StepInterval {
            group: String::new(),
            at_us,
            span_us: 10,
            op: String::from("read"),
            ramp: false,
            tasks: 1,
            ops,
            bytes: 0,
            errors: 0,
            service,
            response: None,
        })
    }

    #[test]
    fn only_what_differs_is_written() {
        let mut comparison = Comparison::default();
        comparison.add(vec![row(0, 1), row(10, 2), row(20, 3), row(40, 5)]);
        // At 20 other operations, at 25 a row that is now part of a wider interval, at 40 a row that may still
        // change.
        let stored = vec![row(0, 1), row(10, 2), row(20, 7), row(25, 1)];
        comparison.compare(stored, 30);
        assert_eq!(comparison.changes.put, [row(20, 3)]);
        assert_eq!(comparison.changes.gone, [row(25, 1).key]);
        comparison.add(vec![row(30, 4)]);
        comparison.compare(vec![row(40, 5)], i64::MAX);
        let changes = comparison.finish();
        assert_eq!(changes.put, [row(20, 3), row(30, 4)]);
        assert_eq!(changes.gone, [row(25, 1).key]);
    }
}

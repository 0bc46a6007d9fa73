//! Decides which rows of intervals are merged into one. Pure.
//!
//! Consecutive rows of one key without a gap, in one bucket of the step's time, become one row. A row belongs to the
//! bucket that contains its middle, so that merging merged rows again changes nothing.

use benchmesh_workloads::histogram::Histogram;
use std::collections::BTreeMap;

/// A row of intervals, of either table.
pub(super) trait Interval {
    /// Rows of different keys are never merged.
    type Key: Clone + Ord;

    fn key(&self) -> Self::Key;
    fn head(&self) -> &Head;
    fn head_mut(&mut self) -> &mut Head;
    /// Adds the figures of a later row.
    fn add(&mut self, later: &Self);
}

/// The columns that both tables of intervals have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub id: i64,
    pub op: String,
    pub ramp: bool,
    pub at_us: i64,
    pub span_us: i64,
    pub ops: i64,
    pub bytes: i64,
    pub errors: i64,
}

impl Head {
    fn until_us(&self) -> i64 {
        self.at_us.saturating_add(self.span_us)
    }

    /// The middle of the row, which determines its bucket.
    pub(super) fn middle_us(&self) -> i64 {
        self.at_us.saturating_add(self.span_us / 2)
    }

    fn add(&mut self, later: &Self) {
        self.span_us = self.until_us().max(later.until_us()) - self.at_us;
        self.ops = self.ops.saturating_add(later.ops);
        self.bytes = self.bytes.saturating_add(later.bytes);
        self.errors = self.errors.saturating_add(later.errors);
    }
}

/// A row of `op_intervals`.
#[derive(Clone, Debug)]
pub(super) struct OpRow {
    pub head: Head,
    pub undated_bytes: i64,
    pub in_flight: i64,
    pub service: Histogram,
    pub response: Option<Histogram>,
}

impl Interval for OpRow {
    type Key = (String, bool);

    fn key(&self) -> Self::Key {
        (self.head.op.clone(), self.head.ramp)
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn add(&mut self, later: &Self) {
        self.undated_bytes = self.undated_bytes.saturating_add(later.undated_bytes);
        // The value at the end.
        self.in_flight = later.in_flight;
        self.service.add(&later.service);
        match (&mut self.response, &later.response) {
            (Some(ours), Some(theirs)) => ours.add(theirs),
            (ours, theirs) => *ours = ours.take().or_else(|| theirs.clone()),
        }
    }
}

/// A row of `step_intervals`. Its histogram has no exact sums, so the mean is stored separately.
#[derive(Clone, Debug)]
pub(super) struct StepRow {
    pub head: Head,
    /// Empty: the step has no groups.
    pub group: String,
    pub tasks: i64,
    pub sum_ns: f64,
    /// The number of operations that the mean covers.
    pub mean_of: i64,
    pub max_ns: Option<i64>,
    pub service: Histogram,
    /// The percentiles of a merged row come from the tasks' own intervals.
    pub response: Option<Response>,
}

/// Response times of a paced load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Response {
    pub p50_ns: Option<i64>,
    pub p99_ns: Option<i64>,
    pub max_ns: i64,
}

impl Interval for StepRow {
    type Key = (String, String, bool);

    fn key(&self) -> Self::Key {
        (self.group.clone(), self.head.op.clone(), self.head.ramp)
    }

    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn add(&mut self, later: &Self) {
        self.tasks = self.tasks.max(later.tasks);
        self.sum_ns += later.sum_ns;
        self.mean_of += later.mean_of;
        self.max_ns = self.max_ns.max(later.max_ns);
        self.service.add(&later.service);
        self.response = match (self.response, later.response) {
            (Some(ours), Some(theirs)) => Some(Response {
                max_ns: ours.max_ns.max(theirs.max_ns),
                ..ours
            }),
            (ours, theirs) => ours.or(theirs),
        };
    }
}

/// Rows merged into one.
#[derive(Clone, Debug)]
pub(super) struct Merged<R> {
    pub row: R,
    /// The merged rows, as they were read; the first of them is replaced, the others are deleted.
    pub of: Vec<Head>,
}

/// Groups rows, ordered by time, into those that become one, by `starts_us` and the length of a bucket.
pub(super) fn merged<R: Interval>(
    rows: impl IntoIterator<Item = R>,
    start_us: i64,
    bucket_us: i64,
) -> Vec<Merged<R>> {
    let mut open: BTreeMap<R::Key, Merged<R>> = BTreeMap::new();
    let mut done = Vec::new();
    for row in rows {
        let head = row.head().clone();
        if let Some(one) = open.get_mut(&row.key()) {
            let last = one.row.head();
            let is_next = head.at_us <= last.until_us();
            let first = one.of.first().unwrap_or(&head);
            if is_next && bucket(first, start_us, bucket_us) == bucket(&head, start_us, bucket_us) {
                one.row.add(&row);
                one.row.head_mut().add(&head);
                one.of.push(head);
                continue;
            }
        }
        let key = row.key();
        let of = vec![head];
        done.extend(open.insert(key, Merged { row, of }));
    }
    done.extend(open.into_values());
    done.retain(|one| one.of.len() > 1);
    done
}

/// The bucket of a row.
pub(super) fn bucket(head: &Head, start_us: i64, bucket_us: i64) -> i64 {
    (head.middle_us().saturating_sub(start_us)).div_euclid(bucket_us)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const S: i64 = 1_000_000;

    fn row(id: i64, at_us: i64, span_us: i64, ramp: bool) -> OpRow {
        let mut service = Histogram::new();
        service.record(u64::try_from(id).unwrap() * 1000);
        OpRow {
            head: Head {
                id,
                op: String::from("read"),
                ramp,
                at_us,
                span_us,
                ops: 1,
                bytes: 4096,
                errors: 0,
            },
            undated_bytes: 1,
            in_flight: id,
            service,
            response: None,
        }
    }

    fn spans(merged: &[Merged<OpRow>]) -> Vec<(i64, i64, i64)> {
        let of = |one: &Merged<OpRow>| {
            let head = &one.row.head;
            (head.at_us, head.span_us, head.ops)
        };
        let mut spans: Vec<_> = merged.iter().map(of).collect();
        spans.sort_unstable();
        spans
    }

    #[test]
    fn rows_of_a_bucket_become_one_and_stay_it() {
        // A task that started 20 us early: its rows keep to their seconds.
        let rows: Vec<OpRow> = (0..25).map(|n| row(n + 1, n * S - 20, S, false)).collect();
        let once = merged(rows.clone(), 0, 10 * S);
        let expected = [
            (-20, 10 * S, 10),
            (10 * S - 20, 10 * S, 10),
            (20 * S - 20, 5 * S, 5),
        ];
        assert_eq!(spans(&once), expected);
        let whole = &once
            .iter()
            .find(|one| one.row.head.at_us == -20)
            .unwrap()
            .row;
        assert_eq!(whole.service.count(), 10);
        assert_eq!((whole.in_flight, whole.undated_bytes), (10, 10));
        assert_eq!(whole.service.max_ns(), 10_000);
        let again = merged(once.into_iter().map(|one| one.row), 0, 10 * S);
        assert!(again.is_empty(), "merged rows are merged again: {again:?}");
    }

    #[test]
    fn neither_a_gap_nor_the_end_of_the_ramp_is_merged_over() {
        let rows = [
            row(1, 0, S, true),
            row(2, S, S / 2, true),
            row(3, S + S / 2, S / 2, false),
            row(4, 2 * S, S, false),
            // Four seconds are lost.
            row(5, 7 * S, S, false),
            row(6, 8 * S, S, false),
        ];
        let expected = [
            (0, S + S / 2, 2),
            (S + S / 2, S + S / 2, 2),
            (7 * S, 2 * S, 2),
        ];
        assert_eq!(spans(&merged(rows, 0, 10 * S)), expected);
    }
}

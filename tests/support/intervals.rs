//! Checks that the intervals of each task are contiguous from its start to its end, without gaps and overlaps.

use super::database::{Database, Row};
use std::collections::BTreeMap;

const SECOND_US: i64 = 1_000_000;
/// Maximum difference between two rows because mesh time is re-estimated from row to row.
const TOLERANCE_US: i64 = 20_000;

/// One row of operations, in mesh time.
#[derive(Debug, Clone, Copy)]
struct Interval {
    at_us: i64,
    span_us: i64,
}

/// Time of a task that no row of an operation covers, or two rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Break {
    pub task: i64,
    pub op: String,
    pub from_us: i64,
    /// Negative for an overlap.
    pub apart_us: i64,
    is_end: bool,
}

impl std::fmt::Display for Break {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (task, op, from_us, apart_us) = (self.task, &self.op, self.from_us, self.apart_us);
        write!(f, "task {task}, {op}: ")?;
        if self.is_end {
            write!(f, "{apart_us} us before the end are missing")
        } else if apart_us < 0 {
            write!(
                f,
                "{} us from {} are there twice",
                -apart_us,
                from_us + apart_us
            )
        } else {
            write!(f, "{apart_us} us from {from_us} are missing")
        }
    }
}

/// Fails with each gap and each overlap in the database. A task that did not end by itself may lack its end.
pub fn assert_no_holes(db: &Database) {
    let wrong: Vec<String> = breaks_of(db).iter().map(Break::to_string).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Each gap and each overlap in the database.
pub fn breaks_of(db: &Database) -> Vec<Break> {
    let rows = db.rows(
        "SELECT i.task_id, i.op, i.at_us, i.span_us, coalesce(t.start_us, s.start_us, i.at_us) AS start_us,
                iif(t.state = 'done', coalesce(t.ended_us, 0), 0) AS ended_us
         FROM op_intervals AS i JOIN tasks AS t ON t.id = i.task_id JOIN steps AS s ON s.id = t.step_id
         ORDER BY i.task_id, i.op, i.at_us",
    );
    let mut series: BTreeMap<(i64, String), Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        let key = (row.integer("task_id"), row.text("op"));
        series.entry(key).or_default().push(row);
    }
    let mut found = Vec::new();
    for (of, rows) in series {
        let intervals: Vec<Interval> = rows
            .iter()
            .map(|row| Interval {
                at_us: row.integer("at_us"),
                span_us: row.integer("span_us"),
            })
            .collect();
        let ended = rows[0].integer("ended_us");
        let start = rows[0].integer("start_us");
        found.extend(breaks(&of, start, (ended > 0).then_some(ended), &intervals));
    }
    found
}

/// Missing or duplicate intervals from a task's start to its end. The last second of a task may be empty and have no
/// interval.
fn breaks(
    (task, op): &(i64, String),
    start_us: i64,
    ended_us: Option<i64>,
    intervals: &[Interval],
) -> Vec<Break> {
    let of = |from_us: i64, apart_us: i64| Break {
        task: *task,
        op: op.clone(),
        from_us,
        apart_us,
        is_end: false,
    };
    let mut wrong = Vec::new();
    let mut next = start_us;
    for interval in intervals {
        let apart = interval.at_us - next;
        if apart.abs() > TOLERANCE_US {
            wrong.push(of(next, apart));
        }
        next = next.max(interval.at_us + interval.span_us);
    }
    if let Some(ended) = ended_us
        && next + SECOND_US <= ended
    {
        wrong.push(Break {
            is_end: true,
            ..of(next, ended - next)
        });
    }
    wrong
}

#[test]
fn holes_and_overlaps_are_found() {
    let check = |ended_us: Option<i64>, seconds: &[(i64, i64)], expected: &[&str]| {
        let intervals = seconds.iter().map(|(at, span)| Interval {
            at_us: at * SECOND_US,
            span_us: span * SECOND_US,
        });
        let intervals: Vec<Interval> = intervals.collect();
        let found = breaks(&(1, "read".to_owned()), 0, ended_us, &intervals);
        let found: Vec<String> = found.iter().map(Break::to_string).collect();
        let expected = expected.iter().map(|one| format!("task 1, read: {one}"));
        assert_eq!(found, expected.collect::<Vec<_>>(), "{seconds:?}");
    };
    let end = Some(4 * SECOND_US);
    check(end, &[(0, 1), (1, 1), (2, 1), (3, 1)], &[]);
    // A merged interval is wider.
    check(end, &[(0, 1), (1, 3)], &[]);
    check(
        end,
        &[(0, 1), (1, 1), (3, 1)],
        &["1000000 us from 2000000 are missing"],
    );
    check(end, &[(1, 3)], &["1000000 us from 0 are missing"]);
    check(
        end,
        &[(0, 2), (1, 3)],
        &["1000000 us from 1000000 are there twice"],
    );
    check(end, &[(0, 1)], &["3000000 us before the end are missing"]);
    check(None, &[(0, 1)], &[]);
}

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::seconds::{Axis, OpSecond, Points};
use super::*;
use crate::report;
use benchmesh_synthetic::{Shape, generate};
use std::sync::Arc;

const S: i64 = 1_000_000;
const T0: i64 = 1_750_000_000_000_000;

fn second(at: i64, ops: i64, p99_ns: i64) -> OpSecond {
    OpSecond {
        at_us: T0 + at * S,
        span_us: S,
        ops: Some(ops),
        bytes: Some(ops * 1_048_576),
        errors: i64::from(at == 3),
        p50_ns: Some(p99_ns / 10),
        p99_ns: Some(p99_ns),
        max_ns: Some(p99_ns * 2),
    }
}

#[test]
fn a_point_keeps_the_extremes_of_its_seconds() {
    // Ten minutes in ten points; one second has a tenth of the rate and a stall.
    let axis = Axis::new(T0, T0, T0 + 600 * S, 10);
    assert_eq!(axis.bucket_s(), 60.0);
    let mut points = Points::new("write".to_owned(), axis);
    for at in 0..600 {
        points.add(&match at {
            90 => second(at, 10, 900_000_000),
            _ => second(at, 100, 1_000_000),
        });
    }
    let series = points.finish();
    assert_eq!(series.at_s.len(), 10);
    assert_eq!(series.at_s[..3], [0.0, 60.0, 120.0]);
    assert_eq!(
        (series.ops_least[0], series.ops_per_s[0], series.ops_most[0]),
        (Some(100.0), Some(100.0), Some(100.0))
    );
    assert_eq!(
        (series.ops_least[1], series.ops_per_s[1], series.ops_most[1]),
        (Some(10.0), Some(98.5), Some(100.0))
    );
    assert_eq!(series.p99_most_ms[1], Some(900.0));
    assert_eq!(series.max_ms[1], Some(1800.0));
    assert_eq!(series.p99_ms[0], Some(1.0));
    assert_eq!(series.mib_per_s[0], Some(100.0));
    assert_eq!((series.errors[0], series.errors[1]), (1, 0));
}

#[test]
fn points_are_whole_seconds_and_no_more_than_asked_for() {
    for (seconds, points, width) in [
        (1, 100, 1.0),
        (100, 100, 1.0),
        (101, 100, 2.0),
        (86_400, 1200, 72.0),
    ] {
        let axis = Axis::new(T0, T0, T0 + seconds * S, points);
        assert_eq!(axis.bucket_s(), width, "{seconds} s");
        assert!(axis.bucket(T0 + seconds * S - 1) < points);
    }
}

#[test]
fn a_sliver_at_the_edge_is_no_extreme() {
    let axis = Axis::new(T0, T0, T0 + 60 * S, 1);
    let mut points = Points::new("write".to_owned(), axis);
    points.add(&second(0, 100, 1));
    points.add(&OpSecond {
        span_us: 1000,
        ..second(1, 90, 1)
    });
    let series = points.finish();
    assert_eq!(
        series.ops_most,
        [Some(series.ops_per_s[0].unwrap().max(100.0))]
    );
    assert!(series.ops_most[0] < Some(1000.0));
    // Nor does one before whole seconds in its point, as at the end of a ramp.
    let mut points = Points::new("write".to_owned(), Axis::new(T0, T0, T0 + 2 * S, 1));
    points.add(&OpSecond {
        span_us: 1000,
        ..second(0, 90, 1)
    });
    points.add(&second(1, 100, 1));
    let series = points.finish();
    assert!(series.ops_most[0] < Some(200.0), "{:?}", series.ops_most);
}

/// `None` is a gap in the chart: an imported log that does not count, or an operation without bytes.
#[test]
fn what_is_not_known_is_no_rate_of_zero() {
    type Seconds<'a> = &'a [(Option<i64>, Option<i64>)];
    type Rates<'a> = &'a [Option<f64>];
    let m = 1_048_576;
    let cases: [(&str, Seconds<'_>, Rates<'_>, Rates<'_>); 5] = [
        (
            "neither is counted",
            &[(None, None); 2],
            &[None; 2],
            &[None; 2],
        ),
        (
            "bytes are not counted",
            &[(Some(5), None); 2],
            &[Some(5.0); 2],
            &[None; 2],
        ),
        (
            "a deletion",
            &[(Some(5), Some(0)); 2],
            &[Some(5.0); 2],
            &[None; 2],
        ),
        (
            "a stall",
            &[(Some(5), Some(m)), (Some(0), Some(0))],
            &[Some(5.0), Some(0.0)],
            &[Some(1.0), Some(0.0)],
        ),
        (
            "a log with a hole",
            &[(Some(5), Some(m)), (None, None)],
            &[Some(5.0), None],
            &[Some(1.0), None],
        ),
    ];
    for (name, seconds, ops_per_s, mib_per_s) in cases {
        let mut points = Points::new("read".to_owned(), Axis::new(T0, T0, T0 + 2 * S, 2));
        for (at, (ops, bytes)) in (0..).zip(seconds) {
            points.add(&OpSecond {
                ops: *ops,
                bytes: *bytes,
                ..second(at, 1, 1_000_000)
            });
        }
        let series = points.finish();
        assert_eq!(series.ops_per_s, ops_per_s, "{name}");
        assert_eq!(series.mib_per_s, mib_per_s, "{name}");
        assert_eq!(series.ops_least, ops_per_s, "{name}");
        assert_eq!(series.p50_ms, [Some(0.1); 2], "{name}");
    }
}

#[test]
fn figures_are_written_with_four_digits() {
    for (value, text) in [
        (0.0, "0.0"),
        (1234.5678, "1235.0"),
        (12_345_678.0, "12350000.0"),
        (0.001_234_567, "0.001235"),
        (0.1 + 0.2, "0.3"),
        (f64::NAN, "0.0"),
    ] {
        assert_eq!(serde_json::to_string(&short(value)).unwrap(), text);
    }
}

/// Pairs of hosts are measured one after the other: each link has its own colour and name in the chart of their load.
#[tokio::test]
async fn links_are_no_repeats_of_one_load() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    let made = path.clone();
    let shape = Shape {
        runs: 1,
        repeats: 1,
        step_seconds: 2,
        soak_seconds: 0,
        ..Shape::small()
    };
    tokio::task::spawn_blocking(move || generate(&made, &shape).unwrap())
        .await
        .unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(
        "PRAGMA foreign_keys = OFF;
         DELETE FROM steps WHERE mode <> 'write';
         DELETE FROM tasks WHERE agent_id <> (
             SELECT iif(s.target = 'cephfs', 1, 2) FROM steps AS s WHERE s.id = tasks.step_id);
         UPDATE tasks SET peer_agent_id = 3 - agent_id;
         UPDATE steps SET target = NULL, system = NULL, workload = 'network', mode = 'request', clients = 1",
    )
    .unwrap();
    let report = report::load_file(&path, "last").await.unwrap();
    let pictures = load(&path, Arc::new(report)).await.unwrap();
    let of_load: Vec<(&str, &str)> = pictures
        .steps
        .iter()
        .filter(|step| step.load == pictures.steps[0].load)
        .map(|step| (step.target.as_str(), step.title.as_str()))
        .collect();
    let words = "(size=1g bs=4k)";
    assert_eq!(
        of_load,
        [
            (
                "node1 -> node2",
                &*format!("records: request, node1 -> node2 {words}")
            ),
            (
                "node2 -> node1",
                &*format!("records: request, node2 -> node1 {words}")
            )
        ]
    );
}

/// The end of a load is a fragment of a second with one slow operation; the next step begins within that second.
#[tokio::test]
async fn a_time_line_has_no_point_of_a_fragment_and_none_of_two_steps() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    let made = path.clone();
    let shape = Shape {
        runs: 1,
        repeats: 1,
        step_seconds: 4,
        soak_seconds: 0,
        ..Shape::small()
    };
    tokio::task::spawn_blocking(move || generate(&made, &shape).unwrap())
        .await
        .unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    // The second step begins 300 us after the end of the first.
    file.execute_batch(
        "PRAGMA foreign_keys = OFF;
         CREATE TEMP TABLE two AS SELECT id, start_us, row_number() OVER (ORDER BY ordinal) AS n FROM steps
             WHERE start_us IS NOT NULL ORDER BY ordinal LIMIT 2;
         CREATE TEMP TABLE ends AS SELECT max(i.at_us + i.span_us) AS at_us FROM step_intervals AS i
             JOIN two ON two.id = i.step_id AND two.n = 1;
         UPDATE step_intervals SET at_us = at_us + (SELECT ends.at_us + 300 FROM ends)
                 - (SELECT start_us FROM two WHERE n = 2)
             WHERE step_id = (SELECT id FROM two WHERE n = 2);
         UPDATE steps SET start_us = (SELECT at_us + 300 FROM ends), measured_from_us = NULL
             WHERE id = (SELECT id FROM two WHERE n = 2);
         INSERT INTO step_intervals (step_id, at_us, span_us, op, ramp, tasks, ops, bytes, errors, p50_ns, p99_ns, max_ns)
             SELECT two.id, ends.at_us, 120, 'write', 0, 1, 1, 4096, 0, 900000000, 900000000, 900000000
             FROM two, ends WHERE two.n = 1;
         DELETE FROM step_intervals WHERE step_id NOT IN (SELECT id FROM two);
         DELETE FROM tasks WHERE step_id NOT IN (SELECT id FROM two);",
    )
    .unwrap();
    let seconds: Vec<i64> = file
        .prepare("SELECT count(DISTINCT at_us) FROM step_intervals WHERE span_us > 1000 GROUP BY step_id ORDER BY min(at_us)")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let run: i64 = file
        .query_row("SELECT id FROM runs", [], |row| row.get(0))
        .unwrap();
    let line = timeline(&path, run, 0, 5000).await.unwrap();
    let first = usize::try_from(seconds[0]).unwrap();
    assert_eq!(line.starts, [0, first], "{line:?}");
    assert_eq!(
        line.total.at_s.len(),
        first + usize::try_from(seconds[1]).unwrap()
    );
    assert!(
        line.total.max_ms.iter().all(|ms| *ms < Some(900.0)),
        "{line:?}"
    );
    assert_eq!(line.total.at_s[first], line.steps[1].from_s);
}

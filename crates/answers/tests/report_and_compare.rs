//! A cell has the same figures in a report and in a comparison, also those that are only compared on request, and a
//! cell of groups is told apart by the loads of the other groups.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use benchmesh_answers::compare::{
    CompareAnswer, ComparisonRow, FigureName, Request, SideValue, Subject, Verdict, compare_file,
};
use benchmesh_answers::report::{self, Detail, Measure, Pivot, PivotFigure, Report};
use benchmesh_store::Store;
use std::fmt::Write;
use std::path::PathBuf;

const RUN: &str = "
    INSERT INTO runs (id, uid, name, plan, state, partial, created_us, started_us, ended_us, version)
        VALUES (1, 'u1', 'nightly', '', 'done', 0, 10, 20, 90000000, '0.1.0');";

/// The step and the operation of a repeat: seconds, rate and p99.
struct Measured {
    ordinal: i64,
    repeat: i64,
    target: &'static str,
    flags: &'static str,
    seconds: f64,
    ops_per_s: f64,
    p99_ms: f64,
}

impl Measured {
    fn sql(&self) -> String {
        let Self {
            ordinal,
            repeat,
            target,
            flags,
            seconds,
            ops_per_s,
            p99_ms,
        } = self;
        let (us, ns) = (seconds * 1e6, p99_ms * 1e6);
        let ops = seconds * ops_per_s;
        format!(
            "INSERT INTO steps (id, run_id, ordinal, repeat, attempt, phase, cell, target, system, workload, mode, params,
                                clients, cache, state, partial, flags, start_us, ended_us)
                 VALUES ({ordinal}, 1, {ordinal}, {repeat}, 1, 'records', 'c', '{target}', 'ext4', 'io', 'write',
                         '{{\"bs\":\"4k\"}}', 2, 'asis', 'done', 0, '{flags}', 30, 80000000);
             INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, window_us, ops_per_s, bytes_per_s,
                                       last_done_us, mean_ns, p50_ns, p99_ns, max_ns, saturated)
                 VALUES ({ordinal}, 'write', 2, CAST({ops} AS INTEGER), CAST({ops} AS INTEGER) * 4096, 0, 'window',
                         CAST({us} AS INTEGER), {ops_per_s}, {ops_per_s} * 4096, CAST({us} AS INTEGER), {ns} / 10,
                         CAST({ns} / 20 AS INTEGER), CAST({ns} AS INTEGER), CAST({ns} * 2 AS INTEGER), 0);"
        )
    }
}

async fn file(directory: &tempfile::TempDir, rows: &str) -> PathBuf {
    let path = directory.path().join("mesh.db");
    Store::open(&path).await.unwrap().close().await;
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute_batch(&format!("{RUN}{rows}")).unwrap();
    path
}

/// The report of the run, and the comparison of its targets.
async fn both(path: &std::path::Path) -> (Report, CompareAnswer) {
    let targets = Request::from(Subject::Targets {
        run: "last".to_owned(),
    });
    let report = report::load_file(path, "last").await.unwrap();
    (report, compare_file(path, &targets).await.unwrap())
}

/// Repeats of a fixed size, so that a slow one lasts longer; one lost a client, and its p99 is far away.
#[tokio::test]
async fn a_cell_has_the_same_value_and_spread_in_a_report_and_in_a_comparison() {
    let repeats = [
        (1, "[]", 2.0, 60_000.0, 20.0),
        (2, "[]", 2.5, 48_000.0, 30.0),
        (3, "[]", 12.0, 10_000.0, 55.0),
        (4, "[\"partial\"]", 1.0, 500.0, 900.0),
    ];
    let mut rows = String::new();
    for (repeat, flags, seconds, ops_per_s, p99_ms) in repeats {
        for (place, target) in (1..).zip(["gluster", "cephfs"]) {
            let measured = Measured {
                ordinal: repeat * 2 + place,
                repeat,
                target,
                flags,
                seconds: seconds * f64::from(i32::try_from(place).unwrap()),
                ops_per_s,
                p99_ms,
            };
            rows.push_str(&measured.sql());
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let (report, answer) = both(&file(&directory, &rows).await).await;
    let figures = |target: usize, measure: Measure| -> PivotFigure {
        let table = &report.phases[0].tables[0];
        let (.., cell) = table.each_cell().nth(target).unwrap();
        assert_eq!(cell.left_out.len(), 1, "{cell:?}");
        cell.figures[&measure]
    };
    for (measure, name) in [
        (Measure::OpsPerS, FigureName::Ops),
        (Measure::P99Ms, FigureName::P99),
        (Measure::MeanMs, FigureName::Mean),
    ] {
        let mut rows = answer.comparisons[0].rows.iter();
        let row = rows.find(|row| row.figure == name).unwrap();
        for (target, side) in [&row.a, &row.b].into_iter().enumerate() {
            let SideValue {
                value,
                repeats,
                spread_percent,
                ..
            } = side;
            let ours = figures(target, measure);
            let of_report = (ours.value, ours.n, ours.spread_percent());
            let count = u32::try_from(*repeats).unwrap();
            assert_eq!(of_report, (*value, count, *spread_percent), "{measure:?}");
            assert_eq!(count, 3);
        }
        assert!((row.ratio - row.b.value / row.a.value).abs() < 1e-12);
    }
    // Python: statistics.geometric_mean([20, 30, 55]), stdev / mean
    let p99 = figures(0, Measure::P99Ms);
    assert!((p99.value - 32.075_343_299_958_26).abs() < 1e-9, "{p99:?}");
    let shown: Vec<report::Table> = report::tables(&report, Detail::Summary);
    let notes: Vec<&String> = shown.iter().flat_map(|table| &table.notes).collect();
    let left_out =
        "Repeats that failed or are partial are in no figure, as others are whole: step 9, 10.";
    assert!(notes.iter().any(|note| *note == left_out), "{notes:?}");
}

/// Two groups at the same time. The readers' load is the same in all steps, the writers' block size varies.
#[tokio::test]
async fn cells_of_groups_are_told_apart_by_the_loads_beside_them() {
    let mut rows = String::new();
    for (ordinal, target, bs, readers, writers) in [
        (1, "gluster", "4k", 113_197, 500),
        (2, "cephfs", "4k", 56_000, 400),
        (3, "gluster", "64k", 129_462, 300),
        (4, "cephfs", "64k", 65_000, 200),
    ] {
        let _ = write!(
            rows,
            "INSERT INTO steps (id, run_id, ordinal, repeat, attempt, phase, cell, target, system, workload, mode, params,
                                clients, cache, state, partial, flags, start_us, ended_us)
                 VALUES ({ordinal}, 1, {ordinal}, 1, 1, 'mixed', 'c', '{target}', 'ext4', 'groups', 'groups', '{{}}', 2,
                         'asis', 'done', 0, '[]', 30, 80000000);
             INSERT INTO step_groups (step_id, name, workload, mode, params, clients, tasks)
                 VALUES ({ordinal}, 'readers', 'io', 'read', '{{\"bs\":\"1m\"}}', 1, 1),
                        ({ordinal}, 'writers', 'io', 'write', '{{\"bs\":\"{bs}\"}}', 1, 1);
             INSERT INTO step_results (step_id, group_name, op, tasks, ops, bytes, errors, headline, ops_per_s, saturated)
                 VALUES ({ordinal}, 'readers', 'read', 1, 1000, 1000, 0, 'window', {readers}, 0),
                        ({ordinal}, 'writers', 'write', 1, 1000, 1000, 0, 'window', {writers}, 0);"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let (report, answer) = both(&file(&directory, &rows).await).await;
    let tables: &[Pivot] = &report.phases[0].tables;
    let figures = tables.iter().flat_map(Pivot::each_cell);
    let figures: Vec<PivotFigure> = figures
        .map(|(.., cell)| cell.figures[&Measure::OpsPerS])
        .collect();
    assert_eq!(figures.len(), 8, "{tables:?}");
    assert!(figures.iter().all(|figure| figure.n == 1), "{figures:?}");
    let shown: Vec<String> = report::tables(&report, Detail::Summary)
        .iter()
        .map(|table| table.title.clone())
        .filter(|title| title.starts_with("mixed"))
        .collect();
    for group in ["readers", "writers"] {
        let named = shown.iter().filter(|title| title.contains(group));
        assert!(named.count() > 0, "{shown:?}");
    }
    let rows = answer.comparisons[0].rows.iter();
    let rates: Vec<(String, f64, usize)> = rows
        .filter(|row| row.figure == FigureName::Ops)
        .map(|row| {
            let cell: Vec<String> = row
                .cell
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            (
                format!("{} {}", row.group, cell.join(" ")),
                row.a.value.round(),
                row.a.repeats,
            )
        })
        .collect();
    let expected = [
        ("readers writers.bs=\"4k\"", 113_197.0),
        ("writers bs=\"4k\"", 500.0),
        ("readers writers.bs=\"64k\"", 129_462.0),
        ("writers bs=\"64k\"", 300.0),
    ];
    let expected = expected.map(|(cell, rate)| (cell.to_owned(), rate, 1));
    assert_eq!(rates, expected);
}

const CLIENTS: &str = "
    INSERT INTO hosts VALUES (1, 'b1', 'p', 'c1', 'Linux 6.1', 4, 1), (2, 'b2', 'p', 'c2', 'Linux 6.1', 4, 1);
    INSERT INTO agents (id, uid, name, host_id, version, first_seen_us, last_seen_us)
        VALUES (1, 'a1', 'c1', 1, '0.1.0', 1, 2), (2, 'a2', 'c2', 2, '0.1.0', 1, 2);";

/// The figures that are listed if they are requested: each with its value in a step of factor 1, and its unit.
const REQUESTED: [(FigureName, f64, &str); 6] = [
    (FigureName::P90, 2.0, "ms"),
    (FigureName::P95, 3.0, "ms"),
    (FigureName::P999, 10.0, "ms"),
    (FigureName::Spread, 10.0, "%"),
    (FigureName::ClientCpu, 400.0, "us/op"),
    (FigureName::NetBytes, 4000.0, "B/op"),
];

/// A step of 1000 operations by two clients, whose requested figures are `factor` times those of [`REQUESTED`].
fn costly(ordinal: i64, repeat: i64, target: &'static str, factor: f64) -> String {
    let measured = Measured {
        ordinal,
        repeat,
        target,
        flags: "[]",
        seconds: 10.0,
        ops_per_s: 100.0,
        p99_ms: 5.0,
    };
    format!(
        "{}
         UPDATE step_results SET p90_ns = 2e6 * {factor}, p95_ns = 3e6 * {factor}, p999_ns = 10e6 * {factor}, seconds = 10,
             zero_seconds = 0, ops_per_s_stddev = 10 * {factor} WHERE step_id = {ordinal};
         INSERT INTO tasks (step_id, task_index, agent_id, state, cpu_user_us, cpu_system_us)
             VALUES ({ordinal}, 0, 1, 'done', 100000 * {factor}, 50000 * {factor}),
                    ({ordinal}, 1, 2, 'done', 50000 * {factor}, 200000 * {factor});
         INSERT INTO step_traffic (step_id, host_id, read_bytes, written_bytes, received_bytes, sent_bytes)
             VALUES ({ordinal}, 1, 0, 2048000, 500000 * {factor}, 1500000 * {factor}),
                    ({ordinal}, 2, 0, 2048000, 0, 2000000 * {factor});",
        measured.sql()
    )
}

/// Two repeats on each target, which differ by the same factor in every requested figure.
#[tokio::test]
async fn requested_figures_are_added_and_change_nothing_else() {
    let mut rows = CLIENTS.to_owned();
    for (ordinal, repeat, target, factor) in [
        (1, 1, "gluster", 1.0),
        (2, 1, "cephfs", 0.5),
        (3, 2, "gluster", 4.0),
        (4, 2, "cephfs", 2.0),
    ] {
        rows.push_str(&costly(ordinal, repeat, target, factor));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, &rows).await;
    let (report, usual) = both(&path).await;
    let request = Request {
        subject: Subject::Targets {
            run: "last".to_owned(),
        },
        figures: FigureName::all().collect(),
    };
    let mut answer = compare_file(&path, &request).await.unwrap();
    let card = |answer: &CompareAnswer| report::ComparisonDocument::of(answer).card;
    assert_eq!(card(&answer), card(&usual));
    let all = std::mem::take(&mut answer.comparisons[0].rows);
    let is_requested = |figure| REQUESTED.iter().any(|(requested, ..)| *requested == figure);
    let (added, listed): (Vec<ComparisonRow>, _) =
        all.into_iter().partition(|row| is_requested(row.figure));
    answer.comparisons[0].rows = listed;
    assert_eq!(answer, usual);
    assert_eq!(added.len(), REQUESTED.len());
    for (row, (figure, value, unit)) in added.iter().zip(REQUESTED) {
        assert_eq!((row.figure, row.unit.as_str()), (figure, unit));
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 1e-4, "{row:?}: {expected}");
        };
        // The geometric means of the factors are 2 and 1.
        near(row.a.value, 2.0 * value);
        near(row.b.value, value);
        near(row.ratio, 0.5);
        // The repeats of both sides scatter by ln 2 around their means, with two degrees of freedom: the error of the
        // ratio is sqrt(2) * ln 2, and Student's quantile 4.302653.
        near(row.low.unwrap(), 0.5 * (-4.217_710_f64).exp());
        near(row.high.unwrap(), 0.5 * 4.217_710_f64.exp());
        assert_eq!(row.p, row.p_corrected);
        assert_eq!(row.noise.as_deref(), Some("repeats"));
        assert_eq!(row.verdict, Verdict::NotJudged);
    }
    let uneven: Vec<f64> = report.phases[0].tables[0]
        .each_cell()
        .map(|(.., cell)| cell.figures[&Measure::UnevenPercent].value)
        .collect();
    let spread = added.iter().find(|row| row.figure == FigureName::Spread);
    let spread = spread.unwrap();
    assert_eq!(uneven, [spread.a.value, spread.b.value], "as in a report");
}

/// CPU time is that of all operations of a load, and of each group; interfaces are shared by groups.
#[tokio::test]
async fn costs_belong_to_whole_loads_and_are_unknown_without_one_client() {
    let mut rows = CLIENTS.to_owned();
    for (ordinal, target) in [(1, "gluster"), (2, "cephfs")] {
        // Two more operations: 1000 writes and 3000 reads, for 400 ms and 4 MB.
        rows.push_str(&costly(ordinal, 1, target, 1.0));
        let _ = write!(
            rows,
            "INSERT INTO step_results (step_id, op, tasks, ops, bytes, errors, headline, ops_per_s, saturated)
                 VALUES ({ordinal}, 'read', 2, 3000, 1000, 0, 'window', 300, 0);"
        );
        // The CPU time of one client is unknown, and the traffic of one host.
        let lost = ordinal + 2;
        rows.push_str(&costly(lost, 1, target, 1.0));
        let _ = write!(
            rows,
            "UPDATE steps SET phase = 'lost' WHERE id = {lost};
             UPDATE tasks SET cpu_system_us = NULL WHERE step_id = {lost} AND task_index = 1;
             UPDATE step_traffic SET received_bytes = NULL, sent_bytes = NULL WHERE step_id = {lost} AND host_id = 2;"
        );
        let groups = ordinal + 4;
        rows.push_str(&costly(groups, 1, target, 1.0));
        let _ = write!(
            rows,
            "UPDATE steps SET phase = 'groups', workload = 'groups', mode = 'groups' WHERE id = {groups};
             INSERT INTO step_groups (step_id, name, workload, mode, params, clients, tasks)
                 VALUES ({groups}, 'writers', 'io', 'write', '{{}}', 1, 1), ({groups}, 'readers', 'io', 'read', '{{}}', 1, 1);
             UPDATE tasks SET group_name = iif(task_index = 0, 'writers', 'readers') WHERE step_id = {groups};
             UPDATE step_results SET group_name = 'writers' WHERE step_id = {groups};
             INSERT INTO step_results (step_id, group_name, op, tasks, ops, bytes, errors, headline, ops_per_s, saturated)
                 VALUES ({groups}, 'readers', 'read', 1, 500, 1000, 0, 'window', 300, 0);"
        );
    }
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, &rows).await;
    let request = Request {
        subject: Subject::Targets {
            run: "last".to_owned(),
        },
        figures: vec![FigureName::ClientCpu, FigureName::NetBytes],
    };
    let answer = compare_file(&path, &request).await.unwrap();
    let rows = answer.comparisons[0].rows.iter();
    let found: Vec<(&str, &str, &str, FigureName, f64)> = rows
        .filter(|row| request.figures.contains(&row.figure))
        .inspect(|row| assert_eq!((row.p, row.low), (None, None), "one run on each side"))
        .map(|row| (&*row.phase, &*row.group, &*row.op, row.figure, row.b.value))
        .collect();
    let expected = [
        ("records", "", "", FigureName::ClientCpu, 100.0),
        ("records", "", "", FigureName::NetBytes, 1000.0),
        ("groups", "readers", "", FigureName::ClientCpu, 500.0),
        ("groups", "writers", "", FigureName::ClientCpu, 150.0),
    ];
    assert_eq!(found, expected);
}

//! A cell has the same figures in a report and in a comparison, and a cell of groups is told apart by the loads of the
//! other groups.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use benchmesh_answers::compare::{CompareAnswer, FigureName, Request, SideValue, compare_file};
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
    let targets = Request::Targets {
        run: "last".to_owned(),
    };
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

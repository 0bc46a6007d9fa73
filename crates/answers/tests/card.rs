//! Every number in a load's line of the answer card is that of the database: the geometric mean of its repeats in
//! `v_results` and `v_cost`.
#![allow(clippy::unwrap_used)]

use benchmesh_answers::report::{self, figures};
use benchmesh_synthetic::{Shape, generate};
use rusqlite::Connection;
use std::path::{Path, PathBuf};

/// A run of three repeats on this number of targets.
async fn run_of(directory: &Path, targets: u32) -> PathBuf {
    let path = directory.join(format!("{targets}.db"));
    let shape = Shape {
        targets,
        runs: 1,
        repeats: 3,
        step_seconds: 10,
        soak_seconds: 0,
        ..Shape::small()
    };
    let made = path.clone();
    // It has a runtime of its own.
    tokio::task::spawn_blocking(move || generate(&made, &shape).unwrap())
        .await
        .unwrap();
    path
}

/// The geometric mean of what `sql` returns for each step; `None` if a step has no value.
fn level(connection: &Connection, sql: &str, steps: &[i64], op: &str) -> Option<f64> {
    let values = steps.iter().map(|step| {
        let mut statement = connection.prepare(sql).unwrap();
        statement
            .query_row((step, op), |row| row.get::<_, Option<f64>>(0))
            .unwrap()
    });
    let values: Option<Vec<f64>> = values.collect();
    let values = values?;
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    let count = f64::from(u32::try_from(values.len()).unwrap());
    Some((logs / count).exp())
}

fn of_results(column: &str) -> String {
    format!("SELECT {column} FROM v_results WHERE step_id = ? AND op = ?")
}

/// Of all daemons that serve the target. The operation is not in `v_cost`, where a step has one cost.
const COST: &str = "SELECT sum(cpu_us_per_op) FROM v_cost WHERE step_id = ? AND ? <> ''";

#[tokio::test]
async fn the_numbers_of_the_card_are_those_of_the_database() {
    let directory = tempfile::tempdir().unwrap();
    for targets in [1, 3] {
        let path = run_of(directory.path(), targets).await;
        let report = report::load_file(&path, "last").await.unwrap();
        let connection = Connection::open(&path).unwrap();
        let card = &report.card;
        assert!(!card.loads.is_empty());
        for load in &card.loads {
            let is_read = load.load.contains("read");
            let op = if is_read { "read" } else { "write" };
            let (column, shown): (&str, fn(f64) -> String) = match load.figure.as_str() {
                "ops" => ("ops_per_s", figures::rate),
                "bytes" => ("mib_per_s", figures::rate),
                "response" => ("response_p99_ms", figures::millis),
                other => panic!("{other} of {load:?}"),
            };
            for side in &load.sides {
                let value = level(&connection, &of_results(column), &side.steps, op).unwrap();
                assert!((side.value / value - 1.0).abs() < 1e-9, "{value}: {load:?}");
                assert!(load.text.contains(&shown(value)), "{value}: {load:?}");
            }
            let [only] = load.sides.as_slice() else {
                continue;
            };
            let mut beside = Vec::new();
            if column == "ops_per_s" {
                let mib_per_s = level(&connection, &of_results("mib_per_s"), &only.steps, op);
                beside.extend(mib_per_s.map(|value| format!("{} MiB/s", figures::rate(value))));
                let p99 = level(&connection, &of_results("p99_ms"), &only.steps, op).unwrap();
                beside.push(format!("p99 {} ms", figures::millis(p99)));
            }
            let cost = level(&connection, COST, &only.steps, op).unwrap();
            beside.push(format!("daemons {} us", figures::rate(cost)));
            for text in beside {
                assert!(load.text.contains(&text), "{text}: {load:?}");
            }
        }
    }
}

//! Usage of daemons in a step: exact at the step's edges, with an error bound elsewhere, for the daemons that serve
//! its target.

mod around;
mod counted;
mod late;
mod long_run;
mod parents;
mod serving;

use super::{Mesh, S, T0, batch, interval, new_step, running, send, task_end};
use crate::Publisher;
use crate::ingest::batch::{Batch, DaemonSample, DaemonSeen};
use benchmesh_model::mesh::{RunId, StepId};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

/// A step of four seconds from `T0` on, on the target `cephfs`, and the batch that its agent sends.
async fn step_of_four_seconds(mesh: &Mesh) -> (Publisher, StepId, Batch) {
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store
        .set_run_state(run, running(T0 - S))
        .await
        .unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    mesh.begun(step).await;
    let mut one = batch("s", 1);
    one.op_intervals = (0..4)
        .map(|second| interval(tasks[0], T0 + second * S, "create", 100, 1000))
        .collect();
    one.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
    (publisher, step, one)
}

/// A finished step of four seconds whose agent may send more.
struct Finished {
    mesh: Mesh,
    publisher: Publisher,
}

async fn finished(daemons: Vec<DaemonSeen>, samples: Vec<DaemonSample>) -> Finished {
    let mesh = Mesh::new().await;
    let (publisher, step, mut one) = step_of_four_seconds(&mesh).await;
    (one.daemons, one.daemon_samples) = (daemons, samples);
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 4 * S).await;
    Finished { mesh, publisher }
}

async fn newest_run(mesh: &Mesh) -> RunId {
    RunId(mesh.number("SELECT max(id) FROM runs").await)
}

async fn usage(mesh: &Mesh) -> Vec<SqliteRow> {
    sqlx::query("SELECT * FROM v_daemon_usage ORDER BY pid")
        .fetch_all(mesh.store.reader())
        .await
        .unwrap()
}

fn seconds(row: &SqliteRow, column: &str) -> Option<f64> {
    row.get(column)
}

/// Checks some columns of the usage of each daemon, in the order of their pids; returns the rows.
async fn check(mesh: &Mesh, expected: &[&[(&str, Option<f64>)]]) -> Vec<SqliteRow> {
    let rows = usage(mesh).await;
    assert_eq!(rows.len(), expected.len());
    for (row, columns) in rows.iter().zip(expected) {
        for (column, value) in *columns {
            let pid: i64 = row.get("pid");
            assert_eq!(seconds(row, column), *value, "{column} of {pid}");
        }
    }
    rows
}

//! Ids are never reused, and rows that an agent still holds of a deleted run are not assigned to another run.

use super::{Mesh, S, T0, batch, interval, new_step, running, send, task_end};
use crate::ingest::Batch;
use crate::maintain::{backup, delete, merge};
use crate::rows::RunChange;
use benchmesh_model::mesh::{RunId, RunState, TaskId};
use rusqlite::Connection;

const IDS: &str =
    "SELECT (SELECT max(id) FROM runs), (SELECT max(id) FROM steps), (SELECT max(id) FROM tasks)";

/// An ended run of one task, with `ops` operations in its first second.
async fn ended_run(mesh: &Mesh, uid: &str, ops: u64) -> (RunId, TaskId) {
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run(uid).await;
    mesh.store.set_run_state(run, running(T0)).await.unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    send(&publisher, rows_of(uid, tasks[0], 0, ops, uid))
        .await
        .unwrap();
    mesh.finish(step, T0 + S).await;
    let done = RunChange {
        state: RunState::Done,
        ..running(T0 + S)
    };
    mesh.store.set_run_state(run, done).await.unwrap();
    (run, tasks[0])
}

/// One second of a task and its end, in a separate spool.
fn rows_of(spool: &str, task: TaskId, second: i64, ops: u64, run_uid: &str) -> Batch {
    let mut rows = batch(spool, 1);
    rows.op_intervals = vec![interval(task, T0 + second * S, "create", ops, 1000)];
    rows.task_ends = vec![task_end(task, 0, T0 + (second + 1) * S)];
    rows.op_intervals[0].run_uid = run_uid.to_owned();
    rows.task_ends[0].run_uid = run_uid.to_owned();
    rows
}

/// The largest ids of runs, steps and tasks.
async fn ids(mesh: &Mesh) -> (i64, i64, i64) {
    sqlx::query_as(IDS)
        .fetch_one(mesh.store.reader())
        .await
        .unwrap()
}

async fn left_out(mesh: &Mesh, run_uid: &str) -> i64 {
    sqlx::query_scalar(
        "SELECT coalesce(sum(detail ->> 'operations'), 0) FROM events
         WHERE kind = 'rows-left-out' AND detail ->> 'run_uid' = ?",
    )
    .bind(run_uid)
    .fetch_one(mesh.store.reader())
    .await
    .unwrap()
}

#[tokio::test]
async fn rows_of_a_deleted_run_are_not_those_of_the_next_one() {
    let mut mesh = Mesh::new().await;
    ended_run(&mesh, "one", 10).await;
    let (_, gone) = ended_run(&mesh, "two", 10).await;
    let before = ids(&mesh).await;
    mesh.store.close().await;
    delete(&mesh.path(), "two").await.unwrap();
    mesh.reopen().await;
    ended_run(&mesh, "three", 30).await;
    let after = ids(&mesh).await;
    assert!(
        after.0 > before.0 && after.1 > before.1 && after.2 > before.2,
        "{before:?} {after:?}"
    );
    // The agent's spool arrives late. An agent of an older version does not send the run's uid.
    let (publisher, ..) = mesh.publisher("a").await;
    for (spool, uid) in [("late", "two"), ("older", "")] {
        let late = rows_of(spool, gone, 1, 500, uid);
        assert_eq!(send(&publisher, late).await, Ok(1));
        assert_eq!(left_out(&mesh, uid).await, 500);
    }
    assert_eq!(mesh.number("SELECT sum(ops) FROM op_intervals").await, 40);
    mesh.assert_sound().await;
}

#[tokio::test]
async fn rows_of_a_run_that_a_restored_copy_lacks_are_not_those_of_another() {
    let mut mesh = Mesh::new().await;
    ended_run(&mesh, "one", 10).await;
    let copy = mesh.directory.path().join("copy.db");
    backup(&mesh.path(), &copy).unwrap();
    let (_, lost) = ended_run(&mesh, "two", 10).await;
    mesh.store.close().await;
    std::fs::rename(&copy, mesh.path()).unwrap();
    Connection::open(mesh.path())
        .unwrap()
        .execute("UPDATE meta SET created_us = created_us - 3600000000", [])
        .unwrap();
    mesh.reopen().await;
    let (_, own) = ended_run(&mesh, "three", 30).await;
    let (publisher, ..) = mesh.publisher("a").await;
    let late = rows_of("late", lost, 1, 500, "two");
    assert_eq!(send(&publisher, late).await, Ok(1));
    assert_ne!(own, lost);
    // An id that was assigned a second time by chance.
    let mut same = rows_of("same", own, 1, 70, "two");
    assert_eq!(send(&publisher, same.clone()).await, Ok(1));
    assert_eq!(left_out(&mesh, "two").await, 570);
    assert_eq!(mesh.number("SELECT sum(ops) FROM op_intervals").await, 40);
    same = rows_of("own", own, 1, 70, "three");
    assert_eq!(send(&publisher, same).await, Ok(1));
    assert_eq!(mesh.number("SELECT sum(ops) FROM op_intervals").await, 110);
    mesh.assert_sound().await;
}

#[tokio::test]
async fn a_merge_gives_no_id_of_a_deleted_run_again() {
    let (mut a, b) = (Mesh::new().await, Mesh::new().await);
    ended_run(&a, "one", 10).await;
    ended_run(&a, "two", 10).await;
    let before = ids(&a).await;
    ended_run(&b, "other", 20).await;
    for mesh in [&a, &b] {
        mesh.store.close().await;
    }
    delete(&a.path(), "two").await.unwrap();
    merge(&a.path(), &b.path(), &mut |_, _| {}).await.unwrap();
    let merged: i64 = Connection::open(a.path())
        .unwrap()
        .query_row("SELECT id FROM runs WHERE uid = 'other'", [], |row| {
            row.get(0)
        })
        .unwrap();
    assert!(merged > before.0, "{merged} after {before:?}");
    a.reopen().await;
    let after = ids(&a).await;
    ended_run(&a, "three", 30).await;
    let last = ids(&a).await;
    assert!(
        after.1 > before.1 && after.2 > before.2 && last.0 > after.0 && last.2 > after.2,
        "{before:?} {after:?} {last:?}"
    );
    a.assert_sound().await;
}

//! A step's figures, computed at its end and again when late data arrive.

use super::{Mesh, S, T0, batch, interval, new_step, send, task_end};
use crate::database::WriteRows;
use crate::finish::follow::FollowedSteps;
use crate::ingest::batch::Loss;
use crate::writer::CommitPolicy;
use benchmesh_model::mesh::{LossKind, MeshMicros};
use benchmesh_results::{Flag, Headline};
use std::time::{Duration, Instant};

#[tokio::test]
async fn two_tasks_are_summed_over_the_window_that_both_were_active_in() {
    let mesh = Mesh::new().await;
    let (a, agent_a, _) = mesh.publisher("a").await;
    let (b, agent_b, _) = mesh.publisher("b").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent_a, agent_b])
        .await;
    for (publisher, task, seconds) in [(&a, tasks[0], 4), (&b, tasks[1], 6)] {
        let mut all = batch("s", 1);
        all.op_intervals = (0..seconds)
            .map(|second| interval(task, T0 + second * S, "create", 100, 1000))
            .collect();
        all.task_ends = vec![task_end(task, 0, T0 + seconds * S)];
        send(publisher, all).await.unwrap();
    }
    let results = mesh.finish(step, T0 + 7 * S).await;
    let create = &results.ops[0];
    assert_eq!((create.ops, create.tasks), (1000, 2));
    assert_eq!(create.headline, Headline::Window);
    assert_eq!(create.window_us, Some(4 * S));
    assert_eq!(create.ops_per_s, Some(200.0));
    assert_eq!(create.last_done_ops_per_s, Some(1000.0 / 6.0));
    let grid: Vec<(i64, i64)> =
        sqlx::query_as("SELECT at_us, ops FROM step_intervals ORDER BY at_us")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    let expected: Vec<(i64, i64)> = [200, 200, 200, 200, 100, 100]
        .into_iter()
        .zip(0..)
        .map(|(ops, second)| (T0 + second * S, ops))
        .collect();
    assert_eq!(grid, expected);
    mesh.assert_sound().await;
}

#[tokio::test]
async fn late_data_change_the_results() {
    let mut mesh = Mesh::new().await;
    let (publisher, agent, host) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut first = batch("s", 1);
    first.op_intervals = vec![interval(tasks[0], T0, "create", 10, 1000)];
    send(&publisher, first).await.unwrap();
    let early = mesh.finish(step, T0 + 5 * S).await;
    assert!(early.flags.contains(&Flag::Partial), "{:?}", early.flags);
    assert_eq!(early.ops[0].ops, 10);

    let mut late = batch("s", 2);
    late.op_intervals = vec![interval(tasks[0], T0 + S, "create", 7, 9_000_000)];
    late.task_ends = vec![task_end(tasks[0], 0, T0 + 2 * S)];
    send(&publisher, late).await.unwrap();
    wait_for_ops(&mesh, 17).await;
    assert_eq!(
        mesh.number("SELECT max_ns FROM step_results").await,
        9_000_000
    );
    assert_eq!(mesh.number("SELECT count(*) FROM step_intervals").await, 2);

    // Work that a crash left undone is done when the database is opened again.
    mesh.store
        .write(step, |step, connection| {
            Box::pin(async move {
                for sql in [
                    "UPDATE steps SET stale_batches = 1 WHERE id = ?",
                    "DELETE FROM step_results WHERE step_id = ?",
                ] {
                    sqlx::query(sql)
                        .bind(step.0)
                        .write(connection, "forget results")
                        .await?;
                }
                Ok(())
            })
        })
        .await
        .unwrap();
    mesh.reopen().await;
    wait_for_ops(&mesh, 17).await;
    drop(mesh.store.publisher(agent, host, String::new()));
}

/// Waits until the results have this number of operations and include all late data.
async fn wait_for_ops(mesh: &Mesh, ops: i64) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = mesh
            .number("SELECT coalesce(sum(ops), 0) FROM step_results")
            .await;
        let waiting = mesh.number("SELECT sum(stale_batches) FROM steps").await;
        if found == ops && waiting == 0 {
            return;
        }
        assert!(Instant::now() < deadline, "{found} operations, not {ops}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_step_without_data_is_flagged_and_not_an_error() {
    let mesh = Mesh::new().await;
    let (_, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, _) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let results = mesh.finish(step, T0 + S).await;
    assert!(results.ops.is_empty());
    assert!(results.flags.contains(&Flag::NoData));
    let flags: String = sqlx::query_scalar("SELECT flags FROM steps")
        .fetch_one(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(flags, r#"["no-data","partial"]"#);
}

#[tokio::test]
async fn a_running_step_has_its_timeline_but_for_its_last_seconds() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    mesh.store
        .set_run_state(run, super::running(T0))
        .await
        .unwrap();
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut followed = FollowedSteps::new(CommitPolicy::Now);
    let mut sequence = 0;
    for (until, kept) in [(5, 0), (40, 36), (41, 37), (100, 96)] {
        sequence += 1;
        let mut more = batch("s", sequence);
        let sent = mesh.number("SELECT count(*) FROM op_intervals").await;
        more.op_intervals = (sent..until)
            .map(|second| interval(tasks[0], T0 + second * S, "create", 10, 1000))
            .collect();
        send(&publisher, more).await.unwrap();
        mesh.store.follow_once(&mut followed).await.unwrap();
        mesh.store.sum_once(&mut followed).await.unwrap();
        let found = mesh.number("SELECT count(*) FROM v_timeline").await;
        assert_eq!(found, kept, "of {until} seconds");
        if until == 40 {
            // A restarted collector continues where the previous one stopped.
            followed = FollowedSteps::new(CommitPolicy::Now);
        }
    }
    let results = mesh.finish(step, T0 + 100 * S).await;
    assert_eq!(results.ops[0].ops, 1000);
    assert_eq!(mesh.number("SELECT count(*) FROM v_timeline").await, 100);
    assert_eq!(mesh.number("SELECT sum(ops) FROM v_timeline").await, 1000);
}

/// The time line of a long step, one second of which receives more data.
#[tokio::test]
async fn late_data_change_the_seconds_that_they_are_of_and_nobody_sees_an_empty_time_line() {
    const SECONDS: i64 = 400;
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let second = |at: i64, ops| interval(tasks[0], T0 + at * S, "create", ops, 1000);
    let mut first = batch("s", 1);
    first.op_intervals = (0..SECONDS).map(|at| second(at, 10)).collect();
    first.task_ends = vec![task_end(tasks[0], 0, T0 + SECONDS * S)];
    send(&publisher, first).await.unwrap();
    mesh.finish(step, T0 + SECONDS * S).await;
    let rows = "SELECT id, at_us, ops FROM step_intervals ORDER BY at_us";
    let read = || sqlx::query_as::<_, (i64, i64, i64)>(rows).fetch_all(mesh.store.reader());
    let before = read().await.unwrap();
    assert_eq!(before.len() as i64, SECONDS);

    let path = mesh.path();
    let (stop, stopped) = std::sync::mpsc::sync_channel::<()>(1);
    let beside = std::thread::spawn(move || {
        let reader = rusqlite::Connection::open(path).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        let mut sums = reader
            .prepare("SELECT count(*), sum(ops) FROM step_intervals")
            .unwrap();
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let sum = sums.query_row([], |row| Ok((row.get(0)?, row.get(1)?)));
            seen.insert(sum.unwrap());
        }
        seen
    });
    let mut late = batch("s", 2);
    late.op_intervals = vec![second(7, 3)];
    send(&publisher, late).await.unwrap();
    wait_for_ops(&mesh, SECONDS * 10 + 3).await;
    stop.send(()).unwrap();
    let seen: Vec<(i64, i64)> = beside.join().unwrap().into_iter().collect();
    let (old, new) = ((SECONDS, SECONDS * 10), (SECONDS, SECONDS * 10 + 3));
    assert!(
        seen.iter().all(|sum| *sum == old || *sum == new),
        "{seen:?}"
    );
    let after = read().await.unwrap();
    let changed: Vec<i64> = (before.iter().zip(&after))
        .filter(|(old, new)| old != new)
        .map(|(_, new)| (new.1 - T0) / S)
        .collect();
    assert_eq!(changed, [7], "other rows were written again");
}

/// Waits until the late data are included.
async fn until_worked_in(mesh: &Mesh, flag: &str, is_raised: bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let sql = format!(
        "SELECT count(*) FROM steps WHERE stale_batches = 0 AND (instr(flags, '\"{flag}\"') > 0) = {is_raised}"
    );
    let reader = rusqlite::Connection::open(mesh.path()).unwrap();
    let is_done = || -> i64 { reader.query_row(&sql, [], |row| row.get(0)).unwrap() };
    while is_done() == 0 {
        let found = || -> String {
            let sql = "SELECT state || ', ' || stale_batches || ': ' || flags FROM steps";
            reader.query_row(sql, [], |row| row.get(0)).unwrap()
        };
        assert!(
            Instant::now() < deadline,
            "it is not worked in: {}",
            found()
        );
        tokio::task::yield_now().await;
    }
}

/// Lost batches are reported after the step's results were stored, and flag the steps of their time.
#[tokio::test]
async fn lost_batches_flag_the_steps_of_their_time() {
    for (what, rows, from, is_flagged) in [
        (vec![LossKind::Batches], 3, T0 + S, true),
        (vec![LossKind::Batches], 3, T0 + 9 * S, false),
        // A full spool dropped only samples.
        (
            vec![LossKind::Batches, LossKind::Operations],
            0,
            T0 + S,
            false,
        ),
        (
            vec![LossKind::Batches, LossKind::Operations],
            7,
            T0 + S,
            true,
        ),
        (vec![LossKind::HostSamples], 3, T0 + S, false),
    ] {
        let mesh = Mesh::new().await;
        let (publisher, agent, _) = mesh.publisher("a").await;
        let run = mesh.run("u").await;
        let (step, tasks) = mesh
            .step(run, new_step(0, "files", "create"), &[agent])
            .await;
        let mut first = batch("s", 1);
        first.op_intervals = (0..4)
            .map(|second| interval(tasks[0], T0 + second * S, "create", 100, 1000))
            .collect();
        first.task_ends = vec![task_end(tasks[0], 0, T0 + 4 * S)];
        send(&publisher, first).await.unwrap();
        let early = mesh.finish(step, T0 + 5 * S).await;
        assert_eq!(early.flags, []);
        let mut late = batch("s", 2);
        late.losses = (what.iter())
            .map(|what| Loss {
                what: *what,
                rows,
                from: MeshMicros(from),
                until: MeshMicros(from + S),
            })
            .collect();
        send(&publisher, late).await.unwrap();
        until_worked_in(&mesh, "batches-lost", is_flagged).await;
        let flags = "SELECT count(*) FROM v_results WHERE flag_batches_lost";
        assert_eq!(mesh.number(flags).await > 0, is_flagged, "{what:?}");
    }
}

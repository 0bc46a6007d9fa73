//! Rows that wait for others before their commit: they are shown live at once, stored on request, and never lost.

use super::{Mesh, S, T0, batch, interval, new_step, sample, seen, task_end};
use crate::ingest::batch::ClockOffset;
use crate::ingest::{Batch, Receipt};
use crate::rows::{Row, RunChange};
use crate::writer::{CommitPolicy, GROUP_ROWS, LastRequest};
use crate::{Publisher, Store};
use benchmesh_model::mesh::{AgentId, HostId, MeshMicros, RunId, RunState, StepId, TaskId};
use futures::FutureExt;
use sqlx::SqliteConnection;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// A mesh without requests for rows for a long time, and one agent that has a task in a running step.
struct QuietMesh {
    mesh: Mesh,
    publisher: Publisher,
    agent: AgentId,
    host: HostId,
    run: RunId,
    step: StepId,
    task: TaskId,
}

impl QuietMesh {
    async fn new() -> Self {
        let mut mesh = Mesh::new().await;
        let (publisher, agent, host) = mesh.publisher("a").await;
        let run = mesh.run("u").await;
        let (step, tasks) = mesh
            .step(run, new_step(0, "files", "create"), &[agent])
            .await;
        let mut first = batch("s", 1);
        first.daemons = vec![seen(1, "ceph-osd", T0)];
        first.daemon_samples = vec![sample(1, T0 + S, 1, 1)];
        super::send(&publisher, first).await.unwrap();
        mesh.store.close().await;
        mesh.store = calm(&mesh.path()).await;
        let publisher = mesh.store.publisher(agent, host, "net:1".to_owned());
        Self {
            mesh,
            publisher,
            agent,
            host,
            run,
            step,
            task: tasks[0],
        }
    }

    /// Batch `sequence` contains the rows of second `sequence`.
    fn second(&self, sequence: u64) -> Batch {
        let at = T0 + sequence as i64 * S;
        let mut one = batch("s", sequence);
        one.newest_us = at;
        one.daemon_samples = vec![sample(1, at, sequence as i64, 1)];
        one.op_intervals = vec![interval(self.task, at, "create", 10, 1000)];
        one
    }

    async fn submit(&self, sequences: std::ops::RangeInclusive<u64>) -> Vec<Receipt> {
        let mut receipts = Vec::new();
        for sequence in sequences {
            receipts.push(self.publisher.submit(self.second(sequence)).await.unwrap());
        }
        receipts
    }

    async fn change_run(&self, state: RunState) {
        let change = RunChange {
            state,
            partial: false,
            reason: None,
            at: MeshMicros(T0),
        };
        let run = self.run;
        let rows = vec![Row::Run { run, change }];
        self.mesh.store.apply(rows).await.unwrap();
    }

    async fn samples(&self) -> i64 {
        self.mesh
            .number("SELECT count(*) FROM daemon_samples")
            .await
    }
}

pub(super) async fn calm(path: &Path) -> Store {
    let calm = LastRequest::long_ago().expect("a machine that is up for a minute");
    Store::open_in(path, calm).await.unwrap()
}

fn is_waiting(receipt: &mut Receipt) -> bool {
    receipt.now_or_never().is_none()
}

#[tokio::test]
async fn rows_are_seen_live_before_they_are_stored_and_a_flush_stores_them() {
    let mesh = QuietMesh::new().await;
    let live = mesh.mesh.store.live().clone();
    let mut intervals = live.subscribe();
    let mut receipts = mesh.submit(2..=4).await;
    // Sent again, as after a broken connection, but shown once.
    receipts.extend(mesh.submit(4..=5).await);
    for second in 2..=5 {
        let shown = intervals.recv().await.unwrap();
        assert_eq!(shown.len(), 1);
        assert_eq!((shown[0].at.0, shown[0].ops), (T0 + second * S, 10));
    }
    let newest = live.samples().daemons();
    let newest = newest.values().next().unwrap();
    assert_eq!(newest.at_us, T0 + 5 * S);
    assert!(receipts.iter_mut().all(is_waiting), "acknowledged");
    assert_eq!(mesh.samples().await, 1, "nothing is committed yet");
    mesh.mesh.store.flush().await;
    assert_eq!(mesh.samples().await, 5);
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert!(intervals.try_recv().is_err(), "shown twice");
}

/// Each agent reads the collector's clock every few seconds, even if it has no other data to send.
#[tokio::test]
async fn a_clock_reading_waits_with_the_others() {
    let mesh = QuietMesh::new().await;
    let mut intervals = mesh.mesh.store.live().subscribe();
    let mut receipts = mesh.submit(2..=3).await;
    let mut reading = batch("s", 4);
    reading.newest_us = T0 + 4 * S;
    reading.clock_offsets = vec![ClockOffset {
        at: MeshMicros(T0 + 4 * S),
        offset_us: 1,
        error_us: 100,
        round_trip_us: 200,
    }];
    receipts.push(mesh.publisher.submit(reading).await.unwrap());
    receipts.extend(mesh.submit(5..=5).await);
    while intervals.recv().await.unwrap()[0].at.0 < T0 + 5 * S {}
    assert!(receipts.iter_mut().all(is_waiting), "acknowledged");
    assert_eq!(mesh.samples().await, 1, "nothing is committed yet");
}

#[tokio::test]
async fn intervals_of_a_task_of_another_agent_are_not_shown() {
    let mesh = QuietMesh::new().await;
    let mut intervals = mesh.mesh.store.live().subscribe();
    let (other, ..) = mesh.mesh.publisher("b").await;
    let mut foreign = mesh.second(1);
    foreign.daemon_samples.clear();
    super::send(&other, foreign).await.unwrap();
    assert!(intervals.try_recv().is_err(), "another agent's task");
}

#[tokio::test]
async fn what_is_decided_by_is_stored_at_once_with_all_that_waits() {
    let mesh = QuietMesh::new().await;
    let mut waiting = mesh.submit(2..=3).await;
    assert!(waiting.iter_mut().all(is_waiting));
    let mut last = mesh.second(4);
    last.task_ends = vec![task_end(mesh.task, 0, T0 + 4 * S)];
    super::send(&mesh.publisher, last).await.unwrap();
    assert_eq!(mesh.samples().await, 4);
    for receipt in waiting {
        receipt.await.unwrap();
    }
    let mut waiting = mesh.submit(5..=5).await;
    assert!(waiting.iter_mut().all(is_waiting));
    // The start or end of a run commits them too.
    mesh.change_run(RunState::Running).await;
    assert_eq!(mesh.samples().await, 5);
    for receipt in waiting {
        receipt.await.unwrap();
    }
    // After a request, the next rows do not wait.
    super::send(&mesh.publisher, mesh.second(6)).await.unwrap();
}

#[tokio::test]
async fn other_writes_of_the_scheduler_are_committed_without_what_waits() {
    let mesh = QuietMesh::new().await;
    let mut waiting = mesh.submit(2..=3).await;
    let next = mesh.mesh.run("next").await;
    assert!(mesh.mesh.store.run(next).await.is_ok(), "it is stored");
    assert!(waiting.iter_mut().all(is_waiting));
    assert_eq!(mesh.samples().await, 1);
}

/// They are more than one transaction has. Writes that come meanwhile are answered too, those in transactions of their
/// own included.
#[tokio::test]
async fn a_flush_stores_everything_that_was_sent_before() {
    let mesh = QuietMesh::new().await;
    let store = mesh.mesh.store.clone();
    let busy = Arc::new(Semaphore::new(0));
    let held = tokio::spawn({
        let (store, busy) = (store.clone(), Arc::clone(&busy));
        async move {
            let wait = |busy: &Arc<Semaphore>, _: &mut SqliteConnection| {
                let busy = Arc::clone(busy);
                Box::pin(async move {
                    let _permit = busy.acquire_owned().await;
                    Ok(())
                }) as _
            };
            store
                .write_in(CommitPolicy::OwnTransaction, busy, wait)
                .await
        }
    });
    tokio::task::yield_now().await;
    let batches = GROUP_ROWS as u64 / 1000 + 3;
    let mut receipts = Vec::new();
    for sequence in 2..2 + batches {
        let mut large = mesh.second(sequence);
        large.daemon_samples = (0..1000)
            .map(|n| sample(1, T0 + sequence as i64 * S + n, n, 1))
            .collect();
        receipts.push(mesh.publisher.submit(large).await.unwrap());
    }
    let flush = tokio::spawn({
        let store = store.clone();
        async move { store.flush().await }
    });
    tokio::task::yield_now().await;
    busy.add_permits(1);
    let nothing = |(): &(), _: &mut SqliteConnection| Box::pin(async { Ok(()) }) as _;
    while !flush.is_finished() {
        store
            .write_in(CommitPolicy::OwnTransaction, (), nothing)
            .await
            .unwrap();
    }
    assert_eq!(mesh.samples().await, 1 + batches as i64 * 1000);
    held.await.unwrap().unwrap();
    for receipt in receipts {
        receipt.await.unwrap();
    }
}

/// The time line of a running step is written with rows of agents, of which none may come after its end.
#[tokio::test]
async fn a_step_ends_at_once_while_its_time_line_waits_for_more_rows() {
    let mesh = QuietMesh::new().await;
    let (store, step) = (mesh.mesh.store.clone(), mesh.step);
    let (claimed, is_claimed) = tokio::sync::oneshot::channel();
    let follower = tokio::spawn({
        let store = store.clone();
        async move {
            let _claim = store.claim(step).await;
            claimed.send(()).unwrap();
            let nothing = |(): &(), _: &mut SqliteConnection| Box::pin(async { Ok(()) }) as _;
            store.write_in(CommitPolicy::WhenDue, (), nothing).await
        }
    });
    is_claimed.await.unwrap();
    let results = store.compute_results(step);
    let results = tokio::time::timeout(Duration::from_secs(20), results).await;
    results.expect("it does not wait for rows").unwrap();
    follower.await.unwrap().unwrap();
}

/// For example the last rows of a task, which are announced before they arrive.
#[tokio::test]
async fn a_batch_that_is_awaited_is_committed_soon_after_it_comes() {
    let mesh = QuietMesh::new().await;
    let store = mesh.mesh.store.clone();
    let awaited = tokio::spawn({
        let (store, agent) = (store.clone(), mesh.agent);
        async move { store.stored(agent, "s", 3).await }
    });
    let receipts = mesh.submit(2..=3).await;
    awaited.await.unwrap().unwrap();
    for receipt in receipts {
        receipt.await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_is_acknowledged_before_it_has_to_stop_sending() {
    let mesh = QuietMesh::new().await;
    let receipts = mesh.submit(2..=25).await;
    for receipt in receipts {
        receipt.await.unwrap();
    }
    assert_eq!(mesh.samples().await, 25);
}

#[tokio::test]
async fn a_database_that_is_closed_has_everything() {
    let mesh = QuietMesh::new().await;
    let receipts = mesh.submit(2..=6).await;
    mesh.mesh.store.close().await;
    for receipt in receipts {
        receipt.await.unwrap();
    }
    let store = Store::open(&mesh.mesh.path()).await.unwrap();
    let positions = store.spool_positions(mesh.agent).await.unwrap();
    assert_eq!(positions, [("s".to_owned(), 6)]);
}

/// A copy of the files at one moment is what a collector killed at that moment leaves behind.
#[tokio::test]
async fn a_collector_that_is_killed_while_rows_wait_gets_them_again() {
    let mesh = QuietMesh::new().await;
    let mut unacknowledged = mesh.submit(2..=6).await;
    assert!(unacknowledged.iter_mut().all(is_waiting));
    let left = mesh.mesh.directory.path().join("left.db");
    for suffix in ["", "-wal"] {
        let with = |path: &Path| format!("{}{suffix}", path.display());
        std::fs::copy(with(&mesh.mesh.path()), with(&left)).unwrap();
    }
    let store = calm(&left).await;
    let positions = store.spool_positions(mesh.agent).await.unwrap();
    assert_eq!(positions, [("s".to_owned(), 1)]);
    let publisher = store.publisher(mesh.agent, mesh.host, "net:1".to_owned());
    // The agent's spool has all unacknowledged batches.
    for sequence in 2..=7 {
        drop(publisher.submit(mesh.second(sequence)).await.unwrap());
    }
    store.flush().await;
    for (sql, expected) in [
        ("SELECT count(*) FROM daemon_samples", 7),
        ("SELECT count(DISTINCT at_us) FROM daemon_samples", 7),
        ("SELECT sum(ops) FROM op_intervals", 60),
    ] {
        let found: i64 = sqlx::query_scalar(sql)
            .fetch_one(store.reader())
            .await
            .unwrap();
        assert_eq!(found, expected, "{sql}");
    }
}

/// A commit writes a page for each daemon, with one new row or twenty.
#[tokio::test]
async fn rows_that_are_gathered_take_a_fifth_of_the_writes() {
    const DAEMONS: i32 = 50;
    const SECONDS: u64 = 20;
    let mesh = QuietMesh::new().await;
    let mut described = batch("s", 2);
    described.daemons = (1..=DAEMONS).map(|pid| seen(pid, "ceph-osd", T0)).collect();
    super::send(&mesh.publisher, described).await.unwrap();
    let wal_bytes = || {
        let wal = format!("{}-wal", mesh.mesh.path().display());
        std::fs::metadata(wal).unwrap().len()
    };
    let mut written = Vec::new();
    // Gathered first, because a query ends the calm time.
    for (first, each) in [(3, false), (3 + SECONDS, true)] {
        let before = wal_bytes();
        for sequence in first..first + SECONDS {
            let at = T0 + sequence as i64 * S;
            let mut one = batch("s", sequence);
            one.newest_us = at;
            one.daemon_samples = (1..=DAEMONS).map(|pid| sample(pid, at, 1, 1)).collect();
            drop(mesh.publisher.submit(one).await.unwrap());
            if each {
                mesh.mesh.store.flush().await;
            }
        }
        mesh.mesh.store.flush().await;
        written.push(wal_bytes() - before);
    }
    assert!(written[0] * 5 <= written[1], "{written:?} bytes");
}

//! Deliberately invalid batches: they are refused with a reason, or their invalid rows are left out and counted.
//! Other batches are not affected.

use super::{Mesh, S, T0, batch, interval, new_step, sample, seen, send, task_end};
use crate::database::WriteRows;
use crate::ingest::batch::{DaemonSeen, DiskSample};
use crate::ingest::{Batch, IngestError};
use benchmesh_model::events::WireKind;
use benchmesh_model::figures::{DaemonFigures, DiskFigures, Figures, columns};
use benchmesh_model::mesh::{MeshMicros, RunId, StepId, TaskId};
use benchmesh_proto::v1 as proto;
use proptest::prelude::*;

async fn rows(mesh: &Mesh) -> i64 {
    mesh.number(
        "SELECT (SELECT count(*) FROM daemons) + (SELECT count(*) FROM daemon_samples)
             + (SELECT count(*) FROM op_intervals) + (SELECT count(*) FROM events) + (SELECT count(*) FROM spools)",
    )
    .await
}

#[tokio::test]
async fn foreign_rows_are_left_out_and_counted() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let (other, ..) = mesh.publisher("b").await;
    let run = mesh.run("u").await;
    let (_, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;

    // Of another agent, of no agent, of another workload.
    let mut foreign = batch("s", 1);
    foreign.daemons = vec![seen(1, "ceph-osd", T0)];
    foreign.daemon_samples = vec![sample(1, T0, 1, 1)];
    foreign.op_intervals = vec![interval(tasks[0], T0, "create", 7, 1)];
    foreign.task_ends = vec![task_end(tasks[0], 0, T0 + S)];
    assert_eq!(send(&other, foreign).await, Ok(1));
    let mut mixed = batch("s", 1);
    mixed.op_intervals = vec![
        interval(TaskId(987), T0, "create", 5, 1),
        interval(tasks[0], T0, "ping", 6, 1),
        interval(tasks[0], T0, "create", 3, 1),
    ];
    mixed.events = [
        (Some(RunId(77)), None),
        (None, Some(StepId(77))),
        (Some(run), None),
    ]
    .map(|(run, step)| crate::ingest::batch::AgentEvent {
        at: MeshMicros(T0),
        run_uid: String::new(),
        run,
        step,
        kind: WireKind::received("note".to_owned(), "info"),
        message: String::new(),
        detail_json: None,
    })
    .to_vec();
    assert_eq!(send(&publisher, mixed).await, Ok(1));
    // The valid rows beside them are stored.
    assert_eq!(mesh.number("SELECT sum(ops) FROM op_intervals").await, 3);
    assert_eq!(mesh.number("SELECT count(*) FROM daemon_samples").await, 1);
    let ended = "SELECT count(*) FROM tasks WHERE ended_us IS NOT NULL";
    assert_eq!(mesh.number(ended).await, 0);
    let notes = "SELECT count(*) FROM events WHERE kind = 'note'";
    assert_eq!(mesh.number(notes).await, 1);
    // One event for each agent, whose count is increased.
    let mut again = batch("s", 2);
    again.op_intervals = vec![interval(TaskId(987), T0 + S, "create", 100, 1)];
    assert_eq!(send(&publisher, again).await, Ok(2));
    let counted: Vec<(String, String)> = sqlx::query_as(
        "SELECT a.name, e.detail FROM events AS e JOIN agents AS a ON a.id = e.agent_id
         WHERE e.kind = 'rows-left-out' ORDER BY a.name",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let expected = [
        (
            "a",
            r#"{"daemon_samples":0,"events":2,"intervals":3,"operations":111,"run_uid":"","task_ends":0}"#,
        ),
        (
            "b",
            r#"{"daemon_samples":0,"events":0,"intervals":1,"operations":7,"run_uid":"","task_ends":1}"#,
        ),
    ];
    assert_eq!(
        counted,
        expected.map(|(name, detail)| (name.to_owned(), detail.to_owned()))
    );
}

#[tokio::test]
async fn a_batch_from_the_future_is_refused() {
    let mesh = Mesh::new().await;
    let (publisher, ..) = mesh.publisher("a").await;
    let mut ahead = batch("s", 1);
    ahead.daemons = vec![seen(1, "ceph-osd", T0)];
    ahead.newest_us = i64::MAX / 4;
    let refused = send(&publisher, ahead).await;
    assert!(
        matches!(refused, Err(IngestError::FromTheFuture { .. })),
        "{refused:?}"
    );
    assert_eq!(rows(&mesh).await, 0);
}

/// A row that only the database itself refuses fails its own batch, and no other batch of the transaction.
#[tokio::test]
async fn a_poisoned_batch_stands_alone() {
    let mesh = Mesh::new().await;
    mesh.store
        .write((), |(), connection| {
            Box::pin(async move {
                sqlx::query(
                    "CREATE TRIGGER poison BEFORE INSERT ON daemon_samples WHEN NEW.rss_bytes = 666
                     BEGIN SELECT RAISE(ABORT, 'poison'); END",
                )
                .write(connection, "make a trigger")
                .await
            })
        })
        .await
        .unwrap();
    let mut publishers = Vec::new();
    for name in ["a", "b", "c", "d"] {
        publishers.push(mesh.publisher(name).await.0);
    }
    let mut receipts = Vec::new();
    for round in 1..=5_u64 {
        for (index, publisher) in publishers.iter().enumerate() {
            let mut one = batch("s", round);
            let poisoned = index == 2 && round == 3;
            one.daemons = vec![seen(round as i32, "ceph-osd", T0)];
            one.daemon_samples = (0..10)
                .map(|at| {
                    sample(
                        round as i32,
                        T0 + at,
                        1,
                        if poisoned && at == 9 { 666 } else { 1 },
                    )
                })
                .collect();
            let receipt = publisher.submit(one).await.unwrap();
            receipts.push((index, round, receipt));
        }
    }
    for (index, round, receipt) in receipts {
        let outcome = receipt.await;
        match (index, round) {
            (2, 3) => assert!(
                matches!(&outcome, Err(IngestError::Refused { why }) if why.contains("poison")),
                "{outcome:?}"
            ),
            (2, 4..) => assert!(
                matches!(outcome, Err(IngestError::Hole { .. })),
                "{outcome:?}"
            ),
            _ => assert!(outcome.is_ok(), "{index} {round}: {outcome:?}"),
        }
    }
    let stored = mesh.number("SELECT count(*) FROM daemon_samples").await;
    assert_eq!(stored, (5 * 3 + 2) * 10);
    assert_eq!(mesh.number("SELECT count(*) FROM daemons").await, 5 * 3 + 2);
    mesh.assert_sound().await;
}

fn some_i64() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => T0..T0 + 60 * S,
        2 => 0..100_i64,
        1 => any::<i64>(),
        1 => Just(-1),
        1 => Just(i64::MAX),
        1 => Just(i64::MIN),
    ]
}

fn some_u64() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..100_u64, 1 => any::<u64>(), 1 => Just(u64::MAX)]
}

fn some_text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("create".to_owned()),
        1 => Just(String::new()),
        1 => Just("a\0b".to_owned()),
        1 => Just("x".repeat(40_000)),
        1 => any::<String>(),
    ]
}

prop_compose! {
    fn some_distribution()(
        histogram in prop_oneof![
            Just(Vec::new()),
            prop::collection::vec(any::<u8>(), 0..200),
            Just(benchmesh_workloads::histogram::Histogram::new().to_v2_deflate()),
        ],
        count in some_u64(),
        sum_ns in any::<f64>(),
        min_ns in some_u64(),
        max_ns in some_u64(),
    ) -> proto::Distribution {
        proto::Distribution { histogram, count, sum_ns, sum_squares_ns2: sum_ns, min_ns, max_ns, saturated: 0 }
    }
}

prop_compose! {
    fn some_interval()(
        task_id in prop_oneof![3 => 1..3_i64, 1 => some_i64()],
        at_us in some_i64(),
        span_us in some_i64(),
        op in some_text(),
        ops in some_u64(),
        service in prop::option::of(some_distribution()),
    ) -> proto::OpInterval {
        proto::OpInterval {
            task_id, at_us, span_us, op, ramp: false, ops, bytes: ops, errors: ops, in_flight: 0, service,
            response: None, undated_bytes: ops, run_uid: String::new(),
        }
    }
}

prop_compose! {
    fn some_samples()(
        rows in prop::collection::vec((0..4_i32, some_i64(), some_i64()), 0..6),
        short in prop::bool::weighted(0.2),
    ) -> proto::DaemonSamples {
        let column = |pick: fn(&(i32, i64, i64)) -> i64| rows.iter().map(pick).collect::<Vec<_>>();
        let figures = rows.iter().map(|row| DaemonFigures {
            cpu_user_us: row.2, cpu_system_us: row.2, rss_bytes: row.2, read_bytes: row.2, minor_faults: row.2,
            vsz_bytes: 1, threads: 1, ..DaemonFigures::UNREAD
        });
        let mut samples = proto::DaemonSamples {
            pid: rows.iter().map(|row| row.0).collect(),
            start_ticks: rows.iter().map(|row| row.0.unsigned_abs().into()).collect(),
            at_us: column(|row| row.1),
            figures: columns(figures).into_iter().map(Into::into).collect(),
        };
        if short {
            samples.figures[0].values.pop();
        }
        samples
    }
}

prop_compose! {
    fn some_batch()(
        first_sequence in prop_oneof![3 => Just(1_u64), 1 => some_u64()],
        sequence in prop_oneof![3 => Just(1_u64), 1 => some_u64()],
        spool_id in prop_oneof![3 => Just("s".to_owned()), 1 => some_text()],
        op_intervals in prop::collection::vec(some_interval(), 0..2),
        daemons in prop::collection::vec((0..3_i32, some_text(), some_i64()), 0..3),
        daemon_samples in prop::option::of(some_samples()),
        events in prop::collection::vec((some_text(), some_text(), some_i64()), 0..2),
        at_us in some_i64(),
    ) -> proto::Batch {
        proto::Batch {
            spool_id,
            first_sequence,
            sequence,
            op_intervals,
            daemons: daemons.into_iter().map(|(pid, name, at_us)| proto::DaemonSeen {
                pid, start_ticks: pid.unsigned_abs().into(), instance: name.clone(), cmdline: name.clone(), name,
                at_us, ended: false, born_us: 0, is_parent: false, version: String::new(), is_replaced: false,
            }).collect(),
            daemon_samples,
            host_samples: Vec::new(),
            disk_samples: vec![proto::DiskSample { at_us, disk: "sda".to_owned(), stacked: false, figures: vec![0; DiskFigures::ALL.len()] }],
            net_samples: Vec::new(),
            target_samples: vec![proto::TargetSample {
                at_us, target: "/mnt".to_owned(), nonce: "n".to_owned(), figures: vec![1; 4], ..Default::default()
            }],
            clock_offsets: vec![proto::ClockOffset { at_us, ..Default::default() }],
            events: events.into_iter().map(|(kind, message, run_id)| proto::Event {
                at_us, run_id, step_id: 0, severity: "info".to_owned(), kind, detail_json: message.clone(), message,
                run_uid: String::new(),
            }).collect(),
            facts: vec![proto::Fact { at_us, name: "osds".to_owned(), number: Some(3.0), ..Default::default() }],
            losses: Vec::new(),
            task_ends: Vec::new(),
        }
    }
}

/// A daemon's description may be missing: the database is an older copy. Its samples must not cause the refusal of a
/// load's results.
#[tokio::test]
async fn samples_of_unknown_daemons_are_left_out_and_counted() {
    let mesh = Mesh::new().await;
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run("u").await;
    let (_, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut one = batch("s", 1);
    one.op_intervals = vec![interval(tasks[0], T0, "create", 1, 1)];
    one.task_ends = vec![task_end(tasks[0], 0, T0 + S)];
    one.daemons = vec![seen(1, "ceph-osd", T0)];
    one.daemon_samples = [9, 1, 9, 10]
        .into_iter()
        .zip(0..)
        .map(|(pid, beat)| sample(pid, T0 + beat, 1, 1))
        .collect();
    assert_eq!(send(&publisher, one).await, Ok(1));
    let stored = "SELECT group_concat(d.pid || ' at ' || (x.at_us - 1750000000000000)) FROM daemon_samples AS x
                  JOIN daemons AS d ON d.id = x.daemon_id";
    let stored: String = sqlx::query_scalar(stored)
        .fetch_one(mesh.store.reader())
        .await
        .unwrap();
    assert_eq!(stored, "1 at 1");
    assert_eq!(mesh.number("SELECT count(*) FROM op_intervals").await, 1);
    let (severity, message, detail): (String, String, String) =
        sqlx::query_as("SELECT severity, message, detail FROM events WHERE kind = 'rows-left-out'")
            .fetch_one(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!(severity, "warning");
    assert!(
        message.contains("3 samples of daemons are left out"),
        "{message}"
    );
    assert_eq!(
        detail,
        r#"{"daemon_samples":3,"events":0,"intervals":0,"operations":0,"run_uid":"","task_ends":0}"#
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn hostile_batches_harm_nobody(hostile in prop::collection::vec(some_batch(), 1..12)) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let mesh = Mesh::new().await;
            let (bad, bad_agent, bad_host) = mesh.publisher("bad").await;
            let (good, ..) = mesh.publisher("good").await;
            let run = mesh.run("u").await;
            mesh.step(run, new_step(0, "files", "create"), &[bad_agent]).await;
            let mut receipts = Vec::new();
            let mut stored_bad = 0;
            for (number, wire) in (1..).zip(hostile) {
                let ours = mesh.store.publisher(bad_agent, bad_host, String::new());
                if let Ok(batch) = Batch::try_from(wire)
                    && let Ok(receipt) = ours.submit(batch).await
                {
                    stored_bad += 1;
                    receipts.push((false, receipt));
                }
                let mut one = batch("s", number);
                one.daemons = vec![seen(1, "ceph-osd", T0)];
                one.daemon_samples = vec![sample(1, T0 + i64::try_from(number).unwrap(), 1, 1)];
                receipts.push((true, good.submit(one).await.unwrap()));
            }
            let good_ones = receipts.iter().filter(|(good, _)| *good).count();
            for (is_good, receipt) in receipts {
                let outcome = receipt.await;
                assert!(outcome.is_ok() || !is_good, "{outcome:?}");
            }
            assert!(stored_bad <= 12);
            let stored: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM daemon_samples JOIN daemons ON id = daemon_id WHERE name = 'ceph-osd' AND pid = 1
                 AND start_ticks = 1001",
            )
            .fetch_one(mesh.store.reader())
            .await
            .unwrap();
            assert_eq!(usize::try_from(stored).unwrap(), good_ones);
            mesh.assert_sound().await;
            drop(bad);
            mesh.store.close().await;
        });
    }
}

/// A stand-in for a host's sampler can only report the end of daemons that were found before its appointment.
#[tokio::test]
async fn a_stand_in_changes_nothing_from_before() {
    let mesh = Mesh::new().await;
    let (publisher, ..) = mesh.publisher("a").await;
    let disk = |at: i64, stacked| DiskSample {
        at: MeshMicros(at),
        disk: "sda".to_owned(),
        stacked,
        figures: DiskFigures::from_values(std::iter::repeat(0)),
    };
    let mut own = batch("own", 1);
    own.daemons = vec![seen(1, "ceph-osd", T0), seen(2, "ceph-osd", T0)];
    own.disk_samples = vec![disk(T0, false)];
    send(&publisher, own).await.unwrap();
    let lie = |pid| DaemonSeen {
        is_parent: true,
        ..seen(pid, "nothing", T0 + 60 * S)
    };
    let mut stand_in = batch("other", 1);
    stand_in.stands_in_since = Some(MeshMicros(T0 + 30 * S));
    stand_in.daemons = vec![
        lie(1),
        DaemonSeen {
            ended: true,
            ..lie(2)
        },
        seen(3, "ceph-mon", T0 + 60 * S),
    ];
    stand_in.disk_samples = vec![disk(T0 + 60 * S, true)];
    send(&publisher, stand_in).await.unwrap();
    let known: Vec<String> = sqlx::query_scalar(
        "SELECT format('%s %d %d', name, is_parent, coalesce((ended_us - first_seen_us) / 1000000, -1)) FROM daemons
         UNION ALL SELECT format('%s %d', name, stacked) FROM disks",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    assert_eq!(
        known,
        ["ceph-osd 0 -1", "ceph-osd 0 60", "ceph-mon 0 -1", "sda 0"]
    );
    mesh.store.close().await;
}

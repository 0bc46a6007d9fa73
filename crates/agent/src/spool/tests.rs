//! The spool's actor: what it sends and keeps, also with a full disk.

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod damage;
mod limit;
mod recovery;

use super::set::SpoolSet;
use super::{Attached, Samples, Spool, SpoolEntry, WINDOW_BATCHES};
use crate::clock::{Dating, Estimate, Exchange, Filter};
use crate::envelope::{Envelope, RowPosition, Sequence, SpoolId};
use crate::state::StateDir;
use crate::telemetry::{
    At, Batch, EndState, Event, Loss, LossKind, MeshMicros, OpInterval, RunScope, RunUid,
    TargetSample, TaskEnd, TaskId, TelemetryRow,
};
use crate::wire;
use benchmesh_model::events::WireKind;
use benchmesh_model::figures::{Figures, NetFigures, TargetFigures};
use benchmesh_proto::v1;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::op::Op;
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};

fn estimate() -> Estimate {
    let mono = MonoNanos::now();
    let mesh_ns = 1_700_000_000_000_000_000;
    let exchange = Exchange {
        sent: mono,
        mesh_received_ns: mesh_ns,
        mesh_sent_ns: mesh_ns,
        received: mono,
        slept_ns: 0,
    };
    Filter::default().add(exchange).unwrap()
}

struct Rig {
    _home: TempDir,
    spool: Spool,
    entries: mpsc::Sender<SpoolEntry>,
    envelopes: mpsc::Receiver<Envelope>,
    _clock: watch::Sender<Option<Estimate>>,
}

async fn ids(rig: &Rig) -> Vec<SpoolId> {
    let spools = rig.spool.announce().await.unwrap();
    spools.into_iter().map(|spool| spool.id).collect()
}

async fn rig() -> Rig {
    let home = tempfile::tempdir().unwrap();
    let state = Arc::new(StateDir::open(&home.path().join("state"), &[]).unwrap());
    let (clock, clock_out) = watch::channel(Some(estimate()));
    let (spool, _) = Spool::open(
        state,
        1 << 30,
        Samples::default(),
        Dating::new(clock_out),
        None,
    )
    .await
    .unwrap();
    let (out, envelopes) = mpsc::channel(WINDOW_BATCHES);
    let attached = spool
        .attach("mesh-1".to_owned(), HashMap::new(), out)
        .await
        .unwrap();
    assert_eq!(attached, Attached::Sending);
    Rig {
        _home: home,
        entries: spool.entries(),
        spool,
        envelopes,
        _clock: clock,
    }
}

fn interval(ns: &[u64]) -> OpInterval {
    let mut service = Histogram::new();
    ns.iter().for_each(|ns| service.record(*ns));
    OpInterval {
        run_uid: RunUid::default(),
        task: TaskId(1),
        at: MeshMicros(1_700_000_000_000_000),
        span_us: 1_000_000,
        op: Op::Write,
        ramp: false,
        ops: ns.len() as u64,
        bytes: 1,
        undated_bytes: 1,
        errors: 0,
        in_flight: 0,
        service: service.to_blob(),
        response: None,
    }
}

/// About 30 kB that merging cannot reduce.
fn noise(nth: u64) -> TelemetryRow {
    TelemetryRow::Event(Event {
        at: MeshMicros(1),
        scope: RunScope::default(),
        kind: WireKind::received("test".to_owned(), "info"),
        message: format!("{nth} {}", "x".repeat(30_000)),
        detail: String::new(),
    })
}

/// Waits until it is on disk, in a batch of its own.
async fn spooled(rig: &Rig, nth: u64) -> RowPosition {
    let (reply, place) = oneshot::channel();
    rig.entries
        .send(SpoolEntry::Last(Box::new(noise(nth)), reply))
        .await
        .unwrap();
    tokio::time::timeout(Duration::from_secs(300), place)
        .await
        .expect("nothing can be spooled any more")
        .unwrap()
}

fn task_end() -> TaskEnd {
    TaskEnd {
        run_uid: RunUid::default(),
        task: TaskId(1),
        state: EndState::Done,
        workers: u32::MAX,
        start: MeshMicros(i64::MAX),
        skew_us: i64::MIN,
        skew_error_us: i64::MIN,
        first_done: MeshMicros(i64::MIN),
        ended: MeshMicros(i64::MIN),
        last_begun: MeshMicros(i64::MIN),
        cpu_user_us: Some(i64::MIN),
        cpu_system_us: Some(i64::MIN),
        harness_ns_per_op: i64::MIN,
        wait_cpu_us: Some(i64::MIN),
        error: "e".repeat(3000),
        errors: Vec::new(),
    }
}

#[test]
fn a_full_disk_holds_rows_in_memory_and_its_senders_back() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    runtime.block_on(fill_a_disk());
}

async fn fill_a_disk() {
    let mut rig = rig().await;
    assert_eq!(spooled(&rig, 0).await.sequence, Sequence(1));
    // Below the current size, so no further page is available.
    rig.spool.limit_pages(1).await;

    let (reply, mut place) = oneshot::channel();
    rig.entries
        .send(SpoolEntry::Last(Box::new(noise(1)), reply))
        .await
        .unwrap();
    let mut sent = 2;
    let full = Duration::from_secs(2);
    while tokio::time::timeout(full, rig.entries.send(SpoolEntry::Rows(vec![noise(sent)])))
        .await
        .is_ok()
    {
        sent += 1;
        assert!(sent < 1000, "it takes in without end");
    }
    assert!(sent > 100, "{sent}: several MiB fit into memory");
    assert!(rig.spool.blocked().borrow().is_some());
    assert!(
        place.try_recv().is_err(),
        "what is not on disk has no place"
    );

    rig.spool.limit_pages(1 << 30).await;
    assert_eq!(place.await.unwrap().sequence, Sequence(2));
    let mut blocked = rig.spool.blocked();
    blocked.wait_for(Option::is_none).await.unwrap();
    let (mut events, mut blocked) = (0, 0);
    while events < sent || blocked == 0 {
        let envelope = tokio::time::timeout(Duration::from_secs(60), rig.envelopes.recv())
            .await
            .unwrap()
            .unwrap();
        let batch = v1::Batch::decode(envelope.body.as_slice()).unwrap();
        assert!(envelope.body.len() < benchmesh_proto::MAX_BATCH_BYTES);
        for event in &batch.events {
            if event.kind == "spool-writable" {
                blocked += 1;
                continue;
            }
            assert!(
                event.message.starts_with(&format!("{events} ")),
                "in order and once"
            );
            events += 1;
        }
        rig.spool
            .ack(envelope.spool, envelope.sequence)
            .await
            .unwrap();
    }
    rig.spool.close().await.unwrap();
}

/// A spooled body is sent unchanged; with its header before it, it is one message.
#[tokio::test]
async fn the_bytes_that_are_sent_are_those_that_were_spooled() {
    let mut rig = rig().await;
    let rows = vec![
        TelemetryRow::OpInterval(interval(&[1000, 70_000])),
        TelemetryRow::TaskEnd(task_end()),
        noise(7),
    ];
    let mut batch = Batch::default();
    rows.iter().for_each(|row| batch.push(row.clone()));
    let spooled = wire::batch::encode(&batch);
    rig.entries.send(SpoolEntry::Rows(rows)).await.unwrap();
    let envelope = rig.envelopes.recv().await.unwrap();
    assert_eq!(envelope.body, spooled);

    let mut sent = wire::batch::header(&envelope);
    sent.extend_from_slice(&envelope.body);
    let received = v1::Batch::decode(sent.as_slice()).unwrap();
    assert_eq!(
        (
            received.spool_id.as_str(),
            received.first_sequence,
            received.sequence
        ),
        (
            envelope.spool.to_string().as_str(),
            envelope.first.0,
            envelope.sequence.0
        )
    );
    let without_place = v1::Batch {
        spool_id: String::new(),
        first_sequence: 0,
        sequence: 0,
        ..received
    };
    assert_eq!(without_place.encode_to_vec(), spooled);
    rig.spool.close().await.unwrap();
}

/// More batches than a window has.
#[tokio::test]
async fn the_stream_of_a_leaving_agent_ends_once_everything_is_sent() {
    let mut rig = rig().await;
    let count = WINDOW_BATCHES as u64 + 5;
    for nth in 0..count {
        spooled(&rig, nth).await;
    }
    rig.spool.finish().await;
    let mut sent = Sequence(0);
    while let Some(envelope) = rig.envelopes.recv().await {
        assert_eq!(envelope.first, sent.next());
        sent = envelope.sequence;
        rig.spool.ack(envelope.spool, sent).await.unwrap();
    }
    assert_eq!(sent, Sequence(count));
    assert_eq!(spooled(&rig, count).await.sequence, sent.next());
    rig.spool.close().await.unwrap();
}

#[tokio::test]
async fn an_ack_of_what_was_not_sent_changes_nothing() {
    let mut rig = rig().await;
    for nth in 0..3 {
        spooled(&rig, nth).await;
    }
    let stranger = crate::envelope::SpoolId(uuid::Uuid::new_v4());
    rig.spool.ack(stranger, Sequence(9)).await.unwrap();
    let first = rig.envelopes.recv().await.unwrap();
    rig.spool
        .ack(first.spool, Sequence(u64::MAX))
        .await
        .unwrap();
    let next = spooled(&rig, 4).await.sequence;
    assert_eq!(next, Sequence(4), "sequences go on");
    rig.spool.close().await.unwrap();
}

#[test]
fn of_a_daemon_two_descriptions_stay() {
    let seen = |pid, second: i64, ended| At {
        at: MeshMicros(second * 1_000_000),
        row: crate::sampler::DaemonSeen {
            at: MonoNanos(0),
            pid,
            start_ticks: 1,
            name: format!("at {second}"),
            instance: String::new(),
            cmdline: String::new(),
            version: String::new(),
            is_replaced: false,
            ended,
            age_us: 0,
            change: crate::sampler::DaemonChange::None,
        },
    };
    let part = |second| {
        let mut batch = Batch::default();
        batch.push(TelemetryRow::Daemon(seen(7, second, second == 9)));
        batch.push(TelemetryRow::Daemon(seen(8, second, false)));
        batch
    };
    let merged = super::compact::merge((0..10).map(part).collect());
    let seconds = |batch: &Batch, pid| -> Vec<i64> {
        let of = batch.daemons.iter().filter(|it| it.row.pid == pid);
        of.map(|it| it.at.0 / 1_000_000).collect()
    };
    assert_eq!(seconds(&merged, 7), [0, 9]);
    assert_eq!(seconds(&merged, 8), [0, 9]);
    // Later samples may refer to a daemon that has not ended.
    let left = super::compact::reduce_to_losses(merged, 10);
    assert_eq!(seconds(&left, 7), [0]);
    assert_eq!(seconds(&left, 8), [0, 9]);
    assert_eq!(left.losses[0].rows, 10);
}

#[test]
fn merged_intervals_are_the_sum_of_their_parts() {
    let mut later = interval(&[5, 7_000_000, 9]);
    later.at = MeshMicros(later.at.0 + 3_000_000);
    later.in_flight = 4;
    let mut first = Batch::default();
    first.push(TelemetryRow::OpInterval(interval(&[100, 200])));
    let mut second = Batch::default();
    second.push(TelemetryRow::OpInterval(later));
    let ramp = OpInterval {
        ramp: true,
        ..interval(&[1])
    };
    second.push(TelemetryRow::OpInterval(ramp.clone()));
    let broken = OpInterval {
        service: benchmesh_workloads::histogram::Blob {
            v2_deflate: vec![1],
            ..interval(&[1]).service
        },
        ..interval(&[1])
    };
    second.push(TelemetryRow::OpInterval(broken.clone()));
    let merged = super::compact::merge(vec![first, second]).op_intervals;
    assert_eq!(merged.len(), 3);
    assert!(
        merged.contains(&ramp) && merged.contains(&broken),
        "what cannot be added stays as it is"
    );
    let sum = merged.iter().find(|row| row.ops == 5).unwrap();
    let all = interval(&[100, 200, 5, 7_000_000, 9]);
    assert_eq!(sum.service, all.service, "the histogram of all of them");
    assert_eq!(
        (
            sum.at,
            sum.span_us,
            sum.in_flight,
            sum.bytes,
            sum.undated_bytes
        ),
        (all.at, 4_000_000, 4, 2, 2)
    );
}

#[test]
fn opened_batches_are_what_was_encoded_but_for_samples() {
    let mut batch = Batch::default();
    batch.push(TelemetryRow::OpInterval(OpInterval {
        response: Some(interval(&[3]).service),
        ..interval(&[1, 2])
    }));
    batch.push(TelemetryRow::TaskEnd(task_end()));
    batch.push(noise(1));
    batch.push(TelemetryRow::Loss(Loss {
        what: LossKind::NetSamples,
        rows: 3,
        from: MeshMicros(1),
        until: MeshMicros(2),
    }));
    batch.push(TelemetryRow::TargetSample(TargetSample {
        at: MeshMicros(3),
        target: "/mnt/cephfs".to_owned(),
        nonce: "n".repeat(32),
        device: "0:50".to_owned(),
        figures: TargetFigures::from_values([i64::MIN; 4]),
    }));
    let kept = batch.clone();
    let seen = crate::sampler::DaemonSeen {
        at: MonoNanos(0),
        pid: -1,
        start_ticks: u64::MAX,
        name: "ceph-osd".to_owned(),
        instance: "osd.1".to_owned(),
        cmdline: "c".repeat(3000),
        version: String::new(),
        is_replaced: false,
        ended: true,
        age_us: 0,
        change: crate::sampler::DaemonChange::None,
    };
    batch.push(TelemetryRow::Daemon(At {
        at: MeshMicros(7),
        row: seen.clone(),
    }));
    for at in [9, 4] {
        batch.push(TelemetryRow::NetSample(At {
            at: MeshMicros(at),
            row: crate::sampler::NetSample {
                at: MonoNanos(5),
                interface: "eth0".into(),
                figures: NetFigures::from_values([i64::MIN; 99]),
            },
        }));
    }
    let bytes = wire::batch::encode(&batch);
    assert!(
        bytes.len() <= batch.size_bound(),
        "{} of {}",
        bytes.len(),
        batch.size_bound()
    );
    let opened = wire::batch::open(&bytes).unwrap();
    assert_eq!(opened.op_intervals, kept.op_intervals);
    assert_eq!(opened.task_ends, kept.task_ends);
    assert_eq!(opened.events, kept.events);
    assert_eq!(opened.target_samples, kept.target_samples);
    assert_eq!(
        opened.daemons,
        [At {
            at: MeshMicros(7),
            row: seen
        }]
    );
    let loss = Loss {
        what: LossKind::NetSamples,
        rows: 5,
        from: MeshMicros(1),
        until: MeshMicros(9),
    };
    assert_eq!(opened.losses, [loss]);
    assert!(wire::batch::open(&[255; 40]).is_err());
}

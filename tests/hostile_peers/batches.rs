//! False batches are refused as a whole, rows of other agents' tasks are dropped, and repeated batches are stored once.

use super::{LIMIT, peak_rss_kib, while_a_run_goes_on};
use crate::support::fake_agent::{FakeAgent, converse, hello};
use crate::support::mesh::Mesh;
use benchmesh_proto::v1 as wire;
use std::io::Write;

/// Falsifies a valid batch.
type Lie = Box<dyn Fn(&mut wire::Batch)>;

/// One operation of a task.
fn interval(task_id: i64) -> wire::OpInterval {
    wire::OpInterval {
        task_id,
        at_us: 1_700_000_000_000_000,
        span_us: 1_000_000,
        op: "null".into(),
        ops: 1,
        service: Some(wire::Distribution::default()),
        ..wire::OpInterval::default()
    }
}

/// False batches, each sent on its own session: a description, and the change to a valid batch.
fn lying_batches() -> Vec<(&'static str, Lie)> {
    fn change(what: impl Fn(&mut wire::Batch) + 'static) -> Lie {
        Box::new(what)
    }
    vec![
        (
            "a hole in the sequence",
            change(|batch| (batch.first_sequence, batch.sequence) = (7, 7)),
        ),
        (
            "sequence 0",
            change(|batch| (batch.first_sequence, batch.sequence) = (0, 0)),
        ),
        (
            "sequences backwards",
            change(|batch| (batch.first_sequence, batch.sequence) = (1, 0)),
        ),
        (
            "the last sequence there is",
            change(|batch| batch.sequence = u64::MAX),
        ),
        ("no spool", change(|batch| batch.spool_id.clear())),
        (
            "a forged line of the audit trail",
            change(|batch| {
                batch.events.push(wire::Event {
                    at_us: 1_700_000_000_000_000,
                    severity: "info".into(),
                    kind: "certificate-revoked".into(),
                    message: "2 certificates of a1 revoked by owner".into(),
                    ..wire::Event::default()
                })
            }),
        ),
        (
            "a spool that was not announced",
            change(|batch| batch.spool_id = "spool-of-somebody-else".into()),
        ),
        (
            "a negative span",
            change(|batch| {
                batch.op_intervals.push(wire::OpInterval {
                    span_us: -5,
                    ..interval(1)
                })
            }),
        ),
        (
            "an instant out of range",
            change(|batch| {
                batch.op_intervals.push(wire::OpInterval {
                    at_us: i64::MAX,
                    ..interval(1)
                })
            }),
        ),
        (
            "an unknown operation",
            change(|batch| {
                batch.op_intervals.push(wire::OpInterval {
                    op: "'; DROP TABLE runs; --".into(),
                    ..interval(1)
                });
            }),
        ),
        (
            "a histogram that is none",
            change(|batch| {
                let service = wire::Distribution {
                    histogram: vec![0xde; 300],
                    count: 1,
                    ..Default::default()
                };
                batch.op_intervals.push(wire::OpInterval {
                    service: Some(service),
                    ..interval(1)
                });
            }),
        ),
        (
            "a histogram that unpacks to a gigabyte",
            change(|batch| {
                let service = wire::Distribution {
                    histogram: bomb(),
                    count: 1,
                    ..Default::default()
                };
                batch.op_intervals.push(wire::OpInterval {
                    service: Some(service),
                    ..interval(1)
                });
            }),
        ),
        (
            "columns of unequal length",
            change(|batch| {
                batch.daemon_samples = Some(wire::DaemonSamples {
                    pid: vec![1, 2, 3],
                    at_us: vec![1],
                    ..Default::default()
                });
            }),
        ),
        (
            "figures of a host out of their range",
            change(|batch| {
                batch.host_samples.push(wire::HostSample {
                    at_us: 1_700_000_000_000_000,
                    figures: vec![i64::MIN; 23],
                    ..Default::default()
                });
            }),
        ),
        (
            "an end in a state that is no word",
            change(|batch| {
                batch.task_ends.push(wire::TaskEnd {
                    task_id: 1,
                    state: "happy".into(),
                    ..Default::default()
                });
            }),
        ),
    ]
}

/// A gigabyte of zeros in hdrhistogram's compressed frame.
fn bomb() -> Vec<u8> {
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..1024 {
        packed.write_all(&[0; 1 << 20]).unwrap();
    }
    let packed = packed.finish().unwrap();
    let length = u32::try_from(packed.len()).unwrap();
    // The cookie of the compressed V2 format.
    [
        &0x1c84_9314_u32.to_be_bytes()[..],
        &length.to_be_bytes()[..],
        &packed[..],
    ]
    .concat()
}

#[test]
fn lying_batches_are_refused_whole() {
    let before = std::cell::Cell::new(0);
    let mesh = while_a_run_goes_on(|mesh| {
        let peak = || peak_rss_kib(mesh.collector().pid());
        before.set(peak());
        for (index, (what, change)) in lying_batches().into_iter().enumerate() {
            let refused = converse(LIMIT, async {
                let hello = hello(&format!("liar{index}"));
                let mut liar = FakeAgent::attach(mesh.address(), hello).await.unwrap();
                let mut batch = liar.next_batch();
                // A valid row beside the false one: it must not be stored either.
                batch.events.push(wire::Event {
                    at_us: 1_700_000_000_000_000,
                    severity: "info".into(),
                    kind: "lie".into(),
                    message: what.into(),
                    ..wire::Event::default()
                });
                change(&mut batch);
                liar.publish(batch).await
            });
            let status = refused.expect_err(what);
            assert_ne!(
                status.code(),
                tonic::Code::DeadlineExceeded,
                "{what}: {status:?}"
            );
            assert!(!status.message().is_empty(), "{what}: {status:?}");
        }
        assert!(
            peak() < before.get() + 100_000,
            "no lie costs 100 MB: {} -> {} KiB",
            before.get(),
            peak()
        );
    });
    let db = mesh.db();
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM events WHERE kind = 'lie'"),
        0
    );
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM op_intervals WHERE task_id <> 1"),
        0
    );
    let honest: i64 = db.one("SELECT sum(ops) FROM op_intervals");
    let result: i64 = db.one("SELECT ops FROM step_results");
    assert_eq!(honest, result);
}

/// Rows of other agents' tasks change no figure, and valid rows beside them are stored.
#[test]
fn rows_of_tasks_of_others_are_left_out_and_counted() {
    let mesh = while_a_run_goes_on(|mesh| {
        converse(LIMIT, async {
            let mut liar = FakeAgent::attach(mesh.address(), hello("liar"))
                .await
                .unwrap();
            let mut batch = liar.next_batch();
            batch.op_intervals = [1, 987_654].map(interval).into();
            batch.task_ends = vec![wire::TaskEnd {
                task_id: 1,
                state: "done".into(),
                ..wire::TaskEnd::default()
            }];
            batch.events = vec![wire::Event {
                at_us: 1_700_000_000_000_000,
                severity: "info".into(),
                kind: "good".into(),
                ..wire::Event::default()
            }];
            // For a run in which it does not take part, and for a step of that run.
            for (run_id, step_id) in [(1, 0), (0, 1)] {
                batch.events.push(wire::Event {
                    at_us: 1_700_000_000_000_000,
                    severity: "error".into(),
                    kind: "stall".into(),
                    run_id,
                    step_id,
                    ..wire::Event::default()
                });
            }
            liar.publish(batch).await.unwrap();
        });
    });
    let db = mesh.db();
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM events WHERE kind = 'good'"),
        1
    );
    assert_eq!(
        db.one::<String>("SELECT detail FROM events WHERE kind = 'rows-left-out'"),
        r#"{"daemon_samples":0,"events":2,"intervals":2,"operations":2,"run_uid":"","task_ends":1}"#
    );
    let honest: i64 = db.one("SELECT sum(ops) FROM op_intervals");
    let result: i64 = db.one("SELECT ops FROM step_results");
    assert_eq!(honest, result);
}

#[test]
fn what_is_sent_twice_is_stored_once() {
    let mesh = Mesh::start();
    let event = |message: &str| wire::Event {
        at_us: 1_700_000_000_000_000,
        severity: "info".into(),
        kind: "told".into(),
        message: message.into(),
        ..wire::Event::default()
    };
    converse(LIMIT, async {
        let mut agent = FakeAgent::attach(mesh.address(), hello("twice"))
            .await
            .unwrap();
        let mut batches = Vec::new();
        for number in 1..=5 {
            let mut batch = agent.next_batch();
            batch.events.push(event(&format!("event {number}")));
            batches.push(batch.clone());
            agent.publish(batch).await.unwrap();
        }
        for batch in batches.iter().rev() {
            agent.publish(batch.clone()).await.unwrap();
        }
        drop(agent);
        // A new session of the same agent receives the spool's position, and may also repeat batches.
        let mut again = FakeAgent::attach(mesh.address(), hello("twice"))
            .await
            .unwrap();
        assert_eq!(again.welcome.spools.len(), 1);
        assert_eq!(again.welcome.spools[0].last_sequence, 5);
        for batch in batches {
            again.publish(batch).await.unwrap();
        }
    });
    let db = mesh.db();
    let messages: Vec<String> =
        db.column("SELECT message FROM events WHERE kind = 'told' ORDER BY message");
    assert_eq!(
        messages,
        ["event 1", "event 2", "event 3", "event 4", "event 5"]
    );
    assert_eq!(db.one::<i64>("SELECT last_sequence FROM spools"), 5);
}

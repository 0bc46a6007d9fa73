//! Whoever speaks to the collector's port: noise, other protocols, messages that lie. Each gets an answer or is cut off;
//! the collector lives on, no other session is disturbed, and nothing of theirs is in the database.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

mod support;

use benchmesh_proto::v1 as wire;
use benchmesh_proto::v1::agent_message::Body;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use support::fake_agent::{FakeAgent, converse, dial, greet, hello, open_publish, say};
use support::mesh::{Agent, Mesh};
use support::wait::until_true;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

const LIMIT: Duration = Duration::from_secs(120);

/// A mesh under load while `attack` goes on: its run must end well and its processes stay alive and sane.
fn while_a_run_goes_on(attack: impl FnOnce(&Mesh)) -> Mesh {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("honest"));
    let mut run = mesh.begin(
        r#"
        [[phase]]
        workload = "null"
        runtime = "6s"
        "#,
    );
    mesh.until_step_is("run", "running", LIMIT);
    attack(&mesh);
    let ended = run.exit_within(LIMIT).expect("the honest run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    assert!(mesh.collector_mut().is_running(), "the collector lives");
    assert!(
        !mesh.collector().log().contains("panicked"),
        "{}",
        mesh.collector().log()
    );
    let db = mesh.db();
    db.assert_sound();
    let row = &db.rows("SELECT state, partial FROM runs ORDER BY id DESC LIMIT 1")[0];
    assert_eq!(
        (row.text("state"), row.integer("partial")),
        ("done".to_owned(), 0)
    );
    drop(db);
    mesh
}

#[test]
fn noise_and_other_protocols_on_the_port() {
    let mesh = while_a_run_goes_on(|mesh| {
        for noise in noises() {
            send_noise(mesh.address(), &noise);
        }
        // Connections that say nothing at all, all open at once.
        let silent: Vec<TcpStream> = (0..200)
            .map(|_| TcpStream::connect(mesh.address()).unwrap())
            .collect();
        mesh.until_attached(&["honest"]);
        drop(silent);
    });
    let agents: Vec<String> = mesh.db().column("SELECT name FROM agents");
    assert_eq!(agents, ["honest"]);
    mesh.assert_no_complaints();
}

fn noises() -> Vec<Vec<u8>> {
    let mut state: u64 = 88_172_645_463_325_252;
    let mut random = |length: usize| -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        for _ in 0..length {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push((state >> 32) as u8);
        }
        bytes
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut noises = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"POST /benchmesh.v1.Mesh/Attach HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n".to_vec(),
        vec![
            0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
        ],
        [preface.clone(), vec![0xff; 64]].concat(),
        // A frame that claims 16 MiB.
        [preface.clone(), vec![0xff, 0xff, 0xff, 0x00, 0, 0, 0, 0, 1]].concat(),
        // Headers that are no HPACK.
        [
            preface.clone(),
            vec![
                0, 0, 4, 4, 0, 0, 0, 0, 0, 0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff,
            ],
        ]
        .concat(),
    ];
    for length in [1, 7, 100, 5000, 200_000] {
        noises.push(random(length));
        noises.push([preface.clone(), random(length)].concat());
    }
    noises
}

/// Sends it and reads until the collector answers or closes; either is right, and neither may take long.
fn send_noise(address: SocketAddr, noise: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let _ = stream.write_all(noise);
    let _ = stream.read(&mut [0; 4096]);
}

#[test]
fn malformed_protobuf_on_each_stream() {
    let mesh = while_a_run_goes_on(|mesh| {
        for bytes in [
            vec![0xff; 40],
            vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
            vec![0; 9 << 20],
        ] {
            for path in ["/benchmesh.v1.Mesh/Attach", "/benchmesh.v1.Mesh/Publish"] {
                let status = converse(LIMIT, send_bytes(mesh.address(), path, bytes.clone()));
                let code = status.code();
                assert!(
                    !matches!(code, tonic::Code::Ok | tonic::Code::DeadlineExceeded),
                    "{path}: {status:?}"
                );
            }
        }
    });
    assert_eq!(mesh.db().one::<i64>("SELECT count(*) FROM agents"), 1);
}

/// Sends a message whose first field holds these bytes, whatever the collector takes that field for.
async fn send_bytes(address: SocketAddr, path: &'static str, bytes: Vec<u8>) -> tonic::Status {
    let mut client = Grpc::new(dial(address).await);
    client.ready().await.unwrap();
    // A bytes value is field 1 of its message: where the collector expects Hello, or a spool id in UTF-8.
    let codec = ProstCodec::<Vec<u8>, wire::Ack>::default();
    let messages = tokio_stream::once(bytes).chain(tokio_stream::pending());
    let request = tonic::Request::new(messages);
    let answer = client
        .streaming(
            request,
            tonic::codegen::http::uri::PathAndQuery::from_static(path),
            codec,
        )
        .await;
    match answer {
        Err(status) => status,
        Ok(answer) => match answer.into_inner().message().await {
            Err(status) => status,
            Ok(message) => panic!("{path} answered {message:?}"),
        },
    }
}

/// First messages that are well-formed and wrong: (what, message, a part of the answer).
fn wrong_greetings() -> Vec<(&'static str, wire::AgentMessage, &'static str)> {
    let with = |change: &dyn Fn(&mut wire::Hello)| {
        let mut message = hello("liar");
        change(&mut message);
        say(Body::Hello(message))
    };
    vec![
        ("nothing", wire::AgentMessage { body: None }, ""),
        (
            "no hello first",
            say(Body::ClockProbe(wire::ClockProbe { agent_sent_ns: 1 })),
            "ello",
        ),
        (
            "another version",
            with(&|hello| hello.wire_version = 999),
            "version",
        ),
        ("no name", with(&|hello| hello.name.clear()), "name"),
        (
            "a long name",
            with(&|hello| hello.name = "n".repeat(100_000)),
            "name",
        ),
        (
            "a name of control characters",
            with(&|hello| hello.name = "a\nb\u{7}".into()),
            "name",
        ),
        ("no uid", with(&|hello| hello.agent_uid.clear()), "uid"),
        ("no host", with(&|hello| hello.host = None), "host"),
        (
            "ten thousand labels",
            with(&|hello| {
                hello.labels = (0..10_000)
                    .map(|n| (n.to_string(), String::new()))
                    .collect::<HashMap<_, _>>();
            }),
            "label",
        ),
        (
            "a relative path",
            with(&|hello| hello.allowed_paths = vec!["../x".into()]),
            "path",
        ),
        (
            "negative memory",
            with(&|hello| hello.host.as_mut().unwrap().memory_bytes = -1),
            "memory",
        ),
    ]
}

#[test]
fn wrong_greetings_are_refused_by_name() {
    let mesh = while_a_run_goes_on(|mesh| {
        for (what, message, part) in wrong_greetings() {
            let refusal = converse(LIMIT, greet(mesh.address(), message));
            let status = refusal
                .err()
                .unwrap_or_else(|| panic!("{what} was welcome"));
            assert!(status.message().contains(part), "{what}: {status:?}");
            assert_ne!(status.code(), tonic::Code::Unknown, "{what}: {status:?}");
        }
        // What a stranger calls itself does not get to write the log.
        let log = mesh.collector().log();
        assert!(log.lines().all(|line| line.len() < 2000), "{log}");
        assert!(!log.contains('\u{7}'), "{log}");
    });
    assert_eq!(mesh.db().one::<i64>("SELECT count(*) FROM agents"), 1);
}

#[test]
fn publish_needs_a_session_of_its_own() {
    let mesh = while_a_run_goes_on(|mesh| {
        for session in [None, Some(""), Some("0"), Some("no-such-session")] {
            let status = converse(LIMIT, async {
                let (_send, batches) = tokio::sync::mpsc::channel(1);
                match open_publish(mesh.address(), session, batches).await {
                    Err(status) => status,
                    Ok(mut acks) => acks.message().await.expect_err("no session, no acks"),
                }
            });
            assert!(
                status.message().contains("session"),
                "{session:?}: {status:?}"
            );
        }
    });
    mesh.db().assert_sound();
}

/// What a liar does to an honest batch.
type Lie = Box<dyn Fn(&mut wire::Batch)>;

/// Batches that lie, each sent on a session of its own: (what, how the honest batch is changed).
fn lying_batches() -> Vec<(&'static str, Lie)> {
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
            "a task of nobody",
            change(|batch| batch.op_intervals.push(interval(987_654))),
        ),
        (
            "a task of another agent",
            change(|batch| batch.op_intervals.push(interval(1))),
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
            "a load average that is no number",
            change(|batch| {
                batch.host_samples.push(wire::HostSample {
                    at_us: 1_700_000_000_000_000,
                    load1: f64::NAN,
                    ..Default::default()
                });
            }),
        ),
        (
            "a task's end of another agent",
            change(|batch| {
                batch.task_ends.push(wire::TaskEnd {
                    task_id: 1,
                    state: "done".into(),
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
    // The cookie of the V2 format, compressed.
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
                // Something good beside the lie: it must not be stored either.
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
        // A new session of the same agent is told where the spool stands, and may repeat too.
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
    let told: Vec<String> =
        db.column("SELECT message FROM events WHERE kind = 'told' ORDER BY message");
    assert_eq!(
        told,
        ["event 1", "event 2", "event 3", "event 4", "event 5"]
    );
    assert_eq!(db.one::<i64>("SELECT last_sequence FROM spools"), 5);
}

#[test]
fn replies_to_questions_that_nobody_asked_are_harmless() {
    while_a_run_goes_on(|mesh| {
        converse(LIMIT, async {
            let agent = FakeAgent::attach(mesh.address(), hello("babbler"))
                .await
                .unwrap();
            for id in [0, 1, 2, 3, u64::MAX] {
                let reply = wire::Reply {
                    id,
                    error: "x".repeat(10_000),
                    ..wire::Reply::default()
                };
                agent.send(say(Body::Reply(reply))).await;
                let progress = wire::Progress {
                    command_id: id,
                    done: u64::MAX,
                    total: 0,
                    unit: "lies".into(),
                };
                agent.send(say(Body::Progress(progress))).await;
            }
            agent.send(say(Body::Hello(hello("another")))).await;
        });
    });
}

fn peak_rss_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_second_agent_of_one_name_is_told_so() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("same"));
    let other = tempfile::Builder::new()
        .prefix("bm-same-")
        .tempdir()
        .unwrap();
    let agent = Agent::named("same").state_dir(other.path());
    let second = mesh.agent_process(&agent);
    until_true(
        "the second one says that its name is taken",
        Duration::from_secs(30),
        || {
            let log = second.log();
            log.contains("same")
                && (log.contains("in use") || log.contains("already") || log.contains("taken"))
        },
    );
    mesh.run(
        r#"
        [[phase]]
        workload = "null"
        ops = 1000
        "#,
    );
    assert_eq!(mesh.db().one::<i64>("SELECT count(*) FROM tasks"), 1);
}

//! An agent with a valid certificate that continuously violates every rule, beside a run of two honest ones.
//!
//! The run loses no operation, none of the rogue's false data are stored, each refusal is logged once a minute, and the
//! collector's memory stays bounded.

use super::{LIMIT, peak_rss_kib};
use crate::support::fake_agent::{
    FakeAgent, certified, converse, dial_as, greet_on, hello, open_publish_on, say,
};
use crate::support::mesh::{Agent, Mesh};
use benchmesh_proto::v1 as wire;
use benchmesh_proto::v1::agent_message::Body;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::client::Grpc;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::{Code, Status};
use tonic_prost::{ProstCodec, ProstDecoder};

const OPS: i64 = 24_000;
/// Maximum memory growth by working honest agents and one rogue, in KiB.
const MAX_GROWTH: u64 = 250_000;

/// Paced, so that the load takes about 12 s and leaves CPU time to the others.
fn paced(ops: i64) -> String {
    format!(
        "[clients]\nselect = \"role=client\"\n[[phase]]\nworkload = \"null\"\nops = {ops}\nrate_iops = {}\n",
        ops / 12
    )
}

#[test]
fn a_rogue_agent_disturbs_nobody() {
    // It takes seconds to make.
    LazyLock::force(&BOMB);
    let mut mesh = Mesh::start();
    for name in ["a", "b"] {
        mesh.add(Agent::named(name).label("role=client"));
    }
    let mut run = mesh.begin(&paced(OPS));
    mesh.until_step_is("run", "running", LIMIT);
    let before = peak_rss_kib(mesh.collector().pid());
    let is_over = AtomicBool::new(false);
    let address = mesh.address();
    let (ended, rounds) = std::thread::scope(|scope| {
        let rogue = scope.spawn(|| {
            converse(LIMIT * 2, async {
                let mut rounds = 0;
                // At least one round, however late this thread runs.
                while rounds == 0 || !is_over.load(Ordering::Relaxed) {
                    misbehave(address).await;
                    rounds += 1;
                }
                rounds
            })
        });
        let ended = run.exit_within(LIMIT);
        is_over.store(true, Ordering::Relaxed);
        (ended, rogue.join())
    });
    let rounds = rounds.expect("the rogue's own expectations hold");
    let ended = ended.expect("the honest run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    assert_honest(&mesh);
    let grown = peak_rss_kib(mesh.collector().pid()) - before;
    assert!(grown < MAX_GROWTH, "{grown} KiB after {rounds} rounds");
    assert_said_once(&mesh, rounds);
    let path = mesh.db_path().to_str().unwrap().to_owned();
    mesh.collector_mut().interrupt(LIMIT);
    let checked = mesh.command(&["db", "check", "--db", &path]);
    assert_eq!(checked.code, 0, "{}", checked.all());
}

/// Every operation of the honest agents is stored, and none of any other agent.
fn assert_honest(mesh: &Mesh) {
    let db = mesh.db();
    db.assert_sound();
    assert_eq!(db.column::<i64>("SELECT partial FROM runs"), [0]);
    let per_task = "SELECT sum(i.ops) FROM tasks t JOIN op_intervals i ON i.task_id = t.id JOIN agents a
                    ON a.id = t.agent_id WHERE a.name IN ('a', 'b') AND t.state = 'done' GROUP BY t.id";
    assert_eq!(db.column::<i64>(per_task), [OPS, OPS]);
    let result = &db.rows("SELECT ops, errors FROM step_results")[0];
    assert_eq!(
        (result.integer("ops"), result.integer("errors")),
        (2 * OPS, 0)
    );
    assert_eq!(db.one::<i64>("SELECT count(*) FROM tasks"), 2);
    assert_eq!(
        db.one::<i64>("SELECT count(*) FROM events WHERE kind = 'lie'"),
        0
    );
    let stored = "SELECT count(*) FROM events WHERE kind = 'noise'";
    assert!(db.one::<i64>(stored) > 0, "what is no lie is stored");
}

/// A refusal is logged once a minute; the check allows for the minutes that a slow machine takes.
fn assert_said_once(mesh: &Mesh, rounds: usize) {
    let log = mesh.collector().log();
    let minutes = usize::try_from(
        mesh.db()
            .one::<i64>("SELECT (max(last_seen_us) - min(first_seen_us)) / 60000000 FROM agents"),
    )
    .unwrap();
    for part in [
        "but the agent attaches as",
        "an agent can only publish in its own session",
        "a batch was refused",
        "tasks of other agents",
    ] {
        let lines = log.lines().filter(|line| line.contains(part)).count();
        assert!(
            (1..=1 + minutes).contains(&lines),
            "{part}: {lines} lines in {minutes} minutes and {rounds} rounds\n{log}"
        );
    }
    assert!(!log.contains("panicked"), "{log}");
}

/// Each violation once. Results that may vary are ignored.
async fn misbehave(address: SocketAddr) {
    let own = certified(address, "rogue").await;
    let channel = dial_as(address, &own).await.unwrap();

    let as_another = say(Body::Hello(hello("a")));
    let refused = greet_on(channel.clone(), as_another).await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");

    let mut message = hello("rogue");
    message.held_tasks = (1..1000).collect();
    let Ok(mut rogue) = FakeAgent::attach_on(channel.clone(), message).await else {
        // It reconnected too soon, or too often.
        return;
    };
    let other = dial_as(address, &certified(address, "accomplice").await)
        .await
        .unwrap();
    let (_send, batches) = tokio::sync::mpsc::channel(1);
    let refused = open_publish_on(other, Some(&rogue.welcome.session), batches).await;
    assert_eq!(refused.err().unwrap().code(), Code::PermissionDenied);

    // A flood of events, without waiting for acks or reading them.
    for _ in 0..200 {
        let mut batch = rogue.next_batch();
        batch.events = vec![event("noise", 1_700_000_000_000_000); 500];
        if !rogue.publish_unheard(batch).await {
            break;
        }
    }
    // Empty rows: 8 MiB on the wire, a gigabyte in memory.
    let status = send_raw(channel.clone(), &rogue.welcome.session, vec![0x22, 0]).await;
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    drop(rogue);

    // Rows of other agents' tasks are dropped, and the rest of the batch is stored.
    let mut message = hello("rogue");
    message.spool_ids = vec!["foreign".to_owned()];
    let Ok(mut rogue) = FakeAgent::attach_on(channel.clone(), message).await else {
        return;
    };
    for row in foreign_rows() {
        let mut batch = rogue.next_batch();
        row(&mut batch);
        let taken = rogue.publish(batch).await;
        assert!(taken.is_ok(), "{taken:?}");
    }
    drop(rogue);

    for lie in lies() {
        // Uses a separate spool without stored rows: once a batch was stored, its repetition is acknowledged, whether
        // false or not.
        let mut message = hello("rogue");
        message.spool_ids = vec!["lies".to_owned()];
        let Ok(mut rogue) = FakeAgent::attach_on(channel.clone(), message).await else {
            return;
        };
        let mut batch = rogue.next_batch();
        batch.events.push(event("lie", 1_700_000_000_000_000));
        lie(&mut batch);
        let refused = rogue.publish(batch).await;
        assert!(refused.is_err(), "a lie was taken");
    }
}

fn event(kind: &str, at_us: i64) -> wire::Event {
    wire::Event {
        at_us,
        severity: "info".into(),
        kind: kind.into(),
        message: "x".repeat(50),
        ..wire::Event::default()
    }
}

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

/// A gigabyte of zeros in hdrhistogram's compressed frame.
static BOMB: LazyLock<Vec<u8>> = LazyLock::new(|| {
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
});

fn foreign_rows() -> Vec<fn(&mut wire::Batch)> {
    vec![
        |batch| batch.op_intervals.push(interval(1)),
        |batch| batch.op_intervals.push(interval(2)),
        |batch| {
            batch.task_ends.push(wire::TaskEnd {
                task_id: 1,
                state: "done".into(),
                ..wire::TaskEnd::default()
            });
        },
    ]
}

fn lies() -> Vec<fn(&mut wire::Batch)> {
    vec![
        // The year 2199, and a time before computers.
        |batch| batch.events.push(event("lie", 7_226_582_400_000_000)),
        |batch| batch.events.push(event("lie", -1)),
        |batch| batch.sequence = u64::MAX,
        // A line of the audit trail.
        |batch| {
            batch
                .events
                .push(event("certificate-revoked", 1_700_000_000_000_000));
        },
        |batch| {
            let service = wire::Distribution {
                histogram: BOMB.clone(),
                count: 1,
                ..wire::Distribution::default()
            };
            batch.op_intervals.push(wire::OpInterval {
                service: Some(service),
                ..interval(1)
            });
        },
        |batch| {
            batch.host_samples.push(wire::HostSample {
                at_us: 1_700_000_000_000_000,
                figures: vec![i64::MAX; 23],
                ..wire::HostSample::default()
            });
        },
        |batch| {
            batch.clock_offsets.push(wire::ClockOffset {
                at_us: 1_700_000_000_000_000,
                offset_us: i64::MIN,
                error_us: i64::MAX,
                round_trip_us: i64::MAX,
            });
        },
    ]
}

/// Encodes arbitrary bytes as a message.
#[derive(Default)]
struct Raw;

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, bytes: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        prost::bytes::BufMut::put_slice(buffer, &bytes);
        Ok(())
    }
}

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = wire::Ack;
    type Encoder = Self;
    type Decoder = ProstDecoder<wire::Ack>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<wire::Ack, wire::Ack>::default().decoder()
    }
}

/// Publishes the field repeatedly, in one message of almost 8 MiB.
async fn send_raw(channel: tonic::transport::Channel, session: &str, field: Vec<u8>) -> Status {
    let bytes = field.repeat((8 << 20) / field.len() - 16);
    let mut client = Grpc::new(channel);
    client.ready().await.unwrap();
    let messages = tokio_stream::StreamExt::chain(
        tokio_stream::once(bytes),
        tokio_stream::pending::<Vec<u8>>(),
    );
    let mut request = tonic::Request::new(messages);
    let key = benchmesh_proto::SESSION_KEY;
    request.metadata_mut().insert(key, session.parse().unwrap());
    let path = "/benchmesh.v1.Mesh/Publish";
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
    let answer = client.streaming(request, path, Raw).await;
    let message = match answer {
        Err(status) => return status,
        Ok(answer) => {
            let mut acks = answer.into_inner();
            tokio::time::timeout(Duration::from_secs(60), acks.message()).await
        }
    };
    match message {
        Ok(Err(status)) => status,
        other => panic!("{other:?}"),
    }
}

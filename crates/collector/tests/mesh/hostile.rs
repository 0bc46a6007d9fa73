//! Invalid messages: their stream ends with a clear error, and all other streams continue.

use super::{
    fake_agent::{FakeAgent, Script, message, now_us},
    stage::{LIMIT, Stage, messages, state},
};
use benchmesh_proto::{SESSION_KEY, v1};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming, transport::Channel};
use v1::{agent_message::Body as AgentBody, mesh_client::MeshClient};

async fn client(address: SocketAddr) -> MeshClient<Channel> {
    MeshClient::connect(format!("http://{address}"))
        .await
        .unwrap()
}

/// The status that ends a stream with these `messages`.
pub async fn verdict(address: SocketAddr, messages: Vec<v1::AgentMessage>) -> Status {
    let (said, receiver) = mpsc::channel(64);
    for message in messages {
        said.send(message).await.unwrap();
    }
    let mut heard = match client(address)
        .await
        .attach(ReceiverStream::new(receiver))
        .await
    {
        Ok(heard) => heard.into_inner(),
        Err(status) => return status,
    };
    timeout(LIMIT, async {
        loop {
            match heard.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended without a word"),
                Err(status) => return status,
            }
        }
    })
    .await
    .expect("the stream ends")
}

#[tokio::test]
async fn a_bad_message_ends_its_own_stream_alone() {
    let stage = Stage::new().await;
    let good = stage.agent("good", Script::default()).await;
    let bad = FakeAgent::new("bad", Script::default());
    let hello = || message(AgentBody::Hello(bad.hello()));
    let with = |change: &dyn Fn(&mut v1::Hello)| {
        let mut hello = bad.hello();
        change(&mut hello);
        message(AgentBody::Hello(hello))
    };
    let reply = |body| {
        message(AgentBody::Reply(v1::Reply {
            id: 1,
            body: Some(body),
            ..v1::Reply::default()
        }))
    };
    for (messages, part) in [
        (vec![v1::AgentMessage { body: None }], "body is missing"),
        (
            vec![message(AgentBody::ClockProbe(v1::ClockProbe {
                agent_sent_ns: 1,
            }))],
            "not a hello",
        ),
        (
            vec![with(&|hello| hello.host = None)],
            "hello.host is missing",
        ),
        (
            vec![with(&|hello| hello.name.clear())],
            "hello.name is empty",
        ),
        (
            vec![with(&|hello| hello.name = "x".repeat(100_000))],
            "hello.name has 100000 bytes",
        ),
        (
            vec![with(&|hello| hello.name = String::from("a\u{1b}[2J"))],
            "control character",
        ),
        (
            vec![with(&|hello| {
                hello.allowed_paths = vec![String::from("etc")]
            })],
            "hello.allowed_paths",
        ),
        (
            vec![with(&|hello| hello.spool_ids.clear())],
            "hello.spool_ids is empty",
        ),
        (
            vec![with(&|hello| {
                hello.spool_ids = vec![String::from("s"); 10_000]
            })],
            "hello.spool_ids",
        ),
        (vec![hello(), hello()], "a second hello"),
        (
            vec![hello(), v1::AgentMessage { body: None }],
            "body is missing",
        ),
        (
            vec![
                hello(),
                reply(v1::reply::Body::End(v1::EndReply {
                    state: String::from("great"),
                    ..v1::EndReply::default()
                })),
            ],
            "end.state is `great`",
        ),
        (
            vec![
                hello(),
                reply(v1::reply::Body::Listen(v1::ListenReply { port: 70_000 })),
            ],
            "listen.port is 70000",
        ),
    ] {
        let status = verdict(stage.address, messages).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        assert!(status.message().contains(part), "{status:?} is not {part}");
    }
    // Unrequested replies and progress are ignored.
    let said = vec![
        hello(),
        message(AgentBody::Reply(v1::Reply {
            id: 999,
            ..v1::Reply::default()
        })),
        message(AgentBody::Progress(v1::Progress {
            command_id: 999,
            ..v1::Progress::default()
        })),
        hello(),
    ];
    assert!(
        verdict(stage.address, said)
            .await
            .message()
            .contains("a second hello")
    );
    // The well-behaved agent still works.
    let started = stage
        .start("[clients]\nagents = [\"good\"]\n[[phase]]\nworkload = \"null\"\n")
        .await
        .unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates).0, "done");
    assert_eq!(
        good.journal()
            .iter()
            .filter(|entry| *entry == "arm")
            .count(),
        1
    );
}

/// An answer that the database cannot hold is its agent's fault alone: the run continues without that agent, and so
/// does the queue.
#[tokio::test]
async fn a_nonce_that_cannot_be_costs_its_agent_the_run_and_nobody_else() {
    for nonce in [String::new(), "n".repeat(5000), String::from("a\nb")] {
        let stage = Stage::new().await;
        let _good = stage.agent("good", Script::default()).await;
        let bad = Script {
            file_system: String::from("its own"),
            nonce: Some(nonce.clone()),
            ..Script::default()
        };
        let _bad = stage.agent("bad", bad).await;
        let plan = "loss-after = \"1s\"\n[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\n\
            workload = \"io\"\nsize = \"1m\"\nmodes = [\"write\"]\n";
        let first = stage.start(plan).await.unwrap();
        let alone = format!("{plan}[clients]\nagents = [\"good\"]\n");
        let second = stage.start(&alone).await.unwrap();
        let updates = stage.watch(first.run_id).await;
        let told = messages(&updates);
        assert_eq!(state(&updates), ("done", true), "{nonce:?}: {told}");
        assert!(told.contains("without `bad`"), "{nonce:?}: {told}");
        let updates = stage.watch(second.run_id).await;
        assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    }
}

/// The acks of a stream of batches.
async fn publish(
    stage: &Stage,
    session: Option<&str>,
    batches: mpsc::Receiver<v1::Batch>,
) -> Result<Streaming<v1::Ack>, Status> {
    let mut request = Request::new(ReceiverStream::new(batches));
    if let Some(session) = session {
        request
            .metadata_mut()
            .insert(SESSION_KEY, session.parse().unwrap());
    }
    let acks = client(stage.address).await.publish(request).await?;
    Ok(acks.into_inner())
}

pub async fn published(
    stage: &Stage,
    session: Option<&str>,
    batch: v1::Batch,
) -> Result<v1::Ack, Status> {
    let (batches, receiver) = mpsc::channel(4);
    batches.send(batch).await.unwrap();
    let mut acks = publish(stage, session, receiver).await?;
    timeout(LIMIT, acks.message())
        .await
        .expect("an answer")
        .map(|ack| ack.expect("an ack"))
}

fn batch(sequence: u64) -> v1::Batch {
    v1::Batch {
        spool_id: String::from("spool-a"),
        first_sequence: sequence,
        sequence,
        clock_offsets: vec![v1::ClockOffset {
            at_us: now_us(),
            offset_us: 1,
            error_us: 77,
            round_trip_us: 154,
        }],
        ..v1::Batch::default()
    }
}

/// Otherwise an agent could have the rows of all agents committed again and again. Takes about 16 s, waiting: only then
/// does a commit wait for long.
#[tokio::test]
async fn a_stream_that_ends_has_its_rows_committed_and_an_empty_one_nothing() {
    let stage = Stage::new().await;
    let agent = FakeAgent::new("a", Script::default());
    let welcome = agent.attach(stage.address).await.unwrap();
    let session = Some(welcome.session.as_str());
    tokio::time::sleep(Duration::from_secs(15)).await;
    let (batches, receiver) = mpsc::channel(4);
    batches.send(batch(1)).await.unwrap();
    let mut acks = publish(&stage, session, receiver).await.unwrap();
    let second = Duration::from_secs(1);
    timeout(second, acks.message()).await.expect_err("an ack");
    let mut empty = publish(&stage, session, mpsc::channel(1).1).await.unwrap();
    assert_eq!(empty.message().await.unwrap(), None);
    timeout(second, acks.message()).await.expect_err("an ack");
    drop(batches);
    let ack = timeout(second, acks.message()).await.expect("an ack");
    assert_eq!(ack.unwrap().unwrap().sequence, 1);
}

#[tokio::test]
async fn a_bad_batch_is_refused_whole() {
    let stage = Stage::new().await;
    let agent = FakeAgent::new("a", Script::default());
    let welcome = agent.attach(stage.address).await.unwrap();
    let session = Some(welcome.session.as_str());
    let status = published(&stage, None, batch(1)).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    let status = published(&stage, Some("stolen"), batch(1))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert_eq!(
        published(&stage, session, batch(1)).await.unwrap().sequence,
        1
    );
    // A batch sent twice is stored once.
    assert_eq!(
        published(&stage, session, batch(1)).await.unwrap().sequence,
        1
    );
    let status = published(&stage, session, batch(5)).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    let mut nonsense = batch(2);
    nonsense.spool_id.clear();
    let status = published(&stage, session, nonsense).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("spool_id"), "{status:?}");
    let mut unannounced = batch(2);
    unannounced.spool_id = String::from("spool-b");
    let status = published(&stage, session, unannounced).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(
        status.message().contains("spool_id `spool-b`"),
        "{status:?}"
    );
    // Rows of other agents' tasks are left out, and the rest is stored.
    let mut foreign = batch(2);
    foreign.task_ends = vec![v1::TaskEnd {
        task_id: 4711,
        state: String::from("done"),
        ..v1::TaskEnd::default()
    }];
    assert_eq!(
        published(&stage, session, foreign).await.unwrap().sequence,
        2
    );
    assert_eq!(
        stage
            .rows("select detail ->> 'task_ends' from events where kind = 'rows-left-out'")
            .await,
        ["1"]
    );
    assert_eq!(
        stage.rows("select count(*) from clock_offsets").await,
        ["2"]
    );
    let listed = stage.listed().await;
    assert_eq!(
        (listed[0].clock_error_us, listed[0].round_trip_us),
        (Some(77), Some(154))
    );
    // The next session begins with the position of the spool.
    let again = agent.attach(stage.address).await.unwrap();
    let position = &again.spools[0];
    assert_eq!(
        (position.spool_id.as_str(), position.last_sequence),
        ("spool-a", 2)
    );
}

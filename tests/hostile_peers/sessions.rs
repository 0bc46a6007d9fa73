//! A session and command ids in the hands of another agent. Malformed messages without TLS are in
//! `crates/collector/tests/mesh`.

use super::LIMIT;
use crate::support::fake_agent::{FakeAgent, converse, hello, open_publish, say};
use crate::support::mesh::Mesh;
use benchmesh_proto::v1 as wire;
use benchmesh_proto::v1::agent_message::Body;
use benchmesh_proto::v1::command::Body as Asked;

/// `liar` knows the session and the command ids of `victim`.
#[test]
fn an_agent_publishes_and_replies_under_its_own_name_alone() {
    let mut mesh = Mesh::start();
    let address = mesh.address();
    let mut run = converse(LIMIT, async {
        let mut victim = FakeAgent::attach(address, hello("victim")).await.unwrap();
        let session = victim.welcome.session.clone();
        let (send, batches) = tokio::sync::mpsc::channel(1);
        let batch = victim.next_batch();
        send.send(batch.clone()).await.unwrap();
        let status = match open_publish(address, "liar", Some(&session), batches).await {
            Err(status) => status,
            Ok(mut acks) => acks
                .message()
                .await
                .expect_err("another's session, no acks"),
        };
        assert_eq!(status.code(), tonic::Code::PermissionDenied, "{status:?}");
        for name in ["`liar`", "`victim`"] {
            assert!(status.message().contains(name), "{status:?}");
        }
        victim.publish(batch).await.unwrap();
        let run = mesh.begin("[[phase]]\nworkload = \"null\"\nops = 10\n");
        let prepare = loop {
            let command = victim.command().await.unwrap();
            if let Some(Asked::Prepare(_)) = command.body {
                break command.id;
            }
            victim.agree(command.id, None).await;
        };
        let mut liar = FakeAgent::attach(address, hello("liar")).await.unwrap();
        let failure = wire::Reply {
            id: prepare,
            error: "said by the liar".into(),
            ..wire::Reply::default()
        };
        liar.send(say(Body::Reply(failure))).await;
        liar.exchange_clocks().await;
        victim.agree(prepare, None).await;
        victim.carry_through(1, |_, _| Vec::new()).await;
        victim.agree_until_it_ends(run).await
    });
    let (ended, log) = (run.exit_within(LIMIT).unwrap(), run.log());
    assert!(ended.success(), "{ended}:\n{log}");
    assert!(!log.contains("said by the liar"), "{log}");
    let log = mesh.collector().log();
    let lines = log.lines().filter(|line| {
        line.contains("a client is refused") && line.contains("publish in its own session")
    });
    assert_eq!(lines.count(), 1, "{log}");
    assert!(mesh.collector_mut().is_running());
    mesh.db().assert_sound();
}

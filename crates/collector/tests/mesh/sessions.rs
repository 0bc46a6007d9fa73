//! Attaching: admission, wire versions, replacement of agents.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::Stage,
};
use benchmesh_proto::v1;
use tonic::Code;

#[tokio::test]
async fn a_name_is_used_once_at_a_time() {
    let stage = Stage::new().await;
    let first = stage.agent("a", Script::default()).await;
    let thief = FakeAgent::new("a", Script::default()).with_uid("another");
    let status = thief.attach(stage.address).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert!(
        status.message().contains("the name `a`") && status.message().contains("--name"),
        "{status:?}"
    );
    // A second attachment of the same agent replaces its session.
    let again = FakeAgent::new("a", Script::default());
    again.attach(stage.address).await.unwrap();
    assert_eq!(stage.rows("select count(*) from agents").await, ["1"]);
    // A copy of its state directory has the same identity, and another process.
    let copy = FakeAgent::new("b", Script::default()).with_uid("uid-a");
    let status = copy.attach(stage.address).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert!(status.message().contains("--state-dir"), "{status:?}");
    drop((first, again));
}

/// The token allows publishing in the agent's name, so it must not be in the file, which anyone who may query can read.
#[tokio::test]
async fn the_token_of_a_session_is_nowhere_in_the_database() {
    let stage = Stage::new().await;
    let agent = FakeAgent::new("a", Script::default());
    let token = agent.attach(stage.address).await.unwrap().session;
    assert!(token.len() >= 16, "{token}");
    assert_eq!(stage.rows("select uid from agents").await, ["uid-a"]);
    let mut bytes = Vec::new();
    for end in ["", "-wal"] {
        let mut path = stage.db().into_os_string();
        path.push(end);
        bytes.extend(std::fs::read(path).unwrap_or_default());
    }
    let has = |text: &str| {
        bytes
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(has("uid-a"), "what is stored is found");
    assert!(!has(&token));
}

#[tokio::test]
async fn another_wire_version_is_told_what_to_update() {
    let stage = Stage::new().await;
    let agent = FakeAgent::new("a", Script::default());
    for (version, part) in [(0, "agent's host"), (99, "collector's host")] {
        let mut hello = agent.hello();
        hello.wire_version = version;
        let status = agent.attach_with(stage.address, hello).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().contains(part), "{status:?}");
    }
}

/// Agents of the previous and the next minor version: one has fewer workloads, the other some that are unknown here.
#[tokio::test]
async fn agents_of_other_minor_versions_attach() {
    let stage = Stage::new().await;
    let older = FakeAgent::new("older", Script::default());
    let mut hello = older.hello();
    hello.version = String::from("0.0.9");
    hello.workloads.truncate(1);
    older.attach_with(stage.address, hello).await.unwrap();
    let newer = FakeAgent::new("newer", Script::default());
    let mut hello = newer.hello();
    hello.version = String::from("0.2.0");
    hello.workloads.push(v1::WorkloadRevision {
        name: String::from("tapes"),
        revision: 7,
    });
    newer.attach_with(stage.address, hello).await.unwrap();
    let attached = stage
        .rows("select name || ' ' || version from agents order by name")
        .await;
    assert_eq!(attached, ["newer 0.2.0", "older 0.0.9"]);
}

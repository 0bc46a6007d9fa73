//! Attaching: who is let in, who samples, who replaces whom.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::Stage,
};
use benchmesh_collector::{Collector, CollectorConfig, CollectorError};
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
    // The same agent once more replaces its session.
    let again = FakeAgent::new("a", Script::default());
    again.attach(stage.address).await.unwrap();
    assert_eq!(stage.rows("select count(*) from agents").await, ["1"]);
    // A copy of its state directory: the same identity, and another process.
    let copy = FakeAgent::new("b", Script::default()).with_uid("uid-a");
    let status = copy.attach(stage.address).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists);
    assert!(status.message().contains("--state-dir"), "{status:?}");
    drop((first, again));
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

#[tokio::test]
async fn one_agent_samples_each_host_and_another_takes_over() {
    let stage = Stage::new().await;
    let a = stage.agent("a", Script::default()).await;
    let b = stage.agent("b", Script::default()).await;
    let c = stage
        .agent(
            "c",
            Script {
                host: String::from("other"),
                ..Script::default()
            },
        )
        .await;
    let sampling = |agents: [&FakeAgent; 3]| agents.map(|agent| agent.sampling().host_wide);
    assert_eq!(sampling([&a, &b, &c]), [true, false, true]);
    a.cut();
    b.until_asked("sampling").await;
    assert_eq!(sampling([&a, &b, &c])[1..], [true, true]);
    a.attach(stage.address).await.unwrap();
    assert_eq!(sampling([&a, &b, &c]), [false, true, true]);
    let listed = stage
        .control()
        .await
        .list_agents(v1::ListAgentsRequest {})
        .await
        .unwrap()
        .into_inner()
        .agents;
    let told: Vec<_> = listed
        .iter()
        .map(|agent| (agent.name.as_str(), agent.attached, agent.samples_host))
        .collect();
    assert_eq!(
        told,
        [("a", true, false), ("b", true, true), ("c", true, true)]
    );
    assert_eq!(listed[0].address, "127.0.0.1");
}

#[tokio::test]
async fn agents_of_earlier_times_are_listed() {
    let stage = Stage::new().await;
    let a = stage.agent("a", Script::default()).await;
    let stage = stage.restarted().await;
    drop(a);
    let listed = stage
        .control()
        .await
        .list_agents(v1::ListAgentsRequest {})
        .await
        .unwrap()
        .into_inner()
        .agents;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].attached), ("a", false));
}

#[tokio::test]
async fn a_port_in_use_and_an_open_network_are_refused() {
    let stage = Stage::new().await;
    let config = |listen: &str| CollectorConfig {
        listen: listen.parse().unwrap(),
        db: stage.directory.path().join("second.db"),
        insecure: false,
        clock_ppm: 0,
    };
    let error = Collector::bind(config(&stage.address.to_string()))
        .await
        .unwrap_err();
    assert!(matches!(error, CollectorError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("--listen"), "{error}");
    let error = Collector::bind(config("0.0.0.0:0")).await.unwrap_err();
    assert!(error.to_string().contains("--insecure"), "{error}");
    let open = CollectorConfig {
        insecure: true,
        ..config("0.0.0.0:0")
    };
    drop(Collector::bind(open).await.unwrap());
    let same = CollectorConfig {
        db: stage.db(),
        ..config("127.0.0.1:0")
    };
    let error = Collector::bind(same).await.unwrap_err();
    assert!(matches!(error, CollectorError::Store { .. }), "{error}");
}

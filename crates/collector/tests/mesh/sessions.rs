//! Attaching: admission, appointment of samplers, replacement of agents.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::{LIMIT, Stage},
};
use benchmesh_collector::trust::Security;
use benchmesh_collector::web::{HttpConfig, HttpListen};
use benchmesh_collector::{Collector, CollectorConfig, CollectorError};
use benchmesh_proto::v1;
use std::time::Duration;
use tokio::time::{sleep, timeout};
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
    // `b` stands in while `a` is away, after the time in which `a` may come back.
    a.cut();
    b.until_asked("sampling").await;
    assert_eq!(sampling([&a, &b, &c])[1..], [true, true]);
    a.attach(stage.address).await.unwrap();
    b.until_asked("sampling").await;
    assert_eq!(sampling([&a, &b, &c]), [true, false, true]);
    let changed = "select a.name || ' for ' || (e.detail ->> 'former') from events e join agents a on a.id = e.agent_id
         where e.kind = 'sampler-changed' order by e.id";
    timeout(LIMIT, async {
        while stage.rows(changed).await != ["b for a", "a for b"] {
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("an event for each change");
    let listed = stage.listed().await;
    let told: Vec<_> = listed
        .iter()
        .map(|agent| (agent.name.as_str(), agent.attached, agent.samples_host))
        .collect();
    assert_eq!(
        told,
        [("a", true, true), ("b", true, false), ("c", true, true)]
    );
    assert_eq!(listed[0].address, "127.0.0.1");
}

/// The host's sampler watches for all agents on it, and knows this mesh's processes there.
#[tokio::test]
async fn the_sampler_of_a_host_has_the_rules_and_pids_of_all_its_agents() {
    let stage = Stage::new().await;
    let rule = |name: &str| v1::DaemonRule {
        name: name.to_owned(),
        comm: String::from("mysqld"),
        ..v1::DaemonRule::default()
    };
    let (a, b) = (
        FakeAgent::new("a", Script::default()),
        FakeAgent::new("b", Script::default()),
    );
    let hello = |agent: &FakeAgent, pid, rules: &[&str]| v1::Hello {
        pid,
        daemon_rules: rules.iter().map(|name| rule(name)).collect(),
        ..agent.hello()
    };
    let of_a = hello(&a, 41, &["db"]);
    let welcome = a.attach_with(stage.address, of_a).await.unwrap();
    let sampling = welcome.sampling.unwrap();
    assert_eq!(
        (sampling.mesh_pids, sampling.daemon_rules),
        (vec![41], vec![rule("db")])
    );
    // Between runs nothing is sampled unless an agent of the host asks for it.
    assert_eq!(sampling.period_us, 0);
    let of_b = v1::Hello {
        sample_always: true,
        ..hello(&b, 42, &["db", "shard"])
    };
    let welcome = b.attach_with(stage.address, of_b).await.unwrap();
    assert!(!welcome.sampling.unwrap().host_wide);
    a.until_asked("sampling").await;
    let sampling = a.sampling();
    assert_eq!(sampling.mesh_pids, [41, 42]);
    assert_eq!(sampling.daemon_rules, [rule("db"), rule("shard")]);
    assert!(sampling.period_us > 0);
}

#[tokio::test]
async fn agents_of_earlier_times_are_listed() {
    let stage = Stage::new().await;
    let a = stage.agent("a", Script::default()).await;
    let stage = stage.restarted().await;
    drop(a);
    let listed = stage.listed().await;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].name.as_str(), listed[0].attached), ("a", false));
}

#[tokio::test]
async fn a_port_in_use_and_a_page_on_an_open_network_are_refused() {
    let stage = Stage::new().await;
    let config = |listen: &str| CollectorConfig {
        listen: listen.parse().unwrap(),
        db: stage.directory.path().join("second.db"),
        security: Security::Insecure,
        retention: benchmesh_store::retention::Retention::default(),
        on_alarm: None,
        clock_ppm: 0,
        newcomer_timeout: None,
        http: HttpConfig {
            listen: HttpListen::Off,
            ..HttpConfig::default()
        },
    };
    let error = Collector::bind(config(&stage.address.to_string()))
        .await
        .unwrap_err();
    assert!(matches!(error, CollectorError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("--listen"), "{error}");
    drop(Collector::bind(config("0.0.0.0:0")).await.unwrap());
    let open_page = CollectorConfig {
        http: HttpConfig {
            listen: HttpListen::At("0.0.0.0:0".parse().unwrap()),
            ..HttpConfig::default()
        },
        ..config("127.0.0.1:0")
    };
    let error = Collector::bind(open_page).await.unwrap_err();
    assert!(error.to_string().contains("--http-insecure"), "{error}");
    let same = CollectorConfig {
        db: stage.db(),
        ..config("127.0.0.1:0")
    };
    let error = Collector::bind(same).await.unwrap_err();
    assert!(matches!(error, CollectorError::Store { .. }), "{error}");
}

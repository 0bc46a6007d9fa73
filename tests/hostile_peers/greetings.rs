//! Well-formed but invalid first messages, sessions of other agents, names that are taken.

use super::{LIMIT, while_a_run_goes_on};
use crate::support::fake_agent::{FakeAgent, converse, greet, hello, open_publish, say};
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use benchmesh_proto::v1 as wire;
use benchmesh_proto::v1::agent_message::Body;
use benchmesh_proto::v1::command::Body as Asked;
use std::collections::HashMap;
use std::time::Duration;

/// Well-formed but invalid first messages: (description, message, a part of the answer).
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
        (
            "no spools",
            with(&|hello| hello.spool_ids.clear()),
            "spool_ids",
        ),
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
        // The name of an unknown client does not flood the log.
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
                match open_publish(mesh.address(), "liar", session, batches).await {
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
        Duration::from_secs(60),
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

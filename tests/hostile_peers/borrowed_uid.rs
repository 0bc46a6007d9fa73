//! A uid belongs to the name that it first came with. An agent that knows another agent's uid does not obtain that
//! agent's rows, spools or tasks, neither while the other is away nor across a restart of the collector; only a user
//! can rename an agent.

use super::LIMIT;
use crate::support::fake_agent::{FakeAgent, certified, converse, dial_as, hello, joined};
use crate::support::mesh::Mesh;
use crate::support::wait::until_true;
use benchmesh_trust::{Credentials, JoinToken};
use tonic::{Code, Status};

fn token(mesh: &Mesh, arguments: &[&str]) -> JoinToken {
    let output = mesh.command(&[&["collector", "token"], arguments].concat());
    assert_eq!(output.code, 0, "{}", output.all());
    output.out.trim().parse().unwrap()
}

/// Attaches as `name` with the uid of the agent `of`.
async fn attach(mesh: &Mesh, own: &Credentials, of: &str) -> Result<FakeAgent, Status> {
    let channel = dial_as(mesh.address(), own).await.unwrap();
    let mut message = hello(&own.name);
    message.agent_uid = hello(of).agent_uid;
    // A well-informed attacker would send the same host.
    message.host = hello(of).host;
    FakeAgent::attach_on(channel, message).await
}

async fn assert_turned_away(mesh: &Mesh, own: &Credentials) {
    let Err(status) = attach(mesh, own, "victim").await else {
        panic!("an agent took the uid of another");
    };
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    for part in ["`victim`", "`rogue`", "--replace victim"] {
        assert!(status.message().contains(part), "{status:?}");
    }
}

/// The stored names by uid.
fn names(mesh: &Mesh) -> Vec<String> {
    mesh.db()
        .column("SELECT name FROM agents WHERE uid LIKE 'fake-victim-%'")
}

fn lines_with<'l>(log: &'l str, part: &str) -> Vec<&'l str> {
    log.lines().filter(|line| line.contains(part)).collect()
}

#[test]
fn a_uid_stays_with_its_name() {
    let mut mesh = Mesh::start();
    let rogue = converse(LIMIT, async {
        let address = mesh.address();
        let own = certified(address, "victim").await;
        let channel = dial_as(address, &own).await.unwrap();
        drop(
            FakeAgent::attach_on(channel, hello("victim"))
                .await
                .unwrap(),
        );
        let plain = token(&mesh, &[]);
        joined(address, "rogue", &plain, "").await.unwrap()
    });
    let is_away = |mesh: &Mesh| {
        let listed = mesh.command(&["agents", "--format", "json"]);
        let listed: serde_json::Value = serde_json::from_str(&listed.out).unwrap();
        let agents = listed["agents"].as_array().unwrap();
        agents
            .iter()
            .any(|agent| agent["name"] == "victim" && agent["attached"] == false)
    };
    until_true("the victim is away", LIMIT, || is_away(&mesh));
    for _ in 0..3 {
        converse(LIMIT, assert_turned_away(&mesh, &rogue));
    }
    let log = mesh.collector().log();
    let refused = lines_with(&log, "an agent is refused");
    assert_eq!(refused.len(), 1, "{log}");
    assert!(refused[0].contains(" WARN "), "{log}");
    let events = "SELECT detail ->> 'name' || ' as ' || (detail ->> 'known_as') FROM events WHERE kind = 'uid-of-another'";
    until_true("the refusal is an event", LIMIT, || {
        mesh.db().column::<String>(events) == ["rogue as victim"]
    });
    // After a restart the collector has only its database.
    mesh.restart_collector();
    converse(LIMIT, assert_turned_away(&mesh, &rogue));
    assert_eq!(names(&mesh), ["victim"]);
    assert!(is_away(&mesh));
}

#[test]
fn a_person_gives_an_agents_place_away() {
    let mesh = Mesh::start();
    let address = mesh.address();
    let uid = hello("victim").agent_uid;
    converse(LIMIT, async {
        let victim = certified(address, "victim").await;
        drop(attach(&mesh, &victim, "victim").await.unwrap());
        let plain = token(&mesh, &["--replace"]);
        let refused = joined(address, "renamed", &plain, &uid).await.unwrap_err();
        assert!(
            refused.to_string().contains("--replace victim"),
            "{refused}"
        );
        // No use of the token was consumed.
        joined(address, "another", &plain, "").await.unwrap();
        let place = token(&mesh, &["--replace", "victim"]);
        let renamed = joined(address, "renamed", &place, &uid).await.unwrap();
        assert_eq!(names(&mesh), ["renamed"]);
        attach(&mesh, &renamed, "victim").await.unwrap();
        let channel = dial_as(address, &victim).await.unwrap();
        let Err(status) = FakeAgent::attach_on(channel, hello("victim")).await else {
            panic!("the one before is still let in");
        };
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
    });
    assert_eq!(names(&mesh), ["renamed"]);
    let events = "SELECT message FROM events WHERE kind = 'agent-renamed'";
    until_true("the new name is an event", LIMIT, || {
        let messages = mesh.db().column::<String>(events);
        messages.len() == 1 && messages[0].starts_with("agent victim has the new name renamed")
    });
    for wrong in [
        &["--replace", "a b"][..],
        &["--replace", "victim", "--uses", "2"],
    ] {
        let output = mesh.command(&[&["collector", "token"], wrong].concat());
        assert_ne!(output.code, 0, "{}", output.all());
    }
}

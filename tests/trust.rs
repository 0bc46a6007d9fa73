//! Admission: certificates, tokens, roles, revocation. A refused client gets a reason, which is logged once, and a
//! concurrent step loses nothing.

mod audit;
mod renewal;

use crate::support::command::{CommandOutput, benchmesh};
use crate::support::fake_agent::{certified, converse, dial_as, hello, owner, say};
use crate::support::mesh::{Agent, Mesh};
use crate::support::process::Process;
use crate::support::wait::until_true;
use benchmesh_proto::v1 as wire;
use benchmesh_proto::v1::agent_message::Body;
use benchmesh_proto::v1::control_client::ControlClient;
use benchmesh_proto::v1::mesh_client::MeshClient;
use benchmesh_trust::{Credentials, DialError, Role, Security, TcpConnection, credentials};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use tonic::{Code, Status};

const LIMIT: Duration = Duration::from_secs(60);

fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("bm-trust-")
        .tempdir()
        .unwrap()
}

/// A join token of the mesh's collector.
fn token(mesh: &Mesh, arguments: &[&str]) -> String {
    let output = mesh.command(&[&["collector", "token"], arguments].concat());
    assert_eq!(output.code, 0, "{}", output.all());
    let token = output.out.trim().to_owned();
    assert!(
        token.starts_with("bmjoin-") && !output.err.contains(&token),
        "{}",
        output.all()
    );
    token
}

/// An agent of another user with only a token.
fn joining(name: &str, token: &str, user: &Path) -> Agent {
    Agent::named(name)
        .credentials(user)
        .argument("--join")
        .argument(token)
}

/// The message of an agent that gives up.
fn refusal(mut agent: Process) -> String {
    let ended = agent.exit_within(LIMIT).expect("the agent gives up");
    assert!(!ended.success());
    agent.log()
}

async fn list_runs(channel: tonic::transport::Channel) -> Result<(), Status> {
    let request = wire::ListRunsRequest {
        search_json: b"{}".to_vec(),
    };
    ControlClient::new(channel)
        .list_runs(request)
        .await
        .map(drop)
}

fn is_attached(mesh: &Mesh, name: &str) -> bool {
    let output = mesh.command(&["agents", "--format", "json"]);
    let listed: serde_json::Value = serde_json::from_str(&output.out).unwrap();
    let agents = listed["agents"].as_array().unwrap();
    agents
        .iter()
        .any(|agent| agent["name"] == name && agent["attached"] == true)
}

/// Takes about 12 s, mostly for the concurrent step.
#[test]
fn whoever_is_not_let_in_is_told_so_and_a_step_loses_nothing() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("honest"));
    let mut run =
        mesh.begin("[[phase]]\nworkload = \"null\"\nruntime = \"8s\"\nrate_iops = 1000\n");
    mesh.until_step_is("run", "running", LIMIT);
    strangers(&mesh);
    roles_and_names(&mesh);
    tokens(&mesh);
    let ended = run.exit_within(LIMIT).expect("the honest run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    let db = mesh.db();
    db.assert_sound();
    assert_eq!(db.column::<i64>("SELECT partial FROM runs"), [0]);
    assert_eq!(db.column::<i64>("SELECT errors FROM step_results"), [0]);
    let stops = "SELECT count(*) FROM events WHERE kind = 'stop-requested'";
    assert_eq!(db.one::<i64>(stops), 0);
    drop(db);
    // Every refusal is logged once, however often it occurred.
    let log = mesh.collector().log();
    for part in [
        "the client does not use TLS",
        "no client certificate",
        "the client's certificate is invalid (invalid peer certificate: UnknownIssuer",
        "which requires an operator's certificate",
        "which requires an agent's certificate",
        "but the agent attaches as",
        "the token is used up",
        "does not know the token, or it has expired",
        "the name `honest` belongs to another agent",
    ] {
        let lines = log.lines().filter(|line| line.contains(part));
        let lines: Vec<&str> = lines
            .filter(|line| line.contains("a client is refused"))
            .collect();
        assert_eq!(lines.len(), 1, "{part}: {lines:?}\n{log}");
        assert!(lines[0].contains(" INFO "), "{lines:?}");
    }
    assert!(!log.contains("bmjoin-"), "{log}");
    mesh.assert_no_complaints();
}

/// No certificate, no TLS, a certificate of another CA.
fn strangers(mesh: &Mesh) {
    let (address, user) = (mesh.address(), directory());
    let command = |arguments: &[&str]| {
        let mut command = benchmesh();
        command
            .args(arguments)
            .env("BENCHMESH_COLLECTOR", address.to_string());
        command
    };
    let mut bare = command(&["agents"]);
    bare.env("BENCHMESH_CREDENTIALS", user.path());
    let output = CommandOutput::of(&bare.output().unwrap());
    assert_eq!(output.code, 1, "{}", output.all());
    assert!(
        output.err.contains("no credentials")
            && output.err.contains("benchmesh join --token-file FILE"),
        "{}",
        output.all()
    );
    for _ in 0..3 {
        let output = CommandOutput::of(&command(&["agents", "--insecure"]).output().unwrap());
        assert_eq!(output.code, 1, "{}", output.all());
        assert!(
            output.err.contains("leave --insecure out"),
            "{}",
            output.all()
        );
    }
    let agent = Agent::named("bare")
        .credentials(user.path())
        .state_dir(&user.path().join("bare"));
    let agent = mesh.agent_process(&agent);
    until_true("the agent says what it lacks", LIMIT, || {
        agent.log().contains("benchmesh collector token")
    });
    let other = Mesh::beside(mesh);
    converse(LIMIT, async {
        let own = owner(address);
        let ca = own.ca_fingerprint().unwrap();
        let nobody = TcpConnection::at(&address.to_string()).await.unwrap();
        let nobody = nobody.dial(Security::pinned(ca).unwrap()).await.unwrap();
        let status = list_runs(nobody.clone()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
        let attach = MeshClient::new(nobody).attach(tokio_stream::empty()).await;
        assert_eq!(attach.unwrap_err().code(), Code::Unauthenticated);
        // Each side by itself refuses the other's CA.
        let foreign = owner(other.address());
        let error = dial_as(address, &foreign).await.unwrap_err();
        assert!(matches!(error, DialError::Untrusted { .. }), "{error:?}");
        let mixed = Credentials {
            ca: own.ca.clone(),
            ..foreign
        };
        let error = dial_as(address, &mixed).await.unwrap_err();
        assert!(error.to_string().contains("another CA"), "{error:?}");
    });
}

fn roles_and_names(mesh: &Mesh) {
    let address = mesh.address();
    converse(LIMIT, async {
        let agent = certified(address, "fake").await;
        let channel = dial_as(address, &agent).await.unwrap();
        let status = list_runs(channel.clone()).await;
        assert_eq!(status.unwrap_err().code(), Code::PermissionDenied);
        let mut control = ControlClient::new(channel);
        for _ in 0..20 {
            let stop = wire::StopRunRequest {
                run: "1".into(),
                ..wire::StopRunRequest::default()
            };
            let forget = wire::ForgetAgentRequest {
                name: "honest".into(),
            };
            for refused in [
                control.stop_run(stop).await.unwrap_err(),
                control
                    .start_run(wire::StartRunRequest::default())
                    .await
                    .unwrap_err(),
                control.forget_agent(forget).await.unwrap_err(),
            ] {
                assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
            }
        }
        let owner = dial_as(address, &owner(address)).await.unwrap();
        list_runs(owner.clone()).await.unwrap();
        let attach = MeshClient::new(owner).attach(tokio_stream::empty()).await;
        assert_eq!(attach.unwrap_err().code(), Code::PermissionDenied);
        let channel = dial_as(address, &agent).await.unwrap();
        let first = say(Body::Hello(hello("honest")));
        let status = MeshClient::new(channel)
            .attach(tokio_stream::once(first))
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
        for name in ["`fake`", "`honest`"] {
            assert!(status.message().contains(name), "{status:?}");
        }
    });
}

/// Used-up and expired tokens, tokens for a taken name, and a valid one.
fn tokens(mesh: &Mesh) {
    let users = directory();
    let agent = |name: &str, token: &str, user: &str| {
        let state = users.path().join(format!("state-{user}"));
        let agent = joining(name, token, &users.path().join(user)).state_dir(&state);
        mesh.agent_process(&agent)
    };
    let good = token(mesh, &[]);
    let joined = agent("joined", &good, "1");
    mesh.until_attached(&["joined"]);
    let file = users.path().join("state-1/credentials.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let log = refusal(agent("second", &good, "2"));
    assert!(log.contains("the token is used up"), "{log}");
    let log = refusal(agent("honest", &token(mesh, &[]), "3"));
    assert!(log.contains("benchmesh collector revoke honest"), "{log}");
    let short = token(mesh, &["--ttl", "1s"]);
    let made = benchmesh_trust::now_s();
    until_true("the token has expired", LIMIT, || {
        benchmesh_trust::now_s() > made + 1
    });
    let log = refusal(agent("late", &short, "4"));
    assert!(log.contains("or it has expired"), "{log}");
    // An operator of another user, who is not allowed to create tokens.
    let token = token(mesh, &["--role", "operator"]);
    let as_operator = |arguments: &[&str]| {
        let mut command = mesh.benchmesh();
        command
            .args(arguments)
            .env("BENCHMESH_CREDENTIALS", users.path().join("operator"));
        CommandOutput::of(&command.output().unwrap())
    };
    let missing = users.path().join("missing");
    let missing = missing.to_str().unwrap();
    let output = as_operator(&["join", "--token-file", missing, "--name", "ann"]);
    assert_eq!(output.code, 2, "{}", output.all());
    assert!(output.err.contains(missing), "{}", output.all());
    let file = users.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    let file = file.to_str().unwrap();
    let output = as_operator(&["join", "--token-file", file, "--name", "ann"]);
    assert_eq!(output.code, 0, "{}", output.all());
    let output = as_operator(&["agents"]);
    assert!(output.out.contains("joined"), "{}", output.all());
    let output = as_operator(&["collector", "revoke", "joined"]);
    assert!(
        output.err.contains("the user that the collector runs as"),
        "{}",
        output.all()
    );
    // Once revoked, it is disconnected immediately and cannot return.
    assert_eq!(mesh.command(&["collector", "revoke", "joined"]).code, 0);
    until_true("the revoked agent is gone", LIMIT, || {
        !is_attached(mesh, "joined")
    });
    until_true("the agent says that it is revoked", LIMIT, || {
        joined.log().contains("is revoked")
    });
    let log = refusal(agent("joined", &good, "1"));
    assert!(log.contains("is revoked"), "{log}");
    assert_eq!(mesh.command(&["collector", "revoke", "joined"]).code, 2);
}

/// The agent of a state directory gets another name, either with its user's credentials or with a token that names the
/// agent to replace.
#[test]
fn an_agent_is_renamed_with_all_that_it_measured() {
    let mesh = Mesh::start();
    let (users, state) = (directory(), directory());
    let state = state.path().join("state");
    let attached = |agent: Agent, name: &str| {
        let process = mesh.agent_process(&agent.state_dir(&state));
        mesh.until_attached(&[name]);
        process
    };
    drop(attached(Agent::named("first"), "first"));
    drop(attached(Agent::named("second"), "second"));
    let token = |arguments: &[&str]| token(&mesh, arguments);
    let third = |token: &str| joining("third", token, users.path());
    let log = refusal(mesh.agent_process(&third(&token(&["--replace"])).state_dir(&state)));
    assert!(
        log.contains("belongs to the agent `second`") && log.contains("--replace second"),
        "{log}"
    );
    drop(attached(third(&token(&["--replace", "second"])), "third"));
    assert_eq!(
        mesh.db().column::<String>("SELECT name FROM agents"),
        ["third"]
    );
}

/// A collector with its own files on the port of another one.
fn stranger(address: SocketAddr, arguments: &[&str], directory: &Path) -> Process {
    let mut command = benchmesh();
    command
        .args([
            "collector",
            "--listen",
            &address.to_string(),
            "--http",
            "off",
        ])
        .arg("--db")
        .arg(directory.join("stranger.db"))
        .args(arguments)
        .env("BENCHMESH_CREDENTIALS", directory.join("credentials"));
    let process = Process::start("stranger", command, &directory.join("stranger.log"));
    until_true("the stranger listens", LIMIT, || {
        process.log().contains("collector listens")
    });
    process
}

/// While the collector is down, any user may bind its port.
#[test]
fn a_stranger_on_the_port_commands_nobody() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.kill_collector();
    for (arguments, part) in [
        (&[][..], "is not the collector that issued this certificate"),
        (&["--insecure"][..], "does not use TLS"),
    ] {
        let directory = directory();
        let stranger = stranger(mesh.address(), arguments, directory.path());
        until_true("the agent says who it takes that for", LIMIT, || {
            mesh.agent("a").log().contains(part)
        });
        let output = mesh.command(&["agents"]);
        assert_eq!(output.code, 1, "{}", output.all());
        assert!(output.err.contains(part), "{}", output.all());
        assert!(!stranger.log().contains("attached"), "{}", stranger.log());
    }
    let log = mesh.agent("a").log();
    let told = log
        .lines()
        .filter(|line| line.contains("is not the collector"));
    assert_eq!(told.count(), 1, "{log}");
    mesh.restart_collector();
    mesh.until_attached(&["a"]);
}

#[test]
fn without_tls_both_sides_say_so() {
    let mut mesh = Mesh::insecure();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    let agent = mesh.agent("a").log();
    assert!(
        agent.contains("connects without TLS (--insecure)"),
        "{agent}"
    );
    let collector = mesh.collector().log();
    assert!(
        collector.contains("serves without TLS (--insecure)"),
        "{collector}"
    );
    let output = mesh.command(&["agents"]);
    assert!(output.err.contains("without TLS"), "{}", output.all());
    let output = mesh.command(&["report", "last", "events"]);
    assert!(output.out.contains("without TLS"), "{}", output.all());
    let file = mesh.directory().join("report.html");
    let output = mesh.command(&[
        "report",
        "--format",
        "html",
        "--out",
        file.to_str().unwrap(),
    ]);
    assert_eq!(output.code, 0, "{}", output.all());
    let report = std::fs::read_to_string(file).unwrap();
    assert!(report.contains("without TLS"), "{report}");
    let output = mesh.command(&["collector", "token"]);
    assert!(output.err.contains("--insecure"), "{}", output.all());
    assert!(!mesh.db_path().with_extension("db.tls").exists());
    // A client with a different setting gets an error.
    let output = benchmesh()
        .arg("agents")
        .env("BENCHMESH_COLLECTOR", mesh.address().to_string())
        .output();
    let output = CommandOutput::of(&output.unwrap());
    assert!(
        output.err.contains("pass --insecure here too"),
        "{}",
        output.all()
    );
    let place = directory();
    let mut command = benchmesh();
    command
        .args([
            "agent",
            "--name",
            "b",
            "--collector",
            &mesh.address().to_string(),
        ])
        .arg("--state-dir")
        .arg(place.path().join("state"));
    let agent = Process::start("b", command, &place.path().join("log"));
    until_true("the agent says why it does not attach", LIMIT, || {
        agent.log().contains("pass --insecure here too")
    });
}

/// A stolen token, and a registry that is restored from an older copy: revoked members stay revoked.
#[test]
fn what_was_taken_away_stays_away_when_the_registry_is_restored() {
    let user = directory();
    let mut mesh = Mesh::start();
    let (first, second) = (token(&mesh, &["--uses", "5"]), token(&mesh, &[]));
    let list = |mesh: &Mesh| {
        let output = mesh.command(&["collector", "token", "list", "--format", "json"]);
        let listed: serde_json::Value = serde_json::from_str(&output.out).unwrap();
        listed["tokens"].as_array().unwrap().clone()
    };
    assert_eq!(list(&mesh).len(), 2);
    let second_id = list(&mesh)[1]["id"].as_str().unwrap().to_owned();
    mesh.add(joining("rogue", &first, user.path()));
    let registry = format!("{}.tls/registry.json", mesh.db_path().display());
    let copy = std::fs::read(&registry).unwrap();

    let revoked = mesh.command(&["collector", "revoke", "rogue"]);
    assert!(
        revoked.err.contains("is cancelled; it had 4 uses left"),
        "{}",
        revoked.all()
    );
    let cancelled = mesh.command(&["collector", "token", "cancel", &second_id]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.all());
    assert_eq!(list(&mesh), [serde_json::Value::Null; 0]);
    let unknown = mesh.command(&["collector", "token", "cancel", &second_id]);
    assert!(
        unknown.err.contains("exactly one usable token"),
        "{}",
        unknown.all()
    );
    let withdrawn =
        "SELECT count(*) FROM events WHERE kind IN ('token-cancelled', 'certificate-revoked')";
    until_true("they are events", LIMIT, || {
        mesh.db().one::<i64>(withdrawn) == 3
    });

    mesh.kill_collector();
    std::fs::write(&registry, copy).unwrap();
    mesh.restart_collector();
    assert!(
        mesh.collector()
            .log()
            .contains("is older than the database")
    );
    assert!(!is_attached(&mesh, "rogue"));
    assert_eq!(list(&mesh), [serde_json::Value::Null; 0]);
    for token in [&first, &second] {
        let other = directory();
        let refused = refusal(mesh.agent_process(&joining("other", token, other.path())));
        assert!(refused.contains("the token is used up"), "{refused}");
    }
}

//! Admission: certificates, tokens, roles, revocation. A refused client gets a reason, once in the log, and a step
//! beside it loses nothing.

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
    let request = wire::ListRunsRequest::default();
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

/// Takes about 12 s, mostly for the step beside it.
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
    drop(db);
    // Every refusal is in the log once, however often it came.
    let log = mesh.collector().log();
    for part in [
        "it speaks without TLS",
        "no certificate was shown",
        "its certificate is not good (invalid peer certificate: UnknownIssuer",
        "is not good for this: it takes an operator's",
        "is not good for this: it takes an agent's",
        "it attaches under another name",
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
        // Each side refuses the other's CA by itself.
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
        let status = list_runs(dial_as(address, &agent).await.unwrap()).await;
        assert_eq!(status.unwrap_err().code(), Code::PermissionDenied);
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

/// Used up, expired, for a name that is held; and one that is good.
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
    // An operator of another user, who may not make tokens.
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
    // Revoked, it is cut off at once and stays out.
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

/// The agent of a state directory gets another name: by its user's credentials, or by a token that names the agent to
/// replace.
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

/// A collector on the port of another, with files of its own.
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

/// While the collector is down any user may bind its port.
#[test]
fn a_stranger_on_the_port_commands_nobody() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.kill_collector();
    for (arguments, part) in [
        (&[][..], "is not the collector that this certificate is of"),
        (&["--insecure"][..], "speaks without TLS"),
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

/// Waits about 10 s for certificates of 6 s.
#[test]
fn certificates_renew_themselves_and_expired_ones_are_refused() {
    let mut mesh = Mesh::with_collector_arguments(&["--certificate-lifetime", "6s"]);
    let user = directory();
    let operator = joined_operator(&mesh, user.path());
    mesh.add(Agent::named("a"));
    let state = mesh.directory().join("state-a");
    let own = || {
        Credentials::load(&state.join("credentials.json"))
            .unwrap()
            .unwrap()
    };
    let first = own();
    assert_eq!((first.role, first.name.as_str()), (Role::Agent, "a"));
    until_true("the certificate is renewed", LIMIT, || {
        own().fingerprint().unwrap() != first.fingerprint().unwrap()
    });
    // A certificate is good to the end of its last second.
    let is_past = |own: &Credentials| benchmesh_trust::now_s() > own.expires_s;
    until_true("the first one expires", LIMIT, || is_past(&first));
    // The session went on, and a new one begins with the new certificate.
    assert!(is_attached(&mesh, "a"));
    let log = mesh.agent("a").log();
    assert!(log.contains("renewed the certificate"), "{log}");
    mesh.assert_no_complaints();
    until_true("the operator's expires", LIMIT, || is_past(&operator));
    converse(LIMIT, async {
        for expired in [&first, &operator] {
            let error = dial_as(mesh.address(), expired).await.unwrap_err();
            assert!(error.to_string().contains("it has expired"), "{error}");
        }
    });
    mesh.kill_agent("a");
    let last = own();
    until_true("the last one expires", LIMIT, || is_past(&last));
    // Another user has no other way in.
    let nobody = directory();
    let agent = Agent::named("a").credentials(nobody.path());
    let log = refusal(mesh.agent_process(&agent));
    assert!(log.contains("has expired"), "{log}");
    // The same user gets a new one.
    mesh.restart_agent("a");
    mesh.until_attached(&["a"]);
}

/// The credentials of the operator `ann`, which `join` has written for this user.
fn joined_operator(mesh: &Mesh, user: &Path) -> Credentials {
    let input = user.join("token");
    std::fs::write(&input, token(mesh, &["--role", "operator"])).unwrap();
    let mut join = mesh.benchmesh();
    join.args(["join", "--token-file", "-", "--name", "ann"])
        .env("BENCHMESH_CREDENTIALS", user)
        .stdin(std::fs::File::open(&input).unwrap());
    let joined = CommandOutput::of(&join.output().unwrap());
    assert_eq!(joined.code, 0, "{}", joined.all());
    let file = credentials::file_for(user, &mesh.address().to_string());
    Credentials::load(&file).unwrap().unwrap()
}

/// Commands of an operator renew the certificate in passing, once two thirds of its time are over. The test shifts the
/// stored times instead of waiting.
#[test]
fn operators_renew_their_certificates_in_passing() {
    let mesh = Mesh::with_collector_arguments(&["--certificate-lifetime", "1h"]);
    let user = directory();
    let as_ann = |arguments: &[&str]| {
        let mut command = mesh.benchmesh();
        command
            .args(arguments)
            .env("BENCHMESH_CREDENTIALS", user.path());
        CommandOutput::of(&command.output().unwrap())
    };
    let first = joined_operator(&mesh, user.path());
    let file = credentials::file_for(user.path(), &mesh.address().to_string());
    let own = || Credentials::load(&file).unwrap().unwrap();
    // The same certificate, aged by this many seconds.
    let age = |by_s: i64| {
        let mut aged = serde_json::to_value(own()).unwrap();
        for field in ["issued_s", "expires_s"] {
            aged[field] = (aged[field].as_i64().unwrap() - by_s).into();
        }
        std::fs::write(&file, aged.to_string()).unwrap();
    };
    for (by_s, renews) in [(0, false), (2300, false), (200, true)] {
        age(by_s);
        assert_eq!(own().is_due(), renews);
        let listed = as_ann(&["agents"]);
        assert_eq!(listed.code, 0, "{}", listed.all());
        assert_eq!(
            own().fingerprint().unwrap() != first.fingerprint().unwrap(),
            renews
        );
    }
    let renewed = own();
    assert_eq!((renewed.role, &*renewed.name), (Role::Operator, "ann"));
    assert!(renewed.expires_s >= first.expires_s && renewed.key != first.key);
    assert!(!renewed.is_due());
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    // One that was revoked renews nothing.
    let revoked = mesh.command(&["collector", "revoke", "ann"]);
    assert_eq!(revoked.code, 0, "{}", revoked.all());
    age(2500);
    let refused = as_ann(&["agents"]);
    assert_eq!(refused.code, 1, "{}", refused.all());
    assert_eq!(own().key, renewed.key);
}

/// Each change of trust is an event with its requester and the requester's address, and without a secret.
#[test]
fn changes_of_trust_are_events_that_a_query_shows() {
    let mut mesh = Mesh::with_collector_arguments(&["--certificate-lifetime", "1h"]);
    mesh.add(Agent::named("own"));
    let users = directory();
    let joined = |name: &str, token: &str| {
        let user = users.path().join(name);
        let agent = joining(name, token, &user).state_dir(&user.join("state"));
        let process = mesh.agent_process(&agent);
        mesh.until_attached(&[name]);
        process
    };
    let for_two = token(&mesh, &["--uses", "2"]);
    let _b = joined("b", &for_two);
    let c = joined("c", &for_two);
    drop(c);
    // The certificate's age comes from its file.
    let file = users.path().join("c/state/credentials.json");
    let aged = Credentials {
        issued_s: 0,
        ..Credentials::load(&file).unwrap().unwrap()
    };
    converse(LIMIT, async {
        let channel = dial_as(mesh.address(), &aged).await.unwrap();
        benchmesh_trust::renew(channel, &aged).await.unwrap();
    });
    assert_eq!(mesh.command(&["collector", "revoke", "c"]).code, 0);
    let sql = "SELECT kind, detail ->> 'role' AS role, detail ->> 'name' AS name, detail ->> 'address' AS address,
                      detail ->> 'of_role' AS of_role, detail ->> 'of_name' AS of_name, detail ->> 'token' AS token, message
               FROM events WHERE kind LIKE 'token-%' OR kind LIKE 'certificate-%' ORDER BY id";
    let asked = || {
        let output = mesh.command(&["query", sql, "--format", "json"]);
        assert_eq!(output.code, 0, "{}", output.all());
        output.out
    };
    until_true("all is stored", LIMIT, || {
        asked().contains("certificate-revoked")
    });
    let text = asked();
    let rows: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = rows["rows"].as_array().unwrap_or_else(|| panic!("{text}"));
    let told: Vec<String> = rows
        .iter()
        .map(|row| {
            let of = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
            assert_eq!(of("address"), "127.0.0.1", "{row}");
            [of("kind"), of("role"), of("name"), of("of_name")].join(" ")
        })
        .collect();
    assert_eq!(
        told,
        [
            "certificate-issued owner owner own",
            "token-made owner owner -",
            "token-used - - b",
            "certificate-issued - - b",
            "token-used - - c",
            "token-exhausted - - -",
            "certificate-issued - - c",
            "certificate-renewed agent c c",
            "certificate-revoked owner owner c",
        ],
        "{text}"
    );
    // All of one token have its number, which is no part of it.
    let numbers: BTreeSet<&str> = rows
        .iter()
        .filter_map(|row| row["token"].as_str())
        .collect();
    assert_eq!(numbers.len(), 1, "{text}");
    assert!(
        numbers.iter().all(|number| !for_two.contains(*number)),
        "{text}"
    );
    assert!(!text.contains(&for_two), "{text}");
}

#[test]
fn without_tls_both_sides_say_so() {
    let mut mesh = Mesh::insecure();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    let agent = mesh.agent("a").log();
    assert!(agent.contains("speaks without TLS (--insecure)"), "{agent}");
    let collector = mesh.collector().log();
    assert!(
        collector.contains("serves without TLS (--insecure)"),
        "{collector}"
    );
    let output = mesh.command(&["agents"]);
    assert!(output.err.contains("without TLS"), "{}", output.all());
    let output = mesh.command(&["report"]);
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

/// Who starts and stops a run is an event of it, and no secret is kept anywhere.
#[test]
fn who_starts_and_stops_is_kept_and_no_secret_is() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    let users = directory();
    let tokens = [
        token(&mesh, &["--role", "operator"]),
        token(&mesh, &["--ttl", "1h"]),
    ];
    let as_ann = |arguments: &[&str]| {
        let mut command = mesh.benchmesh();
        command
            .args(arguments)
            .env("BENCHMESH_CREDENTIALS", users.path().join("ann"));
        let output = CommandOutput::of(&command.output().unwrap());
        assert_eq!(output.code, 0, "{}", output.all());
        output
    };
    let joined = as_ann(&["join", &tokens[0], "--name", "ann"]);
    let joining =
        joining("b", &tokens[1], &users.path().join("b")).state_dir(&users.path().join("state-b"));
    let agent = mesh.agent_process(&joining);
    mesh.until_attached(&["b"]);
    let plan = mesh.plan("[[phase]]\nworkload = \"null\"\nruntime = \"60s\"\nrate_iops = 1000\n");
    as_ann(&["run", "--detach", plan.to_str().unwrap()]);
    as_ann(&["stop", "last", "--reason", "enough"]);
    let ends = mesh.until_run_is(&["stopped", "done"], LIMIT);
    let events = || {
        mesh.db().rows(
            "SELECT kind, severity, message, detail ->> 'role', detail ->> 'name', detail ->> 'address'
             FROM events WHERE kind LIKE '%-requested' ORDER BY id",
        )
    };
    until_true("both are stored", LIMIT, || events().len() == 2);
    let told = format!("{:?}", events());
    for part in [
        "start-requested",
        "started by operator ann from 127.0.0.1",
        "stop-requested",
        "stopped by operator ann from 127.0.0.1",
    ] {
        assert!(told.contains(part), "{part} ({ends}): {told}");
    }
    // Neither tokens nor private keys are in a log, in the database or in an answer.
    let keys = [
        mesh.directory().join("state-a/credentials.json"),
        users.path().join("state-b/credentials.json"),
    ]
    .map(|file| Credentials::load(&file).unwrap().unwrap().key);
    let secret_of_key = |key: &String| key.lines().nth(1).unwrap().to_owned();
    let secrets: Vec<String> = tokens
        .iter()
        .cloned()
        .chain(keys.iter().map(secret_of_key))
        .collect();
    let mut kept = vec![
        mesh.collector().log(),
        mesh.agent("a").log(),
        agent.log(),
        joined.all(),
    ];
    for suffix in ["", "-wal"] {
        let mut file = mesh.db_path().as_os_str().to_owned();
        file.push(suffix);
        let bytes = std::fs::read(file).unwrap_or_default();
        kept.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    for secret in &secrets {
        assert!(secret.len() > 20, "{secret}");
        let found = kept.iter().position(|text| text.contains(secret));
        assert_eq!(found, None, "a secret is kept");
    }
}

/// A stolen token, and a registry that is put back from an older copy: who was revoked stays out.
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
        revoked.err.contains("is cancelled; 4 uses were left"),
        "{}",
        revoked.all()
    );
    let cancelled = mesh.command(&["collector", "token", "cancel", &second_id]);
    assert_eq!(cancelled.code, 0, "{}", cancelled.all());
    assert_eq!(list(&mesh), [serde_json::Value::Null; 0]);
    let unknown = mesh.command(&["collector", "token", "cancel", &second_id]);
    assert!(unknown.err.contains("no token"), "{}", unknown.all());
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

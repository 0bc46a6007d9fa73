//! Two thousand connections that are begun and never finished: each is closed in time, memory is bounded, and honest
//! agents attach and work meanwhile. A client without a certificate learns nothing.

use super::{LIMIT, resident_kib};
use crate::support::fake_agent::{converse, owner};
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use benchmesh_trust::{Fingerprint, Security, TcpConnection};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tonic::Status;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic_prost::ProstCodec;

/// Maximum number of connections without a certificate.
const PLACES: usize = 1024;
/// Number of each kind: silent, in the middle of TLS, after TLS, after HTTP/2 began.
const EACH: usize = 500;
/// Maximum memory growth of the collector by 2000 of them, in KiB: 1024 at a time, with TLS and HTTP/2 buffers for half
/// of those.
const MAX_GROWTH: u64 = 150_000;
/// The first bytes of a ClientHello.
const TLS_BEGUN: [u8; 11] = [22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
/// HTTP/2's preface and empty settings.
const HTTP2_BEGUN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Raises this process's limit of open files for 2000 connections.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.map_or(8192, |most| most.min(8192));
    if limit.current.is_some_and(|current| current < wanted) {
        let raised = Rlimit {
            current: Some(wanted),
            maximum: limit.maximum,
        };
        setrlimit(Resource::Nofile, raised).unwrap();
    }
}

/// They have 6 s here, with a third of that for TLS; 40 s in all without the argument, which a unit test of the library
/// covers.
#[test]
fn half_open_connections_time_out_and_cost_little() {
    raise_open_files();
    let mut mesh = Mesh::with_collector_arguments(&["--newcomer-timeout", "6s"]);
    mesh.add(Agent::named("first").label("role=client"));
    let mut run = mesh.begin(
        "[clients]\nselect = \"role=client\"\n[[phase]]\nworkload = \"null\"\nops = 10000\nrate_iops = 1000\n",
    );
    mesh.until_step_is("run", "running", LIMIT);
    let pid = mesh.collector().pid();
    let before = resident_kib(pid);
    let address = mesh.address();
    let ca = owner(address).ca_fingerprint().unwrap();
    converse(LIMIT * 2, async {
        let mut plain = Vec::new();
        let mut secured = Vec::new();
        for _ in 0..EACH {
            plain.push(begun(address, &[]));
            plain.push(begun(address, &TLS_BEGUN));
            secured.extend(handshaken(address, ca, &[]).await);
            secured.extend(handshaken(address, ca, HTTP2_BEGUN).await);
        }
        // Other connections pushed out some TLS handshakes.
        assert!(secured.len() > EACH, "{} got through TLS", secured.len());
        let during = resident_kib(pid);
        // A new agent can attach while all of them are open.
        mesh.launch(Agent::named("second"));
        mesh.until_attached(&["first", "second"]);
        for stream in plain {
            assert_closed(stream);
        }
        for mut stream in secured {
            let mut answer = Vec::new();
            // The collector sends its HTTP/2 preface and nothing else; then the connection ends.
            let _ = stream.read_to_end(&mut answer).await;
            assert!(answer.len() < 200, "{}", String::from_utf8_lossy(&answer));
        }
        let after = resident_kib(pid);
        benchmesh_testing::say(&format!(
            "half-open connections: collector of {before} KiB, {during} KiB with {} of them, {after} KiB after",
            4 * EACH
        ));
        assert!(
            during.max(after) < before + MAX_GROWTH,
            "{before} {during} {after}"
        );
    });
    let ended = run.exit_within(LIMIT).expect("the honest run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    let db = mesh.db();
    db.assert_sound();
    assert_eq!(db.column::<i64>("SELECT partial FROM runs"), [0]);
    assert_eq!(db.column::<i64>("SELECT ops FROM step_results"), [10_000]);
    drop(db);
    let log = mesh.collector().log();
    // On a slow machine the first ones time out before there are too many: no lower bound here.
    let lines = log
        .lines()
        .filter(|line| line.contains("closes the oldest"));
    assert!(lines.count() <= 3, "{log}");
    mesh.assert_no_complaints();
}

/// There are fewer places than connections: the newest keep theirs, and the log reports it a few times.
#[test]
fn the_newest_half_open_connections_push_out_the_oldest() {
    raise_open_files();
    // On a machine that takes 10 s to accept them, the first have already timed out.
    let mesh = Mesh::start();
    let mut begun: Vec<TcpStream> = (0..PLACES + 100)
        .map(|_| begun(mesh.address(), &[]))
        .collect();
    let told = || {
        let log = mesh.collector().log();
        let lines = log.lines();
        lines
            .filter(|line| line.contains("closes the oldest"))
            .count()
    };
    until_true("the oldest are closed", LIMIT, || told() > 0);
    assert_closed(begun.swap_remove(0));
    assert!((1..=3).contains(&told()), "{}", mesh.collector().log());
    mesh.assert_no_complaints();
}

/// Opens a connection and sends these bytes.
fn begun(address: SocketAddr, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    // The collector may have closed it at once.
    let _ = stream.write_all(bytes);
    stream
}

/// A connection that completed TLS without a certificate; `None` if the collector closed it before.
async fn handshaken(
    address: SocketAddr,
    ca: Fingerprint,
    bytes: &[u8],
) -> Option<TlsStream<tokio::net::TcpStream>> {
    let Security::Tls(config) = Security::pinned(ca).unwrap() else {
        panic!("it is TLS");
    };
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("collector.benchmesh").unwrap();
    let connector = TlsConnector::from(Arc::clone(&config));
    let mut stream = connector.connect(name, stream).await.ok()?;
    stream.write_all(bytes).await.ok()?;
    Some(stream)
}

/// Waits until the collector closes the connection without an answer.
fn assert_closed(mut stream: TcpStream) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        Err(error) => panic!("it is not closed: {error}"),
    }
    assert!(answer.is_empty(), "{answer:?}");
}

/// The page has few places: a client that takes all of them without a request keeps them for ten seconds.
#[test]
fn half_open_connections_to_the_page_time_out() {
    raise_open_files();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("url");
    let mut mesh = Mesh::with_collector_arguments(&[
        "--http",
        "127.0.0.1:0",
        "--http-url-file",
        file.to_str().unwrap(),
    ]);
    mesh.add(Agent::named("a"));
    let url = std::fs::read_to_string(&file).unwrap();
    let host = url.trim().strip_prefix("http://").unwrap();
    let address: SocketAddr = host.split('/').next().unwrap().parse().unwrap();
    let before = resident_kib(mesh.collector().pid());
    // As many as there are places.
    let begun: Vec<TcpStream> = [
        &b""[..],
        b"GET / HTTP/1.1\r\n",
        b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\ntoken=",
    ]
    .iter()
    .cycle()
    .take(512)
    .map(|bytes| begun(address, bytes))
    .collect();
    // The request waits for a place and gets its answer.
    until_true("the page answers", LIMIT, || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let request = b"GET /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answer = String::new();
        stream.write_all(request).is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer.starts_with("HTTP/1.1 200")
    });
    for mut stream in begun {
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        let mut answer = Vec::new();
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
    }
    let after = resident_kib(mesh.collector().pid());
    assert!(after < before + MAX_GROWTH, "{before} {after}");
    // Without the token, existing and missing paths get the same answer.
    let answers = ["/api/v1/runs", "/api/v1/nothing", "/metrics", "/x"].map(|path| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let kept = answer.lines().filter(|line| !line.starts_with("date:"));
        kept.collect::<Vec<_>>().join("\n")
    });
    assert!(answers[0].starts_with("HTTP/1.1 401"), "{}", answers[0]);
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[2], answers[3]);
    assert!(
        !answers[0].contains(env!("CARGO_PKG_VERSION")),
        "{}",
        answers[0]
    );
    mesh.assert_no_complaints();
}

/// Every call except the one that requests a certificate has the same answer, whether it exists or not.
#[test]
fn a_client_without_a_certificate_learns_nothing() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("secret-name"));
    let address = mesh.address();
    let ca = owner(address).ca_fingerprint().unwrap();
    let answers: Vec<(&str, Status)> = converse(LIMIT, async {
        let mut answers = Vec::new();
        for path in [
            "/benchmesh.v1.Mesh/Attach",
            "/benchmesh.v1.Control/ListRuns",
            "/benchmesh.v1.Trust/CreateToken",
            "/benchmesh.v1.Trust/Nothing",
            "/benchmesh.v1.Nothing/Nothing",
            "/",
            "/metrics",
        ] {
            let nobody = TcpConnection::at(&address.to_string()).await.unwrap();
            let nobody = nobody.dial(Security::pinned(ca).unwrap()).await.unwrap();
            let mut client = Grpc::new(nobody);
            client.ready().await.unwrap();
            let codec = ProstCodec::<(), ()>::default();
            let request = tonic::Request::new(());
            let answer = client.unary(request, PathAndQuery::from_static(path), codec);
            answers.push((path, answer.await.unwrap_err()));
        }
        answers
    });
    let shown = |status: &Status| {
        let mut metadata = status.metadata().clone();
        metadata.remove("date");
        format!("{:?} {:?} {metadata:?}", status.code(), status.message())
    };
    let first = shown(&answers[0].1);
    assert!(first.starts_with("Unauthenticated"), "{first}");
    for (path, status) in &answers {
        assert_eq!(shown(status), first, "{path}");
    }
    for secret in [env!("CARGO_PKG_VERSION"), "secret-name"] {
        assert!(!first.contains(secret), "{first}");
    }
}

/// A collector with a low limit of open files reserves some for its database and for known members.
#[test]
fn half_open_connections_leave_files_to_the_database() {
    raise_open_files();
    let mut mesh = Mesh::with_few_files(256);
    mesh.add(Agent::named("a"));
    let begun: Vec<TcpStream> = (0..400)
        .map(|_| begun(mesh.address(), &TLS_BEGUN))
        .collect();
    mesh.launch(Agent::named("b"));
    mesh.until_attached(&["a", "b"]);
    mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    drop(begun);
    mesh.assert_no_complaints();
}

//! Each refusal is one log line of bounded length, and no client can write other lines.

use super::{
    fake_agent::{FakeAgent, Script, message},
    hostile::{published, verdict},
    log::Log,
    stage::{LIMIT, Stage},
};
use benchmesh_proto::v1;
use std::net::SocketAddr;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use v1::agent_message::Body;

/// Longer than any legitimate line.
const MAX_LINE_BYTES: usize = 2048;

/// Fails if a line is not the collector's own, or is too long.
fn assert_sound(log: &Log) {
    for line in log.text().lines() {
        let is_own = line.starts_with("20") && (line.contains(" INFO ") || line.contains(" WARN "));
        assert!(is_own, "{line}");
        assert!(line.len() <= MAX_LINE_BYTES, "{line}");
    }
}

#[tokio::test]
async fn what_agents_are_refused_for_is_logged_in_lines_of_the_collectors_own() {
    let log = Log::new();
    let stage = Stage::new().await;
    let forger = FakeAgent::new("forger", Script::default());
    let forged = format!("1.0\nERROR the disk is full{}", "x".repeat(1 << 20));
    let with = |change: &dyn Fn(&mut v1::Hello)| {
        let mut hello = forger.hello();
        change(&mut hello);
        vec![message(Body::Hello(hello))]
    };
    let ends = |body| {
        let reply = Body::Reply(v1::Reply {
            id: 1,
            body: Some(body),
            ..v1::Reply::default()
        });
        vec![message(Body::Hello(forger.hello())), message(reply)]
    };
    for (said, part) in [
        (
            vec![v1::AgentMessage { body: None }],
            "hello.body is missing",
        ),
        (
            vec![message(Body::ClockProbe(v1::ClockProbe::default()))],
            "the first message is not a hello",
        ),
        (with(&|hello| hello.host = None), "hello.host is missing"),
        (
            with(&|hello| {
                hello.wire_version = 999;
                hello.version = forged.clone();
            }),
            "wire version 999",
        ),
        (
            ends(v1::reply::Body::End(v1::EndReply {
                state: forged.clone(),
                ..v1::EndReply::default()
            })),
            "end.state is `1.0 ERROR",
        ),
    ] {
        verdict(stage.address, said).await;
        assert_eq!(log.lines_with(part).len(), 1, "{part}:\n{}", log.text());
    }
    // Faults of one kind by one agent are one line a minute.
    let twice = vec![
        message(Body::Hello(
            FakeAgent::new("twice", Script::default()).hello(),
        )),
        message(Body::Hello(forger.hello())),
    ];
    verdict(stage.address, twice).await;
    assert_eq!(log.lines_with("a second hello").len(), 1);
    for session in [None, Some("stolen")] {
        published(&stage, session, v1::Batch::default())
            .await
            .unwrap_err();
    }
    assert_eq!(log.lines_with("metadata key").len(), 1, "{}", log.text());
    assert_eq!(log.lines_with("this session is").len(), 1, "{}", log.text());
    assert_sound(&log);
}

#[tokio::test]
async fn plans_that_are_not_started_are_logged() {
    let log = Log::new();
    let stage = Stage::new().await;
    stage
        .start("[[phase]]\nworkload = \"nul\"\n")
        .await
        .unwrap_err();
    let refused = log.lines_with("cannot start a run");
    assert_eq!(refused.len(), 1, "{}", log.text());
    assert!(refused[0].contains("127.0.0.1"), "{}", refused[0]);
    assert_sound(&log);
}

/// The head of the answer.
async fn asked(page: SocketAddr, request: String) -> String {
    let mut stream = TcpStream::connect(page).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = timeout(LIMIT, stream.read_to_end(&mut answer));
    read.await.expect("an answer").unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn whoever_does_not_show_the_pages_token_is_logged_and_the_token_is_not() {
    let log = Log::new();
    let stage = Stage::new().await;
    let (page, token) = stage
        .url
        .strip_prefix("http://")
        .and_then(|url| url.split_once("/?token="))
        .unwrap();
    let page: SocketAddr = page.parse().unwrap();
    let wrong = "w".repeat(64);
    let get = |path: &str, headers: &str| {
        format!("GET {path} HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n{headers}\r\n")
    };
    let form = format!("token={wrong}");
    let login = format!(
        "POST /login HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{form}",
        form.len()
    );
    let bearer = format!("Authorization: Bearer {wrong}\r\n");
    for (request, status) in [
        (get(&format!("/?token={token}"), ""), "303"),
        (get("/assets/page.css", ""), "200"),
        (
            get(
                "/api/v1/runs",
                &format!("Authorization: Bearer {token}\r\n"),
            ),
            "200",
        ),
    ] {
        assert!(asked(page, request).await.contains(status), "{status}");
    }
    assert_eq!(
        log.lines_with("requested the page").len(),
        0,
        "{}",
        log.text()
    );
    for (requests, part) in [
        (
            vec![
                get(&format!("/?token={wrong}"), ""),
                get("/api/v1/runs", &bearer),
                login,
            ],
            "with a wrong token",
        ),
        (vec![get("/api/v1/runs", "")], "without a token"),
    ] {
        for request in requests {
            let status = asked(page, request).await;
            assert!(status.contains("401"), "{status}");
        }
        let lines = log.lines_with(part);
        assert_eq!(lines.len(), 1, "{}", log.text());
        assert!(lines[0].contains("127.0.0.1"), "{}", lines[0]);
    }
    let elsewhere = "GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    asked(page, elsewhere.to_owned()).await;
    assert_eq!(log.lines_with("another machine's name").len(), 1);
    let text = log.text();
    assert!(!text.contains(token) && !text.contains(&wrong), "{text}");
    assert_sound(&log);
}

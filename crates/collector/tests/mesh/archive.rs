//! A collector with `--archive` and a real PostgreSQL server: ended runs arrive by themselves. When and how often is
//! tested in `collector/src/archive/queue.rs`, what arrives in `crates/archive/tests`.

use super::comparisons::annotated;
use super::fake_agent::Script;
use super::page::Page;
use super::stage::{LIMIT, Stage, messages, state};
use benchmesh_archive::postgres::{Archive, Patience, Server, Site, UrlOrigin};
use benchmesh_archive::tables;
use benchmesh_collector::archive::{ArchiveConfig, Pace};
use benchmesh_proto::v1;
use benchmesh_scheduler::snapshot::ArchiveNow;
use benchmesh_store::annotate::Annotation;
use benchmesh_testing::postgres::PostgresServer;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PLAN: &str = "[[phase]]\nworkload = \"null\"\n";

/// Waits until the server answers so.
async fn until_there(server: &PostgresServer, sql: &str, expected: &str) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let found = server.sql("postgres", sql);
        if found == expected {
            return;
        }
        assert!(Instant::now() < deadline, "{sql}: {found}, not {expected}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until `/metrics` has all these lines.
async fn until_shown(stage: &Stage, lines: &[&str]) -> String {
    let page = Page::of(stage);
    let deadline = Instant::now() + LIMIT;
    loop {
        let text = page.get("/metrics").await.body;
        if lines
            .iter()
            .all(|line| text.lines().any(|shown| shown == *line))
        {
            return text;
        }
        assert!(Instant::now() < deadline, "{lines:?} are not all in {text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn ended_run(stage: &Stage) -> (i64, String) {
    let started = stage.start(PLAN).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    (started.run_id, started.run_uid)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_runs_are_archived_and_their_queue_outlives_the_server_and_the_collector() {
    let Some(mut server) = PostgresServer::start() else {
        return;
    };
    let url = server.url("postgres", "postgres");
    let config = ArchiveConfig {
        server: Server::parse(&url, UrlOrigin::Collector, None).unwrap(),
        site: Site::Named(String::from("lab")),
        pace: Pace {
            look: Duration::from_millis(200),
            settled: Duration::from_millis(500),
            findings: Duration::from_secs(30),
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(1),
        },
    };
    let mut archive = Archive::connect(&config.server, &Patience::default())
        .await
        .unwrap();
    archive.prepare().await.unwrap();
    archive.close().await;
    let stage = Stage::archiving(TempDir::new().unwrap(), config.clone()).await;
    let script = Script {
        runs_for: Duration::from_millis(50),
        ..Script::default()
    };
    let agent = stage.agent("a", script).await;

    let (first, first_uid) = ended_run(&stage).await;
    let runs = "SELECT string_agg(site || ' ' || run_uid, ',' ORDER BY id) FROM benchmesh.runs";
    until_there(&server, runs, &format!("lab {first_uid}")).await;
    let findings = "SELECT count(*) FROM findings";
    let stored = stage.rows(findings).await;
    assert_ne!(stored, ["0"], "it was archived before its findings");
    let archived = server.sql("postgres", "SELECT count(*) FROM benchmesh.findings");
    assert_eq!(stored, [archived]);

    let tag = Annotation::Tag {
        set: [(String::from("pool"), String::from("ssd"))].into(),
        remove: Vec::new(),
    };
    annotated(&stage, &first.to_string(), Some(tag))
        .await
        .unwrap();
    let tags = "SELECT string_agg(key || '=' || value, ',') FROM benchmesh.run_tags";
    until_there(&server, tags, "pool=ssd").await;
    until_shown(
        &stage,
        &[
            "benchmesh_archive_waiting_runs 0",
            "benchmesh_archive_oldest_waiting_seconds 0",
            "benchmesh_archive_failing 0",
        ],
    )
    .await;

    server.crash();
    let (_, second_uid) = ended_run(&stage).await;
    let waiting = [
        "benchmesh_archive_waiting_runs 1",
        "benchmesh_archive_failing 1",
    ];
    let text = until_shown(&stage, &waiting).await;
    assert!(
        !text.contains("benchmesh_archive_oldest_waiting_seconds 0\n"),
        "{text}"
    );
    let mut control = stage.control().await;
    let queue = control.archive_queue(v1::ArchiveQueueRequest {}).await;
    let queue: Option<ArchiveNow> =
        serde_json::from_slice(&queue.unwrap().get_ref().archive_json).unwrap();
    let queue = queue.unwrap();
    assert_eq!(
        (queue.waiting_runs, queue.site.as_deref()),
        (1, Some("lab"))
    );
    assert!(queue.error.is_some() && queue.failing_since_us.is_some());
    drop(agent);
    let again = config.clone();
    let stage = Stage::archiving(stage.ended().await, config).await;
    until_shown(&stage, &waiting).await;

    server.again();
    until_there(&server, runs, &format!("lab {first_uid},lab {second_uid}")).await;
    until_shown(
        &stage,
        &[
            "benchmesh_archive_waiting_runs 0",
            "benchmesh_archive_failing 0",
        ],
    )
    .await;
    // An archive that was made anew gets all runs again.
    let mut empty = String::from("TRUNCATE benchmesh.pushes");
    for table in tables::known().unwrap() {
        empty.push_str(&format!(", benchmesh.{}", table.name));
    }
    server.sql("postgres", &empty);
    let stage = Stage::archiving(stage.ended().await, again).await;
    until_there(&server, runs, &format!("lab {first_uid},lab {second_uid}")).await;
    // One event for the whole failure, also over the restart, and one for its end.
    let events = "SELECT kind, run_id IS NULL FROM events WHERE kind LIKE 'archive-%' ORDER BY id";
    assert_eq!(
        stage.rows(events).await,
        ["archive-failed|1", "archive-works|1"]
    );
}

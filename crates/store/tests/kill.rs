//! A collector that is killed while it receives batches: everything that it acknowledged is in the database, and
//! nothing is stored twice.
//!
//! The test runs itself again as the process to kill. That process prints each acknowledged sequence. Every printed
//! sequence must be stored afterwards, and later ones must be complete if they are stored.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::indexing_slicing)]

use benchmesh_model::figures::{DaemonFigures, Figures};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_proto::v1 as proto;
use benchmesh_store::Store;
use benchmesh_store::ingest::Batch;
use benchmesh_store::rows::{NewAgent, NewHost};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

const DATABASE: &str = "BENCHMESH_TEST_KILLED";
const T0: i64 = 1_750_000_000_000_000;
const ROWS: i64 = 100;
const SPOOL: &str = "spool-1";
/// Number of unacknowledged batches, so that transactions contain several.
const UNDER_WAY: usize = 40;

#[test]
fn what_was_acknowledged_survives_a_kill() {
    if let Some(path) = std::env::var_os(DATABASE) {
        runtime().block_on(publish_until_killed(Path::new(&path)));
        return;
    }
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("mesh.db");
    let mut stored = 0;
    for least in [30, 200, 90] {
        let acknowledged = run_and_kill(&path, stored + least);
        let store = runtime().block_on(check(&path));
        assert!(
            store >= acknowledged,
            "{acknowledged} was acknowledged and only {store} is stored"
        );
        assert!(store > stored, "nothing was stored");
        stored = store;
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().unwrap()
}

/// Starts the publishing process, and kills it once it has acknowledged `least`; returns the last printed sequence.
fn run_and_kill(path: &Path, least: u64) -> u64 {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "what_was_acknowledged_survives_a_kill",
            "--nocapture",
        ])
        .env(DATABASE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut last = 0;
    let sequence = |line: String| line.strip_prefix("ack ").and_then(|n| n.parse().ok());
    while last < least {
        let line = lines.next().expect("it ended by itself").unwrap();
        last = sequence(line).unwrap_or(last);
    }
    child.kill().unwrap();
    child.wait().unwrap();
    // Lines printed before the process was killed.
    for line in lines.map_while(Result::ok) {
        last = sequence(line).unwrap_or(last);
    }
    last
}

fn agent() -> NewAgent {
    NewAgent {
        uid: "uid".to_owned(),
        name: "a".to_owned(),
        host: NewHost {
            boot_id: "boot".to_owned(),
            pid_namespace: "pid".to_owned(),
            name: "host".to_owned(),
            kernel: "Linux".to_owned(),
            cpus: 2,
            memory_bytes: 1,
        },
        labels_json: "{}".to_owned(),
        version: "0".to_owned(),
        may_rename: false,
        describes_host: true,
        at: MeshMicros(T0),
    }
}

/// Batch `sequence` holds the samples of `ROWS` daemons at second `sequence`.
fn batch(sequence: u64) -> Batch {
    let rows = usize::try_from(ROWS).unwrap();
    let at = T0 + i64::try_from(sequence).unwrap() * 1_000_000;
    let pids: Vec<i32> = (1..=i32::try_from(ROWS).unwrap()).collect();
    let wire = proto::Batch {
        spool_id: SPOOL.to_owned(),
        first_sequence: sequence,
        sequence,
        daemons: pids
            .iter()
            .map(|&pid| proto::DaemonSeen {
                pid,
                start_ticks: 1,
                name: "ceph-osd".to_owned(),
                at_us: at,
                ..proto::DaemonSeen::default()
            })
            .collect(),
        daemon_samples: Some(proto::DaemonSamples {
            pid: pids,
            start_ticks: vec![1; rows],
            at_us: vec![at; rows],
            figures: vec![vec![1; rows].into(); DaemonFigures::ALL.len()],
        }),
        ..proto::Batch::default()
    };
    Batch::try_from(wire).unwrap()
}

async fn publish_until_killed(path: &Path) {
    let store = Store::open(path).await.unwrap();
    let (agent, host) = store.attach_agent(agent()).await.unwrap();
    let publisher = store.publisher(agent, host, String::new());
    let positions = store.spool_positions(agent).await.unwrap();
    let last = positions.first().map_or(0, |(_, last)| *last);
    // An agent that did not get its acknowledgements sends those batches again.
    let mut receipts = VecDeque::new();
    for sequence in last.saturating_sub(20).max(1).. {
        receipts.push_back(publisher.submit(batch(sequence)).await.unwrap());
        if receipts.len() == UNDER_WAY {
            let stored = receipts.pop_front().unwrap().await.unwrap();
            println!("ack {}", stored.sequence);
            std::io::stdout().flush().unwrap();
        }
    }
}

/// Opens the killed process's database, and returns the last stored sequence.
async fn check(path: &Path) -> u64 {
    let store = Store::open(path).await.unwrap();
    let (agent, _) = store.attach_agent(agent()).await.unwrap();
    let positions = store.spool_positions(agent).await.unwrap();
    let last = positions.first().map_or(0, |(_, last)| *last);
    let per_second: Vec<(i64, i64)> =
        sqlx::query_as("SELECT at_us, count(*) FROM daemon_samples GROUP BY at_us ORDER BY at_us")
            .fetch_all(store.reader())
            .await
            .unwrap();
    let expected: Vec<(i64, i64)> = (1..=i64::try_from(last).unwrap())
        .map(|second| (T0 + second * 1_000_000, ROWS))
        .collect();
    assert!(
        per_second == expected,
        "rows do not match the position {last}"
    );
    let integrity: String = sqlx::query_scalar("PRAGMA integrity_check")
        .fetch_one(store.reader())
        .await
        .unwrap();
    assert_eq!(integrity, "ok");
    store.close().await;
    last
}

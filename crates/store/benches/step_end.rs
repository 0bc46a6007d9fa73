//! The cost of the end of a long step: its figures, its daemons' and its traffic, after its rows have arrived.
//!
//! `cargo bench -p benchmesh-store --bench step_end` generates a step of 85 hours with 3 clients and 10 daemons each
//! (some minutes, 3 GB), or uses the one named by `BENCHMESH_SOAK_DB`. The step is put back into its run, the store
//! follows it like a running step, and then it ends; and once more without the kept sums, from all rows. It prints
//! seconds, CPU seconds and peak memory of each part.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

use benchmesh_model::mesh::{MeshMicros, StepId, StepState};
use benchmesh_store::Store;
use benchmesh_store::rows::FinishedStep;
use benchmesh_synthetic::{Shape, generate};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const SHAPE: Shape = Shape {
    hosts: 3,
    daemons_per_host: 10,
    clients: 3,
    targets: 2,
    runs: 0,
    repeats: 1,
    step_seconds: 0,
    gap_seconds: 0,
    soak_seconds: 85 * 3600,
};
const STEP: StepId = StepId(1);
/// Sums lag some minutes behind the newest row.
const BEHIND_US: i64 = 20 * 60 * 1_000_000;

#[tokio::main]
async fn main() {
    // `cargo test --benches` only needs it to link.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = match std::env::var_os("BENCHMESH_SOAK_DB") {
        Some(path) => PathBuf::from(path),
        None => directory.path().join("soak.db"),
    };
    if !path.exists() {
        let target = path.clone();
        tokio::task::spawn_blocking(move || generate(&target, &SHAPE).unwrap())
            .await
            .unwrap();
    }
    // Raises its ids; a file with another schema is refused.
    Store::open(&path).await.unwrap().close().await;
    println!("{} MiB", std::fs::metadata(&path).unwrap().len() >> 20);
    for kept in [true, false] {
        let ended_us = put_back(&path);
        let store = Store::open(&path).await.unwrap();
        if kept {
            let spent = Spent::now();
            follow(&path, ended_us).await;
            println!("followed:                {}", spent.since());
        }
        let spent = Spent::now();
        let finished = FinishedStep {
            state: StepState::Done,
            partial: false,
            ended: MeshMicros(ended_us),
            reason: None,
        };
        let results = store.finish_step(STEP, finished).await.unwrap();
        let how = if kept { "from sums" } else { "from rows" };
        println!("its end {how:9}:       {}", spent.since());
        let operations: i64 = results.ops.iter().map(|op| op.ops).sum();
        println!("{operations} operations");
        store.close().await;
    }
}

/// Makes the step running again; returns its end.
fn put_back(path: &Path) -> i64 {
    let file = rusqlite::Connection::open(path).unwrap();
    let ended_us = file
        .query_row("SELECT max(ended_us) FROM tasks", [], |row| row.get(0))
        .unwrap();
    file.execute_batch(
        "UPDATE runs SET state = 'running'; UPDATE steps SET state = 'running', ended_us = NULL;
         DELETE FROM step_results; DELETE FROM task_results; DELETE FROM step_daemons; DELETE FROM step_traffic;
         DELETE FROM step_sums;",
    )
    .unwrap();
    ended_us
}

/// Waits until the step is followed up to its last minutes.
async fn follow(path: &Path, ended_us: i64) {
    let file = rusqlite::Connection::open(path).unwrap();
    loop {
        let until: Option<i64> = file
            .query_row(
                "SELECT max(until_us) FROM step_sums WHERE sums IS NOT NULL",
                [],
                |row| row.get(0),
            )
            .unwrap();
        if until.unwrap_or(0) >= ended_us - BEHIND_US {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

struct Spent {
    began: Instant,
    cpu_s: f64,
}

impl Spent {
    fn now() -> Self {
        // Resets the peak of memory.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        Self {
            began: Instant::now(),
            cpu_s: cpu_s(),
        }
    }

    fn since(&self) -> String {
        format!(
            "{:.1} s, {:.1} CPU-s, {} MiB at most",
            self.began.elapsed().as_secs_f64(),
            cpu_s() - self.cpu_s,
            peak_kib() >> 10
        )
    }
}

/// User and system time of this process.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks / 100.0
}

fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = peak.unwrap().trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}

//! The cost of the end of a long step from the sums made while it ran, and from all its rows, which is the baseline.
//!
//! `cargo bench -p benchmesh-store --bench step_end` generates a step of 85 hours with 3 clients and 10 daemons each
//! (some minutes, 3 GB). The step is put back into its run and ends from its rows. Put back once more, the store
//! follows it like a running step before it ends. It prints seconds, CPU seconds and peak memory of each part, and the
//! ratio.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use benchmesh_model::mesh::{MeshMicros, StepId, StepState};
use benchmesh_store::Store;
use benchmesh_store::rows::FinishedStep;
use benchmesh_synthetic::{Shape, generate};
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use std::path::Path;
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
/// Sums lag some minutes behind the newest row.
const BEHIND_US: i64 = 20 * 60 * 1_000_000;

fn main() {
    // `cargo test --benches` only needs it to link.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("soak.db");
    println!("a step of 85 hours is generated");
    let made = generate(&path, &SHAPE).unwrap();
    println!("{} MiB", made.bytes >> 20);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let from_rows = runtime.block_on(end(&path, false));
    let from_sums = runtime.block_on(end(&path, true));
    println!(
        "from sums: {:.3} of the time and {:.3} of the CPU from rows",
        from_sums.0 / from_rows.0,
        from_sums.1 / from_rows.1
    );
}

/// Ends the step; returns seconds and CPU seconds.
async fn end(path: &Path, is_followed: bool) -> (f64, f64) {
    let ended_us = put_back(path);
    let store = Store::open(path).await.unwrap();
    if is_followed {
        spent("followed", follow(path, ended_us)).await;
    }
    let finished = FinishedStep {
        state: StepState::Done,
        partial: false,
        ended: MeshMicros(ended_us),
        reason: None,
    };
    let how = if is_followed {
        "end, sums"
    } else {
        "end, rows"
    };
    let ending = async {
        let results = store.finish_step(StepId(1), finished).await.unwrap();
        assert!(results.ops.iter().any(|op| op.ops > 0));
    };
    let figures = spent(how, ending).await;
    store.close().await;
    figures
}

/// Makes the step running again; returns its end.
fn put_back(path: &Path) -> i64 {
    let file = Connection::open(path).unwrap();
    file.execute_batch(
        "UPDATE runs SET state = 'running'; UPDATE steps SET state = 'running', ended_us = NULL;
         DELETE FROM step_results; DELETE FROM task_results; DELETE FROM step_daemons; DELETE FROM step_traffic;
         DELETE FROM step_sums;",
    )
    .unwrap();
    number(&file, "SELECT max(ended_us) FROM tasks")
}

/// Waits until the step is followed up to its last minutes.
async fn follow(path: &Path, ended_us: i64) {
    let file = Connection::open(path).unwrap();
    let summed = "SELECT coalesce(max(until_us), 0) FROM step_sums WHERE sums IS NOT NULL";
    while number(&file, summed) < ended_us - BEHIND_US {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn number(file: &Connection, sql: &str) -> i64 {
    file.query_row(sql, [], |row| row.get(0)).unwrap()
}

/// Prints what a part takes; returns seconds and CPU seconds.
async fn spent(name: &str, work: impl Future<Output = ()>) -> (f64, f64) {
    let cpu_s = || {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    };
    // Resets the peak of memory.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (began, before) = (Instant::now(), cpu_s());
    work.await;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_s() - before);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!(
        "{name:10} {seconds:.1} s, {cpu:.1} CPU-s, peak {}",
        peak.unwrap().trim()
    );
    (seconds, cpu)
}

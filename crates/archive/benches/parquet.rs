//! Parquet files against CSV files of the same rows and against the database: seconds, sizes, peak memory.
//!
//! `cargo bench -p benchmesh-archive --bench parquet [-- HOURS RUNS]` generates a step of HOURS hours (1) on 12 hosts with
//! 10 daemons each and 4 clients, and RUNS runs (0) of nine minutes. It exports everything: as CSV, as Parquet,
//! and once more when nothing has changed. Generated figures follow formulas and compress to nearly nothing, so noise is
//! added, and histograms, which are compressed already, become random bytes of their length.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::indexing_slicing,
    missing_docs
)]

use benchmesh_answers::export::{self, Format};
use benchmesh_archive::parquet;
use benchmesh_archive::source::Source;
use benchmesh_synthetic::{Shape, generate};
use rusqlite::Connection;
use std::path::Path;
use std::time::Instant;

const NOISE: &str = "
    UPDATE daemon_samples SET cpu_user_us = cpu_user_us + abs(random()) % 10000,
        cpu_system_us = cpu_system_us + abs(random()) % 3000, rss_bytes = rss_bytes + abs(random()) % 1000 * 4096,
        read_bytes = read_bytes + abs(random()) % 10 * 4096, write_bytes = write_bytes + abs(random()) % 20 * 4096,
        vol_ctx = vol_ctx + abs(random()) % 400, minor_faults = minor_faults + abs(random()) % 90;
    UPDATE host_samples SET user_us = user_us + abs(random()) % 60000, idle_us = idle_us + abs(random()) % 100000,
        memory_available_bytes = memory_available_bytes + abs(random()) % 100000 * 4096;
    UPDATE op_intervals SET ops = ops + abs(random()) % 50, service_sum_ns = service_sum_ns + random() % 1000000,
        service_sum_squares_ns2 = service_sum_squares_ns2 + random() % 1000000000,
        service_p99_ns = service_p99_ns + abs(random()) % 1000000,
        service_histogram = randomblob(length(service_histogram));
    UPDATE step_intervals SET ops = ops + abs(random()) % 200, p99_ns = p99_ns + abs(random()) % 1000000,
        histogram = randomblob(length(histogram));
    PRAGMA wal_checkpoint(TRUNCATE);";

fn main() {
    // `cargo test --benches` only needs it to link.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<u32>().ok());
    let shape = Shape {
        soak_seconds: numbers.next().unwrap_or(1) * 3600,
        runs: numbers.next().unwrap_or(0),
        ..Shape::week()
    };
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let db = at("benchmesh.db");
    let made = generate(&db, &shape).unwrap();
    Connection::open(&db).unwrap().execute_batch(NOISE).unwrap();
    println!(
        "{} runs, {} rows, database {}",
        made.rows["runs"],
        made.rows.values().sum::<i64>(),
        mib(size(&db))
    );
    let source = Source::open(&db).unwrap();
    let tables = source.tables().iter().map(|table| table.name.clone());
    let csv = export::Request {
        path: db.clone(),
        run: None,
        tables: tables.collect(),
        format: Format::Csv,
    };
    drop(source);
    let csv_s = spent("csv", &at("csv"), || {
        export::to_directory(&csv, &at("csv")).unwrap();
    });
    let request = parquet::Request {
        db,
        run: None,
        tables: Vec::new(),
        site: None,
        directory: at("mesh"),
    };
    let mut rows = 0;
    let parquet_s = spent("parquet", &at("mesh"), || {
        rows = parquet::export(&request, &mut |_| ()).unwrap().rows;
    });
    spent("unchanged", &at("mesh"), || {
        let again = parquet::export(&request, &mut |_| ()).unwrap();
        assert_eq!(again.runs_written, 0);
    });
    println!(
        "{:.0} rows per CPU-s; {:.2} of the CPU time of csv",
        rows as f64 / parquet_s,
        parquet_s / csv_s
    );
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

/// What this thread has used, in seconds.
fn cpu_s() -> f64 {
    let used = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    used.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Prints what an export takes; returns its seconds of CPU, which other programs disturb least.
fn spent(name: &str, directory: &Path, work: impl FnOnce()) -> f64 {
    // Resets the peak of memory.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let (began, before) = (Instant::now(), cpu_s());
    work();
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_s() - before);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!(
        "{name:10} {seconds:.2} s, {cpu:.2} CPU-s, {}, peak {}",
        mib(size(directory)),
        peak.unwrap().trim()
    );
    cpu
}

fn size(path: &Path) -> u64 {
    let metadata = path.metadata().unwrap();
    if metadata.is_file() {
        return metadata.len();
    }
    let entries = std::fs::read_dir(path).unwrap();
    entries.map(|entry| size(&entry.unwrap().path())).sum()
}

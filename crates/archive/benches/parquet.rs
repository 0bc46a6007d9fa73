//! Parquet files against CSV files of the same rows and against the database: seconds, sizes, peak memory.
//!
//! `cargo bench -p benchmesh-archive --bench parquet [-- HOURS RUNS]` generates a step of so many hours (1) on 12 hosts
//! with 10 daemons each and 4 clients, and so many runs (0) of nine minutes. It exports everything: as CSV, as Parquet,
//! and once more when nothing has changed.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use benchmesh_answers::export::{self, Format};
use benchmesh_archive::parquet;
use benchmesh_archive::source::Source;
use benchmesh_synthetic::{Shape, generate};
use std::path::Path;
use std::time::Instant;

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
    println!(
        "{} runs, {} rows, database {}",
        made.rows["runs"],
        made.rows.values().sum::<i64>(),
        mib(made.bytes)
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
        "{:.0} rows/s; {:.2} of the time of csv",
        rows as f64 / parquet_s,
        parquet_s / csv_s
    );
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

/// Prints what an export takes; returns its seconds.
fn spent(name: &str, directory: &Path, work: impl FnOnce()) -> f64 {
    // Resets the peak of memory.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let began = Instant::now();
    work();
    let seconds = began.elapsed().as_secs_f64();
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!(
        "{name:10} {seconds:.2} s, {}, peak {}",
        mib(size(directory)),
        peak.unwrap().trim()
    );
    seconds
}

fn size(path: &Path) -> u64 {
    let metadata = path.metadata().unwrap();
    if metadata.is_file() {
        return metadata.len();
    }
    let entries = std::fs::read_dir(path).unwrap();
    entries.map(|entry| size(&entry.unwrap().path())).sum()
}

//! The rate of a push, and that of `psql \copy` of the same rows into the same tables, which is the baseline.
//!
//! `cargo bench -p benchmesh-archive --bench push` generates two runs and an hour of soak on 12 hosts with 10 daemons
//! each (a minute), pushes them to a server of its own, writes the server's rows into text files, and then empties the
//! tables and fills them by either way in turn. It prints rows per second of both, the ratio of the medians, and the
//! peak memory of the pushing process. A push also reads SQLite; both are one transaction per run or for all.
#![allow(clippy::unwrap_used, clippy::print_stdout, missing_docs)]

use benchmesh_archive::postgres::push::{PushRequest, push_runs};
use benchmesh_archive::postgres::{Patience, Server, Site, UrlOrigin};
use benchmesh_archive::tables;
use benchmesh_synthetic::{Shape, generate};
use benchmesh_testing::postgres::PostgresServer;
use std::path::Path;
use std::time::Instant;
use tokio_util::sync::CancellationToken;

const SHAPE: Shape = Shape {
    hosts: 12,
    daemons_per_host: 10,
    clients: 4,
    targets: 2,
    runs: 2,
    repeats: 1,
    step_seconds: 28,
    gap_seconds: 2,
    soak_seconds: 3600,
};
const ROUNDS: usize = 3;

fn main() {
    // `cargo test --benches` only needs it to link.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let Some(mut server) = PostgresServer::stopped() else {
        println!("PostgreSQL is not installed");
        return;
    };
    server.run(&["-c", "max_wal_size=4GB"]);
    server.sql("postgres", "CREATE DATABASE bench");
    let directory = tempfile::tempdir().unwrap();
    let db = directory.path().join("lab.db");
    generate(&db, &SHAPE).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let push = || {
        let request = PushRequest {
            db: db.clone(),
            runs: Vec::new(),
            site: Site::Named(String::from("lab")),
            server: Server::parse(&server.url("postgres", "bench"), UrlOrigin::Private, None)
                .unwrap(),
            patience: Patience::default(),
        };
        let began = Instant::now();
        let pushed = runtime.block_on(push_runs(&request, &CancellationToken::new(), &mut |_| ()));
        (pushed.unwrap().rows, began.elapsed().as_secs_f64())
    };
    let (rows, _) = push();
    let names: Vec<String> = tables::known()
        .unwrap()
        .into_iter()
        .map(|table| table.name)
        .collect();
    let (out, back) = (
        script(&names, directory.path(), "TO"),
        script(&names, directory.path(), "FROM"),
    );
    server.script("bench", &out);
    let mut empty = String::from("TRUNCATE benchmesh.pushes");
    for name in &names {
        empty.push_str(&format!(", benchmesh.{name}"));
    }
    let (mut pushes, mut copies) = (Vec::new(), Vec::new());
    let mut peak_kib = 0;
    for _ in 0..ROUNDS {
        server.sql("bench", &empty);
        server.sql("bench", "CHECKPOINT");
        // Makes the peak that of the push.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let (again, seconds) = push();
        assert_eq!(again, rows);
        peak_kib = peak_kib.max(high_water_kib());
        pushes.push(seconds);
        server.sql("bench", &empty);
        server.sql("bench", "CHECKPOINT");
        let began = Instant::now();
        server.script("bench", &format!("BEGIN;\n{back}COMMIT;\n"));
        copies.push(began.elapsed().as_secs_f64());
    }
    let (push_s, copy_s) = (median(&mut pushes), median(&mut copies));
    println!("{rows} rows; push {push_s:.2} s, \\copy {copy_s:.2} s (medians of {ROUNDS})");
    println!(
        "push: {:.0} rows/s, {:.2} of \\copy; peak memory {} MiB",
        rows as f64 / push_s,
        copy_s / push_s,
        peak_kib >> 10
    );
}

/// `\copy` of every table in text, psql's usual format.
fn script(names: &[String], directory: &Path, way: &str) -> String {
    let lines = names.iter().map(|name| {
        let file = directory.join(format!("{name}.copy"));
        let what = match way {
            "TO" => format!("(SELECT * FROM benchmesh.{name})"),
            _ => format!("benchmesh.{name}"),
        };
        format!("\\copy {what} {way} '{}'\n", file.display())
    });
    lines.collect()
}

fn high_water_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap()
}

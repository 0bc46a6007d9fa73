//! The cost of the findings of a soak of 72 hours on 12 hosts with 10 daemons each, sampled every second.
//!
//! `cargo bench -p benchmesh-answers --bench findings` generates the database (4 GB, some minutes) or uses the one
//! named by `BENCHMESH_SOAK_DB`. It prints the median in milliseconds with the fastest and the slowest round, and
//! `over` if that is longer than two seconds.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    missing_docs
)]

use benchmesh_answers::findings::of_run;
use benchmesh_model::mesh::RunId;
use benchmesh_store::Store;
use benchmesh_synthetic::{Shape, generate};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const ROUNDS: usize = 5;
const BAR: Duration = Duration::from_secs(2);

fn main() {
    // `cargo test --benches` only needs it to link.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let shape = Shape::soak();
    let path = match std::env::var_os("BENCHMESH_SOAK_DB") {
        Some(path) => PathBuf::from(path),
        None => {
            let path = directory.path().join("soak.db");
            generate(&path, &shape).unwrap();
            path
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|_| {
            runtime.block_on(async {
                let store = Store::open(&path).await.unwrap();
                let mut connection = store.reader().acquire().await.unwrap();
                let began = Instant::now();
                let found = of_run(&mut connection, RunId(i64::from(shape.soak_run())))
                    .await
                    .unwrap();
                let took = began.elapsed();
                assert!(found.iter().any(|finding| finding.kind == "leak"));
                drop(connection);
                store.close().await;
                took
            })
        })
        .collect();
    times.sort();
    let ms = |at: usize| times[at].as_secs_f64() * 1e3;
    let over = if times[ROUNDS / 2] > BAR { " over" } else { "" };
    println!(
        "findings of 72 h: {:.0} ms ({:.0}, {:.0}){over}",
        ms(ROUNDS / 2),
        ms(0),
        ms(ROUNDS - 1)
    );
}

//! Pruning during ingest: how long commits of ingest wait, and how many rows are stored, with and without a history
//! that is pruned in the same file.

use crate::load::Beats;
use crate::writer::agent;
use crate::{Options, spread};
use benchmesh_model::mesh::MeshMicros;
use benchmesh_store::Store;
use benchmesh_store::ingest::Batch;
use benchmesh_store::prune::Pruned;
use benchmesh_store::retention::{KeepFor, MaxSize, Retainer, Retention};
use benchmesh_synthetic::{Shape, T0_US, generate};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Batches that each session sends before it awaits the first: as many as an agent sends ahead.
const AHEAD: usize = 16;

/// Batches of each session in a group. With a rate, ten groups are sent in a second.
fn group(options: &Options) -> usize {
    let of_one = options.sessions * options.rows_of_a_batch();
    match options.rate {
        0 => AHEAD,
        rate => (rate as usize / 10).div_ceil(of_one).max(1),
    }
}

/// The figures of one side.
#[derive(Debug, Default)]
struct Ingested {
    rows: usize,
    took: Duration,
    /// From the first batch of a group to the commit of all.
    waits_ms: Vec<f64>,
}

pub fn run(options: &Options) {
    let directory = tempfile::TempDir::new_in(&options.directory).unwrap();
    let path = directory.path().join("history.db");
    let shape = options.history(options.history_runs.unwrap_or(10));
    generate(&path, &shape).unwrap();
    let history = std::fs::metadata(&path).unwrap().len() as f64 / 1e6;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (before, pruned, beside, took, after) = runtime.block_on(measured(&path, &shape, options));
    println!(
        "pruning {history:.0} MB of history: {} steps, {} rows gone in {:.0} s; the longest transaction of it took {:.1} ms; \
         the bar is 100",
        pruned.steps,
        pruned.rows,
        took.as_secs_f64(),
        pruned.longest.as_secs_f64() * 1e3
    );
    for (name, side) in [("before", before), ("beside", beside), ("after", after)] {
        let batches = group(options) * options.sessions;
        let most = side.waits_ms.iter().copied().fold(0.0, f64::max);
        let long = side.waits_ms.iter().filter(|wait| **wait > 100.0).count();
        let (median, ..) = spread(side.waits_ms.clone());
        println!(
            "  ingest {name:6} {:>8.0} rows/s; groups of {batches} batches are committed within {median:.1} ms (median), {most:.1} ms \
             at most; {long} of {} took more than 100 ms",
            side.rows as f64 / side.took.as_secs_f64(),
            side.waits_ms.len(),
        );
    }
}

async fn measured(
    path: &std::path::Path,
    shape: &Shape,
    options: &Options,
) -> (Ingested, Pruned, Ingested, Duration, Ingested) {
    let store = Store::open(path).await.unwrap();
    let ended = T0_US + i64::from(shape.seconds()) * 1_000_000;
    let retention = Retention {
        keep_seconds: KeepFor::Span(Duration::from_secs(1)),
        keep_10s: KeepFor::Forever,
        max_size: MaxSize::Unlimited,
        min_rows: 0,
        ..Retention::default()
    };
    let side = Duration::from_secs(options.seconds);
    let is_over = Arc::new(AtomicBool::new(false));
    let before = ingest(&store, options, 0, Some(side), &is_over).await;
    let beside = tokio::spawn({
        let (store, options, is_over) = (store.clone(), options.clone(), Arc::clone(&is_over));
        async move { ingest(&store, &options, 1, None, &is_over).await }
    });
    let began = Instant::now();
    let retainer = Retainer::new(store.clone(), retention);
    let pruned = retainer
        .pass(MeshMicros(ended + 3_600_000_000))
        .await
        .unwrap();
    let took = began.elapsed();
    is_over.store(true, Ordering::Relaxed);
    let beside = beside.await.unwrap();
    let after = ingest(&store, options, 2, Some(side), &is_over).await;
    store.close().await;
    (before, pruned, beside, took, after)
}

/// Sends groups of batches of all sessions, for a time or until pruning is over.
async fn ingest(
    store: &Store,
    options: &Options,
    number: usize,
    lasting: Option<Duration>,
    is_over: &AtomicBool,
) -> Ingested {
    let mut sessions = Vec::new();
    for session in 0..options.sessions {
        let (id, host) = store.attach_agent(agent(session)).await.unwrap();
        let spool = format!("spool-{number}-{session}");
        sessions.push((
            store.publisher(id, host, String::new()),
            Beats::new(spool, options.daemons, options.beats),
        ));
    }
    let began = Instant::now();
    let mut done = Ingested::default();
    while match lasting {
        Some(lasting) => began.elapsed() < lasting,
        None => !is_over.load(Ordering::Relaxed),
    } {
        let mut batches = Vec::new();
        for _ in 0..group(options) {
            for (publisher, beats) in &mut sessions {
                let batch = Batch::try_from(beats.next_batch()).unwrap();
                batches.push((publisher.clone(), batch));
            }
        }
        let sent = Instant::now();
        let mut receipts = Vec::with_capacity(batches.len());
        for (publisher, batch) in batches {
            receipts.push(publisher.submit(batch).await.unwrap());
        }
        store.flush().await;
        for receipt in receipts {
            receipt.await.unwrap();
        }
        done.waits_ms.push(sent.elapsed().as_secs_f64() * 1e3);
        done.rows += group(options) * options.sessions * options.rows_of_a_batch();
        if options.rate > 0 {
            let due = Duration::from_secs_f64(done.rows as f64 / options.rate as f64);
            tokio::time::sleep_until((began + due).into()).await;
        }
    }
    done.took = began.elapsed();
    done
}

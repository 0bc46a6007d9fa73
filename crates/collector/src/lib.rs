//! The centre: sessions, scheduler, ingest, store, queries, reports.
//!
//! One process, one database. Agents dial in (`sessions`), plans become steps (`plan`), steps are driven one at a time
//! (`scheduler`), and the agents' data is committed before it is acknowledged (`ingest`, `store`). Only `service` and
//! the conversions beside it name the types of the wire.

pub mod alarms;
mod clock;
pub mod compare;
mod cut;
mod database;
pub mod export;
pub mod figures;
pub mod findings;
pub mod import;
pub mod ingest;
pub mod live;
pub mod model;
pub mod overview;
pub mod pictures;
pub mod plan;
pub mod query;
mod refusals;
pub mod report;
pub mod results;
pub mod retention;
pub mod scheduler;
pub mod service;
pub mod sessions;
pub mod snapshot;
pub mod store;
pub mod trust;
pub mod web;

/// CPU-intensive work, such as planning 75,000 steps: off the threads of the runtime, which answer clock probes and arm
/// starts.
/// answered and starts are armed.
pub(crate) async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime ends, and this future with it.
        Err(_) => std::future::pending().await,
    }
}

/// Returns the output of `work`, and how often another task of the runtime ran meanwhile.
#[cfg(test)]
pub(crate) async fn beats_meanwhile<T>(work: impl Future<Output = T>) -> (T, u64) {
    use std::sync::atomic::{AtomicU64, Ordering};
    let beats = std::sync::Arc::new(AtomicU64::new(0));
    let heartbeat = tokio::spawn({
        let beats = std::sync::Arc::clone(&beats);
        async move {
            loop {
                beats.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        }
    });
    let done = work.await;
    heartbeat.abort();
    (done, beats.load(Ordering::Relaxed))
}

pub use benchmesh_workloads::error_chain;
pub use service::{Collector, CollectorConfig, CollectorError, INSECURE};

#[cfg(test)]
benchmesh_testing::counts_memory!();

//! Runs work off the runtime's threads that would block them.

/// Runs CPU-intensive work, such as planning 75,000 steps, off the runtime's threads, which answer clock probes and
/// arm starts.
pub async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // The runtime is shutting down, and drops this future.
        Err(_) => std::future::pending().await,
    }
}

//! Runs work off the runtime's threads that would block them.

use tokio::sync::oneshot;

/// Runs CPU-intensive work, such as planning 75,000 steps, off the runtime's threads, which answer clock probes and
/// arm starts.
pub async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = oneshot::channel();
    let work = Box::new(move || drop(sender.send(work())));
    run(work).await;
    match done.await {
        Ok(done) => done,
        // The runtime is shutting down, and drops this future.
        Err(_) => std::future::pending().await,
    }
}

/// Compiled once, whatever the work returns.
async fn run(work: Box<dyn FnOnce() + Send>) {
    match tokio::task::spawn_blocking(work).await {
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => {}
    }
}

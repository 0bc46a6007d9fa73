//! Threads for blocking work, with a limit on their number.

use super::Slots;
use crate::command::Refusal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of commands that block on the file system. A mesh sends fewer at once, so reaching the limit means
/// that commands hang.
const MAX_THREADS: usize = 64;

impl Slots {
    /// Runs work that may block on a new thread.
    pub(super) fn on_thread(
        &self,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<(), Refusal> {
        let threads = Arc::clone(&self.threads);
        if threads.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
            threads.fetch_sub(1, Ordering::Relaxed);
            return Err(Refusal::failed(format!(
                "{MAX_THREADS} commands wait for file systems already: does one of them hang?"
            )));
        }
        let counted = Arc::clone(&threads);
        let spawned = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                work();
                counted.fetch_sub(1, Ordering::Relaxed);
            });
        spawned.map(|_| ()).map_err(|error| {
            threads.fetch_sub(1, Ordering::Relaxed);
            Refusal::failed(format!("no thread for a command: {error}"))
        })
    }
}

/// Turns a panic in a task's preparation into a refusal, so that the agent continues.
pub(super) fn unpanicked<T>(work: impl FnOnce() -> Result<T, Refusal>) -> Result<T, Refusal> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        Err(Refusal::failed(
            "the agent panicked while it handled this command; its log shows where",
        ))
    })
}

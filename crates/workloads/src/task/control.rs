//! The strings on a preparation.

use super::TaskError;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How far a preparation has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
    /// `bytes`, `files`, ...
    pub unit: &'static str,
}

/// How a preparation is cancelled, and where it tells of its progress.
pub struct PrepareControl {
    cancelled: Arc<AtomicBool>,
    progress: Box<dyn Fn(Progress) + Send + Sync>,
}

impl std::fmt::Debug for PrepareControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrepareControl")
            .field("cancelled", &self.cancelled)
            .finish_non_exhaustive()
    }
}

impl PrepareControl {
    /// Setting `cancelled` ends the preparation soon; `progress` is called from the preparing threads.
    pub fn new(
        cancelled: Arc<AtomicBool>,
        progress: impl Fn(Progress) + Send + Sync + 'static,
    ) -> PrepareControl {
        PrepareControl {
            cancelled,
            progress: Box::new(progress),
        }
    }

    /// Nobody cancels and nobody listens.
    pub fn silent() -> PrepareControl {
        PrepareControl::new(Arc::default(), |_| {})
    }

    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// An error once it was cancelled, for `?` in a loop.
    pub fn check(&self) -> Result<(), TaskError> {
        match self.cancelled() {
            true => Err(TaskError::Cancelled),
            false => Ok(()),
        }
    }

    pub fn progress(&self, done: u64, total: u64, unit: &'static str) {
        (self.progress)(Progress { done, total, unit });
    }
}

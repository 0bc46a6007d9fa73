//! Progress, cancellation and hang detection of a preparation.

use super::prep_threads::{PrepThreads, WorkingThread};
use super::spec::TaskError;
use super::stall::{StallEvent, TaskPhase};
use crate::engine::common::Common;
use crate::measure::clock::{MonoNanos, sleep_until};
use crate::measure::pacing::RateLimit;
use crate::params::Params;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval of checks for a cancellation while waiting for the limit.
const CANCEL_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Progress of a preparation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrepareProgress {
    pub done: u64,
    pub total: u64,
    /// `bytes`, `files`, ...
    pub unit: &'static str,
}

/// Cancels a preparation and reports its progress.
pub struct PrepareControl {
    cancelled: Arc<AtomicBool>,
    progress: Box<dyn Fn(PrepareProgress) + Send + Sync>,
    stalls: Box<dyn Fn(StallEvent) + Send + Sync>,
    prep_threads: PrepThreads,
    limit: Option<Arc<RateLimit>>,
    laying_out: LayingOut,
    began: MonoNanos,
}

/// Whether a preparation may write data that the mode needs but that are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LayingOut {
    #[default]
    Allowed,
    /// The mode works on existing data.
    Refused,
}

impl std::fmt::Debug for PrepareControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrepareControl")
            .field("cancelled", &self.cancelled)
            .finish_non_exhaustive()
    }
}

impl PrepareControl {
    /// Setting `cancelled` ends the preparation soon. `progress` is called from the preparing threads.
    pub fn new(
        cancelled: Arc<AtomicBool>,
        progress: impl Fn(PrepareProgress) + Send + Sync + 'static,
    ) -> PrepareControl {
        PrepareControl {
            cancelled,
            progress: Box::new(progress),
            stalls: Box::new(|_| {}),
            prep_threads: PrepThreads::default(),
            limit: None,
            laying_out: LayingOut::Allowed,
            began: MonoNanos::now(),
        }
    }

    /// Calls `stalls` for each system call that hangs, from a separate thread.
    #[must_use]
    pub fn reporting_stalls(
        self,
        stalls: impl Fn(StallEvent) + Send + Sync + 'static,
    ) -> PrepareControl {
        PrepareControl {
            stalls: Box::new(stalls),
            ..self
        }
    }

    /// Limits the bytes per second of the layout, together with everything else that shares the limit.
    #[must_use]
    pub fn limited_by(self, limit: Option<Arc<RateLimit>>) -> PrepareControl {
        PrepareControl { limit, ..self }
    }

    #[must_use]
    pub fn with_laying_out(self, laying_out: LayingOut) -> PrepareControl {
        PrepareControl { laying_out, ..self }
    }

    /// Call it before writing data that the mode needs; `what` is missing or incomplete.
    pub(crate) fn check_layout_allowed(
        &self,
        what: impl FnOnce() -> String,
    ) -> Result<(), TaskError> {
        match self.laying_out {
            LayingOut::Allowed => Ok(()),
            LayingOut::Refused => Err(TaskError::NotLaidOut { what: what() }),
        }
    }

    /// Waits until this many bytes may be laid out, or the preparation is cancelled.
    pub(crate) fn wait_for_limit(&self, bytes: u64) {
        let Some(limit) = &self.limit else {
            return;
        };
        let from = limit.take(bytes, MonoNanos::now());
        while MonoNanos::now() < from && !self.cancelled() {
            sleep_until(from.min(MonoNanos::now().saturating_add(CANCEL_POLL_INTERVAL)));
        }
    }

    /// Waits until a chunk may be laid out, or the preparation is cancelled; returns its size, at most `wanted`.
    pub(crate) fn next_chunk(&self, wanted: usize) -> usize {
        let Some(limit) = &self.limit else {
            return wanted;
        };
        let most = usize::try_from(limit.chunk_bytes()).unwrap_or(usize::MAX);
        let chunk = wanted.min(most);
        self.wait_for_limit(chunk as u64);
        chunk
    }

    /// Time since the preparation began.
    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(MonoNanos::now().0.saturating_sub(self.began.0))
    }

    /// Never cancelled, reports nothing.
    pub fn silent() -> PrepareControl {
        PrepareControl::new(Arc::default(), |_| {})
    }

    pub fn cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// An error after a cancellation, for `?` in a loop.
    pub fn check(&self) -> Result<(), TaskError> {
        match self.cancelled() {
            true => Err(TaskError::Cancelled),
            false => Ok(()),
        }
    }

    pub fn progress(&self, done: u64, total: u64, unit: &'static str) {
        (self.progress)(PrepareProgress { done, total, unit });
    }

    /// Registers the calling thread as part of the preparation.
    pub(crate) fn present(&self) -> WorkingThread {
        self.prep_threads.present()
    }

    /// The threads that prepare, for code that outlives this.
    pub(super) fn prep_threads(&self) -> PrepThreads {
        self.prep_threads.clone()
    }

    /// Runs `work` as part of preparation and reports calls that exceed `stall-after`.
    pub fn watched<T>(&self, params: &Params, work: impl FnOnce() -> T) -> T {
        let after = Common::of(params).unwrap_or_default().stall_after;
        self.prep_threads
            .watched(TaskPhase::Preparing, after, &self.stalls, work)
    }
}

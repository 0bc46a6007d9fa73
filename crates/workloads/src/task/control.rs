//! The strings on a preparation.

use super::TaskError;
use super::hands::{Hands, HandsWatch, Present};
use super::stall::{Doing, StallNews};
use crate::clock::MonoNanos;
use crate::common::Common;
use crate::workload::Params;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;

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
    stalls: Box<dyn Fn(StallNews) + Send + Sync>,
    hands: Hands,
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
            stalls: Box::new(|_| {}),
            hands: Hands::default(),
        }
    }

    /// `stalls` hears of calls that do not end, from a thread that does nothing else.
    #[must_use]
    pub fn telling_stalls(
        self,
        stalls: impl Fn(StallNews) + Send + Sync + 'static,
    ) -> PrepareControl {
        PrepareControl {
            stalls: Box::new(stalls),
            ..self
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

    /// The calling thread does a part of the preparation.
    pub(crate) fn present(&self) -> Present {
        self.hands.present()
    }

    /// The threads that prepare, for those that outlive this.
    pub(super) fn hands(&self) -> Hands {
        self.hands.clone()
    }

    /// Does `work`, all of which belongs to the preparation of a task with these parameters, and tells meanwhile of what
    /// does not end for its `stall-after`.
    pub fn watched<T>(&self, params: &Params, work: impl FnOnce() -> T) -> T {
        let after = Common::of(params).unwrap_or_default().stall_after;
        thread::scope(|scope| {
            let (working, over) = sync_channel(0);
            let watch = HandsWatch::new(self.hands(), Doing::Preparing, after);
            let watching = thread::Builder::new()
                .name("bm-watch".to_owned())
                .spawn_scoped(scope, move || self.watch(watch, &over));
            if let Err(error) = watching {
                tracing::warn!(%error, "no thread to watch a preparation: if it hangs, nobody is told");
            }
            let _present = self.present();
            let worked = work();
            drop(working);
            worked
        })
    }

    fn watch(&self, mut watch: HandsWatch, over: &Receiver<()>) {
        while over.recv_timeout(watch.every()) == Err(RecvTimeoutError::Timeout) {
            let news = watch.look(MonoNanos::now());
            news.into_iter().for_each(&self.stalls);
        }
        watch.over().for_each(&self.stalls);
    }
}

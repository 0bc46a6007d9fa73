//! Work of a load after its last worker has ended, in a separate thread, because it may hang as an operation may.

use super::threads::message_of;
use super::{OnStall, TaskEvent};
use crate::engine::prep_threads::{HangDetector, PrepThreads};
use crate::engine::stall::TaskPhase;
use crate::engine::workload::Load;
use crate::measure::clock::MonoNanos;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Why a load has not finished.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub why: String,
    /// It hangs, and its thread was abandoned.
    pub stalled: bool,
}

/// Finishes the load in a separate thread. A system call longer than `after` is reported as a stall; `on_stall` decides
/// whether to wait for it.
pub(super) fn finish(
    load: &Arc<dyn Load>,
    after: Duration,
    on_stall: OnStall,
    emit: &mut dyn FnMut(TaskEvent),
) -> Result<(), Unfinished> {
    let (prep_threads, theirs) = (PrepThreads::default(), Arc::clone(load));
    let watch = HangDetector::new(prep_threads.clone(), TaskPhase::Finishing, after);
    let (done, finished) = sync_channel(1);
    let body = move || {
        let _present = prep_threads.present();
        let finished = finished_in(theirs.as_ref());
        // The caller may unmount the load's files once this has returned.
        drop(theirs);
        drop(done.send(finished));
    };
    let spawned = thread::Builder::new()
        .name("bm-finish".to_owned())
        .spawn(body);
    let result = match spawned {
        Ok(_) => wait(&finished, watch, on_stall, emit)?,
        // If no thread can be started, run it here, unwatched.
        Err(_) => finished_in(load.as_ref()),
    };
    result.map_err(|why| Unfinished {
        why,
        stalled: false,
    })
}

fn finished_in(load: &dyn Load) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| load.finish())) {
        Ok(finished) => finished.map_err(|error| crate::error_chain(&error)),
        Err(panic) => Err(format!("the load's end: {}", message_of(panic.as_ref()))),
    }
}

fn wait<T>(
    finished: &Receiver<T>,
    mut watch: HangDetector,
    on_stall: OnStall,
    emit: &mut dyn FnMut(TaskEvent),
) -> Result<T, Unfinished> {
    loop {
        match finished.recv_timeout(watch.poll_interval()) {
            Ok(result) => {
                watch.over().for_each(|event| emit(TaskEvent::Stall(event)));
                return Ok(result);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Unfinished {
                    why: "the thread that finishes the load died".to_owned(),
                    stalled: false,
                });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = MonoNanos::now();
        let events = watch.poll(now);
        let why = events
            .iter()
            .find_map(|event| event.why_ended(on_stall, now));
        events
            .into_iter()
            .for_each(|event| emit(TaskEvent::Stall(event)));
        if let Some(why) = why {
            return Err(Unfinished { why, stalled: true });
        }
    }
}

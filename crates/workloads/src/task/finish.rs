//! What a load does after its last worker has ended, on a thread of its own: it may hang as an operation may.

use super::crew::message_of;
use super::hands::{Hands, HandsWatch};
use super::stall::Doing;
use super::{OnStall, Told};
use crate::clock::MonoNanos;
use crate::workload::Load;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Why a load has not finished.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfinished {
    pub why: String,
    /// It hangs, and was left behind.
    pub stalled: bool,
}

/// Lets the load finish. A call that does not end for `after` is told; whether it is waited for, `on_stall` says.
pub(super) fn finish(
    load: &Arc<dyn Load>,
    after: Duration,
    on_stall: OnStall,
    tell: &mut dyn FnMut(Told),
) -> Result<(), Unfinished> {
    let (hands, theirs) = (Hands::default(), Arc::clone(load));
    let watch = HandsWatch::new(hands.clone(), Doing::Finishing, after);
    let (done, finished) = sync_channel(1);
    let body = move || {
        let _present = hands.present();
        drop(done.send(finished_in(theirs.as_ref())));
    };
    let spawned = thread::Builder::new()
        .name("bm-finish".to_owned())
        .spawn(body);
    let result = match spawned {
        Ok(_) => wait(&finished, watch, on_stall, tell)?,
        // Nobody watches it then.
        Err(_) => finished_in(load.as_ref()),
    };
    result.map_err(|why| Unfinished {
        why,
        stalled: false,
    })
}

fn finished_in(load: &dyn Load) -> Result<(), String> {
    match catch_unwind(AssertUnwindSafe(|| load.finish())) {
        Ok(finished) => finished.map_err(|error| error.in_full()),
        Err(panic) => Err(format!("the load's end: {}", message_of(panic.as_ref()))),
    }
}

fn wait<T>(
    finished: &Receiver<T>,
    mut watch: HandsWatch,
    on_stall: OnStall,
    tell: &mut dyn FnMut(Told),
) -> Result<T, Unfinished> {
    loop {
        match finished.recv_timeout(watch.every()) {
            Ok(result) => {
                watch.over().for_each(|it| tell(Told::Stall(it)));
                return Ok(result);
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Unfinished {
                    why: "the load's end has left no word".to_owned(),
                    stalled: false,
                });
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = MonoNanos::now();
        let news = watch.look(now);
        let why = news.iter().find_map(|it| it.why_ended(on_stall, now));
        news.into_iter().for_each(|it| tell(Told::Stall(it)));
        if let Some(why) = why {
            return Err(Unfinished { why, stalled: true });
        }
    }
}

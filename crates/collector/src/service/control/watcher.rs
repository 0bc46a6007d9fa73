//! Updates of one run for one client, until the run ends.

use super::{
    json,
    watched::{self, WatchPosition},
};
use crate::overview::{self, Overview};
use benchmesh_proto::{MAX_MESSAGE_BYTES, v1};
use benchmesh_scheduler::{RunProgress, WatcherPosition, live::Viewer, snapshot::RunUpdate};
use benchmesh_store::clock::MeshClock;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Updates are sent at each change, but at most this often, and at least this often while a load runs.
const UPDATE_MIN: Duration = Duration::from_millis(200);
const UPDATE_MAX: Duration = Duration::from_secs(1);
/// Limit of an update while there are ended steps in it that can be left out.
const MAX_UPDATE_BYTES: usize = MAX_MESSAGE_BYTES / 2;

/// One watcher of a run, and the position up to which it has received updates.
pub(super) struct RunWatcher {
    pub _permit: OwnedSemaphorePermit,
    /// Latencies are decoded while there is a viewer.
    pub _viewer: Viewer,
    /// Snapshots are computed while a watcher wants detail.
    pub detail: Option<(Overview, overview::Viewer)>,
    pub progress: Arc<RunProgress>,
    pub changes: watch::Receiver<u64>,
    pub clock: Arc<MeshClock>,
    pub closing: CancellationToken,
    /// Events and marks.
    pub position: WatchPosition,
    pub seen: WatcherPosition,
    pub sent: Option<Instant>,
    pub ended: bool,
}

impl RunWatcher {
    /// The next update: at a change, or after a while.
    pub(super) async fn next(mut self) -> Option<(Result<v1::RunUpdate, Status>, Self)> {
        if self.ended {
            return None;
        }
        if let Some(sent) = self.sent {
            tokio::select! {
                () = self.closing.cancelled() => {
                    self.ended = true;
                    return Some((Err(Status::unavailable("the collector is closing")), self));
                }
                () = sleep_until(sent + UPDATE_MAX) => {}
                () = async {
                    sleep_until(sent + UPDATE_MIN).await;
                    // An error would mean that the progress was dropped, but this watcher holds it.
                    let _ = self.changes.changed().await;
                } => {}
            }
        }
        self.changes.mark_unchanged();
        self.sent = Some(Instant::now());
        let (run, seen) = self.progress.now(self.clock.now(), self.seen);
        self.ended = run.state.is_end();
        self.seen = seen;
        let mut update = RunUpdate {
            run,
            clients: 0,
            daemons: Vec::new(),
            events: Vec::new(),
        };
        if let Some((overview, _)) = &self.detail
            && let Some(published) = overview.fresh()
        {
            watched::add_detail(&mut update, &published.snapshot);
            watched::add_events(&mut update, &published.snapshot, &mut self.position);
        }
        Some((written(update), self))
    }
}

/// The update as JSON, without the seconds of the page's chart. A late watcher of a run with many large steps gets only
/// the last of those that have ended.
fn written(mut update: RunUpdate) -> Result<v1::RunUpdate, Status> {
    if let Some(step) = &mut update.run.step {
        step.seconds.clear();
    }
    loop {
        let update_json = json(&update)?;
        let ended = update.run.finished.len();
        if update_json.len() <= MAX_UPDATE_BYTES || ended == 0 {
            return Ok(v1::RunUpdate { update_json });
        }
        update.run.finished.drain(..ended.div_ceil(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use benchmesh_scheduler::snapshot::{OpDone, SecondNow, StepDone, StepNow};

    #[test]
    fn an_update_is_read_as_it_was_written_and_never_too_large() {
        let read = |update: RunUpdate| {
            let update_json = written(update).expect("JSON").update_json;
            assert!(update_json.len() <= MAX_UPDATE_BYTES);
            serde_json::from_slice::<RunUpdate>(&update_json).expect("an update")
        };
        let mut update = RunUpdate::default();
        update.run.step = Some(StepNow::default());
        update.run.removed_files = Some(u64::MAX);
        let ended = |ordinal| StepDone {
            ordinal,
            ops: vec![OpDone::default(); 40],
            ..StepDone::default()
        };
        update.run.finished = vec![ended(1)];
        assert_eq!(read(update.clone()), update);
        let mut charted = update.clone();
        if let Some(step) = &mut charted.run.step {
            step.seconds = vec![SecondNow::default(); 15];
        }
        assert_eq!(read(charted), update);
        update.run.finished = (1..=1000).map(ended).collect();
        let last = read(update.clone()).run.finished;
        assert!(last.len() > 200, "{}", last.len());
        assert!(update.run.finished.ends_with(&last));
        // JSON cannot represent NaN.
        update.run.share_done = f64::INFINITY;
        assert!(read(update).run.share_done.is_nan());
    }
}

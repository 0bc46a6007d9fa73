//! Updates of one run for one client, until the run ends.

use super::super::wire;
use crate::overview::{self, Overview};
use benchmesh_proto::v1;
use benchmesh_scheduler::{RunProgress, WatcherPosition, live::Viewer};
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
    pub position: wire::WatchPosition,
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
        let mut update = wire::run_update(run);
        if let Some((overview, _)) = &self.detail
            && let Some(published) = overview.fresh()
        {
            wire::add_detail(&mut update, &published.snapshot);
            wire::add_events(&mut update, &published.snapshot, &mut self.position);
        }
        Some((Ok(update), self))
    }
}

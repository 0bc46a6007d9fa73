//! Waits for the last samples of a run, which arrive after its end: agents send those of a step's end at once.

use super::ControlService;
use benchmesh_store::rows::RunRow;
use std::time::Duration;
use tokio::time::timeout;

/// Time limit. Samples arrive within a tenth of a second, or later from an agent that lacks CPU time. If the limit
/// passes for a detached agent, the report names it.
const WITHIN: Duration = Duration::from_secs(10);

impl ControlService {
    /// Waits until the samples of a run that has just ended are stored, and computes its results with them. Without
    /// them its report would show the daemons' usage only up to the second-last sample. For a run under way, all
    /// received data are stored, and the figures of its running step are computed from them.
    pub(super) async fn await_last_samples(&self, wanted: &str) {
        self.store.refresh().await;
        // The report itself refuses a run that does not exist.
        let Ok(row) = self.find(wanted).await else {
            return;
        };
        self.await_samples_of(&row).await;
        let computed = match row.ended {
            Some(_) => self.store.compute_stale(row.id).await,
            None => self.store.compute_so_far(row.id).await,
        };
        if let Err(error) = computed {
            tracing::warn!(run = %row.id, %error, "cannot use the last samples of a run; its report lacks them");
        }
    }

    async fn await_samples_of(&self, row: &RunRow) {
        let Some(ended) = row.ended else { return };
        let within = i64::try_from(WITHIN.as_micros()).unwrap_or(i64::MAX);
        let until = ended.0.saturating_add(within);
        let mut arrived = self.store.live().arrivals();
        loop {
            arrived.mark_unchanged();
            let left = until.saturating_sub(self.clock.now().0);
            let Ok(left) = u64::try_from(left) else {
                return;
            };
            self.store.flush().await;
            match self.store.hosts_awaited(row.id).await {
                Ok(hosts) if !hosts.is_empty() => {}
                // The report shows the error.
                Ok(_) | Err(_) => return,
            }
            let next = timeout(Duration::from_micros(left), arrived.changed()).await;
            if !matches!(next, Ok(Ok(()))) {
                return;
            }
        }
    }
}

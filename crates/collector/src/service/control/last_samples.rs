//! The last samples of a run come after its end: agents send them in batches.

use super::ControlService;
use std::time::Duration;
use tokio::time::sleep;

/// They come within a second, unless an agent is away.
const WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(50);

impl ControlService {
    /// Waits until the samples of a run that has just ended are stored. Without them its report would show what daemons
    /// used up to the sample before the last.
    pub(super) async fn await_last_samples(&self, wanted: &str) {
        // A run that is not there is refused by the report itself.
        let Ok(row) = self.find(wanted).await else {
            return;
        };
        let Some(ended) = row.ended else { return };
        let within = i64::try_from(WITHIN.as_micros()).unwrap_or(i64::MAX);
        let until = ended.0.saturating_add(within);
        while self.clock.now().0 < until
            && !self.store.has_all_samples(row.id).await.unwrap_or(true)
        {
            sleep(LOOK_EVERY).await;
        }
    }
}

//! Has the state of storage clusters read soon after what may have degraded one: a daemon that ended or was frozen, a
//! lost carrier, a stall.
//!
//! A cluster notices a loss late: monitors wait for up to half a minute before they declare an OSD down. Therefore it is
//! read several times. Agents merge requests that come within their own shortest time between two readings.

use benchmesh_scheduler::Scheduler;
use benchmesh_store::{Store, StoreError};
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

const PERIOD: Duration = Duration::from_secs(1);
/// When a cluster is read after the last event, in seconds.
const READ_AFTER_S: [u64; 4] = [0, 5, 15, 35];

/// Minimum time between two readings if events go on, as in a series of stalls.
const MIN_BETWEEN: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
struct Due {
    /// The readings that are due, latest first.
    at: Vec<Instant>,
    /// The last reading.
    last: Option<Instant>,
}

impl Due {
    fn happened(&mut self, now: Instant) {
        let is_recent = |last: Instant| now.duration_since(last) < MIN_BETWEEN;
        let is_just_read = self.last.is_some_and(is_recent);
        let wanted = READ_AFTER_S
            .iter()
            .rev()
            .filter(|seconds| **seconds > 0 || !is_just_read);
        let at = |seconds: &u64| now + Duration::from_secs(*seconds);
        self.at = wanted.map(at).collect();
    }

    /// Whether a reading is due; takes all that have passed.
    fn take(&mut self, now: Instant) -> bool {
        let pending = self.at.len();
        self.at.retain(|at| *at > now);
        let is_due = self.at.len() < pending;
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

/// Watches the run under way until it is cancelled. `event`: the newest event when the collector began to serve.
pub(super) async fn keep(
    scheduler: Scheduler,
    store: Store,
    mut event: i64,
    closing: CancellationToken,
) {
    let mut due = Due::default();
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        if let Err(error) = look(&scheduler, &store, &mut event, &mut due).await {
            tracing::warn!(%error, "cannot tell when the state of storage clusters should be read");
        }
    }
}

async fn look(
    scheduler: &Scheduler,
    store: &Store,
    event: &mut i64,
    due: &mut Due,
) -> Result<(), StoreError> {
    let Some(progress) = scheduler.progress().current() else {
        *due = Due::default();
        return Ok(());
    };
    let run = progress.with_view(|view| view.run);
    let now = Instant::now();
    if store.may_have_degraded(run, event).await? {
        due.happened(now);
    }
    if due.take(now) {
        scheduler.read_at_mark(run);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_at_once_and_again_while_a_cluster_may_notice() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut due = Due::default();
        assert!(!due.take(at(0)));
        due.happened(at(1));
        let read = (1..100).filter(|second| due.take(at(*second)));
        assert_eq!(Vec::from_iter(read), [1, 6, 16, 36]);
        // Another event begins anew; late looks merge.
        due.happened(at(100));
        assert!(due.take(at(100)));
        due.happened(at(103));
        assert!(due.take(at(120)));
        assert!(!due.take(at(137)));
        assert!(due.take(at(138)));
    }

    #[test]
    fn events_of_every_second_are_read_every_five() {
        let start = Instant::now();
        let mut due = Due::default();
        let read = (0..20).filter(|second| {
            let now = start + Duration::from_secs(*second);
            due.happened(now);
            due.take(now)
        });
        assert_eq!(Vec::from_iter(read), [0, 5, 10, 15]);
    }
}

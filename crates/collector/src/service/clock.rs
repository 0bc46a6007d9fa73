//! Mesh time while the collector serves: its anchor is kept in the database, and steps of the wall clock are recorded.

use benchmesh_model::events::EventKind;
use benchmesh_store::Store;
use benchmesh_store::clock::{MeshClock, WallClockMonitor};
use benchmesh_store::rows::NewEvent;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, warn};

/// How often the anchor of mesh time is persisted and the wall clock checked.
const CLOCK_INTERVAL: Duration = Duration::from_secs(10);

/// Starts both tasks.
pub(super) fn keep(
    tasks: &TaskTracker,
    store: &Store,
    clock: &Arc<MeshClock>,
    closing: &CancellationToken,
) {
    tasks.spawn(keep_anchor(
        store.clone(),
        Arc::clone(clock),
        closing.clone(),
    ));
    tasks.spawn(watch_wall_clock(
        store.clone(),
        Arc::clone(clock),
        closing.clone(),
    ));
}

/// Persists the anchor of mesh time, together with the gathered rows.
async fn keep_anchor(store: Store, clock: Arc<MeshClock>, closing: CancellationToken) {
    let mut ticks = tokio::time::interval(CLOCK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let keep = async {
        loop {
            ticks.tick().await;
            let clock = Arc::clone(&clock);
            let stored = store.set_clock_anchor(move || clock.anchor_now());
            if let Err(error) = stored.await {
                error!(%error, "cannot store the anchor of mesh time");
            }
        }
    };
    tokio::select! {
        () = closing.cancelled() => {}
        () = keep => {}
    }
}

/// Records steps of the wall clock.
async fn watch_wall_clock(store: Store, clock: Arc<MeshClock>, closing: CancellationToken) {
    let mut monitor = WallClockMonitor::new(clock.wall_ahead_us());
    let mut ticks = tokio::time::interval(CLOCK_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let Some(step_us) = monitor.check(clock.wall_ahead_us()) else {
            continue;
        };
        let message = format!(
            "this machine's clock was set {} by {:.3} s; mesh time goes on as before",
            if step_us < 0 { "back" } else { "forward" },
            Duration::from_micros(step_us.unsigned_abs()).as_secs_f64(),
        );
        warn!("{message}");
        let event = NewEvent {
            detail_json: Some(serde_json::json!({ "step_us": step_us }).to_string()),
            ..NewEvent::new(clock.now(), EventKind::WallClockStep, message)
        };
        if let Err(error) = store.add_event(event).await {
            error!(%error, "cannot store an event");
        }
    }
}

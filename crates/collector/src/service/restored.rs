//! What a collector takes up again from its database at the start.

use super::config::{CollectorConfig, CollectorError};
use benchmesh_model::mesh::RunId;
use benchmesh_store::Store;
use benchmesh_store::clock::{KernelClocks, MeshClock, choose_anchor};
use benchmesh_store::rows::{AgentRow, SamplerRow};

/// Mesh time and the known agents, from the database.
pub(super) struct Restored {
    pub clock: MeshClock,
    pub known: Vec<AgentRow>,
    pub samplers: Vec<SamplerRow>,
    /// The newest event at opening. Events that agents deliver about the time without a collector come after it.
    pub newest_event: i64,
    /// Runs whose alarms may still be raised.
    pub watched_runs: Vec<RunId>,
}

pub(super) async fn restore(
    store: &Store,
    config: &CollectorConfig,
) -> Result<Restored, CollectorError> {
    let failed = |source| CollectorError::Store {
        db: config.db.clone(),
        source,
    };
    let stored = store.clock_anchor().await.map_err(failed)?;
    let newest = store.newest_instant().await.map_err(failed)?;
    let clock = |source| CollectorError::Clock { source };
    let now = KernelClocks::take().map_err(clock)?;
    let anchor = choose_anchor(stored.as_ref(), newest, &now).map_err(clock)?;
    let clock = MeshClock::new(anchor).with_drift(config.clock_ppm);
    let anchor = clock.anchor_now();
    store
        .set_clock_anchor(move || anchor.clone())
        .await
        .map_err(failed)?;
    Ok(Restored {
        clock,
        known: store.agents().await.map_err(failed)?,
        samplers: store.samplers().await.map_err(failed)?,
        newest_event: store.newest_event().await.map_err(failed)?,
        watched_runs: store.newest_watched_runs().await.map_err(failed)?,
    })
}

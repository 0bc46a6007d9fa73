//! Whether the samples needed for a run's last figures have arrived.

use crate::database::{Doing, StoreError};
use benchmesh_model::mesh::{RunId, StepId};
use sqlx::sqlite::SqlitePool;

/// SQL: the names of hosts that were sampled within three seconds of the end of a run's last step and have not sent a
/// sample of that end. `?1`: the run.
pub const HOSTS_AWAITED: &str =
    "WITH ends AS (SELECT max(coalesce(last_done_us, ended_us)) AS at_us FROM steps WHERE run_id = ?1),
         run_hosts AS (
             SELECT host_id FROM run_agents WHERE run_id = ?1
             UNION SELECT a.host_id FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id
                 CROSS JOIN agents AS a ON a.id = t.agent_id WHERE s.run_id = ?1)
     SELECT n.name FROM run_hosts AS r CROSS JOIN ends CROSS JOIN hosts AS n ON n.id = r.host_id
     WHERE EXISTS (
             SELECT 1 FROM host_samples AS h WHERE h.host_id = r.host_id
                 AND h.at_us BETWEEN ends.at_us - 3000000 AND ends.at_us)
       AND NOT EXISTS (SELECT 1 FROM host_samples AS h WHERE h.host_id = r.host_id AND h.at_us >= ends.at_us)
     ORDER BY n.name";

/// [`HOSTS_AWAITED`] of a run.
pub(super) async fn awaited(reader: &SqlitePool, run: RunId) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(HOSTS_AWAITED)
        .bind(run.0)
        .fetch_all(reader)
        .await
        .doing("look for the last samples of a run")
}

/// The steps of a run whose figures do not cover all stored rows.
pub(super) async fn stale(reader: &SqlitePool, run: RunId) -> Result<Vec<StepId>, StoreError> {
    sqlx::query_scalar::<_, i64>(
        "SELECT id FROM steps WHERE run_id = ? AND (stale_samples > 0 OR stale_batches > 0)
             AND state IN ('done', 'failed', 'stopped')",
    )
    .bind(run.0)
    .fetch_all(reader)
    .await
    .map(|ids| ids.into_iter().map(StepId).collect())
    .doing("look for steps with late data")
}

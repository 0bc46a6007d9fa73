//! The activity of daemons before a run and after a step: their idle baseline, and how long work after a step's end
//! is attributed to the step.

use super::{ByDaemon, MAX_DISTANCE_US, Measured};
use crate::database::{Doing, StoreError};
use benchmesh_model::mesh::StepId;
use sqlx::sqlite::SqlitePool;

/// Maximum time before the run from which the idle baseline is taken.
const BASELINE_US: i64 = 60_000_000;
/// For this long after another run the storage may still be working for it, so this time gives no baseline.
const AFTER_A_RUN_US: i64 = 10_000_000;
/// Operations of the mesh itself on a target that are shorter than this, such as opening files, do not count as its
/// work.
const OWN_WORK_US: i64 = 300_000;
/// A daemon is idle below this share of a CPU, or below 1.5 times its idle baseline.
const IDLE_CPU_SHARE: f64 = 0.03;
const ABOVE_IDLE: f64 = 1.5;

#[derive(Debug)]
pub(super) struct Around {
    /// CPU time per microsecond of each daemon before the run began; daemons not sampled then are missing.
    pub(super) idle: ByDaemon<f64>,
    /// Work of daemons from this instant on is not attributed to the step.
    pub(super) limit_us: i64,
}

/// CPU time per microsecond below which a daemon is idle.
pub(super) fn rest(idle: Option<f64>) -> f64 {
    idle.map_or(IDLE_CPU_SHARE, |idle| IDLE_CPU_SHARE.max(idle * ABOVE_IDLE))
}

impl Around {
    pub(super) async fn of(
        reader: &SqlitePool,
        step: StepId,
        measured: Measured,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            idle: idle(reader, step).await?,
            limit_us: limit(reader, step, measured).await?,
        })
    }
}

/// From the part of the time before the run without another run.
async fn idle(reader: &SqlitePool, step: StepId) -> Result<ByDaemon<f64>, StoreError> {
    let rows: Vec<(i64, f64)> = sqlx::query_as(
        "WITH quiet (from_us, until_us) AS (
             SELECT max(r.started_us - ?2, coalesce((SELECT max(p.ended_us) + ?3 FROM runs AS p
                        WHERE p.ended_us <= r.started_us AND p.id <> r.id AND p.imported_from IS NULL), 0)),
                        r.started_us
             FROM steps AS s JOIN runs AS r ON r.id = s.run_id WHERE s.id = ?1)
         SELECT d.id, (max(x.cpu_user_us + x.cpu_system_us) - min(x.cpu_user_us + x.cpu_system_us)) * 1.0
                / (max(x.at_us) - min(x.at_us))
         FROM quiet AS q
              CROSS JOIN daemons AS d ON d.first_seen_us < q.until_us AND d.last_seen_us + 65000000 >= q.from_us
              CROSS JOIN daemon_samples AS x ON x.daemon_id = d.id AND x.at_us BETWEEN q.from_us AND q.until_us
         GROUP BY d.id HAVING max(x.at_us) - min(x.at_us) >= 900000",
    )
    .bind(step.0)
    .bind(BASELINE_US)
    .bind(AFTER_A_RUN_US)
    .fetch_all(reader)
    .await
    .doing("read the usage of daemons before a run")?;
    Ok(rows.into_iter().collect())
}

/// The start of the mesh's next own work: removing this step's data, or the next step's preparation or load.
async fn limit(reader: &SqlitePool, step: StepId, measured: Measured) -> Result<i64, StoreError> {
    let until_us = measured.until_us;
    let longest_us = until_us.saturating_add(MAX_DISTANCE_US);
    let work: Option<i64> = sqlx::query_scalar(
        "SELECT min(at_us) FROM (
             SELECT c.at_us FROM step_states AS c JOIN steps AS s ON s.id = c.step_id
             WHERE c.step_id = ?1 AND c.state = 'cleaning' AND coalesce(s.ended_us, ?3) - c.at_us > ?4
             UNION ALL
             SELECT iif(coalesce((SELECT min(q.at_us) FROM step_states AS q WHERE q.step_id = p.step_id
                                 AND q.at_us > p.at_us),
                                 s.start_us, ?3) - p.at_us > ?4, p.at_us, coalesce(s.start_us, ?3))
             FROM step_states AS p JOIN steps AS s ON s.id = p.step_id
             WHERE p.state = 'prepare' AND p.step_id <> ?1 AND p.at_us BETWEEN ?2 AND ?3)",
    )
    .bind(step.0)
    .bind(until_us)
    .bind(longest_us)
    .bind(OWN_WORK_US)
    .fetch_one(reader)
    .await
    .doing("look for the work after a step")?;
    Ok(work.map_or(longest_us, |work| work.clamp(until_us, longest_us)))
}

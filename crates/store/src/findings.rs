//! The stored findings of runs. A run whose figures change loses its findings; they are then computed again.

use super::finish::claims::StepClaim;
use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use benchmesh_model::mesh::{RunId, StepId};
use benchmesh_results::Finding;
use sqlx::SqliteConnection;

/// Maximum number of runs that are processed in one pass.
const MAX_RUNS: i64 = 100;

impl Store {
    /// The newest ended runs without stored findings. Imported runs have none.
    pub async fn runs_without_findings(&self) -> Result<Vec<RunId>, StoreError> {
        let runs: Vec<i64> = sqlx::query_scalar(
            "SELECT r.id FROM runs AS r
             WHERE r.ended_us IS NOT NULL AND r.imported_from IS NULL
               AND NOT EXISTS (SELECT 1 FROM findings AS f WHERE f.run_id = r.id)
             ORDER BY r.id DESC LIMIT ?",
        )
        .bind(MAX_RUNS)
        .fetch_all(self.reader())
        .await
        .doing("look for runs without findings")?;
        Ok(runs.into_iter().map(RunId).collect())
    }

    /// Claims the steps of a run, so that their figures do not change while the claims are held.
    pub async fn claim_steps(&self, run: RunId) -> Result<Vec<StepClaim<'_>>, StoreError> {
        let steps: Vec<i64> = sqlx::query_scalar("SELECT id FROM steps WHERE run_id = ?")
            .bind(run.0)
            .fetch_all(self.reader())
            .await
            .doing("read the steps of a run")?;
        let mut claims = Vec::with_capacity(steps.len());
        for step in steps {
            claims.push(self.claim(StepId(step)).await);
        }
        Ok(claims)
    }

    /// Replaces the findings of a run.
    pub async fn store_findings(
        &self,
        run: RunId,
        findings: Vec<Finding>,
    ) -> Result<(), StoreError> {
        self.write((run, findings), |(run, findings), connection| {
            Box::pin(async move {
                delete(*run, connection).await?;
                for finding in findings {
                    add(*run, finding, connection).await?;
                }
                Ok(())
            })
        })
        .await
    }
}

/// Deletes the findings of a run; they are computed again once the run has ended.
pub(super) async fn delete(
    run: RunId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM findings WHERE run_id = ?")
        .bind(run.0)
        .write(connection, "remove the findings of a run")
        .await
}

async fn add(
    run: RunId,
    finding: &Finding,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO findings (run_id, kind, verdict, severity, subject, figure, step_id, group_name, op, agent_id,
             host_id, daemon_id, from_us, until_us, size, unit, low, high, p, sentence, sql)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(run.0)
    .bind(finding.kind.as_str())
    .bind(finding.verdict.as_str())
    .bind(finding.severity.as_str())
    .bind(finding.subject.as_str())
    .bind(finding.figure.as_deref())
    .bind(finding.step_id)
    .bind(finding.group_name.as_deref())
    .bind(finding.op.as_deref())
    .bind(finding.agent_id)
    .bind(finding.host_id)
    .bind(finding.daemon_id)
    .bind(finding.from_us)
    .bind(finding.until_us)
    .bind(finding.size)
    .bind(finding.unit.as_deref())
    .bind(finding.low)
    .bind(finding.high)
    .bind(finding.p)
    .bind(finding.sentence.as_str())
    .bind(finding.sql.as_deref())
    .write(connection, "store a finding")
    .await
}

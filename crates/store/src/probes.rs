//! The measurements of a search's probes, from the results of their steps.

use super::{Doing, Store, StoreError};
use benchmesh_model::mesh::StepId;
use benchmesh_plan::search::{Latencies, ProbeOp};
use sqlx::{Row, sqlite::SqliteRow};

impl Store {
    /// The operations of each of these steps, in their order; empty for a step without results.
    pub async fn probes(&self, steps: &[StepId]) -> Result<Vec<Vec<ProbeOp>>, StoreError> {
        let mut all = Vec::with_capacity(steps.len());
        for step in steps {
            let ops = sqlx::query(
                "SELECT op, iif(headline = 'none', NULL, ops_per_s) AS ops_per_s, errors, p50_ns, p99_ns, max_ns,
                        response_p50_ns, response_p99_ns, response_max_ns
                 FROM step_results WHERE step_id = ? ORDER BY op",
            )
            .bind(step.0)
            .try_map(|row: SqliteRow| probe_op(&row))
            .fetch_all(self.reader())
            .await
            .doing("read the results of a probe")?;
            all.push(ops);
        }
        Ok(all)
    }
}

fn probe_op(row: &SqliteRow) -> Result<ProbeOp, sqlx::Error> {
    let ms = |column: &str| -> Result<Option<f64>, sqlx::Error> {
        let ns: Option<i64> = row.try_get(column)?;
        Ok(ns.map(|ns| benchmesh_results::real(ns) / 1e6))
    };
    let errors: i64 = row.try_get("errors")?;
    let response = match (
        ms("response_p50_ns")?,
        ms("response_p99_ns")?,
        ms("response_max_ns")?,
    ) {
        (Some(p50_ms), Some(p99_ms), Some(max_ms)) => Some(Latencies {
            p50_ms,
            p99_ms,
            max_ms,
        }),
        _ => None,
    };
    Ok(ProbeOp {
        op: row.try_get("op")?,
        ops_per_s: row.try_get("ops_per_s")?,
        errors: errors.max(0).unsigned_abs(),
        service: Latencies {
            p50_ms: ms("p50_ns")?.unwrap_or(0.0),
            p99_ms: ms("p99_ns")?.unwrap_or(0.0),
            max_ms: ms("max_ns")?.unwrap_or(0.0),
        },
        response,
    })
}

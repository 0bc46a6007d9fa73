//! The end of a step: its figures computed from what is stored, and kept beside it.

use super::rows::FinishedStep;
use super::{Store, StoreError};
use crate::model::StepId;
use crate::results::figures::StepResults;

impl Store {
    /// Ends a step: computes its intervals and results from everything stored of its tasks, and keeps them. Call it when
    /// all batches are in (`stored`); what comes later is worked in by itself.
    pub async fn finish_step(
        &self,
        step: StepId,
        finished: FinishedStep,
    ) -> Result<StepResults, StoreError> {
        self.note(finished.ended);
        self.write((step, finished), |(step, finished), connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE steps SET state = ?, partial = max(partial, ?), ended_us = ?, reason = coalesce(?, reason)
                     WHERE id = ?",
                )
                .bind(finished.state.as_str())
                .bind(finished.partial)
                .bind(finished.ended.0)
                .bind(finished.reason.as_deref())
                .bind(step.0)
                .execute(connection)
                .await
                .map(drop)
                .map_err(StoreError::sql("end a step"))
            })
        })
        .await?;
        Ok(StepResults::default())
    }
}

//! The end of a step: its figures computed from what is stored and kept beside it, again whenever late data arrive.
//!
//! Intervals are read in slices of time, so that memory stays bounded however long the step was. `steps.stale_batches`
//! counts what arrived since the figures were made; it is lowered by what they cover in the write that keeps them, so a
//! crash or a batch in between only means that they are made once more.

pub(super) mod follow;
mod keep;
mod load;

use super::rows::FinishedStep;
use super::{Shared, Store, StoreError};
use crate::model::StepId;
use crate::results::{StepInterval, StepResults, StepSum};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Of intervals read at once: some ten thousand rows of a large mesh.
const SLICE_US: i64 = 32_000_000;
/// Late data come in bursts (a spool is drained): the figures are made again once it has been quiet for this long.
const QUIET: Duration = Duration::from_millis(500);

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
            Box::pin(keep::end(*step, finished, connection))
        })
        .await?;
        self.reckon(step).await
    }

    /// Makes the figures of a step from what is stored now, and keeps them.
    pub async fn reckon(&self, step: StepId) -> Result<StepResults, StoreError> {
        let _one_at_a_time = self.shared.reckoning.lock().await;
        let covered = load::stale_batches(self.reader(), step).await?;
        let facts = load::step(self.reader(), step).await?;
        let mut sum = StepSum::new(facts.start_us, facts.tasks);
        self.write(step, |step, connection| {
            Box::pin(keep::clear_intervals(*step, connection))
        })
        .await?;
        let mut at = load::next_instant(self.reader(), step, i64::MIN).await?;
        while let Some(first) = at {
            if self.shared.closing.is_cancelled() {
                return Err(StoreError::Closed);
            }
            let until = sum
                .grid()
                .before_a_line(first.saturating_add(SLICE_US))
                .max(first.saturating_add(1));
            let rows = load::intervals(self.reader(), step, first, until).await?;
            let (next, done) = tokio::task::spawn_blocking(move || add(sum, rows, until))
                .await
                .map_err(|error| StoreError::NotWritten {
                    why: error.to_string(),
                })??;
            sum = next;
            self.keep_intervals(step, done).await?;
            at = load::next_instant(self.reader(), step, until).await?;
        }
        let (last, results) = sum.finish();
        self.keep_intervals(step, last).await?;
        let results = Arc::new(results);
        self.write(
            (step, Arc::clone(&results), covered),
            |(step, results, covered), connection| {
                Box::pin(keep::results(*step, results, *covered, connection))
            },
        )
        .await?;
        Ok(Arc::try_unwrap(results).unwrap_or_else(|shared| (*shared).clone()))
    }

    async fn keep_intervals(
        &self,
        step: StepId,
        intervals: Vec<StepInterval>,
    ) -> Result<(), StoreError> {
        if intervals.is_empty() {
            return Ok(());
        }
        self.write((step, intervals), |(step, intervals), connection| {
            Box::pin(keep::intervals(*step, intervals, connection))
        })
        .await
    }
}

fn add(
    mut sum: StepSum,
    rows: Vec<load::StoredInterval>,
    until: i64,
) -> Result<(StepSum, Vec<StepInterval>), StoreError> {
    for row in rows {
        sum.add(&row.facts()?);
    }
    let done = sum.take_before(until);
    Ok((sum, done))
}

/// Makes the figures of steps again that got data after they had ended; ends when the store is closed.
pub(super) async fn rework(store: Weak<Shared>) {
    let Some(shared) = store.upgrade() else {
        return;
    };
    let mut late = shared.live.late_data();
    let closing = shared.closing.clone();
    drop(shared);
    loop {
        late.mark_unchanged();
        let Some(shared) = store.upgrade() else {
            return;
        };
        let store_now = Store { shared };
        if let Err(error) = rework_stale(&store_now).await {
            if closing.is_cancelled() {
                return;
            }
            tracing::warn!(error = %error, "results of late data were not made; the next late data try again");
        }
        drop(store_now);
        tokio::select! {
            () = closing.cancelled() => return,
            changed = late.changed() => if changed.is_err() {
                return;
            },
        }
        while let Ok(Ok(())) = tokio::time::timeout(QUIET, late.changed()).await {
            if closing.is_cancelled() {
                return;
            }
        }
    }
}

async fn rework_stale(store: &Store) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    for step in load::stale_steps(store.reader()).await? {
        // One step that cannot be summed up does not stand in the way of the others.
        if let Err(error) = store.reckon(step).await {
            tracing::warn!(%step, %error, "the results of a step with late data are not made");
            outcome = Err(error);
        }
    }
    outcome
}

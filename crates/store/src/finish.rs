//! The end of a step: its figures are computed from stored rows, and again whenever late data arrive.
//!
//! Intervals are read in slices of time, so that memory stays bounded however long the step was. Only the changed
//! part of the time line is written, together with the results (`timeline`), so that a reader never sees it empty.
//! `steps.stale_batches` counts the batches that arrived since the figures were computed. Storing the figures
//! subtracts the batches that they cover, so that they are computed again after a crash or when a batch arrives in
//! between.

pub(super) mod claims;
mod daemons;
mod extremes;
mod flags;
pub(super) mod follow;
pub(crate) mod last_samples;
pub(super) mod load;
pub(super) mod slices;
mod timeline;
mod traffic;
mod write;

use super::rows::FinishedStep;
use super::writer::Haste;
use super::{Shared, Store, StoreError};
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{RunId, StepId};
use benchmesh_results::{StepInterval, StepResults, StepSum};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use timeline::{Changes, Comparison, TimelineRow};
use tokio::time::timeout;

/// Maximum time that a report waits for the figures of a running run.
const SO_FAR_WITHIN: Duration = Duration::from_secs(30);
/// Intervals are read in slices of this length: some ten thousand rows of a large mesh.
const SLICE_US: i64 = 32_000_000;
/// Late data come in bursts (a spool is drained): the figures are computed again once no data came for this long.
const QUIET: Duration = Duration::from_millis(500);
/// With many agents, some data always arrive; the figures are computed after this time at the latest.
const LONGEST_WAIT: Duration = Duration::from_secs(3);

impl Store {
    /// Ends a step: computes its intervals and results from all stored rows of its tasks, and stores them. Call it
    /// after all batches have arrived (`stored`); later data are included automatically.
    #[boxed]
    #[inline(never)]
    pub async fn finish_step(
        &self,
        step: StepId,
        finished: FinishedStep,
    ) -> Result<StepResults, StoreError> {
        self.note(finished.ended);
        // Committed together with the gathered samples of its end.
        self.write_in(
            Haste::WithGathered,
            (step, finished),
            |(step, finished), connection| Box::pin(write::end(*step, finished, connection)),
        )
        .await?;
        self.compute_results(step).await
    }

    /// Computes the figures of a step from the rows stored now, and stores those that changed.
    #[boxed]
    #[inline(never)]
    pub async fn compute_results(&self, step: StepId) -> Result<StepResults, StoreError> {
        let _claim = self.claim(step).await;
        let covered = load::stale_batches(self.reader(), step).await?;
        let facts = load::step(self.reader(), step).await?;
        let found = flags::found(self.reader(), step).await?;
        let is_running = facts.is_running;
        let mut sum = StepSum::new(facts.start_us, facts.tasks);
        let mut slices = slices::kept(self.reader(), step, slices::SliceFilter::Sums)
            .await?
            .into_iter()
            .peekable();
        let mut timeline = Comparison::default();
        let mut at = load::next_instant(self.reader(), step, i64::MIN).await?;
        while let Some(first) = at {
            if self.shared.closing.is_cancelled() {
                return Err(StoreError::Closed);
            }
            while slices.next_if(|slice| slice.until_us <= first).is_some() {}
            if let Some(slice) = slices.next_if(|slice| slice.from_us <= first)
                && let Some(kept) = slice.sums(self.reader()).await?
            {
                let (from, until) = kept.lines();
                let counts = match sum.needs_counts(&kept) {
                    true => slice.counts(self.reader()).await?,
                    false => None,
                };
                let (next, done, taken) = blocking(move || {
                    let done = packed(sum.take_before(slice.from_us));
                    let taken = sum.add_slice(&kept, counts.as_ref());
                    (sum, done, taken)
                })
                .await?;
                sum = next;
                timeline.add(done);
                if taken {
                    timeline.compare_before(self.reader(), step, from).await?;
                    timeline.skip_to(until);
                    at = load::next_instant(self.reader(), step, slice.until_us).await?;
                    continue;
                }
                if slice.is_merged() {
                    tracing::warn!(%step, from_us = slice.from_us, "a step's results use some merged rows");
                }
            }
            let until = sum
                .grid()
                .before_a_line(first.saturating_add(SLICE_US))
                .max(first.saturating_add(1));
            let until = slices.peek().map_or(until, |next| next.from_us.min(until));
            let rows = load::intervals(self.reader(), step, first, until).await?;
            let (next, done) = blocking(move || add(sum, rows, until)).await??;
            sum = next;
            timeline.add(done);
            let settled = sum.grid().settled_before(until);
            timeline
                .compare_before(self.reader(), step, settled)
                .await?;
            if let Some(changes) = timeline.overflow()
                && !is_running
            {
                self.change_timeline(step, changes).await?;
            }
            at = load::next_instant(self.reader(), step, until).await?;
        }
        let (last, mut results) = blocking(move || {
            let (last, results) = sum.finish();
            (packed(last), results)
        })
        .await?;
        timeline.add(last);
        timeline
            .compare_before(self.reader(), step, i64::MAX)
            .await?;
        if is_running {
            // The time line of a running step consists of whole seconds (`follow`).
            let results = Arc::new(results);
            self.write(
                (step, Arc::clone(&results)),
                |(step, results), connection| {
                    Box::pin(write::figures_so_far(*step, results, connection))
                },
            )
            .await?;
            return Ok(unshared(results));
        }
        results.flags.extend(found);
        let changes = timeline.finish();
        let results = Arc::new(results);
        self.write(
            (step, changes, Arc::clone(&results), covered),
            |(step, changes, results, covered), connection| {
                Box::pin(async move {
                    timeline::write(*step, changes, connection).await?;
                    write::results(*step, results, *covered, connection).await
                })
            },
        )
        .await?;
        self.judge_objectives(step).await?;
        self.compute_usage(step).await?;
        Ok(unshared(results))
    }

    /// The hosts whose samples of a run's end have not arrived yet.
    pub async fn hosts_awaited(&self, run: RunId) -> Result<Vec<String>, StoreError> {
        last_samples::awaited(self.reader(), run).await
    }

    /// Updates a run's figures from the rows stored now, without waiting for more.
    #[boxed]
    #[inline(never)]
    pub async fn compute_stale(&self, run: RunId) -> Result<(), StoreError> {
        for step in last_samples::stale(self.reader(), run).await? {
            if load::stale_batches(self.reader(), step).await? > 0 {
                self.compute_results(step).await?;
            }
            let _claim = self.claim(step).await;
            if load::stale_samples(self.reader(), step).await? > 0 {
                self.compute_usage(step).await?;
            }
        }
        Ok(())
    }

    /// Updates the figures of a running run from the rows stored now. While the database cannot be written, and after
    /// [`SO_FAR_WITHIN`], they stay unchanged.
    #[boxed]
    #[inline(never)]
    pub async fn compute_so_far(&self, run: RunId) -> Result<(), StoreError> {
        // The end of a step may have to wait for this claim, so this must not wait for readers of reports.
        let store = self.for_scheduler();
        let compute = async {
            for step in load::running_steps_of(store.reader(), run).await? {
                store.compute_results(step).await?;
            }
            store.compute_stale(run).await
        };
        tokio::select! {
            biased;
            _ = self.is_blocked() => Ok(()),
            computed = timeout(SO_FAR_WITHIN, compute) => computed.unwrap_or(Ok(())),
        }
    }

    /// Changes with every commit that stored data of steps that had ended.
    pub fn late_data(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.live.late_data()
    }

    /// Computes the usage of daemons in a step from the samples stored now, and stores it.
    pub(super) async fn compute_usage(&self, step: StepId) -> Result<(), StoreError> {
        let covered = load::stale_samples(self.reader(), step).await?;
        let (usage, traffic) = match daemons::measured(self.reader(), step).await? {
            Some(measured) => (
                daemons::usage(self.reader(), step, measured).await?,
                traffic::traffic(self.reader(), step, measured).await?,
            ),
            None => (Vec::new(), Vec::new()),
        };
        self.write(
            (step, usage, traffic, covered),
            |(step, usage, traffic, covered), connection| {
                Box::pin(async move {
                    daemons::keep(*step, usage, connection).await?;
                    traffic::keep(*step, traffic, connection).await?;
                    flags::judge(*step, connection).await?;
                    write::forget_findings(*step, connection).await?;
                    write::samples_covered(*step, *covered, connection).await
                })
            },
        )
        .await
    }

    async fn change_timeline(&self, step: StepId, changes: Changes) -> Result<(), StoreError> {
        self.change_timeline_in(Haste::AtOnce, step, changes).await
    }

    async fn change_timeline_in(
        &self,
        haste: Haste,
        step: StepId,
        changes: Changes,
    ) -> Result<(), StoreError> {
        self.write_in(haste, (step, changes), |(step, changes), connection| {
            Box::pin(timeline::write(*step, changes, connection))
        })
        .await
    }
}

fn unshared(results: Arc<StepResults>) -> StepResults {
    Arc::try_unwrap(results).unwrap_or_else(|shared| (*shared).clone())
}

/// Runs long computations on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| StoreError::NotWritten {
            why: error.to_string(),
        })
}

fn add(
    mut sum: StepSum,
    rows: Vec<load::StoredInterval>,
    until: i64,
) -> Result<(StepSum, Vec<TimelineRow>), StoreError> {
    for row in rows {
        sum.add(&row.facts()?);
    }
    let done = packed(sum.take_before(until));
    Ok((sum, done))
}

fn packed(intervals: Vec<StepInterval>) -> Vec<TimelineRow> {
    intervals.into_iter().map(TimelineRow::from).collect()
}

/// Recomputes the figures of steps that received data after their end; ends when the store is closed.
pub(super) async fn recompute_late(store: Weak<Shared>) {
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
        let store_now = Store::own(shared);
        let began = Instant::now();
        if let Err(error) = recompute_stale(&store_now).await {
            if closing.is_cancelled() {
                return;
            }
            tracing::warn!(error = %error, "cannot compute the results of late data; retrying with the next late data");
        }
        drop(store_now);
        let took = began.elapsed();
        tokio::select! {
            () = closing.cancelled() => return,
            changed = late.changed() => if changed.is_err() {
                return;
            },
        }
        // Summing up a step of days takes long, and an hour's spool takes minutes to arrive.
        let patience = tokio::time::Instant::now() + LONGEST_WAIT.max(took * 4);
        while tokio::time::Instant::now() < patience
            && let Ok(Ok(())) = timeout(QUIET.max(took), late.changed()).await
        {
            if closing.is_cancelled() {
                return;
            }
        }
    }
}

async fn recompute_stale(store: &Store) -> Result<(), StoreError> {
    let mut outcome = Ok(());
    for step in load::stale_steps(store.reader()).await? {
        // A failure in one step must not block the others.
        if let Err(error) = store.compute_results(step).await {
            tracing::warn!(%step, %error, "cannot compute the results of a step with late data");
            outcome = Err(error);
        }
    }
    for step in daemons::stale(store.reader()).await? {
        let _claim = store.claim(step).await;
        if let Err(error) = store.compute_usage(step).await {
            tracing::warn!(%step, %error, "cannot store the usage of daemons in a step with late samples");
            outcome = Err(error);
        }
    }
    outcome
}

//! The task that merges old rows.

use super::{Due, Retention};
use crate::clock::MeshClock;
use crate::prune::{KeptFree, Pace, Patience, Pruned, Pruner, Resolution, StepToPrune};
use crate::rows::NewEvent;
use crate::{Store, StoreError};
use async_recursion::async_recursion as boxed;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunId, StepId};
use benchmesh_workloads::figures;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval between the checks for old rows.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// Samples are thinned in spans of this length; the progress is stored after each.
pub(super) const SPAN_US: i64 = 6 * 3_600_000_000;
/// A shorter span is not worth reading each series.
const MIN_SPAN_US: i64 = 600_000_000;
/// Spans begin and end at whole minutes, as the thinned rows do.
const MINUTE_US: i64 = 60_000_000;
/// Number of slices of a running step that are merged in one turn: an hour.
pub(super) const SLICES_AT_ONCE: usize = 6;
/// Maximum number of runs that `runs_without_findings` lists.
const MANY_RUNS: usize = 100;

/// Prunes one database; cheap to clone.
#[derive(Clone, Debug)]
pub struct Retainer(pub(super) Arc<Inner>);

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) store: Store,
    pub(super) retention: Retention,
    /// Held during pruning; a request of an operator waits for one step at most.
    pub(super) turn: Mutex<()>,
    /// Number of callers that wait for `turn`; if there are any, the pruner does not wait for new rows.
    pub(super) waiting: Arc<AtomicUsize>,
    /// Whether an event has reported that the limit cannot be met.
    pub(super) is_excess_known: AtomicBool,
    /// Running runs for which an event has reported that the limit affects their rows.
    pub(super) limit_reported: std::sync::Mutex<HashSet<(RunId, i64)>>,
    /// Steps whose rows cannot be merged.
    unreadable: std::sync::Mutex<HashSet<StepId>>,
    /// Runs whose findings are being computed from their rows.
    awaited: std::sync::Mutex<HashSet<RunId>>,
}

impl Retainer {
    pub fn new(store: Store, retention: Retention) -> Self {
        Self(Arc::new(Inner {
            store,
            retention,
            turn: Mutex::new(()),
            waiting: Arc::default(),
            is_excess_known: AtomicBool::new(false),
            limit_reported: std::sync::Mutex::default(),
            unreadable: std::sync::Mutex::default(),
            awaited: std::sync::Mutex::default(),
        }))
    }

    /// Nothing is pruned until it is dropped.
    #[cfg(test)]
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.0.turn.lock().await
    }

    /// Enforces the retention settings until it is cancelled.
    #[boxed]
    #[inline(never)]
    pub async fn keep(self, clock: Arc<MeshClock>, closing: CancellationToken) {
        let stored = self
            .0
            .store
            .set_retention(self.0.retention.settings())
            .await;
        if let Err(error) = stored {
            tracing::debug!(%error, "cannot store the retention settings");
        }
        let mut unfound = usize::MAX;
        loop {
            let pass = async {
                self.await_findings(&mut unfound).await;
                if let Err(error) = self.pass(clock.now()).await {
                    tracing::warn!(
                        error = %benchmesh_workloads::error_chain(&error),
                        "cannot merge old rows; the collector tries again"
                    );
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            };
            tokio::select! {
                () = closing.cancelled() => return,
                () = pass => {}
            }
        }
    }

    /// Runs without findings keep their rows while the number of such runs decreases: after an upgrade or a merge, all
    /// findings are computed again.
    async fn await_findings(&self, before: &mut usize) {
        let runs = self.0.store.runs_without_findings().await;
        let runs: HashSet<RunId> = runs.unwrap_or_default().into_iter().collect();
        let are_fewer = runs.len() < *before || runs.len() >= MANY_RUNS;
        *before = runs.len();
        *locked(&self.0.awaited) = match are_fewer {
            true => runs,
            false => HashSet::new(),
        };
    }

    /// Merges old rows, and rows beyond the size limit.
    #[boxed]
    #[inline(never)]
    pub async fn pass(&self, now: MeshMicros) -> Result<Pruned, StoreError> {
        let mut pruner = self.0.store.pruner().await?;
        self.merge_late(&mut pruner, now).await?;
        for due in self.0.retention.due(now) {
            let Due { to, before, .. } = due;
            pruner.set_pace(self.pace(due));
            for found in self
                .steps_due(before, to, self.0.retention.min_rows)
                .await?
            {
                let _turn = self.0.turn.lock().await;
                self.prune_untagged(&mut pruner, found, &self.0.retention.keep_tags)
                    .await?;
            }
            self.merge_running(&mut pruner, before, now, to).await?;
            self.thin(&mut pruner, before, to).await?;
        }
        pruner.set_pace(Pace::AtOnce);
        self.shrink(&mut pruner, now).await?;
        pruner.give_back(KeptFree::ForNewRows).await?;
        let pruned = pruner.pruned();
        if pruned.rows > 0 {
            self.0.store.set_pruned(now, pruned.rows).await?;
            tracing::info!(
                steps = pruned.steps,
                rows = pruned.rows,
                longest_ms = pruned.longest.as_millis(),
                "old rows are merged"
            );
        }
        Ok(pruned)
    }

    fn pace(&self, due: Due) -> Pace {
        Pace::WithNewRows(Patience {
            until: Instant::now() + due.patience,
            max_used_bytes: self.0.retention.max_size.bytes(),
            waiting: Arc::clone(&self.0.waiting),
        })
    }

    /// Merges or deletes rows that arrived after the other rows of their step were merged or deleted.
    async fn merge_late(&self, pruner: &mut Pruner, now: MeshMicros) -> Result<(), StoreError> {
        let store = &self.0.store;
        let late = store.steps_with_late_slices().await?;
        {
            let _turn = self.0.turn.lock().await;
            pruner.finish_slices().await?;
        }
        for (step, run, batches) in late {
            store.late_rows_merged(step, batches).await?;
            let message = String::from(
                "rows of this step arrived late, after the other rows of their time had been merged: they are merged \
                too, but the step's results do not include them",
            );
            let event = NewEvent {
                run: Some(run),
                step: Some(step),
                ..NewEvent::new(now, EventKind::RowsTooLate, message)
            };
            store.add_event(event).await?;
        }
        for (found, batches) in store.steps_with_late_rows().await? {
            if locked(&self.0.unreadable).contains(&found.step) {
                continue;
            }
            let _turn = self.0.turn.lock().await;
            let before = pruner.pruned().rows;
            if !self.prune(pruner, found).await? {
                continue;
            }
            store.late_rows_merged(found.step, batches).await?;
            let what = match found.to {
                Resolution::Nothing => format!(
                    "{} late rows are deleted",
                    figures::count(
                        i64::try_from(pruner.pruned().rows - before).unwrap_or(i64::MAX)
                    )
                ),
                _ => String::from("they are merged too"),
            };
            let message = format!(
                "rows of this step arrived late, after the others had been {}: {what}, and the step's results do not \
                include them",
                found.to.done_to_rows()
            );
            let event = NewEvent {
                run: Some(found.run),
                step: Some(found.step),
                ..NewEvent::new(now, EventKind::RowsTooLate, message)
            };
            store.add_event(event).await?;
        }
        Ok(())
    }

    /// As `prune`, unless the run has got one of the tags since the step was listed: beside much load it may take days
    /// until its turn.
    pub(super) async fn prune_untagged(
        &self,
        pruner: &mut Pruner,
        found: StepToPrune,
        tags: &[(String, String)],
    ) -> Result<bool, StoreError> {
        Ok(!self.0.store.has_tag(found.run, tags).await? && self.prune(pruner, found).await?)
    }

    /// Returns whether the step was pruned. A step with an unreadable histogram stays unchanged and does not delay the
    /// others.
    async fn prune(&self, pruner: &mut Pruner, found: StepToPrune) -> Result<bool, StoreError> {
        match pruner.prune_step(found.step, found.to).await {
            Err(error @ StoreError::Histogram { .. }) => {
                let error = benchmesh_workloads::error_chain(&error);
                tracing::warn!(step = %found.step, %error, "cannot merge the rows of a step");
                locked(&self.0.unreadable).insert(found.step);
                Ok(false)
            }
            pruned => pruned,
        }
    }

    /// The runs that the collector prunes by itself.
    pub(super) async fn steps_due(
        &self,
        before: MeshMicros,
        to: Resolution,
        min_rows: i64,
    ) -> Result<Vec<StepToPrune>, StoreError> {
        let tags = &self.0.retention.keep_tags;
        let mut steps = self.steps(before, to, tags, min_rows).await?;
        let awaited = locked(&self.0.awaited);
        steps.retain(|found| !awaited.contains(&found.run));
        Ok(steps)
    }

    pub(super) async fn steps(
        &self,
        before: MeshMicros,
        to: Resolution,
        tags: &[(String, String)],
        min_rows: i64,
    ) -> Result<Vec<StepToPrune>, StoreError> {
        let found = self.0.store.steps_to_prune(before, to, tags, min_rows);
        let mut steps = found.await?;
        let unreadable = locked(&self.0.unreadable);
        steps.retain(|found| !unreadable.contains(&found.step));
        Ok(steps)
    }

    /// Merges the rows of running steps before an instant, up to the time for which no more rows are expected.
    async fn merge_running(
        &self,
        pruner: &mut Pruner,
        before: MeshMicros,
        now: MeshMicros,
        to: Resolution,
    ) -> Result<(), StoreError> {
        let tags = &self.0.retention.keep_tags;
        for step in self
            .0
            .store
            .prunable_running_steps(before, now, tags)
            .await?
        {
            loop {
                let _turn = self.0.turn.lock().await;
                if pruner.prune_running(step, to, SLICES_AT_ONCE).await? < SLICES_AT_ONCE {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Thins the samples before an instant that have not been thinned.
    pub(super) async fn thin(
        &self,
        pruner: &mut Pruner,
        before: MeshMicros,
        to: Resolution,
    ) -> Result<(), StoreError> {
        while self.thin_span(pruner, before, to).await? {}
        Ok(())
    }

    /// Thins one span of samples; returns whether there was one.
    pub(super) async fn thin_span(
        &self,
        pruner: &mut Pruner,
        before: MeshMicros,
        to: Resolution,
    ) -> Result<bool, StoreError> {
        let store = &self.0.store;
        let tags = &self.0.retention.keep_tags;
        let untouched = store.untouched_spans(before, to, tags).await?;
        let until = samples_until(before, &untouched);
        let from = match store.samples_pruned_until(to).await? {
            Some(from) => from,
            None => match store.oldest_sample().await? {
                Some(oldest) => MeshMicros(whole_minute(oldest.0)),
                None => return Ok(false),
            },
        };
        if until.0.saturating_sub(from.0) < MIN_SPAN_US {
            return Ok(false);
        }
        let end = MeshMicros(from.0.saturating_add(SPAN_US).min(until.0));
        let _turn = self.0.turn.lock().await;
        pruner.prune_samples(from, end, to, &untouched).await?;
        store.set_samples_pruned_until(to, end).await?;
        Ok(true)
    }
}

pub(super) fn locked<T>(mutex: &std::sync::Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The end of the time in which samples may be thinned; it excludes runs that still run or ended later.
pub(super) fn samples_until(before: MeshMicros, untouched: &[(i64, i64)]) -> MeshMicros {
    let running = untouched.iter().filter(|(_, until)| *until == i64::MAX);
    let first = running.map(|(from, _)| *from).min().unwrap_or(i64::MAX);
    MeshMicros(whole_minute(before.0.min(first)))
}

pub(super) fn whole_minute(us: i64) -> i64 {
    us.div_euclid(MINUTE_US) * MINUTE_US
}

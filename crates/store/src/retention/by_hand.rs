//! Pruning at the request of an operator.

use super::retainer::{Retainer, SPAN_US, samples_until, whole_minute};
use super::{PruneProgress, Request};
use crate::prune::{KeptFree, Pruned};
use crate::{Store, StoreError};
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{MeshMicros, RunId};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{MutexGuard, watch};
use tokio::time::timeout;

/// How often a waiting caller commits the rows that the pruner's current slice waits for.
const FLUSH_INTERVAL: Duration = Duration::from_secs(1);

impl Retainer {
    /// The pruner, reserved for an operator.
    async fn take_turn(&self) -> MutexGuard<'_, ()> {
        let _waiting = Waiter::begin(&self.0.waiting);
        loop {
            if let Ok(turn) = timeout(FLUSH_INTERVAL, self.0.turn.lock()).await {
                return turn;
            }
            self.0.store.flush().await;
        }
    }

    /// Carries out an operator's request, and reports its progress. Dropping it stops it between two transactions.
    #[boxed]
    #[inline(never)]
    pub async fn by_hand(
        &self,
        request: &Request,
        now: MeshMicros,
        told: &watch::Sender<PruneProgress>,
    ) -> Result<(), StoreError> {
        let store = &self.0.store;
        let older = i64::try_from(request.older.as_micros()).unwrap_or(i64::MAX);
        let before = MeshMicros(now.0.saturating_sub(older));
        let mut tags = self.0.retention.keep_tags.clone();
        tags.extend(request.keep_tags.iter().cloned());
        let _turn = self.take_turn().await;
        let steps = self.steps(before, request.to, &tags, 0).await?;
        let mut runs: Vec<RunId> = steps.iter().map(|found| found.run).collect();
        runs.dedup();
        told.send_modify(|progress| {
            progress.steps_total = u64::try_from(steps.len()).unwrap_or(u64::MAX);
            progress.runs_total = u64::try_from(runs.len()).unwrap_or(u64::MAX);
        });
        if request.dry_run {
            return tell(store, Pruned::default(), told).await;
        }
        let mut pruner = store.pruner().await?;
        for found in steps {
            self.prune_untagged(&mut pruner, found, &tags).await?;
            tell(store, pruner.pruned(), told).await?;
        }
        // From the beginning, because runs that were kept for a tag may have lost it.
        if let Some(oldest) = store.oldest_sample().await? {
            let untouched = store.untouched_spans(before, request.to, &tags).await?;
            let until = samples_until(before, &untouched);
            let mut from = MeshMicros(whole_minute(oldest.0));
            while from < until {
                let end = MeshMicros(from.0.saturating_add(SPAN_US).min(until.0));
                pruner
                    .prune_samples(from, end, request.to, &untouched)
                    .await?;
                tell(store, pruner.pruned(), told).await?;
                from = end;
            }
            // The data that the request left out can still be pruned later.
            if request.keep_tags.is_empty() {
                store.set_samples_pruned_until(request.to, until).await?;
            }
        }
        pruner.give_back(KeptFree::Least).await?;
        let rows = pruner.pruned().rows;
        if rows > 0 {
            // Otherwise it would wait for rows of agents.
            let (stored, ()) = tokio::join!(store.set_pruned(now, rows), store.flush());
            stored?;
        }
        tell(store, pruner.pruned(), told).await
    }
}

/// Counts as a waiting caller until it is dropped.
struct Waiter<'w>(&'w AtomicUsize);

impl<'w> Waiter<'w> {
    fn begin(waiting: &'w AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn tell(
    store: &Store,
    pruned: Pruned,
    told: &watch::Sender<PruneProgress>,
) -> Result<(), StoreError> {
    let size = store.size().await?;
    told.send_modify(|progress| {
        progress.steps = pruned.steps;
        progress.rows = pruned.rows;
        progress.longest = pruned.longest;
        progress.used_bytes = size.used_bytes();
        progress.file_bytes = size.file_bytes;
    });
    Ok(())
}

//! Merges and deletes rows of a database that is too large.

use super::retainer::{Retainer, SLICES_AT_ONCE, locked};
use crate::StoreError;
use crate::prune::{Pruner, Resolution};
use crate::rows::NewEvent;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunId};
use benchmesh_workloads::figures;
use std::sync::atomic::Ordering;

/// A run that ended recently keeps its rows even if the database is too large, because its findings are computed from
/// them.
const RECENT_US: i64 = 600_000_000;

impl Retainer {
    /// Merges rows of running steps, an hour at a time, while the database is too large and nothing else is left to
    /// merge or delete. Returns whether it has become small enough.
    async fn shrink_running(
        &self,
        pruner: &mut Pruner,
        now: MeshMicros,
        limit: i64,
    ) -> Result<bool, StoreError> {
        let store = &self.0.store;
        let before = MeshMicros(now.0.saturating_sub(RECENT_US));
        let tags = &self.0.retention.keep_tags;
        for to in [Resolution::TenSeconds, Resolution::Minute] {
            for step in store.prunable_running_steps(before, now, tags).await? {
                loop {
                    let used = store.size().await?.used_bytes();
                    if used <= limit {
                        return Ok(true);
                    }
                    let merged = {
                        let _turn = self.0.turn.lock().await;
                        pruner.prune_running(step, to, SLICES_AT_ONCE).await?
                    };
                    if merged == 0 {
                        break;
                    }
                    if locked(&self.0.limit_reported).insert((step.run, to.seconds())) {
                        self.add_size_limit_event(now, step.run, to, used, limit)
                            .await?;
                    }
                    self.thin(pruner, before, to).await?;
                }
            }
        }
        Ok(store.size().await?.used_bytes() <= limit)
    }

    /// While the database is too large, merges the rows of the oldest run possible into 10 s, then into 60 s, and
    /// finally deletes them.
    pub(super) async fn shrink(
        &self,
        pruner: &mut Pruner,
        now: MeshMicros,
    ) -> Result<(), StoreError> {
        let Some(limit) = self.0.retention.max_size.bytes() else {
            return Ok(());
        };
        let store = &self.0.store;
        let before = MeshMicros(now.0.saturating_sub(RECENT_US));
        for to in Resolution::ALL {
            loop {
                let used = store.size().await?.used_bytes();
                if used <= limit {
                    // A size that oscillates around the limit is reported once.
                    if used < limit / 100 * 95 {
                        self.0.is_excess_known.store(false, Ordering::Relaxed);
                    }
                    return Ok(());
                }
                let steps = self.steps_due(before, to, 0).await?;
                let Some(run) = steps.first().map(|found| found.run) else {
                    if self.thin_span(pruner, before, to).await? {
                        continue;
                    }
                    break;
                };
                self.add_size_limit_event(now, run, to, used, limit).await?;
                let mut is_pruned = false;
                for found in steps.iter().take_while(|found| found.run == run) {
                    let _turn = self.0.turn.lock().await;
                    let tags = &self.0.retention.keep_tags;
                    is_pruned |= self.prune_untagged(pruner, *found, tags).await?;
                }
                if !is_pruned {
                    // Late data or a tag have just arrived; the next check handles them.
                    return Ok(());
                }
                // For the current run: its earlier loops.
                let ended = store.run_ended(run).await?.unwrap_or(before);
                self.thin(pruner, ended, to).await?;
            }
        }
        if self.shrink_running(pruner, now, limit).await? {
            return Ok(());
        }
        let used = store.size().await?.used_bytes();
        if used > limit && !self.0.is_excess_known.swap(true, Ordering::Relaxed) {
            let message = format!(
                "the database has {}, above its limit of {} (--max-size), and the collector can merge or delete \
                nothing more: it keeps results, runs that ended within 10 minutes, the newest rows of the current \
                run, and runs with a tag of --keep-tag; raise the limit, or delete runs with `benchmesh db delete`",
                size(used),
                size(limit)
            );
            tracing::warn!("{message}");
            let event = NewEvent::new(now, EventKind::SizeLimitExceeded, message);
            store.add_event(event).await?;
        }
        Ok(())
    }

    async fn add_size_limit_event(
        &self,
        now: MeshMicros,
        run: RunId,
        to: Resolution,
        used: i64,
        limit: i64,
    ) -> Result<(), StoreError> {
        let message = format!(
            "the database has {}, above its limit of {} (--max-size): the rows of seconds of this run, and samples up to its \
             end, are {}",
            size(used),
            size(limit),
            to.done_to_rows()
        );
        tracing::info!(%run, "{message}");
        let event = NewEvent {
            run: Some(run),
            ..NewEvent::new(now, EventKind::SizeLimit, message)
        };
        self.0.store.add_event(event).await
    }
}

fn size(bytes: i64) -> String {
    figures::bytes(u64::try_from(bytes).unwrap_or(0))
}

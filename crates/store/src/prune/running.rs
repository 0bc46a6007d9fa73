//! Slices of running steps whose rows may be merged; after that, results come from the sums of the slices.
//!
//! Before the first of its rows is merged, a slice is marked in one transaction, but only if it is summed up and no
//! rows arrived since. So rows are never merged before they are summed up. Slices in which a task began or ended are
//! not merged, because their rows determine the edges of the step's window.

use super::Resolution;
use crate::Store;
use crate::database::{Doing, StoreError, WriteRows};
use crate::finish::slices::{self, Slice, SliceFilter};
use crate::finish::{blocking, load};
use crate::objectives::{Tally, TallyRange};
use crate::writer::CommitPolicy;
use benchmesh_model::mesh::{MeshMicros, RunId, StepId};
use benchmesh_plan as plan;
use benchmesh_results::TaskEdges;
use sqlx::SqliteConnection;
use std::collections::BTreeMap;

/// How long to wait for rows of a silent client, or samples of a silent host, in addition to the lease of its run,
/// during which a client continues without contact.
const MAX_SILENCE_US: i64 = 86_400_000_000;
/// Distance behind the newest rows of each client, the same as for slices.
const LAG_US: i64 = 60_000_000;

/// A running step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningStep {
    pub step: StepId,
    pub run: RunId,
    /// No rows that begin before this are expected.
    pub settled: MeshMicros,
}

/// A part of a step whose rows are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergedSlice {
    pub id: i64,
    pub step: StepId,
    pub from_us: i64,
    pub until_us: i64,
    pub to: Resolution,
    /// The value of `step_sums.merging` when it was marked or read.
    merging: i64,
}

impl Store {
    /// The running steps of runs without any of the tags that began before an instant, oldest first.
    pub(crate) async fn prunable_running_steps(
        &self,
        before: MeshMicros,
        now: MeshMicros,
        but: &[(String, String)],
    ) -> Result<Vec<RunningStep>, StoreError> {
        let but: Vec<String> = but.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let rows: Vec<(i64, i64, String, String)> = sqlx::query_as(
            "SELECT s.id, s.run_id, r.plan, r.name FROM runs AS r CROSS JOIN steps AS s ON s.run_id = r.id
             WHERE r.state = 'running' AND s.state = 'running' AND s.start_us < ?1
               AND NOT EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id
                               AND t.key || '=' || t.value IN (SELECT value FROM json_each(?2)))
             ORDER BY s.start_us",
        )
        .bind(before.0)
        .bind(serde_json::Value::from(but).to_string())
        .fetch_all(self.reader())
        .await
        .doing("look for steps under way")?;
        let mut steps = Vec::new();
        for (step, run, text, name) in rows {
            let lease = blocking(move || plan::parse(&text, &name).map(|plan| plan.lease));
            let lease = lease.await?.unwrap_or_default();
            let lease_us = i64::try_from(lease.as_micros()).unwrap_or(i64::MAX);
            let awaited_us = MAX_SILENCE_US.saturating_add(lease_us);
            let newest = self
                .newest_of_slowest(StepId(step), now.0.saturating_sub(awaited_us))
                .await?;
            let settled = newest.map_or(i64::MAX, |newest| newest.saturating_sub(LAG_US));
            steps.push(RunningStep {
                step: StepId(step),
                run: RunId(run),
                settled: MeshMicros(settled.min(before.0)),
            });
        }
        Ok(steps)
    }

    /// The newest instant up to which all clients of a step and all hosts have sent their data, except those that have
    /// been silent since `silent_us`.
    async fn newest_of_slowest(
        &self,
        step: StepId,
        silent_us: i64,
    ) -> Result<Option<i64>, StoreError> {
        sqlx::query_scalar(
            "SELECT min(newest_us) FROM (
                 SELECT coalesce((SELECT max(i.at_us) FROM op_intervals AS i WHERE i.task_id = t.id), t.start_us, s.start_us)
                        AS newest_us
                 FROM tasks AS t JOIN steps AS s ON s.id = t.step_id WHERE t.step_id = ?1 AND t.ended_us IS NULL
                 UNION ALL
                 SELECT (SELECT max(x.at_us) FROM host_samples AS x WHERE x.host_id = h.id
                         AND x.at_us >= (SELECT start_us FROM steps WHERE id = ?1)) FROM hosts AS h)
             WHERE newest_us >= ?2",
        )
        .bind(step.0)
        .bind(silent_us)
        .fetch_one(self.reader())
        .await
        .doing("look for the newest rows of a step")
    }

    /// Marks and returns the oldest slices of a running step that are finer than a resolution and can be merged to it,
    /// up to a maximum number.
    pub(crate) async fn mark_slices(
        &self,
        step: RunningStep,
        to: Resolution,
        max_slices: usize,
    ) -> Result<Vec<MergedSlice>, StoreError> {
        // The figures of the step must not be computed meanwhile.
        let _claim = self.claim(step.step).await;
        let slices = slices::stored(self.reader(), step.step, SliceFilter::Whole).await?;
        let finer = slices
            .into_iter()
            .filter(|slice| slice.resolution_s < to.seconds() && slice.until_us <= step.settled.0);
        let mut edges = None;
        let mut marked = Vec::new();
        for slice in finer {
            if marked.len() >= max_slices {
                break;
            }
            if !slice.is_merged() {
                let edges = match &mut edges {
                    Some(edges) => edges,
                    none => none.insert(TaskEdges::of(
                        &load::step(self.reader(), step.step).await?.tasks,
                    )),
                };
                if edges.has_any_in(slice.from_us, slice.until_us) {
                    continue;
                }
                let sums = slice.sums(self.reader()).await?;
                if !slice.has_samples(self.reader()).await?
                    || sums.is_none_or(|sums| !sums.is_clear_of(edges))
                {
                    continue;
                }
            }
            if self.mark_slice(step.step, slice, to).await? {
                marked.push(MergedSlice {
                    id: slice.id,
                    step: step.step,
                    from_us: slice.from_us,
                    until_us: slice.until_us,
                    to,
                    merging: 1,
                });
            }
        }
        Ok(marked)
    }

    async fn mark_slice(
        &self,
        step: StepId,
        slice: Slice,
        to: Resolution,
    ) -> Result<bool, StoreError> {
        let tallies = match slice.is_merged() {
            true => None,
            false => self.tallies_of_slice(step, slice).await?,
        };
        self.write_in(
            CommitPolicy::OwnTransaction,
            (step, slice, to, tallies),
            |(step, slice, to, tallies), connection| {
                Box::pin(mark(*step, *slice, *to, tallies.as_deref(), connection))
            },
        )
        .await
    }

    /// The tallies of a slice's seconds as JSON; `None` if the plan has no objectives.
    async fn tallies_of_slice(
        &self,
        step: StepId,
        slice: Slice,
    ) -> Result<Option<String>, StoreError> {
        let objectives = self.objectives_of(step).await?;
        if objectives.is_empty() {
            return Ok(None);
        }
        let range = TallyRange::Slice {
            from_us: slice.from_us,
            until_us: slice.until_us,
        };
        let (tallies, _) = self.tally_rows(step, range, &objectives).await?;
        let by_words: BTreeMap<&str, Tally> = objectives
            .iter()
            .map(|objective| objective.holds.as_str())
            .zip(tallies)
            .collect();
        serde_json::to_string(&by_words)
            .map(Some)
            .map_err(|error| StoreError::NotWritten {
                why: error.to_string(),
            })
    }

    /// Marked slices with rows that are not merged: after a restart, or because late rows arrived.
    pub(crate) async fn unfinished_slices(&self) -> Result<Vec<MergedSlice>, StoreError> {
        let rows: Vec<(i64, i64, i64, i64, i64, i64)> = sqlx::query_as(
            "SELECT id, step_id, from_us, until_us, resolution_s, merging FROM step_sums WHERE merging > 0 ORDER BY id",
        )
        .fetch_all(self.reader())
        .await
        .doing("look for slices to merge")?;
        let slices =
            rows.into_iter()
                .filter_map(|(id, step, from_us, until_us, seconds, merging)| {
                    Some(MergedSlice {
                        id,
                        step: StepId(step),
                        from_us,
                        until_us,
                        to: Resolution::of_seconds(seconds)?,
                        merging,
                    })
                });
        Ok(slices.collect())
    }

    /// Records that all rows that existed when the merge began are merged. Later rows are merged next.
    pub(crate) async fn slice_merged(&self, slice: MergedSlice) -> Result<(), StoreError> {
        self.write_in(CommitPolicy::OwnTransaction, slice, |slice, connection| {
            Box::pin(async move {
                sqlx::query("UPDATE step_sums SET merging = 0 WHERE id = ? AND merging = ?")
                    .bind(slice.id)
                    .bind(slice.merging)
                    .write(connection, "mark a slice as merged")
                    .await
            })
        })
        .await
    }
}

/// Freezes the sums of the slice. Returns whether the slice may be merged.
async fn mark(
    step: StepId,
    slice: Slice,
    to: Resolution,
    tallies: Option<&str>,
    connection: &mut SqliteConnection,
) -> Result<bool, StoreError> {
    const DOING: &str = "mark a slice whose rows are merged";
    let marked = sqlx::query(
        "UPDATE step_sums SET resolution_s = ?2, merging = 1, tallies = coalesce(?3, tallies)
         WHERE id = ?1 AND sums IS NOT NULL AND counts IS NOT NULL AND stale = 0 AND stale_samples = 0
           AND resolution_s = ?4 AND from_us = ?5 AND until_us = ?6
           AND EXISTS (SELECT 1 FROM steps WHERE id = ?7 AND state = 'running')",
    )
    .bind(slice.id)
    .bind(to.seconds())
    .bind(tallies)
    .bind(slice.resolution_s)
    .bind(slice.from_us)
    .bind(slice.until_us)
    .bind(step.0)
    .execute(&mut *connection)
    .await
    .map(|done| done.rows_affected() == 1)
    .doing(DOING)?;
    if marked {
        sqlx::query(
            "UPDATE steps SET merged_10s_until_us = max(coalesce(merged_10s_until_us, ?2), ?2),
                 merged_60s_until_us = CASE WHEN ?3 THEN max(coalesce(merged_60s_until_us, ?2), ?2)
                                            ELSE merged_60s_until_us END
             WHERE id = ?1",
        )
        .bind(step.0)
        .bind(slice.until_us)
        .bind(to >= Resolution::Minute)
        .write(connection, DOING)
        .await?;
    }
    Ok(marked)
}

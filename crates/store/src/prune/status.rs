//! How far a database is pruned, its size, and the retention settings of its collector.

use super::{Resolution, Timed};
use crate::Store;
use crate::database::{Doing, StoreError, WriteRows};
use crate::finish::slices;
use crate::prune::samples::OLDEST;
use crate::writer::CommitPolicy;
use benchmesh_model::mesh::{MeshMicros, RunId, StepId};
use sqlx::SqliteConnection;
use std::time::Instant;

/// The size of a database file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Size of the file, without its WAL.
    pub file_bytes: i64,
    /// The part of it in empty pages, which the next rows use.
    pub free_bytes: i64,
}

impl Size {
    pub fn used_bytes(self) -> i64 {
        self.file_bytes - self.free_bytes
    }
}

/// The settings that a collector was started with. `None`: forever, or without a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub keep_seconds_us: Option<i64>,
    pub keep_10s_us: Option<i64>,
    pub max_size_bytes: Option<i64>,
    /// Runs with one of these tags keep all rows.
    pub keep_tags: Vec<(String, String)>,
}

/// A step whose rows are finer than necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepToPrune {
    pub step: StepId,
    pub run: RunId,
    pub to: Resolution,
}

impl Store {
    pub async fn size(&self) -> Result<Size, StoreError> {
        let (page, pages, free): (i64, i64, i64) = sqlx::query_as(
            "SELECT s.page_size, c.page_count, f.freelist_count
             FROM pragma_page_size AS s, pragma_page_count AS c, pragma_freelist_count AS f",
        )
        .fetch_one(self.reader())
        .await
        .doing("read its size")?;
        Ok(Size {
            file_bytes: page.saturating_mul(pages),
            free_bytes: page.saturating_mul(free),
        })
    }

    /// Stores the collector's settings, for readers of the file.
    pub async fn set_retention(&self, settings: Settings) -> Result<(), StoreError> {
        self.write_in(CommitPolicy::OwnTransaction, settings, |settings, connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE meta SET keep_seconds_us = ?, keep_10s_us = ?, max_size_bytes = ?, keep_tags = ?",
                )
                .bind(settings.keep_seconds_us)
                .bind(settings.keep_10s_us)
                .bind(settings.max_size_bytes)
                .bind(json(&settings.keep_tags))
                .write(connection, "store the retention settings")
                .await
            })
        })
        .await
    }

    /// The tags of runs that the last collector of the file keeps.
    pub async fn kept_tags(&self) -> Result<Vec<(String, String)>, StoreError> {
        let tags: Option<String> = sqlx::query_scalar("SELECT keep_tags FROM meta")
            .fetch_one(self.reader())
            .await
            .doing("read the retention settings")?;
        Ok(tags_of(tags.as_deref()))
    }

    /// Stores when rows were last pruned, and their number.
    pub async fn set_pruned(&self, at: MeshMicros, rows: u64) -> Result<(), StoreError> {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        self.write_in(
            CommitPolicy::WhenDue,
            (at, rows),
            |(at, rows), connection| {
                Box::pin(async move {
                    sqlx::query("UPDATE meta SET pruned_us = ?, pruned_rows = ?")
                        .bind(at.0)
                        .bind(*rows)
                        .write(connection, "store when rows were pruned")
                        .await
                })
            },
        )
        .await
    }

    /// Steps that received batches after their rows were merged or deleted, with the number of batches.
    pub async fn steps_with_late_rows(&self) -> Result<Vec<(StepToPrune, i64)>, StoreError> {
        let rows: Vec<(i64, i64, i64, i64)> = sqlx::query_as(
            "SELECT id, run_id, resolution_s, late_batches FROM steps WHERE late_batches > 0 ORDER BY id",
        )
        .fetch_all(self.reader())
        .await
        .doing("look for late rows")?;
        let found = rows
            .into_iter()
            .filter_map(|(step, run, seconds, batches)| {
                let found = StepToPrune {
                    step: StepId(step),
                    run: RunId(run),
                    to: Resolution::of_seconds(seconds)?,
                };
                Some((found, batches))
            });
        Ok(found.collect())
    }

    /// Steps that received batches for slices that were merged while the step ran.
    pub async fn steps_with_late_slices(&self) -> Result<Vec<(StepId, RunId, i64)>, StoreError> {
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
            "SELECT id, run_id, late_batches FROM steps WHERE late_batches > 0 AND resolution_s = 1 ORDER BY id",
        )
        .fetch_all(self.reader())
        .await
        .doing("look for late rows")?;
        let from_row = |(step, run, batches)| (StepId(step), RunId(run), batches);
        Ok(rows.into_iter().map(from_row).collect())
    }

    /// Subtracts merged late batches of a step.
    pub async fn late_rows_merged(&self, step: StepId, batches: i64) -> Result<(), StoreError> {
        self.write_in(
            CommitPolicy::OwnTransaction,
            (step, batches),
            |(step, batches), connection| {
                Box::pin(async move {
                    sqlx::query(
                        "UPDATE steps SET late_batches = max(late_batches - ?, 0) WHERE id = ?",
                    )
                    .bind(*batches)
                    .bind(step.0)
                    .write(connection, "mark late rows as merged")
                    .await
                })
            },
        )
        .await
    }

    /// Whether a run has one of the tags.
    pub async fn has_tag(&self, run: RunId, tags: &[(String, String)]) -> Result<bool, StoreError> {
        sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM run_tags
                            WHERE run_id = ? AND key || '=' || value IN (SELECT value FROM json_each(?)))",
        )
        .bind(run.0)
        .bind(json(tags))
        .fetch_one(self.reader())
        .await
        .doing("read the tags of a run")
    }

    /// When a run ended; for an imported run, when it was imported.
    pub async fn run_ended(&self, run: RunId) -> Result<Option<MeshMicros>, StoreError> {
        let ended: Option<i64> =
            sqlx::query_scalar("SELECT max(ended_us, created_us) FROM runs WHERE id = ?")
                .bind(run.0)
                .fetch_one(self.reader())
                .await
                .doing("read the end of a run")?;
        Ok(ended.map(MeshMicros))
    }

    /// The time spans of runs whose samples are not thinned: runs that still run (from the first loop that had not
    /// ended before the instant, except slices whose rows are as coarse) or that ended after it, both without an end,
    /// and runs with one of the tags.
    pub async fn untouched_spans(
        &self,
        before: MeshMicros,
        to: Resolution,
        tags: &[(String, String)],
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        const DOING: &str = "look for runs that are kept";
        let spans: Vec<(i64, i64, Option<i64>)> = sqlx::query_as(
            "SELECT coalesce(CASE WHEN r.ended_us IS NULL THEN (SELECT s.start_us FROM steps AS s WHERE s.run_id = r.id
                                 AND s.loop > 1 AND s.loop >= coalesce(
                                     (SELECT min(o.loop) FROM steps AS o WHERE o.run_id = r.id
                                      AND (o.ended_us IS NULL OR o.ended_us > ?1)),
                                     (SELECT max(o.loop) FROM steps AS o WHERE o.run_id = r.id))
                                 ORDER BY s.ordinal LIMIT 1) END,
                             r.started_us, r.created_us) - 120000000,
                    CASE WHEN r.ended_us <= ?1 THEN r.ended_us + 120000000 ELSE 9223372036854775807 END,
                    CASE WHEN r.ended_us IS NULL AND NOT EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id
                              AND t.key || '=' || t.value IN (SELECT value FROM json_each(?2))) THEN r.id END
             FROM runs AS r
             WHERE r.imported_from IS NULL AND (r.state <> 'queued' OR r.started_us IS NOT NULL)
               AND (r.ended_us IS NULL OR r.ended_us > ?1
                    OR EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id
                               AND t.key || '=' || t.value IN (SELECT value FROM json_each(?2))))",
        )
        .bind(before.0)
        .bind(json(tags))
        .fetch_all(self.reader())
        .await
        .doing(DOING)?;
        let mut untouched = Vec::new();
        for (from_us, until_us, goes_on) in spans {
            let merged: Vec<(i64, i64)> = match (goes_on, to) {
                (Some(run), Resolution::TenSeconds | Resolution::Minute) => sqlx::query_as(
                    "SELECT m.from_us, m.until_us FROM steps AS s CROSS JOIN step_sums AS m ON m.step_id = s.id
                     WHERE s.run_id = ? AND m.resolution_s >= ? ORDER BY m.from_us",
                )
                .bind(run)
                .bind(to.seconds())
                .fetch_all(self.reader())
                .await
                .doing(DOING)?,
                _ => Vec::new(),
            };
            untouched.extend(outside((from_us, until_us), &merged));
        }
        Ok(untouched)
    }

    /// The steps with rows finer than the resolution, of runs without any of the tags that ended before an instant,
    /// oldest run first; then the steps of the current run that belong to an earlier loop and ended before it. A step
    /// that was partly merged to a coarser resolution continues with that. Steps with fewer than `min_rows` rows of the
    /// resolution are skipped.
    pub async fn steps_to_prune(
        &self,
        before: MeshMicros,
        to: Resolution,
        but: &[(String, String)],
        min_rows: i64,
    ) -> Result<Vec<StepToPrune>, StoreError> {
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(STEPS_TO_PRUNE)
            .bind(finer(to))
            .bind(before.0)
            .bind(json(but))
            .bind(min_span_us(to, min_rows))
            .fetch_all(self.reader())
            .await
            .doing("look for old steps")?;
        Ok(rows
            .into_iter()
            .map(|(step, run, seconds)| StepToPrune {
                step: StepId(step),
                run: RunId(run),
                to: Resolution::of_seconds(seconds).map_or(to, |is| is.max(to)),
            })
            .collect())
    }

    /// The end of the time in which samples have a resolution; `None` before the first thinning.
    pub async fn samples_pruned_until(
        &self,
        to: Resolution,
    ) -> Result<Option<MeshMicros>, StoreError> {
        let sql = match to {
            Resolution::TenSeconds => "SELECT samples_10s_until_us FROM meta",
            Resolution::Minute => "SELECT samples_60s_until_us FROM meta",
            Resolution::Nothing => "SELECT samples_deleted_until_us FROM meta",
        };
        let until: Option<i64> = sqlx::query_scalar(sql)
            .fetch_one(self.reader())
            .await
            .doing("read how far samples are thinned")?;
        Ok(until.map(MeshMicros))
    }

    pub async fn set_samples_pruned_until(
        &self,
        to: Resolution,
        until: MeshMicros,
    ) -> Result<(), StoreError> {
        self.write_in(CommitPolicy::OwnTransaction, (to, until), |(to, until), connection| {
            Box::pin(async move {
                let sql = match to {
                    Resolution::TenSeconds => {
                        "UPDATE meta SET samples_10s_until_us = max(coalesce(samples_10s_until_us, ?1), ?1)"
                    }
                    Resolution::Minute => {
                        "UPDATE meta SET samples_60s_until_us = max(coalesce(samples_60s_until_us, ?1), ?1)"
                    }
                    Resolution::Nothing => {
                        "UPDATE meta SET samples_deleted_until_us = max(coalesce(samples_deleted_until_us, ?1), ?1)"
                    }
                };
                sqlx::query(sql)
                    .bind(until.0)
                    .write(connection, "store how far samples are thinned")
                    .await
            })
        })
        .await
    }

    /// The instant of the oldest sample.
    pub async fn oldest_sample(&self) -> Result<Option<MeshMicros>, StoreError> {
        let oldest: Option<i64> = sqlx::query_scalar(OLDEST)
            .fetch_one(self.reader())
            .await
            .doing("look for the oldest sample")?;
        Ok(oldest.map(MeshMicros))
    }
}

/// The parts of a span outside of these spans, which are ordered by time.
fn outside((from_us, until_us): (i64, i64), these: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut at = from_us;
    let mut outside = Vec::new();
    for &(begin_us, end_us) in these {
        if begin_us > at {
            outside.push((at, begin_us - 1));
        }
        at = at.max(end_us);
    }
    outside.push((at, until_us));
    outside
}

/// Step, run, resolution. Parameters: the finer resolutions, the instant, tags, the minimum length of a step.
const STEPS_TO_PRUNE: &str = "
SELECT s.id, s.run_id, s.resolution_s
FROM steps AS s JOIN runs AS r ON r.id = s.run_id
WHERE (s.resolution_s IN (SELECT value FROM json_each(?1)) OR s.merging = 1)
  AND s.stale_batches = 0 AND s.stale_samples = 0 AND s.state IN ('done', 'failed', 'stopped')
  AND CASE r.state
      WHEN 'running' THEN s.ended_us < ?2 AND s.loop < (SELECT max(n.loop) FROM steps AS n WHERE n.run_id = r.id)
      WHEN 'queued' THEN 0
      ELSE max(r.ended_us, r.created_us) < ?2 END
  AND NOT EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id
                  AND t.key || '=' || t.value IN (SELECT value FROM json_each(?3)))
  AND (s.merging = 1 OR coalesce(s.ended_us - s.start_us, 0) >= ?4)
ORDER BY r.state = 'running', max(r.ended_us, r.created_us), r.id, s.id";

/// The resolutions that are finer, as JSON.
fn finer(to: Resolution) -> String {
    let finer = Resolution::ALL.into_iter().filter(|one| *one < to);
    let finer: Vec<i64> = std::iter::once(1)
        .chain(finer.map(Resolution::seconds))
        .collect();
    serde_json::Value::from(finer).to_string()
}

fn min_span_us(to: Resolution, min_rows: i64) -> i64 {
    min_rows
        .saturating_mul(to.seconds())
        .saturating_mul(1_000_000)
}

/// The numbers of steps and runs that would be pruned, in a file that is only read.
pub(crate) fn count(
    connection: &rusqlite::Connection,
    before: MeshMicros,
    to: Resolution,
    but: &[(String, String)],
) -> rusqlite::Result<(u64, u64)> {
    let sql = format!("SELECT count(*), count(DISTINCT run_id) FROM ({STEPS_TO_PRUNE})");
    connection.query_row(
        &sql,
        rusqlite::params![finer(to), before.0, json(but), 0],
        |row| {
            let (steps, runs): (i64, i64) = (row.get(0)?, row.get(1)?);
            Ok((steps.unsigned_abs(), runs.unsigned_abs()))
        },
    )
}

/// Parses tags from a list of texts `KEY=VALUE`.
pub(crate) fn tags_of(json: Option<&str>) -> Vec<(String, String)> {
    let tags: Vec<String> = json
        .and_then(|json| serde_json::from_str(json).ok())
        .unwrap_or_default();
    let split = |tag: &String| {
        let (key, value) = tag.split_once('=')?;
        Some((key.to_owned(), value.to_owned()))
    };
    tags.iter().filter_map(split).collect()
}

fn json(tags: &[(String, String)]) -> String {
    let tags: Vec<String> = tags
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    serde_json::Value::from(tags).to_string()
}

/// Freezes the step's figures. Returns whether it may be pruned: it has ended, and its figures cover all received data.
pub(super) async fn mark(
    step: StepId,
    to: Resolution,
    connection: &mut SqliteConnection,
) -> Result<bool, StoreError> {
    // Samples around slices that were merged while the step ran were not thinned.
    sqlx::query(
        "UPDATE meta SET samples_10s_until_us = min(samples_10s_until_us, o.from_us),
             samples_60s_until_us = min(samples_60s_until_us, o.from_us)
         FROM (SELECT (coalesce(r.started_us, r.created_us) - 120000000) / 60000000 * 60000000 AS from_us
               FROM steps AS s JOIN runs AS r ON r.id = s.run_id
               WHERE s.id = ? AND s.resolution_s = 1 AND s.merged_10s_until_us IS NOT NULL) AS o",
    )
    .bind(step.0)
    .write(connection, "mark samples to be thinned")
    .await?;
    let marked = sqlx::query(
        "UPDATE steps SET resolution_s = ?, merging = 1
         WHERE id = ? AND stale_batches = 0 AND stale_samples = 0 AND state IN ('done', 'failed', 'stopped')",
    )
    .bind(to.seconds())
    .bind(step.0)
    .execute(&mut *connection)
    .await
    .map(|done| done.rows_affected() == 1)
    .doing("mark a step whose rows are merged")?;
    if marked {
        slices::delete(step, connection).await?;
    }
    Ok(marked)
}

/// Records that all rows of the step have its resolution.
pub(super) async fn mark_merged(
    step: StepId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE steps SET merging = 0 WHERE id = ?")
        .bind(step.0)
        .write(connection, "mark a step whose rows are merged")
        .await
}

/// Releases this number of free pages.
pub(super) async fn vacuum(
    pages: u32,
    connection: &mut SqliteConnection,
) -> Result<Timed<()>, StoreError> {
    let began = Instant::now();
    // Each returned row frees one page, so all rows must be read.
    sqlx::query(sqlx::AssertSqlSafe(format!(
        "PRAGMA incremental_vacuum({pages})"
    )))
    .fetch_all(connection)
    .await
    .doing("release free pages")?;
    Ok(Timed::since(began, ()))
}

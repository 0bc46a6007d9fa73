//! How far a database is pruned, how large it is, and what its collector was told to keep.

use super::{Resolution, Timed};
use crate::database::StoreError;
use crate::model::{MeshMicros, RunId, StepId};
use crate::store::Store;
use crate::store::finish::slices;
use crate::store::prune::samples::OLDEST;
use crate::store::writer::Haste;
use sqlx::SqliteConnection;
use std::time::Instant;

/// The size of a database file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Of the file, without its WAL.
    pub file_bytes: i64,
    /// Of that, pages that hold nothing: rows that come next take them.
    pub free_bytes: i64,
}

impl Size {
    pub fn used_bytes(self) -> i64 {
        self.file_bytes - self.free_bytes
    }
}

/// What a collector was started with. `None`: for ever, without a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub keep_seconds_us: Option<i64>,
    pub keep_10s_us: Option<i64>,
    pub max_size_bytes: Option<i64>,
}

/// A step whose rows are finer than they have to be.
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
        .map_err(StoreError::sql("read its size"))?;
        Ok(Size {
            file_bytes: page.saturating_mul(pages),
            free_bytes: page.saturating_mul(free),
        })
    }

    /// Keeps what the collector was told, for those who look at the file.
    pub async fn set_retention(&self, settings: Settings) -> Result<(), StoreError> {
        self.write_in(Haste::Apart, settings, |settings, connection| {
            Box::pin(async move {
                sqlx::query(
                    "UPDATE meta SET keep_seconds_us = ?, keep_10s_us = ?, max_size_bytes = ?",
                )
                .bind(settings.keep_seconds_us)
                .bind(settings.keep_10s_us)
                .bind(settings.max_size_bytes)
                .execute(connection)
                .await
                .map(drop)
                .map_err(StoreError::sql("store what is kept how long"))
            })
        })
        .await
    }

    /// When a run ended; an imported one is as old as its import.
    pub async fn run_ended(&self, run: RunId) -> Result<Option<MeshMicros>, StoreError> {
        let ended: Option<i64> =
            sqlx::query_scalar("SELECT max(ended_us, created_us) FROM runs WHERE id = ?")
                .bind(run.0)
                .fetch_one(self.reader())
                .await
                .map_err(StoreError::sql("read the end of a run"))?;
        Ok(ended.map(MeshMicros))
    }

    /// When runs were under way whose samples stay as they are: those that go on or ended after an instant, without an
    /// end, and those with one of the tags.
    pub async fn untouched_spans(
        &self,
        before: MeshMicros,
        tags: &[(String, String)],
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        sqlx::query_as(
            "SELECT coalesce(r.started_us, r.created_us) - 120000000,
                    CASE WHEN r.ended_us <= ?1 THEN r.ended_us + 120000000 ELSE 9223372036854775807 END
             FROM runs AS r
             WHERE r.imported_from IS NULL AND r.state <> 'queued'
               AND (r.ended_us IS NULL OR r.ended_us > ?1
                    OR EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id
                               AND t.key || '=' || t.value IN (SELECT value FROM json_each(?2))))",
        )
        .bind(before.0)
        .bind(json(tags))
        .fetch_all(self.reader())
        .await
        .map_err(StoreError::sql("look for runs that are kept"))
    }

    /// The steps of runs that ended before an instant and have none of the tags, whose rows are finer than that: those
    /// of the oldest run first. One that was begun with a coarser resolution goes on with that. Steps of less than
    /// `min_rows` rows of that resolution are left out.
    pub async fn steps_to_prune(
        &self,
        before: MeshMicros,
        to: Resolution,
        but: &[(String, String)],
        min_rows: i64,
    ) -> Result<Vec<StepToPrune>, StoreError> {
        let finer: Vec<i64> = std::iter::once(1)
            .chain(
                Resolution::ALL
                    .into_iter()
                    .filter(|one| *one < to)
                    .map(Resolution::seconds),
            )
            .collect();
        let rows: Vec<(i64, i64, i64)> = sqlx::query_as(
            "SELECT s.id, s.run_id, s.resolution_s
             FROM steps AS s JOIN runs AS r ON r.id = s.run_id
             WHERE (s.resolution_s IN (SELECT value FROM json_each(?1)) OR s.merging = 1)
               AND s.stale_batches = 0 AND s.stale_samples = 0 AND s.state IN ('done', 'failed', 'stopped')
               AND r.state IN ('done', 'failed', 'stopped') AND max(r.ended_us, r.created_us) < ?2
               AND NOT EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id
                               AND t.key || '=' || t.value IN (SELECT value FROM json_each(?3)))
               AND (s.merging = 1 OR coalesce(s.ended_us - s.start_us, 0) >= ?4)
             ORDER BY max(r.ended_us, r.created_us), r.id, s.id",
        )
        .bind(serde_json::Value::from(finer).to_string())
        .bind(before.0)
        .bind(json(but))
        .bind(min_rows.saturating_mul(to.seconds()).saturating_mul(1_000_000))
        .fetch_all(self.reader())
        .await
        .map_err(StoreError::sql("look for old steps"))?;
        Ok(rows
            .into_iter()
            .map(|(step, run, seconds)| StepToPrune {
                step: StepId(step),
                run: RunId(run),
                to: Resolution::of_seconds(seconds).map_or(to, |is| is.max(to)),
            })
            .collect())
    }

    /// Up to where samples are at a resolution; before there was any, `None`.
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
            .map_err(StoreError::sql("read how far samples are thinned"))?;
        Ok(until.map(MeshMicros))
    }

    pub async fn set_samples_pruned_until(
        &self,
        to: Resolution,
        until: MeshMicros,
    ) -> Result<(), StoreError> {
        self.write_in(Haste::Apart, (to, until), |(to, until), connection| {
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
                    .execute(connection)
                    .await
                    .map(drop)
                    .map_err(StoreError::sql("store how far samples are thinned"))
            })
        })
        .await
    }

    /// The instant of the oldest sample.
    pub async fn oldest_sample(&self) -> Result<Option<MeshMicros>, StoreError> {
        let oldest: Option<i64> = sqlx::query_scalar(OLDEST)
            .fetch_one(self.reader())
            .await
            .map_err(StoreError::sql("look for the oldest sample"))?;
        Ok(oldest.map(MeshMicros))
    }
}

fn json(tags: &[(String, String)]) -> String {
    let tags: Vec<String> = tags
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    serde_json::Value::from(tags).to_string()
}

/// From now on the step's figures stay what they are. Says whether it may be pruned: it has ended, and nothing has come
/// that its figures lack.
pub(super) async fn mark(
    step: StepId,
    to: Resolution,
    connection: &mut SqliteConnection,
) -> Result<bool, StoreError> {
    let marked = sqlx::query(
        "UPDATE steps SET resolution_s = ?, merging = 1
         WHERE id = ? AND stale_batches = 0 AND stale_samples = 0 AND state IN ('done', 'failed', 'stopped')",
    )
    .bind(to.seconds())
    .bind(step.0)
    .execute(&mut *connection)
    .await
    .map(|done| done.rows_affected() == 1)
    .map_err(StoreError::sql("mark a step whose rows are merged"))?;
    if marked {
        slices::forget(step, connection).await?;
    }
    Ok(marked)
}

/// All rows of the step are at its resolution.
pub(super) async fn done(
    step: StepId,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE steps SET merging = 0 WHERE id = ?")
        .bind(step.0)
        .execute(connection)
        .await
        .map(drop)
        .map_err(StoreError::sql("mark a step whose rows are merged"))
}

/// Gives back so many free pages.
pub(super) async fn vacuum(
    pages: u32,
    connection: &mut SqliteConnection,
) -> Result<Timed<()>, StoreError> {
    let began = Instant::now();
    // One page for each row of the answer, so that all rows have to be asked for.
    sqlx::query(sqlx::AssertSqlSafe(format!(
        "PRAGMA incremental_vacuum({pages})"
    )))
    .fetch_all(connection)
    .await
    .map_err(StoreError::sql("give back free pages"))?;
    Ok(Timed::since(began, ()))
}

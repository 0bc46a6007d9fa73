//! Which ended runs the collector's archive lacks, or has as they were before something changed.
//!
//! The queue of the archive is what these queries find, so that it survives every restart. Nothing here knows the
//! archive.

use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use async_recursion::async_recursion as boxed;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{MeshMicros, RunId};
use std::collections::BTreeSet;

/// Maximum number of never archived runs that one look returns.
const MAX_MISSING: u32 = 100;
/// Archived runs that each look compares, because late data, tags and findings come to these.
const NEWEST: u32 = 50;
/// Further archived runs that one look compares. A signature reads a page for each result of its run, so a change of an
/// old run is found only after some looks.
const SLICE: usize = 150;

/// SQL: what the run `r` has, as a text. It changes with late data, annotations and findings, and not when rows of
/// seconds are merged or deleted; of that, only the event counts as no change.
const SIGNATURE: &str = "json_array(
    r.name, r.state, r.partial, r.ended_us, r.reason, r.paused_us,
    (SELECT json_group_object(t.key, t.value)
        FROM (SELECT key, value FROM run_tags WHERE run_id = r.id ORDER BY key) AS t),
    (SELECT json_array(count(*), max(n.id)) FROM run_notes AS n WHERE n.run_id = r.id),
    (SELECT json_array(count(*), max(m.id)) FROM marks AS m WHERE m.run_id = r.id),
    (SELECT json_array(count(*), max(e.id)) FROM events AS e WHERE e.run_id = r.id AND e.kind <> 'size-limit'),
    (SELECT json_array(count(*), max(f.id), total(f.size), total(f.p), total(length(f.sentence)))
        FROM findings AS f WHERE f.run_id = r.id),
    (SELECT json_array(count(*), total(s.partial), total(length(s.flags)), max(s.ended_us))
        FROM steps AS s WHERE s.run_id = r.id),
    (SELECT json_array(count(*), total(o.ops), total(o.bytes), total(o.errors), total(o.p99_ns))
        FROM steps AS s JOIN step_results AS o ON o.step_id = s.id WHERE s.run_id = r.id),
    (SELECT json_array(count(*), total(d.samples), total(d.cpu_user_us), total(d.cpu_system_us), total(d.after_cpu_us))
        FROM steps AS s JOIN step_daemons AS d ON d.step_id = s.id WHERE s.run_id = r.id),
    (SELECT json_array(count(*), total(f.read_bytes), total(f.written_bytes), total(f.received_bytes),
            total(f.sent_bytes), total(f.disk_read_bytes), total(f.disk_written_bytes))
        FROM steps AS s JOIN step_traffic AS f ON f.step_id = s.id WHERE s.run_id = r.id))";

const MISSING: &str = "FROM runs AS r
    WHERE r.ended_us IS NOT NULL AND NOT EXISTS (SELECT 1 FROM archived_runs AS a WHERE a.run_id = r.id)";

/// An ended run that the archive lacks or has otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunToArchive {
    pub run: RunId,
    pub name: String,
    pub ended: MeshMicros,
    /// What it has now; see [`Store::set_archived`].
    pub signature: String,
    /// The archive has an earlier state of it.
    pub is_archived: bool,
    /// Its findings are stored, or it never gets any.
    pub has_findings: bool,
}

/// What one look found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunsToArchive {
    /// Oldest first.
    pub due: Vec<RunToArchive>,
    /// All runs that the archive lacks, of which `due` may have a part.
    pub missing: u32,
    /// When the oldest of these ended.
    pub oldest_missing: Option<MeshMicros>,
    /// Where the next look goes on.
    pub compared_until: RunId,
}

impl Store {
    /// Ended runs that were never archived, and some of those that have changed since: the newest, `again`, and a slice
    /// of the others after `compared_until`, which goes round.
    #[boxed]
    #[inline(never)]
    pub async fn runs_to_archive(
        &self,
        compared_until: RunId,
        again: &BTreeSet<RunId>,
    ) -> Result<RunsToArchive, StoreError> {
        let doing = "look for runs to archive";
        let (missing, oldest): (u32, Option<i64>) = sqlx::query_as(sqlx::AssertSqlSafe(format!(
            "SELECT count(*), min(r.ended_us) {MISSING}"
        )))
        .fetch_one(self.reader())
        .await
        .doing(doing)?;
        let slice: Vec<i64> = sqlx::query_scalar(
            "SELECT run_id FROM archived_runs WHERE run_id > ? ORDER BY run_id LIMIT ?",
        )
        .bind(compared_until.0)
        .bind(i64::try_from(SLICE).unwrap_or(i64::MAX))
        .fetch_all(self.reader())
        .await
        .doing(doing)?;
        let again: Vec<i64> = again.iter().map(|run| run.0).collect();
        let named = [again.as_slice(), slice.as_slice()].concat();
        let sql = format!(
            "WITH looked AS (
                 SELECT id FROM (SELECT r.id {MISSING} ORDER BY r.ended_us, r.id LIMIT {MAX_MISSING})
                 UNION SELECT run_id FROM (SELECT run_id FROM archived_runs ORDER BY run_id DESC LIMIT {NEWEST})
                 UNION SELECT value FROM json_each(?))
             SELECT r.id, r.name, r.ended_us, {SIGNATURE}, a.signature,
                 r.imported_from IS NOT NULL OR EXISTS (SELECT 1 FROM findings AS f WHERE f.run_id = r.id)
             FROM looked AS l JOIN runs AS r ON r.id = l.id LEFT JOIN archived_runs AS a ON a.run_id = r.id
             WHERE r.ended_us IS NOT NULL ORDER BY r.ended_us, r.id"
        );
        let rows: Vec<(i64, String, i64, String, Option<String>, bool)> =
            sqlx::query_as(sqlx::AssertSqlSafe(sql))
                .bind(serde_json::to_string(&named).unwrap_or_default())
                .fetch_all(self.reader())
                .await
                .doing(doing)?;
        let changed = rows
            .into_iter()
            .filter(|(_, _, _, signature, archived, _)| archived.as_ref() != Some(signature));
        let due =
            changed.map(
                |(run, name, ended_us, signature, archived, has_findings)| RunToArchive {
                    run: RunId(run),
                    name,
                    ended: MeshMicros(ended_us),
                    signature,
                    is_archived: archived.is_some(),
                    has_findings,
                },
            );
        Ok(RunsToArchive {
            due: due.collect(),
            missing,
            oldest_missing: oldest.map(MeshMicros),
            compared_until: match slice.last() {
                Some(last) if slice.len() == SLICE => RunId(*last),
                _ => RunId(0),
            },
        })
    }

    /// Notes that the archive has a run. `signature` is that from before it was read for the archive, so that a change
    /// meanwhile makes it due again.
    #[boxed]
    #[inline(never)]
    pub async fn set_archived(
        &self,
        run: RunId,
        signature: String,
        at: MeshMicros,
    ) -> Result<(), StoreError> {
        self.note(at);
        self.write((run, signature, at), |(run, signature, at), connection| {
            Box::pin(async move {
                sqlx::query(
                    "INSERT INTO archived_runs (run_id, signature, pushed_us)
                     SELECT r.id, ?2, ?3 FROM runs AS r WHERE r.id = ?1
                     ON CONFLICT (run_id) DO UPDATE SET signature = excluded.signature, pushed_us = excluded.pushed_us",
                )
                .bind(run.0)
                .bind(signature.as_str())
                .bind(at.0)
                .write(connection, "note that a run is archived")
                .await
            })
        })
        .await
    }

    /// Forgets that runs are archived which the archive does not have: it is another one, or an older copy of it. They
    /// are due again.
    #[boxed]
    #[inline(never)]
    pub async fn forget_archived_except(&self, uids: &[String]) -> Result<(), StoreError> {
        const MISSING: &str =
            "SELECT a.run_id FROM archived_runs AS a JOIN runs AS r ON r.id = a.run_id
             WHERE r.uid NOT IN (SELECT value FROM json_each(?))";
        let uids = serde_json::to_string(uids).unwrap_or_default();
        let missing: Option<i64> = sqlx::query_scalar(MISSING)
            .bind(&uids)
            .fetch_optional(self.reader())
            .await
            .doing("compare the archived runs")?;
        if missing.is_none() {
            return Ok(());
        }
        self.write(uids, |uids, connection| {
            Box::pin(async move {
                sqlx::query(sqlx::AssertSqlSafe(format!(
                    "DELETE FROM archived_runs WHERE run_id IN ({MISSING})"
                )))
                .bind(uids.as_str())
                .write(connection, "forget runs that the archive lacks")
                .await
            })
        })
        .await
    }

    /// Whether the last event about the archive says that it failed.
    #[boxed]
    #[inline(never)]
    pub async fn is_archive_failure_told(&self) -> Result<bool, StoreError> {
        let last: Option<String> = sqlx::query_scalar(
            "SELECT kind FROM events WHERE kind IN (?, ?) ORDER BY id DESC LIMIT 1",
        )
        .bind(EventKind::ArchiveFailed.as_str())
        .bind(EventKind::ArchiveWorks.as_str())
        .fetch_optional(self.reader())
        .await
        .doing("read the last event about the archive")?;
        Ok(last.as_deref() == Some(EventKind::ArchiveFailed.as_str()))
    }
}

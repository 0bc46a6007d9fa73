//! Annotations of runs (tags, notes, dated marks, names of baselines), and the search for runs by annotation.

use super::rows::RunRow;
use super::{Doing, Store, StoreError};
use crate::database::WriteRows;
use async_recursion::async_recursion as boxed;
use benchmesh_model::mesh::{MeshMicros, RunId};
use benchmesh_model::text::is_hidden;
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqliteRow;
use sqlx::{QueryBuilder, Row, Sqlite, SqliteConnection};
use std::collections::BTreeMap;

/// Maximum length of a tag's key and of a baseline's name, in bytes.
const MAX_NAME_BYTES: usize = 128;
/// How long after a run's end a mark is accepted: a script that marks its actions may lag a little behind. Hosts are
/// sampled for the same time.
const MARK_AFTER_END_US: i64 = 5_000_000;
/// Maximum length of a tag's value, a note and a mark, in bytes.
const MAX_TEXT_BYTES: usize = 8192;

/// Maximum number of runs in a list.
pub const MAX_LISTED_RUNS: u32 = 1000;

/// One annotation of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Annotation {
    Tag {
        set: BTreeMap<String, String>,
        remove: Vec<String>,
    },
    Note(String),
    /// `at`: `None` means now.
    Mark {
        text: String,
        at: Option<MeshMicros>,
    },
    Baseline(String),
}

/// The run that was annotated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotated {
    pub run_id: RunId,
    pub run: String,
    pub at_us: i64,
    /// Its tags after the change.
    pub tags: BTreeMap<String, String>,
}

/// Why an annotation was not stored.
#[derive(Debug, thiserror::Error)]
pub enum AnnotateError {
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Store(StoreError),
}

/// Filters of the list of runs; an unset filter excludes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RunSearch {
    pub limit: u32,
    pub text: String,
    /// Key, or key and value.
    pub tags: Vec<(String, Option<String>)>,
    pub target: String,
    pub since: Option<MeshMicros>,
    pub until: Option<MeshMicros>,
}

impl RunSearch {
    /// The filter of a tag: `KEY` or `KEY=VALUE`.
    pub fn tag(text: &str) -> (String, Option<String>) {
        match text.split_once('=') {
            Some((key, value)) => (key.to_owned(), Some(value.to_owned())),
            None => (text.to_owned(), None),
        }
    }
}

/// A run in the list of runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RunListed {
    pub run_id: RunId,
    pub uid: String,
    pub run: String,
    pub state: String,
    pub partial: bool,
    /// A stop was requested, but it has not ended.
    pub stopping: bool,
    pub created_us: i64,
    pub started_us: Option<i64>,
    pub ended_us: Option<i64>,
    pub steps: i64,
    pub steps_done: i64,
    pub warnings: i64,
    pub targets: Vec<String>,
    pub tags: BTreeMap<String, String>,
    /// Oldest first.
    pub notes: Vec<String>,
    /// Steps with a validity flag.
    pub steps_flagged: i64,
    /// The tool whose output was imported; `None` for a measured run.
    pub imported_from: Option<String>,
}

const LISTED: &str = "
SELECT r.id, r.uid, r.name, r.state, r.partial, r.stop_reason IS NOT NULL AND r.state IN ('queued', 'running') AS stopping,
       r.created_us, r.started_us, r.ended_us, r.imported_from, v.steps, v.steps_done, v.warnings,
       (SELECT json_group_array(DISTINCT s.target) FROM steps AS s WHERE s.run_id = r.id AND s.target <> '') AS targets,
       (SELECT json_group_object(t.key, t.value) FROM run_tags AS t WHERE t.run_id = r.id) AS tags,
       (SELECT json_group_array(n.text) FROM (SELECT text FROM run_notes WHERE run_id = r.id ORDER BY id) AS n) AS notes,
       (SELECT count(*) FROM steps AS s WHERE s.run_id = r.id AND s.flags <> '[]'
           AND s.attempt = (SELECT max(n.attempt) FROM steps AS n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal))
           AS steps_flagged
FROM runs AS r JOIN v_runs AS v ON v.run_id = r.id WHERE 1";

impl Store {
    /// Annotates the run named by `wanted`. If it is empty, the running run is used, otherwise the newest.
    #[boxed]
    #[inline(never)]
    pub async fn annotate(
        &self,
        wanted: &str,
        annotation: Annotation,
        now: MeshMicros,
    ) -> Result<Annotated, AnnotateError> {
        check(&annotation)?;
        let run = match wanted {
            "" | "last" => self.running_or_newest().await,
            wanted => self.find_run(wanted).await,
        };
        let run = run.map_err(AnnotateError::Store)?;
        let mut at = now;
        if let Annotation::Mark {
            at: Some(wished), ..
        } = &annotation
        {
            at = *wished;
            if at < run.created || at > now {
                return Err(AnnotateError::Wrong(format!(
                    "{} is not within the run: the run was queued at {}, and the time is now {}",
                    benchmesh_workloads::figures::instant(at.0),
                    benchmesh_workloads::figures::instant(run.created.0),
                    benchmesh_workloads::figures::instant(now.0)
                )));
            }
        }
        if let (Annotation::Mark { .. }, Some(ended)) = (&annotation, run.ended)
            && at.0 > ended.0.saturating_add(MARK_AFTER_END_US)
        {
            return Err(AnnotateError::Wrong(format!(
                "run {} ended at {}: a mark must be within its time line (`--at` sets its time; `note` takes any text)",
                run.id,
                benchmesh_workloads::figures::instant(ended.0)
            )));
        }
        self.note(at);
        self.write(
            (run.id, annotation, at),
            |(run, annotation, at), connection| Box::pin(keep(*run, annotation, *at, connection)),
        )
        .await
        .map_err(AnnotateError::Store)?;
        let tags = self.tags(run.id).await.map_err(AnnotateError::Store)?;
        Ok(Annotated {
            run_id: run.id,
            run: run.name,
            at_us: at.0,
            tags,
        })
    }

    async fn tags(&self, run: RunId) -> Result<BTreeMap<String, String>, StoreError> {
        let tags: Vec<(String, String)> =
            sqlx::query_as("SELECT key, value FROM run_tags WHERE run_id = ?")
                .bind(run.0)
                .fetch_all(self.reader())
                .await
                .doing("read the tags of a run")?;
        Ok(tags.into_iter().collect())
    }

    /// The run that is under way, otherwise the newest.
    pub async fn running_or_newest(&self) -> Result<RunRow, StoreError> {
        let running =
            sqlx::query_as("SELECT * FROM runs WHERE state = 'running' ORDER BY id DESC LIMIT 1")
                .fetch_optional(self.reader())
                .await
                .doing("look for the run that is under way")?;
        match running {
            Some(run) => Ok(run),
            None => self.find_run("").await,
        }
    }

    /// Newest runs first.
    #[boxed]
    #[inline(never)]
    pub async fn search_runs(&self, search: &RunSearch) -> Result<Vec<RunListed>, StoreError> {
        const DOING: &str = "search the runs";
        let mut connection = self.reader().acquire().await.doing(DOING)?;
        search_runs(&mut connection, search).await.doing(DOING)
    }
}

/// Newest runs first.
#[boxed]
#[inline(never)]
pub async fn search_runs(
    connection: &mut SqliteConnection,
    search: &RunSearch,
) -> Result<Vec<RunListed>, sqlx::Error> {
    let mut sql = searching(search);
    sql.build().try_map(listed).fetch_all(connection).await
}

fn listed(row: SqliteRow) -> Result<RunListed, sqlx::Error> {
    Ok(RunListed {
        run_id: RunId(row.try_get("id")?),
        uid: row.try_get("uid")?,
        run: row.try_get("name")?,
        state: row.try_get("state")?,
        partial: row.try_get("partial")?,
        stopping: row.try_get("stopping")?,
        created_us: row.try_get("created_us")?,
        started_us: row.try_get("started_us")?,
        ended_us: row.try_get("ended_us")?,
        steps: row.try_get("steps")?,
        steps_done: row.try_get("steps_done")?,
        warnings: row.try_get("warnings")?,
        targets: serde_json::from_str(row.try_get("targets")?).unwrap_or_default(),
        tags: serde_json::from_str(row.try_get("tags")?).unwrap_or_default(),
        notes: serde_json::from_str(row.try_get("notes")?).unwrap_or_default(),
        steps_flagged: row.try_get("steps_flagged")?,
        imported_from: row.try_get("imported_from")?,
    })
}

fn searching(search: &RunSearch) -> QueryBuilder<Sqlite> {
    let mut sql = QueryBuilder::new(LISTED);
    if !search.text.is_empty() {
        let like = format!(
            "%{}%",
            search
                .text
                .replace('\\', "\\\\")
                .replace('%', "\\%")
                .replace('_', "\\_")
        );
        sql.push(" AND (r.name LIKE ")
            .push_bind(like.clone())
            .push(" ESCAPE '\\' OR EXISTS (SELECT 1 FROM run_notes AS n WHERE n.run_id = r.id AND n.text LIKE ")
            .push_bind(like.clone())
            .push(" ESCAPE '\\') OR EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id AND t.value LIKE ")
            .push_bind(like)
            .push(" ESCAPE '\\'))");
    }
    for (key, value) in &search.tags {
        sql.push(" AND EXISTS (SELECT 1 FROM run_tags AS t WHERE t.run_id = r.id AND t.key = ")
            .push_bind(key.clone());
        if let Some(value) = value {
            sql.push(" AND t.value = ").push_bind(value.clone());
        }
        sql.push(")");
    }
    if !search.target.is_empty() {
        sql.push(" AND EXISTS (SELECT 1 FROM steps AS s WHERE s.run_id = r.id AND (s.target = ")
            .push_bind(search.target.clone())
            .push(" OR s.system = ")
            .push_bind(search.target.clone())
            .push("))");
    }
    if let Some(since) = search.since {
        sql.push(" AND r.created_us >= ").push_bind(since.0);
    }
    if let Some(until) = search.until {
        sql.push(" AND r.created_us < ").push_bind(until.0);
    }
    sql.push(" ORDER BY r.id DESC LIMIT ")
        .push_bind(search.limit.min(MAX_LISTED_RUNS));
    sql
}

fn check(annotation: &Annotation) -> Result<(), AnnotateError> {
    let wrong = |why: String| Err(AnnotateError::Wrong(why));
    let name = |what: &str, name: &str| match name {
        "" => wrong(format!("{what} is empty")),
        name if name.len() > MAX_NAME_BYTES => {
            wrong(format!("{what} is longer than {MAX_NAME_BYTES} bytes"))
        }
        name if name.contains('=') || name.chars().any(is_hidden) => wrong(format!(
            "{what} {name:?} contains a = or a control character"
        )),
        _ => Ok(()),
    };
    let text = |what: &str, text: &str| match text.len() > MAX_TEXT_BYTES {
        true => wrong(format!("{what} is longer than {MAX_TEXT_BYTES} bytes")),
        false => Ok(()),
    };
    match annotation {
        Annotation::Tag { set, remove } => {
            if set.is_empty() && remove.is_empty() {
                return wrong(String::from("the request names no tag"));
            }
            for (key, value) in set {
                name("the key of a tag", key)?;
                text("the value of a tag", value)?;
            }
            Ok(())
        }
        Annotation::Baseline(baseline) => name("the name of a baseline", baseline),
        Annotation::Note(said) | Annotation::Mark { text: said, .. } => {
            if said.trim().is_empty() {
                return wrong(String::from("the text is empty"));
            }
            text("the text", said)
        }
    }
}

async fn keep(
    run: RunId,
    annotation: &Annotation,
    at: MeshMicros,
    connection: &mut SqliteConnection,
) -> Result<(), StoreError> {
    const DOING: &str = "store an annotation of a run";
    match annotation {
        Annotation::Tag { set, remove } => {
            for key in remove {
                sqlx::query("DELETE FROM run_tags WHERE run_id = ? AND key = ?")
                    .bind(run.0)
                    .bind(key)
                    .write(connection, DOING)
                    .await?;
            }
            for (key, value) in set {
                sqlx::query(
                    "INSERT OR REPLACE INTO run_tags (run_id, key, value) VALUES (?, ?, ?)",
                )
                .bind(run.0)
                .bind(key)
                .bind(value)
                .write(connection, DOING)
                .await?;
            }
            return Ok(());
        }
        Annotation::Note(text) => {
            sqlx::query("INSERT INTO run_notes (run_id, at_us, text) VALUES (?, ?, ?)")
                .bind(run.0)
                .bind(at.0)
                .bind(text)
        }
        Annotation::Mark { text, .. } => {
            sqlx::query("INSERT INTO marks (run_id, at_us, text) VALUES (?, ?, ?)")
                .bind(run.0)
                .bind(at.0)
                .bind(text)
        }
        Annotation::Baseline(name) => sqlx::query(
            "INSERT OR REPLACE INTO baselines (name, run_id, saved_us) VALUES (?, ?, ?)",
        )
        .bind(name)
        .bind(run.0)
        .bind(at.0),
    }
    .write(connection, DOING)
    .await
}

//! Which runs an archive has: searched for people, and found by the words by which a person names one.

use super::connect::within;
use super::{Archive, ArchiveError};
use serde::Serialize;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, QueryBuilder, Row};
use std::collections::BTreeMap;

/// What an archived run must have; empty texts and lists ask for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunQuery {
    pub limit: u32,
    /// In its name, a note or the value of a tag.
    pub text: String,
    /// Its whole name.
    pub name: String,
    /// Key, or key and value.
    pub tags: Vec<(String, Option<String>)>,
    /// The name of a target or of its system.
    pub target: String,
    pub site: String,
    /// The beginning of the version of benchmesh, of a daemon, or of a package of a measured system.
    pub version: String,
    pub since_us: Option<i64>,
    pub until_us: Option<i64>,
}

/// A run of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchivedRun {
    pub site: String,
    pub uid: String,
    /// Its id in the database of its collector.
    pub run_id: i64,
    pub run: String,
    pub state: String,
    pub partial: bool,
    pub created_us: i64,
    pub started_us: Option<i64>,
    pub ended_us: Option<i64>,
    pub version: String,
    pub steps: i64,
    pub steps_done: i64,
    pub targets: Vec<String>,
    pub tags: BTreeMap<String, String>,
    /// Oldest first.
    pub notes: Vec<String>,
    pub rows: i64,
    pub pushed_us: i64,
}

const LISTED: &str = "
SELECT r.site, r.run_uid, r.id, r.name, r.state, r.partial, r.created_us, r.started_us, r.ended_us, r.version,
       p.rows, (extract(epoch FROM p.pushed_at) * 1000000)::bigint AS pushed_us, s.steps, s.steps_done, s.targets,
       (SELECT coalesce(json_object_agg(t.key, t.value), '{}')::text FROM benchmesh.run_tags AS t
        WHERE t.site = r.site AND t.run_uid = r.run_uid) AS tags,
       (SELECT coalesce(json_agg(n.text ORDER BY n.id), '[]')::text FROM benchmesh.run_notes AS n
        WHERE n.site = r.site AND n.run_uid = r.run_uid) AS notes
FROM benchmesh.runs AS r
JOIN benchmesh.pushes AS p ON p.site = r.site AND p.run_uid = r.run_uid
CROSS JOIN LATERAL (
    SELECT count(*) AS steps, count(*) FILTER (WHERE a.state = 'done') AS steps_done,
           coalesce(json_agg(DISTINCT a.target) FILTER (WHERE a.target IS NOT NULL), '[]')::text AS targets
    FROM (SELECT DISTINCT ON (m.ordinal) m.state, m.target FROM benchmesh.steps AS m
          WHERE m.site = r.site AND m.run_uid = r.run_uid ORDER BY m.ordinal, m.attempt DESC) AS a) AS s
WHERE true";

impl Archive {
    /// Newest first.
    pub async fn runs(&mut self, query: &RunQuery) -> Result<Vec<ArchivedRun>, ArchiveError> {
        let mut sql = searching(query);
        let found = sql
            .build()
            .try_map(|row: PgRow| listed(&row))
            .fetch_all(&mut self.connection);
        within(
            &self.server,
            self.answer,
            "search the archive's runs",
            found,
        )
        .await
    }

    /// The run that a person names: `SITE:RUN` or `RUN`, which is a uid, an id or a name (the newest of that name).
    pub async fn find(&mut self, wanted: &str) -> Result<ArchivedRun, ArchiveError> {
        let finding = find(&mut self.connection, wanted);
        let found = within(&self.server, self.answer, "look for a run", finding).await?;
        let wrong = |why: String| Err(ArchiveError::Wrong(format!("{}: {why}", self.server)));
        let sites: Vec<&str> = found.iter().map(|run| run.site.as_str()).collect();
        match found.as_slice() {
            [] => wrong(format!(
                "there is no run {wanted:?}; `benchmesh archive runs` lists them"
            )),
            [one] => Ok(one.clone()),
            [one, other, ..] if one.site == other.site => wrong(format!(
                "site {} has several runs {wanted:?}, of different databases; name one by its uid: {}",
                one.site,
                found
                    .iter()
                    .map(|run| run.uid.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            )),
            _ => wrong(format!(
                "several sites have a run {wanted:?}; name one as SITE:RUN: {}",
                sites.join(", ")
            )),
        }
    }
}

/// The runs of each site that the words name best: by uid, by id, or the newest of a name. Of an id there are several where
/// a database has taken the place of another one.
async fn find(
    connection: &mut PgConnection,
    wanted: &str,
) -> Result<Vec<ArchivedRun>, sqlx::Error> {
    let (site, run) = match wanted.split_once(':') {
        Some((site, run)) => (Some(site), run),
        None => (None, wanted),
    };
    let keys: Vec<(String, String)> = sqlx::query_as(
        "SELECT site, run_uid FROM (
             SELECT r.site, r.run_uid, r.id, named.how, rank() OVER (PARTITION BY r.site ORDER BY named.how,
                 CASE named.how WHEN 3 THEN -r.created_us END) AS place
             FROM benchmesh.runs AS r
             CROSS JOIN LATERAL (SELECT CASE $1 WHEN r.run_uid THEN 1 WHEN r.id::text THEN 2 WHEN r.name THEN 3 END) AS named (how)
             WHERE named.how IS NOT NULL AND ($2::text IS NULL OR r.site = $2)) AS ranked
         WHERE place = 1 ORDER BY site, run_uid",
    )
    .bind(run)
    .bind(site)
    .fetch_all(&mut *connection)
    .await?;
    let mut runs = Vec::with_capacity(keys.len());
    for (site, uid) in keys {
        let mut sql = QueryBuilder::<Postgres>::new(LISTED);
        sql.push(" AND r.site = ").push_bind(site);
        sql.push(" AND r.run_uid = ").push_bind(uid);
        let found = sql.build().try_map(|row: PgRow| listed(&row));
        runs.extend(found.fetch_optional(&mut *connection).await?);
    }
    Ok(runs)
}

fn listed(row: &PgRow) -> Result<ArchivedRun, sqlx::Error> {
    let json = |column: &str| row.try_get::<String, _>(column);
    Ok(ArchivedRun {
        site: row.try_get("site")?,
        uid: row.try_get("run_uid")?,
        run_id: row.try_get("id")?,
        run: row.try_get("name")?,
        state: row.try_get("state")?,
        partial: row.try_get::<i64, _>("partial")? != 0,
        created_us: row.try_get("created_us")?,
        started_us: row.try_get("started_us")?,
        ended_us: row.try_get("ended_us")?,
        version: row.try_get("version")?,
        steps: row.try_get("steps")?,
        steps_done: row.try_get("steps_done")?,
        targets: serde_json::from_str(&json("targets")?).unwrap_or_default(),
        tags: serde_json::from_str(&json("tags")?).unwrap_or_default(),
        notes: serde_json::from_str(&json("notes")?).unwrap_or_default(),
        rows: row.try_get("rows")?,
        pushed_us: row.try_get("pushed_us")?,
    })
}

const PACKAGES: &str = "jsonb_each_text(x.packages::jsonb) AS p";

/// Of a run's own rows in another table: `FROM benchmesh.TABLE AS x WHERE ...`.
fn of_run(table: &str) -> String {
    format!("FROM benchmesh.{table} AS x WHERE x.site = r.site AND x.run_uid = r.run_uid")
}

fn searching(query: &RunQuery) -> QueryBuilder<Postgres> {
    let mut sql = QueryBuilder::new(LISTED);
    if !query.text.is_empty() {
        let like = format!("%{}%", literally(&query.text));
        sql.push(" AND (r.name ILIKE ").push_bind(like.clone());
        sql.push(format!(
            " OR EXISTS (SELECT 1 {} AND x.text ILIKE ",
            of_run("run_notes")
        ))
        .push_bind(like.clone());
        sql.push(format!(
            ") OR EXISTS (SELECT 1 {} AND x.value ILIKE ",
            of_run("run_tags")
        ))
        .push_bind(like)
        .push("))");
    }
    for (column, value) in [("r.name", &query.name), ("r.site", &query.site)] {
        if !value.is_empty() {
            sql.push(format!(" AND {column} = "))
                .push_bind(value.clone());
        }
    }
    for (key, value) in &query.tags {
        sql.push(format!(
            " AND EXISTS (SELECT 1 {} AND x.key = ",
            of_run("run_tags")
        ))
        .push_bind(key.clone());
        if let Some(value) = value {
            sql.push(" AND x.value = ").push_bind(value.clone());
        }
        sql.push(")");
    }
    if !query.target.is_empty() {
        sql.push(format!(
            " AND EXISTS (SELECT 1 {} AND (x.target = ",
            of_run("steps")
        ))
        .push_bind(query.target.clone())
        .push(" OR x.system = ")
        .push_bind(query.target.clone())
        .push("))");
    }
    if !query.version.is_empty() {
        let like = format!("{}%", literally(&query.version));
        sql.push(" AND (r.version LIKE ").push_bind(like.clone());
        sql.push(format!(
            " OR EXISTS (SELECT 1 {} AND x.version LIKE ",
            of_run("daemons")
        ))
        .push_bind(like.clone());
        sql.push(format!(
            ") OR EXISTS (SELECT 1 {} AND EXISTS (SELECT 1 FROM {PACKAGES} WHERE p.value LIKE ",
            of_run("run_targets")
        ))
        .push_bind(like)
        .push(")))");
    }
    for (operator, at) in [(">=", query.since_us), ("<", query.until_us)] {
        if let Some(at) = at {
            sql.push(format!(" AND r.created_us {operator} "))
                .push_bind(at);
        }
    }
    sql.push(" ORDER BY r.created_us DESC, r.site, r.id DESC LIMIT ")
        .push_bind(i64::from(query.limit));
    sql
}

/// For LIKE.
fn literally(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('%', "\\%")
        .replace('_', "\\_")
}

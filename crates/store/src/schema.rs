//! The schema of a database: the tables of `schema.sql` and the views of `views.sql`, with a column of `v_results` for
//! each row of the table of flags, a column of `v_daemon_usage` for each figure of daemons that is stored per step and
//! has a word, the operations that are no work, and the lengths of a second and of its edges. All names `v_*` are
//! reserved for these views.
//!
//! A new file gets all of it in one transaction. `PRAGMA user_version` is a checksum of the text: a file with another
//! one is refused, for reading and for writing, and stays as it is. An opening of a file with this schema changes
//! nothing. No version was released, so there are no migrations. From the first release on, a change of the text
//! increments [`NUMBER`], and an opening for writing migrates a file with the former number.

use crate::database::StoreError;
use benchmesh_model::figures::{DaemonFigures, Figures};
use benchmesh_results::grid::SLACK_US;
use benchmesh_results::seconds::MIN_SECOND_US;
use benchmesh_results::usage::MIN_SPAN_US;
use benchmesh_results::{Flag, PERIOD_US};
use benchmesh_workloads::op::Op;
use rusqlite::OptionalExtension;
use sqlx::{AssertSqlSafe, Connection, Row, SqliteConnection};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::sync::LazyLock;

/// The number of this schema (`meta.schema`).
pub(super) const NUMBER: i64 = 1;
/// `PRAGMA application_id` of our databases: the letters "bmsh".
const APPLICATION_ID: i64 = 0x626d_7368;

const TABLES: &str = include_str!("../schema.sql");
const VIEWS: &str = include_str!("../views.sql");
const FLAG_COLUMNS: &str = "/* a column for each flag */";
const FIGURE_COLUMNS: &str = "/* a column for each figure of a step's daemon */";

const OBSERVED_OPS: &str = "/* observed operations */";
const OF_RUN: &str = "/* IS_OF_RUN */";
const OF_STEPS: &str = "/* STEP_LOADS */";

/// SQL: the work of each step with results, in its newest attempt, that the costs of daemons are divided by.
const STEP_LOADS: &str = "
    SELECT n.run_id,
           n.id AS step_id,
           n.phase,
           n.target,
           n.system,
           n.mode,
           n.flags,
           (SELECT count(*) FROM step_groups AS g WHERE g.step_id = n.id) AS load_groups,
           instr(n.flags, '\"no-overlap\"') > 0 AS no_overlap,
           (SELECT sum(o.ops) FROM step_results AS o
               WHERE o.step_id = n.id AND o.op NOT IN (/* observed operations */)) AS ops,
           (SELECT sum(o.bytes) FROM step_results AS o
               WHERE o.step_id = n.id AND o.op NOT IN (/* observed operations */)) AS bytes
    FROM steps AS n
    WHERE n.attempt = (SELECT max(m.attempt) FROM steps AS m WHERE m.run_id = n.run_id AND m.ordinal = n.ordinal)
      AND EXISTS (SELECT 1 FROM step_results AS o WHERE o.step_id = n.id)
    ";

/// SQL: the event `e` is of the run `r`, and not of a daemon that serves none of its targets and is only on one of its
/// hosts. A daemon without a measured step may serve any. The host is the agent's in that run, not today's.
pub const IS_OF_RUN: &str = "NOT (e.kind LIKE 'daemon-%' AND EXISTS (
    SELECT 1 FROM daemons AS ed
    CROSS JOIN step_daemons AS eu ON eu.daemon_id = ed.id
    CROSS JOIN steps AS es ON es.id = eu.step_id AND es.run_id = r.id
    WHERE ed.host_id = coalesce(
            (SELECT x.host_id FROM run_agents AS x WHERE x.run_id = r.id AND x.agent_id = e.agent_id),
            (SELECT x.host_id FROM agents AS x WHERE x.id = e.agent_id))
        AND ed.pid = CAST(e.detail ->> 'pid' AS INTEGER)
        AND ed.start_ticks = CAST(e.detail ->> 'start_ticks' AS INTEGER)
    GROUP BY es.run_id HAVING max(coalesce(eu.serves_target, 1)) = 0))";

static TEXT: LazyLock<String> = LazyLock::new(text);
static CHECKSUM: LazyLock<i64> =
    LazyLock::new(|| i64::from(crc32fast::hash(TEXT.as_bytes()).cast_signed()));

fn text() -> String {
    let mut columns = String::new();
    for row in Flag::ROWS {
        let (name, column) = (row.name, row.column());
        let _ = write!(
            columns,
            ",\n       instr(s.flags, '\"{name}\"') > 0 AS {column}"
        );
    }
    let mut figures = String::new();
    for figure in DaemonFigures::ALL {
        if let Some((column, divisor)) = figure.column_of_step() {
            let _ = write!(figures, ",\n       u.{}", figure.name);
            if let Some(divisor) = divisor {
                let _ = write!(figures, " / {divisor}");
            }
            let _ = write!(figures, " AS {column}");
        }
    }
    let views = VIEWS
        .replace(FLAG_COLUMNS, &columns)
        .replace(FIGURE_COLUMNS, &figures)
        .replace("MIN_SECOND_US", &MIN_SECOND_US.to_string())
        .replace("MIN_SPAN_US", &MIN_SPAN_US.to_string())
        .replace("GRID_PERIOD_US", &PERIOD_US.to_string())
        .replace("GRID_SLACK_US", &SLACK_US.to_string())
        .replace(OF_STEPS, STEP_LOADS)
        .replace(OBSERVED_OPS, &observed_ops())
        .replace(OF_RUN, IS_OF_RUN);
    format!("{TABLES}\n{views}")
}

/// A view of this schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    pub name: String,
    /// The statement that gives its rows.
    pub select: String,
}

/// All views, in the order of `views.sql`, for an engine that has the same tables.
pub fn views() -> Vec<View> {
    let views = TEXT.split("CREATE VIEW ").skip(1);
    views
        .filter_map(|view| {
            let (name, rest) = view.split_once(" AS\n")?;
            let (select, _) = rest.split_once(";\n").or_else(|| rest.split_once(';'))?;
            Some(View {
                name: name.to_owned(),
                select: select.to_owned(),
            })
        })
        .collect()
}

/// SQL: the names of the operations that are no work of a load, for `NOT IN`.
pub(super) fn observed_ops() -> String {
    let names: Vec<String> = Op::observed().map(|op| format!("'{op}'")).collect();
    names.join(", ")
}

/// Makes everything in an empty file.
pub(super) async fn create(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = writer.begin().await?;
    let script = format!(
        "{}\nPRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {};",
        *TEXT, *CHECKSUM
    );
    sqlx::raw_sql(AssertSqlSafe(script))
        .execute(&mut *transaction)
        .await?;
    sqlx::query(
        "INSERT INTO meta (id, mesh_uid, created_us, version, schema)
         VALUES (1, ?, CAST(unixepoch('subsec') * 1e6 AS INTEGER), ?, ?)",
    )
    .bind(uuid::Uuid::new_v4().to_string())
    .bind(env!("CARGO_PKG_VERSION"))
    .bind(NUMBER)
    .execute(&mut *transaction)
    .await?;
    transaction.commit().await
}

/// Kind of a file that is opened as a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A database of this schema.
    Ours,
    /// A database without tables, of no program.
    Empty,
    /// A database of another program.
    Foreign,
}

/// Application id, checksum, and the number of objects.
const HEADER: &str = "SELECT a.application_id, u.user_version, (SELECT count(*) FROM sqlite_schema)
     FROM pragma_application_id AS a, pragma_user_version AS u";
/// All columns, because a file may lack one.
const ORIGIN: &str = "SELECT * FROM meta";

/// `None` for a database of ours with another schema.
fn kind((application_id, checksum, objects): (i64, i64, i64)) -> Option<FileKind> {
    match application_id {
        APPLICATION_ID => (checksum == *CHECKSUM).then_some(FileKind::Ours),
        0 if objects == 0 => Some(FileKind::Empty),
        _ => Some(FileKind::Foreign),
    }
}

/// A file of ours with another schema. Those from before the first release have no number.
fn refusal(path: &Path, number: Option<i64>, version: Option<String>) -> StoreError {
    let path = path.to_owned();
    match number {
        Some(found) if found > NUMBER => StoreError::NewerSchema {
            path,
            found,
            known: NUMBER,
        },
        _ => StoreError::OtherSchema {
            path,
            version: version.unwrap_or_default(),
        },
    }
}

/// Tells what the file is. The inner error refuses another schema.
pub async fn check(
    path: &Path,
    connection: &mut SqliteConnection,
) -> Result<Result<FileKind, StoreError>, sqlx::Error> {
    let header = sqlx::query_as(HEADER).fetch_one(&mut *connection).await?;
    if let Some(kind) = kind(header) {
        return Ok(Ok(kind));
    }
    let origin = sqlx::query(ORIGIN).fetch_optional(connection).await;
    let origin = origin.ok().flatten();
    let number = origin.as_ref().and_then(|row| row.try_get("schema").ok());
    let version = origin.as_ref().and_then(|row| row.try_get("version").ok());
    Ok(Err(refusal(path, number, version)))
}

/// Like [`check`], for a rusqlite connection.
pub(super) fn check_directly(
    path: &Path,
    connection: &rusqlite::Connection,
) -> rusqlite::Result<Result<FileKind, StoreError>> {
    let header = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let header = connection.query_row(HEADER, [], header)?;
    if let Some(kind) = kind(header) {
        return Ok(Ok(kind));
    }
    let origin = |row: &rusqlite::Row<'_>| Ok((row.get("schema").ok(), row.get("version").ok()));
    let origin = connection.query_row(ORIGIN, [], origin).optional();
    let (number, version) = origin.ok().flatten().unwrap_or_default();
    Ok(Err(refusal(path, number, version)))
}

/// An object by which a file differs from this schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// `table`, `view`, `index` or `trigger`.
    pub kind: String,
    pub name: String,
    what: &'static str,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the {} {:?} {}", self.kind, self.name, self.what)
    }
}

/// How a file differs from this schema: objects that are missing or altered, and triggers, of which it has none.
/// Tables, views and indexes of other names are allowed.
pub fn differences(file: &rusqlite::Connection) -> rusqlite::Result<Vec<Difference>> {
    let (ours, theirs) = (objects(&empty()?)?, objects(file)?);
    let altered = ours.iter().filter_map(|(key, sql)| match theirs.get(key) {
        None => Some((key, "is missing")),
        Some(text) if text != sql => Some((key, "is not as benchmesh makes it")),
        Some(_) => None,
    });
    let triggers = theirs.keys().filter(|(kind, _)| kind == "trigger");
    let found = altered.chain(triggers.map(|key| (key, "is not benchmesh's")));
    let found = found.map(|((kind, name), what)| Difference {
        kind: kind.clone(),
        name: name.clone(),
        what,
    });
    Ok(found.collect())
}

/// The names of all tables, then of all views, in the order in which rows refer to each other.
pub fn tables_and_views() -> rusqlite::Result<Vec<String>> {
    let empty = empty()?;
    let mut names = empty.prepare(
        "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
         ORDER BY type, rowid",
    )?;
    let names = names.query_map([], |row| row.get(0))?;
    names.collect()
}

/// A database in memory with this schema and without rows.
pub fn empty() -> rusqlite::Result<rusqlite::Connection> {
    let connection = rusqlite::Connection::open_in_memory()?;
    connection.execute_batch(&TEXT)?;
    Ok(connection)
}

/// The SQL of each object by its kind and name, except those that SQLite makes.
fn objects(
    connection: &rusqlite::Connection,
) -> rusqlite::Result<BTreeMap<(String, String), String>> {
    let mut rows = connection.prepare(
        "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
    )?;
    let rows = rows.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    rows.collect()
}

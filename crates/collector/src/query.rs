//! Answers SQL from the database, and does nothing else to it, whatever the SQL is.
//!
//! Each query has its own connection, read-only and guarded ([`guard`]), its own thread (sqlx's) and a time limit, so
//! that no query holds up the writer, another query or the runtime. Rows are handed out in small batches over a bounded
//! channel: an answer of any size takes constant memory, and a receiver that goes away ends the query.

mod file;
mod guard;

pub(crate) use file::ReadOnly;
pub use file::seal;

use futures::TryStreamExt;
use sqlx::sqlite::SqliteRow;
use sqlx::{
    Column, Decode, Executor, Row as _, SqlSafeStr, Sqlite, SqliteConnection, Statement, TypeInfo,
    ValueRef,
};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Rows in one batch: enough to amortise the hop between threads, few enough to show the first ones at once.
const ROWS_PER_BATCH: usize = 256;

/// Batches that wait for the receiver. A full channel holds the query back; its time goes on.
const BATCHES_AHEAD: usize = 2;

/// A batch is handed on before it has [`ROWS_PER_BATCH`] rows when its values take this many bytes.
const BYTES_PER_BATCH: usize = 512 << 10;

/// SQLite instructions between two looks at the clock: about 0.1 ms.
const INSTRUCTIONS_PER_LOOK: i32 = 20_000;

/// One value of a row, as SQLite stores it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A 64 bit integer.
    Integer(i64),
    /// A double.
    Real(f64),
    /// Text. Bytes that are not UTF-8 are replaced.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl Value {
    fn size(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Blob(bytes) => bytes.len(),
            Self::Null | Self::Integer(_) | Self::Real(_) => 8,
        }
    }
}

/// The values of one row, one per column.
pub type Row = Vec<Value>;

/// Why a query has no answer, or no whole one.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// There is no such file.
    #[error("there is no database at {}", path.display())]
    NoFile {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// It is a directory.
    #[error("{} is a directory; give the path of a file in it, such as {}/benchmesh.db", path.display(), path.display())]
    IsDirectory {
        /// What was given.
        path: PathBuf,
    },
    /// The file is there and SQLite cannot read it.
    #[error("{} cannot be read as a benchmesh database", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        #[source]
        source: sqlx::Error,
    },
    /// The statement would change, attach or configure something.
    #[error("only reading is allowed: the statement would change, attach or configure something")]
    NotReading,
    /// Text after the first statement.
    #[error("one statement at a time: the text holds several")]
    SeveralStatements,
    /// Nothing but blanks and comments.
    #[error("the text holds no statement")]
    NoStatement,
    /// SQLite does not understand the statement.
    #[error(
        "{message}{}{}",
        place.as_ref().map(|place| format!("\n  {}", place.replace('\n', "\n  "))).unwrap_or_default(),
        help(message)
    )]
    Sql {
        /// What SQLite says.
        message: String,
        /// The line and a caret beneath the fault.
        place: Option<String>,
    },
    /// The query took longer than it may.
    #[error("stopped after {} s: the query takes longer than allowed", limit.as_secs_f64())]
    TimeLimit {
        /// What is allowed.
        limit: Duration,
    },
    /// It failed on the way.
    #[error("the query failed")]
    Failed {
        /// What SQLite says.
        #[source]
        source: sqlx::Error,
    },
}

/// An answer on its way.
#[derive(Debug)]
pub struct Answer {
    /// The names of the columns; known even when no row comes.
    pub columns: Vec<String>,
    /// Batches of rows, to the end or to the first error. Dropping it ends the query.
    pub rows: mpsc::Receiver<Result<Vec<Row>, QueryError>>,
}

impl Answer {
    /// Ends the query, however far it is, and returns once its file is closed.
    pub async fn end(mut self) {
        self.rows.close();
        while self.rows.recv().await.is_some() {}
    }
}

/// Begins to answer `sql` from the database at `path`, for at most `limit`.
///
/// The file is never created or changed. Works beside a collector that writes to the same file.
pub async fn run(path: &Path, sql: &str, limit: Duration) -> Result<Answer, QueryError> {
    let mut file = ReadOnly::open(path).await?;
    let out_of_time = Arc::new(AtomicBool::new(false));
    let verdict = {
        let out_of_time = Arc::clone(&out_of_time);
        move |source: sqlx::Error| {
            if out_of_time.load(Ordering::Relaxed) {
                QueryError::TimeLimit { limit }
            } else {
                understand(source)
            }
        }
    };
    let deadline = Instant::now() + limit;
    let columns = match begin(&mut file.connection, sql, deadline, out_of_time, &verdict).await {
        Ok(columns) => columns,
        Err(error) => {
            file.close().await;
            return Err(error);
        }
    };
    let (to_receiver, rows) = mpsc::channel(BATCHES_AHEAD);
    let sql = sql.to_owned();
    tokio::spawn(async move {
        let sent = send_rows(&mut file.connection, sql, &to_receiver, verdict);
        // A receiver that does not take its rows holds a snapshot, which the WAL cannot be folded in past.
        let sent = tokio::time::timeout_at(deadline.into(), sent).await;
        let sent = sent.unwrap_or(Err(QueryError::TimeLimit { limit }));
        file.close().await;
        if let Err(error) = sent {
            // A receiver that is gone wants no error either.
            let _ = to_receiver.send(Err(error)).await;
        }
    });
    Ok(Answer { columns, rows })
}

/// Guards the connection, checks the statement, and tells its columns.
async fn begin(
    connection: &mut SqliteConnection,
    sql: &str,
    deadline: Instant,
    out_of_time: Arc<AtomicBool>,
    verdict: &impl Fn(sqlx::Error) -> QueryError,
) -> Result<Vec<String>, QueryError> {
    {
        let mut handle = connection
            .lock_handle()
            .await
            .map_err(|source| QueryError::Failed { source })?;
        guard::install(&mut handle);
        handle.set_progress_handler(INSTRUCTIONS_PER_LOOK, move || {
            let go_on = Instant::now() < deadline;
            if !go_on {
                out_of_time.store(true, Ordering::Relaxed);
            }
            go_on
        });
        guard::inspect(&mut handle, sql)?;
    }
    let statement = connection
        .prepare(sqlx::AssertSqlSafe(sql.to_owned()).into_sql_str())
        .await
        .map_err(verdict)?;
    let columns = statement
        .columns()
        .iter()
        .map(|column| column.name().to_owned());
    Ok(columns.collect())
}

async fn send_rows(
    connection: &mut SqliteConnection,
    sql: String,
    to_receiver: &mpsc::Sender<Result<Vec<Row>, QueryError>>,
    verdict: impl Fn(sqlx::Error) -> QueryError,
) -> Result<(), QueryError> {
    let mut stream = connection.fetch(sqlx::query(sqlx::AssertSqlSafe(sql)));
    let mut batch = Vec::new();
    let mut bytes = 0;
    while let Some(row) = stream.try_next().await.map_err(&verdict)? {
        let row = values(&row).map_err(&verdict)?;
        bytes += row.iter().map(Value::size).sum::<usize>();
        batch.push(row);
        if batch.len() >= ROWS_PER_BATCH || bytes >= BYTES_PER_BATCH {
            bytes = 0;
            if to_receiver
                .send(Ok(std::mem::take(&mut batch)))
                .await
                .is_err()
            {
                return Ok(());
            }
        }
    }
    if !batch.is_empty() {
        // As above: a receiver that is gone wants no more rows.
        let _ = to_receiver.send(Ok(batch)).await;
    }
    Ok(())
}

fn values(row: &SqliteRow) -> Result<Row, sqlx::Error> {
    (0..row.len())
        .map(|column| {
            let value = row.try_get_raw(column)?;
            if value.is_null() {
                return Ok(Value::Null);
            }
            let kind = value.type_info().name().to_owned();
            let decoded = match kind.as_str() {
                "INTEGER" => <i64 as Decode<Sqlite>>::decode(value).map(Value::Integer),
                "REAL" => <f64 as Decode<Sqlite>>::decode(value).map(Value::Real),
                "TEXT" => <Vec<u8> as Decode<Sqlite>>::decode(value)
                    .map(|bytes| Value::Text(String::from_utf8_lossy(&bytes).into_owned())),
                _ => <Vec<u8> as Decode<Sqlite>>::decode(value).map(Value::Blob),
            };
            decoded.map_err(|source| sqlx::Error::ColumnDecode {
                index: column.to_string(),
                source,
            })
        })
        .collect()
}

/// SQLite's own words for what it says of the statement itself, the whole chain for the rest.
/// What to do about what SQLite says of a statement, where that is known.
fn help(message: &str) -> &'static str {
    if message.starts_with("no such table") {
        "\n  help: \"SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')\" lists what there is"
    } else if message.starts_with("no such column") {
        "\n  help: \"SELECT name FROM pragma_table_info('v_results')\" lists the columns of v_results; docs/database.md has all"
    } else {
        ""
    }
}

fn understand(error: sqlx::Error) -> QueryError {
    match &error {
        sqlx::Error::Database(database) => match database.code().as_deref() {
            Some("23") => QueryError::NotReading,
            Some("1") => QueryError::Sql {
                message: database.message().to_owned(),
                place: None,
            },
            _ => QueryError::Failed { source: error },
        },
        _ => QueryError::Failed { source: error },
    }
}

#[cfg(test)]
mod tests;

//! Answers SQL from the database, and does nothing else to it, whatever the SQL is.
//!
//! Each query has its own connection, read-only and guarded ([`guard`]), its own thread (sqlx's) and a time limit, so
//! that no query holds up the writer, another query or the runtime. Rows are handed out in small batches over a bounded
//! channel: an answer of any size takes constant memory, and a receiver that goes away ends the query.

mod guard;

use futures::TryStreamExt;
use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{
    Column, ConnectOptions, Connection, Decode, Executor, Row as _, SqlSafeStr, Sqlite,
    SqliteConnection, Statement, TypeInfo, ValueRef,
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

/// How long a query waits for a lock that somebody else holds on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

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
    #[error("{message}{}", place.as_ref().map(|place| format!("\n  {}", place.replace('\n', "\n  "))).unwrap_or_default())]
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

/// Begins to answer `sql` from the database at `path`, for at most `limit`.
///
/// The file is never created or changed. Works beside a collector that writes to the same file.
pub async fn run(path: &Path, sql: &str, limit: Duration) -> Result<Answer, QueryError> {
    let mut connection = open(path).await?;
    let deadline = Instant::now() + limit;
    let out_of_time = Arc::new(AtomicBool::new(false));
    {
        let failed = |source| QueryError::Failed { source };
        let mut handle = connection.lock_handle().await.map_err(failed)?;
        guard::install(&mut handle);
        let out_of_time = Arc::clone(&out_of_time);
        handle.set_progress_handler(INSTRUCTIONS_PER_LOOK, move || {
            let go_on = Instant::now() < deadline;
            if !go_on {
                out_of_time.store(true, Ordering::Relaxed);
            }
            go_on
        });
        guard::inspect(&mut handle, sql)?;
    }
    let verdict = move |source: sqlx::Error| {
        if out_of_time.load(Ordering::Relaxed) {
            QueryError::TimeLimit { limit }
        } else {
            understand(source)
        }
    };
    let columns = {
        let statement = connection
            .prepare(sqlx::AssertSqlSafe(sql.to_owned()).into_sql_str())
            .await
            .map_err(&verdict)?;
        statement
            .columns()
            .iter()
            .map(|column| column.name().to_owned())
            .collect()
    };
    let (to_receiver, rows) = mpsc::channel(BATCHES_AHEAD);
    let sql = sql.to_owned();
    tokio::spawn(async move {
        if let Err(error) = send_rows(&mut connection, sql, &to_receiver, verdict).await {
            // The receiver is gone when this fails: nobody is left to tell.
            let _ = to_receiver.send(Err(error)).await;
        }
        if let Err(error) = connection.close().await {
            tracing::debug!(%error, "close a query's connection");
        }
    });
    Ok(Answer { columns, rows })
}

/// A read-only connection to an existing database. For readers of the crate that need no guard.
pub(crate) async fn open(path: &Path) -> Result<SqliteConnection, QueryError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(QueryError::NoFile {
                path: path.to_owned(),
            });
        }
        Ok(_) | Err(_) => {}
    }
    let unreadable = |source| QueryError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut connection = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("query_only", "ON")
        .disable_statement_logging()
        .connect()
        .await
        .map_err(unreadable)?;
    // SQLite opens lazily: only a first read tells whether this is a database.
    sqlx::query("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&mut connection)
        .await
        .map_err(unreadable)?;
    Ok(connection)
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

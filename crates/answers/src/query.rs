//! Answers SQL from the database without changing it, whatever the SQL is.
//!
//! Each query has its own read-only, guarded connection ([`guard`]), its own thread ([`execute`]) and limits on its
//! time, memory, temporary files and rows ([`Limits`]), so that no query blocks the writer, another query or the
//! runtime. Rows come in small batches over a bounded channel. An answer of any size takes constant memory, and
//! dropping the receiver ends the query.

mod execute;
mod file;
mod find_run;
pub mod functions;
mod guard;
mod limits;
pub mod local_time;
pub mod questions;
mod stop;
mod suggestions;

pub(crate) use file::ReadOnly;
pub use file::seal;
pub use find_run::RUN_NAMES;
pub(crate) use find_run::{find_run, nearest_run};
pub use limits::{Limits, MAX_ROW_BYTES};

use async_recursion::async_recursion as boxed;
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{sleep_until, timeout_at};

/// Rows in one batch: enough to amortize the switch between threads, few enough to show the first ones at once.
const ROWS_PER_BATCH: usize = 256;

/// Batches that wait for the receiver. A full channel blocks the query, and its time limit keeps running.
const BUFFERED_BATCHES: usize = 2;

/// A batch is sent before it has [`ROWS_PER_BATCH`] rows when its values take this many bytes.
const BYTES_PER_BATCH: usize = 512 << 10;

/// How long to wait for the end of a query that has exceeded its time. A query inside a single function of SQLite
/// detects the limit later; its receiver does not wait for it.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// A longer limit counts as no limit, because a more distant instant may not be representable.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// SQLite's parser and planner recurse.
const STACK_BYTES: usize = 8 << 20;

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

/// The values of one row, one per column.
pub type ResultRow = Vec<Value>;

/// Why a query has no answer, or an incomplete one.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// There is no such file.
    #[error(
        "there is no database at {}; give the file of a collector or of `benchmesh measure` with --db, or ask a collector \
         that is running with --collector HOST:PORT",
        path.display()
    )]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// It is a directory.
    #[error("{} is a directory; give the path of a file in it, such as {}/benchmesh.db", path.display(), path.display())]
    IsDirectory {
        /// The given path.
        path: PathBuf,
    },
    /// The file exists, but SQLite cannot read it.
    #[error("cannot read {} as a benchmesh database", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// SQLite's message.
        #[source]
        source: sqlx::Error,
    },
    /// It is a benchmesh database with another schema.
    #[error(transparent)]
    OtherSchema {
        /// Names the version that made it.
        source: benchmesh_store::StoreError,
    },
    /// The statement would change, attach or configure something.
    #[error("only reading is allowed: the statement would change, attach or configure something")]
    NotReading,
    /// Text after the first statement.
    #[error("only one statement is allowed: the text holds several")]
    SeveralStatements,
    /// The text contains only blanks and comments.
    #[error("the text holds no statement")]
    NoStatement,
    /// SQLite does not accept the statement.
    #[error(
        "{message}{}{}",
        position.as_ref().map(|position| format!("\n  {}", position.replace('\n', "\n  "))).unwrap_or_default(),
        help.as_ref().map(|help| format!("\n  help: {help}")).unwrap_or_default()
    )]
    Sql {
        /// SQLite's message.
        message: String,
        /// The faulty line, and a caret beneath the position.
        position: Option<String>,
        /// Names that may have been meant.
        help: Option<String>,
    },
    /// SQLite ends a text at its first zero byte.
    #[error("the text holds a zero byte; remove it")]
    ZeroByte,
    /// The query exceeded its time limit.
    #[error("stopped after {} s: the query takes longer than allowed", limit.as_secs_f64())]
    TimeLimit {
        /// The limit.
        limit: Duration,
    },
    /// SQLite needs more memory than queries are allowed.
    #[error("stopped: queries need more than {} MiB of memory; select fewer or shorter values", limit_bytes >> 20)]
    MemoryLimit {
        /// The limit.
        limit_bytes: u64,
    },
    /// It writes more temporary data than allowed.
    #[error("stopped: the query sorts or keeps more than {} MiB of temporary data; narrow it with WHERE", limit_bytes >> 20)]
    TempLimit {
        /// The limit.
        limit_bytes: u64,
    },
    /// One row is larger than a message.
    #[error(
        "stopped: a row of {bytes} bytes is larger than the limit of {} bytes; select parts with substr()",
        MAX_ROW_BYTES
    )]
    RowTooLarge {
        /// Size of its values.
        bytes: usize,
    },
    /// All rows together are larger than the maximum size of an answer.
    #[error("stopped: the answer is larger than {} MiB; narrow it with WHERE or LIMIT, or query a copy of the file with --db", limit_bytes >> 20)]
    AnswerTooLarge {
        /// The limit.
        limit_bytes: u64,
    },
    /// The operating system could not create a thread for it.
    #[error("could not start a thread for the query")]
    NoThread {
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// It failed while running.
    #[error("the query failed")]
    Sqlite {
        /// SQLite's error.
        #[source]
        source: rusqlite::Error,
    },
    /// It failed while running.
    #[error("the query failed")]
    Failed {
        /// SQLite's error.
        #[source]
        source: sqlx::Error,
    },
}

/// A streamed answer.
#[derive(Debug)]
pub struct QueryAnswer {
    /// The names of the columns; known even without rows.
    pub columns: Vec<String>,
    /// Batches of rows, until the end or the first error. Dropping it ends the query.
    pub rows: Rows,
}

impl QueryAnswer {
    /// Ends the query at any point, and returns once its file is closed.
    pub async fn end(mut self) {
        self.rows.batches.close();
        while self.rows.recv().await.is_some() {}
    }
}

/// The rows of an answer, streamed.
#[derive(Debug)]
pub struct Rows {
    batches: mpsc::Receiver<Vec<ResultRow>>,
    /// The reason for an early end; sent after the file is closed.
    error: Option<oneshot::Receiver<QueryError>>,
    limit: Duration,
    give_up: tokio::time::Instant,
}

impl Rows {
    /// The next batch, or an error; `None` after the last.
    pub async fn recv(&mut self) -> Option<Result<Vec<ResultRow>, QueryError>> {
        let error = self.error.as_mut()?;
        let next = async {
            match self.batches.recv().await {
                Some(batch) => Ok(batch),
                None => Err(error.await.ok()),
            }
        };
        match timeout_at(self.give_up, next).await {
            Ok(Ok(batch)) => Some(Ok(batch)),
            Ok(Err(error)) => {
                self.error = None;
                error.map(Err)
            }
            Err(_) => {
                self.error = None;
                Some(Err(QueryError::TimeLimit { limit: self.limit }))
            }
        }
    }
}

/// Starts the query `sql` on the database at `path`, within `limits`. `permit` is dropped when the query has ended
/// and its file is closed.
///
/// The file is never created or changed. A collector may be writing to the same file.
#[boxed]
#[inline(never)]
pub async fn run(
    path: &Path,
    sql: &str,
    limits: Limits,
    permit: impl Send + 'static,
) -> Result<QueryAnswer, QueryError> {
    if sql.contains('\0') {
        return Err(QueryError::ZeroByte);
    }
    let deadline = Instant::now() + limits.time.min(LONGEST);
    let give_up = (deadline + STOP_TIMEOUT).into();
    let (columns_out, columns) = oneshot::channel();
    let (rows_out, batches) = mpsc::channel(BUFFERED_BATCHES);
    let (error_out, mut error) = oneshot::channel();
    let job = execute::QueryJob {
        path: path.to_owned(),
        sql: sql.to_owned(),
        limits,
        deadline,
        runtime: Handle::current(),
        columns_out,
        rows_out,
    };
    std::thread::Builder::new()
        .name("query".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(move || {
            let answered = job.run();
            drop(permit);
            if let Err(error) = answered {
                // An error means that the receiver was dropped.
                let _ = error_out.send(error);
            }
        })
        .map_err(|source| QueryError::NoThread { source })?;
    let time_up = QueryError::TimeLimit { limit: limits.time };
    tokio::select! {
        begun = columns => match begun {
            Ok(columns) => Ok(QueryAnswer {
                columns,
                rows: Rows {
                    batches,
                    error: Some(error),
                    limit: limits.time,
                    give_up,
                },
            }),
            // It ended before it had columns; the reason follows once its file is closed.
            Err(_) => match timeout_at(give_up, &mut error).await {
                Ok(Ok(error)) => Err(error),
                _ => Err(time_up),
            },
        },
        () = sleep_until(give_up) => Err(time_up),
    }
}

/// Whether the text ends with a whole statement: with a semicolon outside of literals, names and comments, after which
/// only blanks and comments follow.
#[must_use]
pub fn is_whole_statement(text: &str) -> bool {
    // Refused by `run`, whatever follows.
    let Ok(text) = CString::new(text) else {
        return true;
    };
    // SAFETY: it only reads the text, which is terminated and outlives the call.
    unsafe { libsqlite3_sys::sqlite3_complete(text.as_ptr()) != 0 }
}

#[cfg(test)]
mod tests;

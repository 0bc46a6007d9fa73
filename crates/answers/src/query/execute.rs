//! The thread of one query: open, guard, prepare, step, close.
//!
//! Each query has its own thread. SQLite runs on it, so that its temporary files can be counted by thread, and a slow
//! statement blocks no other query.

use super::stop::{INSTRUCTIONS_PER_CHECK, Stop};
use super::{
    BYTES_PER_BATCH, Limits, MAX_ROW_BYTES, QueryError, ROWS_PER_BATCH, ReadOnly, ResultRow, Value,
    functions, guard, suggestions,
};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode};
use sqlx::SqliteConnection;
use std::path::PathBuf;
use std::time::Instant;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout_at;

/// Input of a query's thread.
pub(super) struct QueryJob {
    pub path: PathBuf,
    pub sql: String,
    pub limits: Limits,
    pub deadline: Instant,
    /// Runs the waits for a file and for a receiver.
    pub runtime: Handle,
    pub columns_out: oneshot::Sender<Vec<String>>,
    pub rows_out: mpsc::Sender<Vec<ResultRow>>,
}

impl QueryJob {
    /// Answers the query. The file is closed when this returns.
    pub(super) fn run(self) -> Result<(), QueryError> {
        let mut file = self.runtime.block_on(ReadOnly::open(&self.path))?;
        let runtime = self.runtime.clone();
        let answered = self.answer(&mut file.connection);
        runtime.block_on(file.close());
        answered
    }

    fn answer(self, connection: &mut SqliteConnection) -> Result<(), QueryError> {
        let (runtime, limits) = (self.runtime.clone(), self.limits);
        let mut handle = runtime
            .block_on(connection.lock_handle())
            .map_err(|source| QueryError::Failed { source })?;
        let stop = Stop::default();
        guard::install(&mut handle, &limits);
        handle.set_progress_handler(
            INSTRUCTIONS_PER_CHECK,
            stop.handler(&limits, self.deadline, self.rows_out.clone()),
        );
        // SAFETY: the handle is open, and ours alone while `handle` is locked, which outlives `borrowed` and its
        // statement. A `Connection` made this way does not close the handle.
        let answered = match unsafe { Connection::from_handle(handle.as_raw_handle().as_ptr()) } {
            Ok(borrowed) => functions::register(&borrowed, &limits, &stop)
                .map_err(|error| classify(error, &limits))
                .and_then(|()| guard::inspect(&mut handle, &self.sql, &limits))
                .map_err(|error| with_help(error, &borrowed, &self.sql))
                .and_then(|()| self.send_rows(&borrowed)),
            Err(error) => Err(classify(error, &limits)),
        };
        // The handler holds a sender of the channel; the channel ends when the last sender is dropped.
        handle.remove_progress_handler();
        answered.map_err(|error| stop.error(&limits).unwrap_or(error))
    }

    fn send_rows(self, connection: &Connection) -> Result<(), QueryError> {
        let limits = self.limits;
        let classify = |error| classify(error, &limits);
        let mut statement = connection.prepare(&self.sql).map_err(classify)?;
        let columns: Vec<String> = statement
            .column_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        let width = columns.len();
        if self.columns_out.send(columns).is_err() {
            return Ok(());
        }
        let mut batches = Batches {
            rows_out: self.rows_out,
            runtime: self.runtime,
            deadline: self.deadline,
            limits,
            batch: Vec::new(),
            batch_bytes: 0,
            answer_bytes: 0,
        };
        let mut rows = statement.query([]).map_err(classify)?;
        while let Some(row) = rows.next().map_err(classify)? {
            let values = (0..width)
                .map(|column| row.get_ref(column))
                .collect::<Result<Vec<_>, _>>()
                .map_err(classify)?;
            if batches.push(&values)? == Receiver::Gone {
                return Ok(());
            }
        }
        batches.flush().map(drop)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Receiver {
    Waits,
    Gone,
}

/// Rows to be sent.
struct Batches {
    rows_out: mpsc::Sender<Vec<ResultRow>>,
    runtime: Handle,
    deadline: Instant,
    limits: Limits,
    batch: Vec<ResultRow>,
    batch_bytes: usize,
    answer_bytes: u64,
}

impl Batches {
    fn push(&mut self, values: &[ValueRef<'_>]) -> Result<Receiver, QueryError> {
        // Checked before they are copied.
        let bytes: usize = values.iter().map(size).sum();
        if bytes > MAX_ROW_BYTES {
            return Err(QueryError::RowTooLarge { bytes });
        }
        self.answer_bytes = self.answer_bytes.saturating_add(bytes as u64);
        if self.answer_bytes > self.limits.answer_bytes {
            return Err(QueryError::AnswerTooLarge {
                limit_bytes: self.limits.answer_bytes,
            });
        }
        self.batch.push(values.iter().map(copied).collect());
        self.batch_bytes += bytes;
        if self.batch.len() >= ROWS_PER_BATCH || self.batch_bytes >= BYTES_PER_BATCH {
            return self.flush();
        }
        Ok(Receiver::Waits)
    }

    /// A slow receiver holds a snapshot, which blocks checkpoints of the WAL, so the time limit keeps running
    /// meanwhile.
    fn flush(&mut self) -> Result<Receiver, QueryError> {
        if self.batch.is_empty() {
            return Ok(Receiver::Waits);
        }
        self.batch_bytes = 0;
        let sent = self.rows_out.send(std::mem::take(&mut self.batch));
        let deadline = self.deadline.into();
        match self
            .runtime
            .block_on(async { timeout_at(deadline, sent).await })
        {
            Ok(Ok(())) => Ok(Receiver::Waits),
            Ok(Err(_)) => Ok(Receiver::Gone),
            Err(_) => Err(QueryError::TimeLimit {
                limit: self.limits.time,
            }),
        }
    }
}

/// Adds the names that a statement may have meant.
fn with_help(error: QueryError, connection: &Connection, sql: &str) -> QueryError {
    match error {
        QueryError::Sql {
            message,
            position,
            help: _,
        } => QueryError::Sql {
            help: suggestions::help(connection, sql, &message),
            message,
            position,
        },
        other => other,
    }
}

/// Lower bound of a value's size in a message.
fn size(value: &ValueRef<'_>) -> usize {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len() + 16,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => 16,
    }
}

fn copied(value: &ValueRef<'_>) -> Value {
    match *value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => Value::Integer(integer),
        ValueRef::Real(real) => Value::Real(real),
        ValueRef::Text(bytes) => Value::Text(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
    }
}

/// Maps an error of the statement itself to SQLite's own message, and any other error to its whole chain.
fn classify(error: rusqlite::Error, limits: &Limits) -> QueryError {
    let (code, message) = match &error {
        rusqlite::Error::SqliteFailure(failure, message) => (failure.code, message.clone()),
        _ => return QueryError::Sqlite { source: error },
    };
    match code {
        ErrorCode::AuthorizationForStatementDenied => QueryError::NotReading,
        ErrorCode::OutOfMemory => QueryError::MemoryLimit {
            limit_bytes: limits.memory_bytes,
        },
        ErrorCode::Unknown | ErrorCode::TooBig => QueryError::Sql {
            message: message.unwrap_or_else(|| error.to_string()),
            position: None,
            help: None,
        },
        _ => QueryError::Sqlite { source: error },
    }
}

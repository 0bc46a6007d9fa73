//! Opening the database: each reason why it cannot be used has its own error, which is found before the first row is
//! read.
//!
//! Order: the path, the lock, the file's first bytes, its application id and schema. A file of another program, or with
//! another schema, is not changed.

use super::lock::{Lock, refused};
use super::schema::{self, FileKind};
use crate::database::{SqliteErrorKind, StoreError};
use sqlx::sqlite::{
    SqliteAutoVacuum, SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const PAGE_BYTES: u32 = 4096;
/// A checkpoint or a reader's snapshot holds the lock only for a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// Size at which the WAL is checkpointed, and to which a larger WAL file is truncated: 16 MiB.
const WAL_PAGES: u32 = 4096;
const WAL_LIMIT_BYTES: u32 = 16 << 20;
/// Holds the pages with the newest samples of a thousand daemons.
const WRITER_CACHE_KIB: u32 = 16 << 10;
/// Prepared statements of the scheduler and the sessions; those of ingest are prepared for each transaction.
const WRITER_STATEMENTS: usize = 64;
/// Connections for reports, queries of pages and exports; each may take minutes.
const READERS: u32 = 4;
/// Connections for the scheduler, the sessions and the figures of steps, whose reads are short.
const SCHEDULER_READERS: u32 = 3;
/// Each connection adds this to the page budget shared by all of them (`forget_pages`). A sort that needs more uses a
/// temporary file.
const READER_CACHE_KIB: u32 = 8 << 10;

/// Upper limits of the rates at which a mesh adds tasks, steps and events, over the time since its database was
/// created.
const MAX_TASKS_PER_S: i64 = 1000;
const MAX_STEPS_PER_S: i64 = 100;
const MAX_EVENTS_PER_S: i64 = 1000;

/// The parts of an open database.
#[derive(Debug)]
pub(crate) struct OpenedStore {
    pub path: PathBuf,
    pub writer: SqliteConnection,
    pub options: SqliteConnectOptions,
    pub reader: SqlitePool,
    pub scheduler_reader: SqlitePool,
    pub mesh_uid: String,
    pub lock: Lock,
}

pub(crate) async fn open(path: &Path) -> Result<OpenedStore, StoreError> {
    check_path(path)?;
    let lock = Lock::take(path)?;
    let open_error = |error| open_error(path, error);
    let kind = match check_file(path)? {
        FileContent::Empty => FileKind::Empty,
        FileContent::Database => check_owner(path).await?,
    };
    let options = writer_options(path);
    let mut writer = options.connect().await.map_err(open_error)?;
    if kind == FileKind::Empty {
        schema::create(&mut writer).await.map_err(open_error)?;
    }
    let mesh_uid = mesh_uid(&mut writer).await.map_err(open_error)?;
    raise_ids(&mut writer).await.map_err(open_error)?;
    let pool = |connections| {
        SqlitePoolOptions::new()
            .max_connections(connections)
            .min_connections(0)
            // A connection to a local file does not break, and each test would be a switch to its thread and back.
            .test_before_acquire(false)
            // Another connection would allocate its schema anew (`Store::open_readers`).
            .idle_timeout(None)
            .max_lifetime(None)
            .after_release(|connection, _| Box::pin(forget_pages(connection)))
            .connect_lazy_with(reader_options(path))
    };
    Ok(OpenedStore {
        path: path.to_owned(),
        writer,
        options,
        reader: pool(READERS),
        scheduler_reader: pool(SCHEDULER_READERS),
        mesh_uid,
        lock,
    })
}

/// Frees cached pages. In this build of SQLite, all connections share one budget of pages, the sum of their cache
/// sizes. Without this, any connection may use up the budget in the course of hours, including the writer with pages
/// that are never read again.
async fn forget_pages(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    sqlx::query("PRAGMA shrink_memory")
        .execute(connection)
        .await?;
    Ok(true)
}

/// Rolls back the merge of a process that was killed. A read-only connection cannot; one that may write does it on
/// its first access to the file. Without a journal there is nothing to roll back.
pub fn roll_back(path: &Path) {
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    let left = std::fs::metadata(PathBuf::from(journal)).is_ok_and(|journal| journal.len() > 0);
    if !left {
        return;
    }
    // Errors are reported by the next open.
    let looked = rusqlite::Connection::open(path).and_then(|connection| {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
            row.get::<_, i64>(0)
        })
    });
    if let Err(error) = looked {
        tracing::debug!(%error, "cannot roll back an unfinished merge in {}", path.display());
    }
}

fn check_path(path: &Path) -> Result<(), StoreError> {
    if path.is_dir() {
        return Err(StoreError::IsDirectory {
            path: path.to_owned(),
        });
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            Err(StoreError::NoDirectory {
                directory: parent.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileContent {
    Empty,
    Database,
}

/// Checks an existing file before SQLite opens it: it must be writable, and empty or a database.
fn check_file(path: &Path) -> Result<FileContent, StoreError> {
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(FileContent::Empty);
        }
        Err(source) => return Err(refused(path, source)),
    };
    let mut head = Vec::with_capacity(MAGIC.len());
    file.by_ref()
        .take(MAGIC.len() as u64)
        .read_to_end(&mut head)
        .map_err(|source| refused(path, source))?;
    match head.as_slice() {
        [] => Ok(FileContent::Empty),
        head if head == MAGIC => Ok(FileContent::Database),
        _ => Err(StoreError::NotADatabase {
            path: path.to_owned(),
        }),
    }
}

fn writer_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .page_size(PAGE_BYTES)
        .auto_vacuum(SqliteAutoVacuum::Incremental)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", format!("-{WRITER_CACHE_KIB}"))
        .pragma("wal_autocheckpoint", WAL_PAGES.to_string())
        .pragma("journal_size_limit", WAL_LIMIT_BYTES.to_string())
        .statement_cache_capacity(WRITER_STATEMENTS)
        .thread_name(|_| "store-sqlite".to_owned())
        .disable_statement_logging()
}

fn reader_options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("cache_size", format!("-{READER_CACHE_KIB}"))
        .pragma("query_only", "ON")
        // By default, sqlx keeps a hundred prepared statements of each connection.
        .statement_cache_capacity(0)
        .thread_name(|id| format!("store-reader-{id}"))
        .disable_statement_logging()
}

/// Refuses a database of another program or with another schema, without changing it.
async fn check_owner(path: &Path) -> Result<FileKind, StoreError> {
    let open_error = |e| open_error(path, e);
    let mut looking = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .busy_timeout(BUSY_TIMEOUT)
        .disable_statement_logging()
        .connect()
        .await
        .map_err(open_error)?;
    let checked = schema::check(path, &mut looking)
        .await
        .map_err(open_error)?;
    looking.close().await.map_err(open_error)?;
    match checked? {
        FileKind::Foreign => Err(StoreError::ForeignDatabase {
            path: path.to_owned(),
        }),
        kind => Ok(kind),
    }
}

pub(super) async fn mesh_uid(writer: &mut SqliteConnection) -> Result<String, sqlx::Error> {
    sqlx::query_scalar("SELECT mesh_uid FROM meta WHERE id = 1")
        .fetch_one(writer)
        .await
}

/// Raises the next ids of tasks, steps and events above all that may have been assigned since the file was created,
/// because it may be a restored copy. Ids of runs, which people type, are raised to those that agents have seen
/// (`Store::raise_run_ids`).
async fn raise_ids(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let mut transaction = writer.begin().await?;
    for (table, per_second) in [
        ("tasks", MAX_TASKS_PER_S),
        ("steps", MAX_STEPS_PER_S),
        ("events", MAX_EVENTS_PER_S),
    ] {
        for statement in [
            "INSERT INTO sqlite_sequence (name, seq) SELECT ?1, 0
             WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = ?1)",
            "UPDATE sqlite_sequence
             SET seq = max(seq, (SELECT CAST(unixepoch('subsec') - created_us / 1e6 AS INTEGER) * ?2 FROM meta))
             WHERE name = ?1",
        ] {
            sqlx::query(statement)
                .bind(table)
                .bind(per_second)
                .execute(&mut *transaction)
                .await?;
        }
    }
    transaction.commit().await
}

/// Converts SQLite's error code to an error about the file.
fn open_error(path: &Path, error: sqlx::Error) -> StoreError {
    let path = path.to_owned();
    let io = |kind| std::io::Error::new(kind, error.to_string());
    match SqliteErrorKind::of(&error) {
        SqliteErrorKind::Full => StoreError::Full { path },
        SqliteErrorKind::ReadOnly | SqliteErrorKind::CannotOpen => StoreError::ReadOnly {
            path,
            source: io(std::io::ErrorKind::PermissionDenied),
        },
        SqliteErrorKind::Io => {
            if is_full(&path) {
                StoreError::Full { path }
            } else {
                StoreError::Open {
                    path,
                    source: io(std::io::ErrorKind::Other),
                }
            }
        }
        SqliteErrorKind::NotADatabase => StoreError::NotADatabase { path },
        SqliteErrorKind::Corrupt => StoreError::Damaged {
            path,
            source: error,
        },
        // No collector: the lock is ours.
        SqliteErrorKind::Busy => StoreError::Locked { path },
        SqliteErrorKind::Connection | SqliteErrorKind::Rows => StoreError::Sql {
            doing: "open the file",
            source: error,
        },
    }
}

/// SQLite reports some writes to a full disk as plain I/O errors, so the file system is asked.
fn is_full(path: &Path) -> bool {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    rustix::fs::statvfs(directory)
        .is_ok_and(|fs| fs.f_bavail.saturating_mul(fs.f_frsize) < u64::from(PAGE_BYTES) * 64)
}

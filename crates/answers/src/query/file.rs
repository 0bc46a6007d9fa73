//! Opens a database file for reading, and leaves its directory unchanged.
//!
//! A reader of a WAL database creates `-wal` and `-shm` files beside it and cannot remove them, because it has no
//! write access. If they did not exist before, a connection with write access is opened that changes nothing, so that
//! SQLite removes them under its own locks.

use super::QueryError;
use benchmesh_store::schema;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a reader waits for another process's lock on the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// A read-only connection to an existing database.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    pub(crate) connection: SqliteConnection,
    path: PathBuf,
    /// There was no `-wal` file, so no process had the database open for writing.
    idle: bool,
}

impl ReadOnly {
    /// Opens an existing database file. Never creates one.
    pub(crate) async fn open(path: &Path) -> Result<Self, QueryError> {
        let path_buf = || path.to_owned();
        match std::fs::metadata(path) {
            Ok(there) if there.is_dir() => {
                return Err(QueryError::IsDirectory { path: path_buf() });
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(QueryError::NoFile { path: path_buf() });
            }
            _ => {}
        }
        benchmesh_store::open::roll_back(path);
        let idle = !with_suffix(path, "-wal").exists();
        let mut connection = match connect(path, options(path)).await {
            Ok(connection) => connection,
            // In a read-only directory, the shared memory of a WAL database cannot be created. Without a writer, the
            // database can be read without it.
            Err(_) if idle && !directory_is_writable(path) => {
                connect(path, options(path).immutable(true)).await?
            }
            Err(error) => return Err(error),
        };
        // A file of another program can be queried too.
        let checked = schema::check(path, &mut connection).await;
        checked
            .map_err(|source| QueryError::Unreadable {
                path: path_buf(),
                source,
            })?
            .map_err(|source| QueryError::OtherSchema { source })?;
        Ok(Self {
            connection,
            path: path.to_owned(),
            idle,
        })
    }

    /// Closes the connection and removes the files that it has created beside the database.
    pub(crate) async fn close(self) {
        if let Err(error) = self.connection.close().await {
            tracing::debug!(%error, "close a reader's connection");
        }
        if self.idle && with_suffix(&self.path, "-wal").exists() {
            // Without write access to the file, SQLite's files remain.
            let writer = async {
                connect(&self.path, options(&self.path).read_only(false))
                    .await?
                    .close()
                    .await
                    .map_err(|source| QueryError::Failed { source })
            };
            if let Err(error) = writer.await {
                tracing::debug!(%error, "tidy up beside {}", self.path.display());
            }
        }
    }
}

/// Turns a database that no process has open into a single file, which is readable from a read-only directory. A
/// collector that opens it later continues normally.
pub async fn seal(path: &Path) -> Result<(), QueryError> {
    let options = options(path)
        .read_only(false)
        .pragma("query_only", "OFF")
        .journal_mode(SqliteJournalMode::Delete);
    let connection = connect(path, options).await?;
    connection
        .close()
        .await
        .map_err(|source| QueryError::Failed { source })
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        .create_if_missing(false)
        .busy_timeout(BUSY_TIMEOUT)
        .pragma("query_only", "ON")
        .disable_statement_logging()
}

/// SQLite opens lazily: only the first read shows whether this is a database.
async fn connect(
    path: &Path,
    options: SqliteConnectOptions,
) -> Result<SqliteConnection, QueryError> {
    let unreadable = |source| QueryError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut connection = options.connect().await.map_err(unreadable)?;
    sqlx::query("SELECT count(*) FROM sqlite_schema")
        .fetch_one(&mut connection)
        .await
        .map_err(unreadable)?;
    Ok(connection)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

fn directory_is_writable(path: &Path) -> bool {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

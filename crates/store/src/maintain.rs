//! Maintenance of a database file: integrity check, copy, deletion of a run, merge of another file. No collector may
//! have the file open for writing, except during a check or a copy. Each change is one transaction, so that a process
//! that is killed in the middle changes nothing.

mod delete;
mod merge;

pub use delete::delete;
pub use merge::{Merged, merge, merge_with_findings};

use super::{
    Doing, StoreError,
    lock::{Lock, refused},
    open,
    prune::{
        Resolution, Settings, Size,
        status::{count, tags_of},
    },
    schema::{self, FileKind},
};
use benchmesh_model::mesh::MeshMicros;
use rusqlite::{Connection, ErrorCode, OpenFlags, params};
use std::{
    fs::{OpenOptions, Permissions},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a database was not changed or copied.
#[derive(Debug, thiserror::Error)]
pub enum MaintainError {
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Store(StoreError),
    #[error("{}: {doing}", path.display())]
    Sql {
        path: PathBuf,
        doing: &'static str,
        #[source]
        source: rusqlite::Error,
    },
}

impl MaintainError {
    /// Whether the error is in the request, not in the database.
    pub fn is_request(&self) -> bool {
        matches!(self, Self::Wrong(_))
    }
}

fn failed(path: &Path, doing: &'static str) -> impl Fn(rusqlite::Error) -> MaintainError {
    move |source| {
        let path = path.to_owned();
        if source.sqlite_error_code() == Some(ErrorCode::DiskFull) {
            return MaintainError::Store(StoreError::Full { path });
        }
        MaintainError::Sql {
            path,
            doing,
            source,
        }
    }
}

/// A connection that reads a benchmesh database.
pub fn reader(path: &Path) -> Result<Connection, MaintainError> {
    if !path.is_file() {
        return Err(MaintainError::Wrong(format!(
            "there is no database {}",
            path.display()
        )));
    }
    open::roll_back(path);
    let doing = "cannot open the database";
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
        .map_err(failed(path, doing))?;
    connection
        .busy_timeout(BUSY_TIMEOUT)
        .map_err(failed(path, doing))?;
    match schema::check_directly(path, &connection) {
        Ok(Ok(FileKind::Ours)) => Ok(connection),
        Ok(Err(another)) => Err(MaintainError::Store(another)),
        Err(error) if error.sqlite_error_code() != Some(ErrorCode::NotADatabase) => {
            Err(failed(path, doing)(error))
        }
        _ => Err(MaintainError::Wrong(format!(
            "{} is not a database of benchmesh",
            path.display()
        ))),
    }
}

/// The faults of a database; empty if there are none. A collector may be writing to it.
pub fn check(path: &Path) -> Result<Vec<String>, MaintainError> {
    faults(&reader(path)?).map_err(failed(path, "cannot check the database"))
}

fn faults(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut sound = connection.prepare("PRAGMA integrity_check(100)")?;
    for line in sound.query_map([], |row| row.get::<_, String>(0))? {
        let line = line?;
        if line != "ok" {
            found.push(line);
        }
    }
    let mut strays = connection.prepare(
        "SELECT \"table\", parent, count(*) FROM pragma_foreign_key_check GROUP BY 1, 2",
    )?;
    let strays = strays.query_map([], |row| {
        let (table, parent): (String, String) = (row.get(0)?, row.get(1)?);
        let rows: i64 = row.get(2)?;
        Ok(format!(
            "{rows} rows of {table} refer to a missing row of {parent}"
        ))
    })?;
    for stray in strays {
        found.push(stray?);
    }
    let differences = schema::differences(connection)?;
    found.extend(differences.iter().map(ToString::to_string));
    Ok(found)
}

/// The retention settings of a database, its size, and when rows were last pruned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionState {
    pub settings: Settings,
    pub size: Size,
    /// The instant and the number of pruned rows.
    pub pruned: Option<(i64, i64)>,
}

/// The settings of the collector that last opened the database for writing.
pub fn kept(path: &Path) -> Result<RetentionState, MaintainError> {
    let connection = reader(path)?;
    kept_of(&connection).map_err(failed(path, "cannot read its settings"))
}

fn kept_of(connection: &Connection) -> rusqlite::Result<RetentionState> {
    connection.query_row(
        "SELECT m.keep_seconds_us, m.keep_10s_us, m.max_size_bytes, p.page_size * c.page_count,
                p.page_size * f.freelist_count, m.keep_tags, m.pruned_us, m.pruned_rows
         FROM meta AS m, pragma_page_size AS p, pragma_page_count AS c, pragma_freelist_count AS f",
        [],
        |row| {
            let pruned: Option<i64> = row.get(6)?;
            let rows: Option<i64> = row.get(7)?;
            Ok(RetentionState {
                settings: Settings {
                    keep_seconds_us: row.get(0)?,
                    keep_10s_us: row.get(1)?,
                    max_size_bytes: row.get(2)?,
                    keep_tags: tags_of(row.get::<_, Option<String>>(5)?.as_deref()),
                },
                size: Size {
                    file_bytes: row.get(3)?,
                    free_bytes: row.get(4)?,
                },
                pruned: pruned.zip(rows),
            })
        },
    )
}

/// The numbers of steps and runs that pruning would affect, and the retention settings of the file. Runs with the
/// tags that its collector keeps are excluded, too. The file is not changed.
pub fn prunable(
    path: &Path,
    before: MeshMicros,
    to: Resolution,
    but: &[(String, String)],
) -> Result<(u64, u64, RetentionState), MaintainError> {
    let connection = reader(path)?;
    let read = || {
        let kept = kept_of(&connection)?;
        let tags = [but, &kept.settings.keep_tags].concat();
        let (steps, runs) = count(&connection, before, to, &tags)?;
        Ok((steps, runs, kept))
    };
    read().map_err(failed(path, "cannot count its old steps"))
}

/// Copies a database, compacted, into a new file. A collector may be writing to it.
pub fn backup(path: &Path, copy: &Path) -> Result<(), MaintainError> {
    if copy.exists() {
        return Err(MaintainError::Wrong(format!(
            "{} already exists; name a new file",
            copy.display()
        )));
    }
    let connection = reader(path)?;
    let Some(name) = copy.to_str() else {
        return Err(MaintainError::Wrong(String::from(
            "the copy's path is not UTF-8",
        )));
    };
    let not_made = |source| MaintainError::Store(refused(copy, source));
    // SQLite writes into an empty file. A file created by SQLite would have the mode that the umask allows.
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(copy)
        .map_err(not_made)?;
    connection
        .execute("VACUUM INTO ?", params![name])
        .map_err(|error| {
            // A partial file is not a copy.
            let _ = std::fs::remove_file(copy);
            failed(path, "cannot copy the database")(error)
        })?;
    std::fs::metadata(path)
        .and_then(|found| {
            let mode = Permissions::from_mode(found.mode() & 0o666);
            std::fs::set_permissions(copy, mode)
        })
        .map_err(not_made)
}

/// Locks a database and opens it for writing.
async fn writer(path: &Path) -> Result<(Connection, Lock), MaintainError> {
    if !path.is_file() {
        return Err(MaintainError::Wrong(format!(
            "there is no database {}",
            path.display()
        )));
    }
    let opened = open::open(path).await.map_err(|error| match error {
        StoreError::InUse { .. } => MaintainError::Wrong(format!(
            "a collector has {} open: stop it first",
            path.display()
        )),
        error => MaintainError::Store(error),
    })?;
    let closed = sqlx::Connection::close(opened.writer).await;
    closed
        .doing("open the file")
        .map_err(MaintainError::Store)?;
    let connection = Connection::open(path).map_err(failed(path, "cannot open the database"))?;
    connection
        .busy_timeout(BUSY_TIMEOUT)
        .map_err(failed(path, "cannot open the database"))?;
    Ok((connection, opened.lock))
}

//! Database errors, with messages that state the remedy, and SQL that several readers share.
//!
//! It also distinguishes the three kinds of failure that the writer acts on: the environment (a full or failing disk:
//! wait and retry), the rows themselves (refuse them), and a database that does not belong to this program.

use benchmesh_model::mesh::{NO_RUN_YET, no_such_run};
use benchmesh_workloads::error_chain;
use benchmesh_workloads::histogram::DecodeError;
use sqlx::SqliteConnection;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};
use std::path::PathBuf;

/// SQL: the width in seconds of the widest rows of a step; finer rows may exist beside them. `$steps` is the table's
/// name.
#[macro_export]
macro_rules! widest_row_s {
    ($steps:literal) => {
        concat!(
            "max(",
            $steps,
            ".resolution_s, 1, iif(",
            $steps,
            ".merged_10s_until_us IS NULL, 1, 10), iif(",
            $steps,
            ".merged_60s_until_us IS NULL, 1, 60))"
        )
    };
}
/// Why the database could not be opened, read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{} is a directory; give the path of a file in it, such as {}/benchmesh.db", path.display(), path.display())]
    IsDirectory { path: PathBuf },
    #[error("the directory {} does not exist; make it first (mkdir -p {})", directory.display(), directory.display())]
    NoDirectory { directory: PathBuf },
    #[error("{} is not an SQLite database (its first bytes say so); move it away or choose another file", path.display())]
    NotADatabase { path: PathBuf },
    #[error("{} is an SQLite database of another program; choose another file", path.display())]
    ForeignDatabase { path: PathBuf },
    #[error(
        "{} has schema {found}, and this benchmesh knows schemas up to {known}; use the version of benchmesh that wrote it or a newer one",
        path.display()
    )]
    NewerSchema {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    #[error(
        "{} was made by another build of benchmesh{}, whose schema differs from this one's; read or export it with that \
         build (benchmesh db export), and choose another file",
        path.display(),
        match version.as_str() { "" => String::new(), version => format!(" ({version})") }
    )]
    OtherSchema { path: PathBuf, version: String },
    #[error("{} cannot be written; check the owner and mode of the file and its directory, and that the file system is not mounted read-only", path.display())]
    ReadOnly {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("no space is left for {}; free some on that file system or choose another file", path.display())]
    Full { path: PathBuf },
    #[error(
        "{} is in use by another collector{}; stop that one or choose another file",
        path.display(),
        holder.map(|pid| format!(" (process {pid})")).unwrap_or_default()
    )]
    InUse { path: PathBuf, holder: Option<u32> },
    #[error(
        "{} is locked by another program, perhaps an open transaction in sqlite3; end it and try again",
        path.display()
    )]
    Locked { path: PathBuf },
    #[error("cannot open {}", path.display())]
    Open {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{} is damaged; restore a copy, or save what can be read with: sqlite3 {} .recover", path.display(), path.display())]
    Damaged {
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    #[error("database error: cannot {doing}")]
    Sql {
        doing: &'static str,
        #[source]
        source: sqlx::Error,
    },
    /// Like `Sql`, for writes of single rows.
    #[error("database error: cannot {doing}")]
    Row {
        doing: &'static str,
        #[source]
        source: rusqlite::Error,
    },
    #[error("a stored histogram is invalid: cannot {doing}")]
    Histogram {
        doing: &'static str,
        #[source]
        source: DecodeError,
    },
    #[error("the agent's uid is bound to the name `{known_as}`")]
    UidBound { known_as: String },
    #[error("{NO_RUN_YET}")]
    NoRunYet,
    #[error("{}", missing(what, id))]
    NoSuch { what: &'static str, id: String },
    #[error(
        "cannot start the writer's thread; check the limits on processes and memory (ulimit -u)"
    )]
    NoThread {
        #[source]
        source: std::io::Error,
    },
    #[error("{meanwhile}: the database cannot be written ({}); {}", blocked.why, blocked.remedy)]
    CannotWrite {
        meanwhile: &'static str,
        blocked: Blocked,
    },
    #[error("nothing was written: {why}")]
    NotWritten { why: String },
    #[error("the store is closed")]
    Closed,
}

fn missing(what: &str, id: &str) -> String {
    match what {
        "run" => no_such_run(id, None),
        _ => format!("the database has no {what} {id}"),
    }
}

impl StoreError {
    fn kind(&self) -> SqliteErrorKind {
        match self {
            Self::Sql { source, .. } => SqliteErrorKind::of(source),
            Self::Row { source, .. } => SqliteErrorKind::from_row(source),
            Self::Full { .. } => SqliteErrorKind::Full,
            _ => SqliteErrorKind::Rows,
        }
    }

    /// The reason for a blocked write, in a few words.
    pub(crate) fn why_blocked(&self) -> String {
        match self.kind() {
            SqliteErrorKind::Full => String::from("its disk is full"),
            SqliteErrorKind::Busy => String::from("another program holds its write lock"),
            SqliteErrorKind::ReadOnly => String::from("it is read-only"),
            _ => error_chain(self),
        }
    }

    /// What an operator can do about a blocked write.
    pub(crate) fn remedy(&self) -> &'static str {
        match self.kind() {
            SqliteErrorKind::Full => "free space on its disk",
            SqliteErrorKind::Busy => {
                "end the program that holds its write lock (an open transaction in sqlite3, perhaps)"
            }
            SqliteErrorKind::ReadOnly | SqliteErrorKind::CannotOpen => {
                "make its file and directory writable again"
            }
            _ => "check its disk and the kernel's log",
        }
    }

    /// Whether the same write may succeed later, after an operator has freed space or the disk has recovered.
    pub fn is_retryable(&self) -> bool {
        self.kind().is_retryable()
    }
}

/// Adds to an error what failed.
pub trait Doing<T> {
    /// `doing` completes "cannot ...".
    fn doing(self, doing: &'static str) -> Result<T, StoreError>;
}

impl<T> Doing<T> for Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Sql { doing, source })
    }
}

impl<T> Doing<T> for Result<T, rusqlite::Error> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Row { doing, source })
    }
}

impl<T> Doing<T> for Result<T, DecodeError> {
    fn doing(self, doing: &'static str) -> Result<T, StoreError> {
        self.map_err(|source| StoreError::Histogram { doing, source })
    }
}

/// Statements that change rows. `doing` completes "cannot ...".
pub(crate) trait WriteRows {
    async fn write(
        self,
        connection: &mut SqliteConnection,
        doing: &'static str,
    ) -> Result<(), StoreError>;

    /// Changes the `what` with this id; fails if there is none.
    async fn write_one(
        self,
        connection: &mut SqliteConnection,
        doing: &'static str,
        what: &'static str,
        id: i64,
    ) -> Result<(), StoreError>;
}

impl WriteRows for Query<'_, Sqlite, SqliteArguments> {
    async fn write(
        self,
        connection: &mut SqliteConnection,
        doing: &'static str,
    ) -> Result<(), StoreError> {
        self.execute(connection).await.map(drop).doing(doing)
    }

    async fn write_one(
        self,
        connection: &mut SqliteConnection,
        doing: &'static str,
        what: &'static str,
        id: i64,
    ) -> Result<(), StoreError> {
        let changed = self.execute(connection).await.doing(doing)?.rows_affected();
        match changed {
            1 => Ok(()),
            _ => Err(StoreError::NoSuch {
                what,
                id: id.to_string(),
            }),
        }
    }
}

/// Why writes are blocked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    pub why: String,
    /// What an operator can do about it.
    pub remedy: &'static str,
}

impl Blocked {
    pub(crate) fn by(error: &StoreError) -> Self {
        Self {
            why: error.why_blocked(),
            remedy: error.remedy(),
        }
    }
}

/// SQLite's primary result codes, grouped by the reaction to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SqliteErrorKind {
    Full,
    Io,
    Busy,
    ReadOnly,
    CannotOpen,
    NotADatabase,
    Corrupt,
    /// The connection broke, or memory ran out: the rows are not at fault.
    Connection,
    /// A constraint, a type, a statement: the rows are at fault.
    Rows,
}

impl SqliteErrorKind {
    pub(crate) fn of(error: &sqlx::Error) -> Self {
        let sqlx::Error::Database(database) = error else {
            return match error {
                sqlx::Error::Io(_)
                | sqlx::Error::WorkerCrashed
                | sqlx::Error::PoolTimedOut
                | sqlx::Error::PoolClosed => Self::Connection,
                _ => Self::Rows,
            };
        };
        let code = database
            .code()
            .and_then(|code| code.parse::<i32>().ok())
            .unwrap_or(1);
        Self::of_code(code)
    }

    fn from_row(error: &rusqlite::Error) -> Self {
        match error {
            rusqlite::Error::SqliteFailure(failure, _) => Self::of_code(failure.extended_code),
            _ => Self::Rows,
        }
    }

    fn of_code(code: i32) -> Self {
        match code & 0xff {
            5 | 6 => Self::Busy,
            7 => Self::Connection,
            8 => Self::ReadOnly,
            10 => Self::Io,
            11 => Self::Corrupt,
            13 => Self::Full,
            14 => Self::CannotOpen,
            26 => Self::NotADatabase,
            _ => Self::Rows,
        }
    }

    fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::Full
                | Self::Io
                | Self::Busy
                | Self::ReadOnly
                | Self::CannotOpen
                | Self::Connection
        )
    }
}

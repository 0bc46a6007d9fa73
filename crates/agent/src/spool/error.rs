//! Errors of a spool's file.

use std::path::{Path, PathBuf};

/// Why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    #[error("{doing} {}", path.display())]
    Sql {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: sqlx::Error,
    },
    #[error("{} is not a spool of this agent's version: {why}", path.display())]
    NotASpool { path: PathBuf, why: String },
    #[error("{}: its header was damaged on the disk", path.display())]
    DamagedHeader { path: PathBuf },
    #[error("remove the drained spool {}", path.display())]
    Remove {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("the spool has ended")]
    Closed,
}

impl SpoolError {
    /// Whether the disk has changed or lost data; a retry does not help then.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_damage(source),
            Self::NotASpool { .. } | Self::DamagedHeader { .. } => true,
            Self::Remove { .. } | Self::Closed => false,
        }
    }

    /// Whether the disk is full.
    pub fn is_no_space(&self) -> bool {
        const FULL: i32 = 13;
        let Self::Sql {
            source: sqlx::Error::Database(error),
            ..
        } = self
        else {
            return false;
        };
        let code = error.code().and_then(|code| code.parse::<i32>().ok());
        code.is_some_and(|code| code & 0xff == FULL)
    }

    pub(super) fn sql(doing: &'static str, path: &Path) -> impl FnOnce(sqlx::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Sql {
            doing,
            path,
            source,
        }
    }
}

/// Whether the disk has changed or lost data.
pub(super) fn is_damage(error: &sqlx::Error) -> bool {
    const CORRUPT: i32 = 11;
    const NOT_A_DATABASE: i32 = 26;
    const IO_ERROR_AT_READ: i32 = 266;
    const IO_ERROR_AT_SHORT_READ: i32 = 522;
    match error {
        sqlx::Error::Database(error) => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok());
            code.is_some_and(|code| {
                matches!(code, IO_ERROR_AT_READ | IO_ERROR_AT_SHORT_READ)
                    || matches!(code & 0xff, CORRUPT | NOT_A_DATABASE)
            })
        }
        sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => true,
        _ => false,
    }
}

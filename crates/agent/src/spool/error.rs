//! What can go wrong with a spool's file.

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
    pub(super) fn sql(doing: &'static str, path: &Path) -> impl FnOnce(sqlx::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Sql {
            doing,
            path,
            source,
        }
    }
}

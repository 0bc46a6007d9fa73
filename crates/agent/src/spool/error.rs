//! What can go wrong with a spool's file.

use super::file::is_damage;
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
    #[error("{}: what it says about itself was damaged on the disk", path.display())]
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
    /// Whether the disk has changed or lost what was written; trying again does not help then.
    pub(super) fn is_damage(&self) -> bool {
        match self {
            Self::Sql { source, .. } => is_damage(source),
            Self::NotASpool { .. } | Self::DamagedHeader { .. } => true,
            Self::Remove { .. } | Self::Closed => false,
        }
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

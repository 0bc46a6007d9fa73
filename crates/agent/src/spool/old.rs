//! Spools of earlier starts: found, looked at, kept to the limit.

use super::file::SpoolFile;
use super::{Sequence, SpoolError, SpoolId};
use crate::chain;
use crate::state::StateDir;
use std::path::{Path, PathBuf};
use uuid::Uuid;

/// A spool of an earlier start, closed.
#[derive(Debug)]
pub(super) struct Old {
    pub(super) id: SpoolId,
    pub(super) path: PathBuf,
    pub(super) mesh: Option<String>,
    pub(super) ordinal: i64,
    pub(super) bytes: u64,
}

/// Merges until that many bytes are free, or a whole round is over. Returns what is left.
pub(super) async fn shorten(path: &Path, mut surplus: u64) -> Result<u64, SpoolError> {
    let mut file = SpoolFile::open(path).await?;
    while surplus > 0 {
        match file.compact().await? {
            Some(freed) => surplus = surplus.saturating_sub(freed),
            None => break,
        }
    }
    let left = file.bytes();
    file.close().await?;
    Ok(left)
}

/// The spools of earlier starts. One that holds nothing is removed, one that cannot be read is left alone.
pub(super) async fn find(state: &StateDir) -> Vec<Old> {
    let ids = state.spools().unwrap_or_else(|error| {
        tracing::error!(error = %chain(&error), "old spools cannot be looked for");
        Vec::new()
    });
    let mut found = Vec::new();
    for id in ids {
        match look(state, id).await {
            Ok(old) => found.extend(old),
            Err(error) => {
                tracing::error!(error = %chain(&error), "an old spool cannot be read and is left alone");
            }
        }
    }
    found
}

async fn look(state: &StateDir, id: Uuid) -> Result<Option<Old>, SpoolError> {
    let path = state.spool_path(id);
    let mut file = SpoolFile::open(&path).await?;
    if file.after(Sequence(0)).await?.is_none() {
        match file.has_refused().await? {
            true => file.close().await?,
            false => file.remove().await?,
        }
        return Ok(None);
    }
    let old = Old {
        id: file.id,
        path,
        mesh: file.mesh.clone(),
        ordinal: file.ordinal,
        bytes: file.bytes(),
    };
    file.close().await?;
    Ok(Some(old))
}

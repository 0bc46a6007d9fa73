//! Spools of earlier starts: found, checked, kept within the limit.

use super::SpoolError;
use super::file::{MARK_SUFFIX, PAGE_BYTES, SpoolFile, remove_files};
use crate::envelope::{Sequence, SpoolId};
use crate::state::StateDir;
use benchmesh_workloads::error_chain;
use std::fs::File;
use std::io::Read;
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
    /// The last stored sequence that the collector has acked, as far as it is written to the file.
    pub(super) acked: Sequence,
}

/// The spools of earlier starts.
#[derive(Debug, Default)]
pub(super) struct OldSpools {
    pub(super) old: Vec<Old>,
    pub(super) unreadable: Vec<Uuid>,
}

/// Maximum number of files kept for inspection that contain only refused batches. Further ones are removed.
const MAX_REFUSED_FILES: usize = 8;

/// Merges batches, then gives some up, until the file has at most `most` bytes. Returns its size and the number of
/// batches given up.
pub(super) async fn shrink_file(path: &Path, most: u64) -> Result<(u64, u64), SpoolError> {
    let mut file = SpoolFile::open(path).await?;
    while file.used_bytes().await? > most && file.compact().await?.is_some() {}
    let mut given_up = 0;
    while file.used_bytes().await? > most {
        match file.give_up_next().await? {
            Some(batches) => given_up += batches,
            None => break,
        }
    }
    file.trim().await?;
    let left = file.used_bytes().await?;
    file.close().await?;
    Ok((left, given_up))
}

/// Finds the spools of earlier starts. Empty ones are removed, unreadable ones are left alone. The kept bodies of
/// refused batches take at most `most_refused` bytes.
pub(super) async fn find(state: &StateDir, most_refused: u64) -> OldSpools {
    let ids = state.spools().unwrap_or_else(|error| {
        tracing::error!(error = %error_chain(&error), "old spools cannot be looked for");
        Vec::new()
    });
    let mut found = OldSpools::default();
    let mut refused = Vec::new();
    for id in ids {
        match examine(state, id).await {
            Ok(Examined::Old(old)) => found.old.push(*old),
            Ok(Examined::OnlyRefused { ordinal, path }) => refused.push((ordinal, path)),
            Ok(Examined::Nothing) => {}
            Err(error) => {
                tracing::error!(error = %error_chain(&error), "an old spool cannot be read and is left alone");
                found.unreadable.push(id);
            }
        }
    }
    refused.sort();
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |file| file.len());
    let mut bytes: u64 = refused.iter().map(|(_, path)| size(path)).sum();
    let mut files = refused.len();
    for (_, path) in refused {
        if files <= MAX_REFUSED_FILES && bytes <= most_refused {
            break;
        }
        (files, bytes) = (files - 1, bytes.saturating_sub(size(&path)));
        if let Err(error) = remove_files(&path) {
            tracing::warn!(error = %error_chain(&error), "a spool of refused batches cannot be removed");
        }
    }
    found
}

enum Examined {
    Old(Box<Old>),
    OnlyRefused {
        ordinal: i64,
        path: PathBuf,
    },
    /// The file was removed.
    Nothing,
}

async fn examine(state: &StateDir, id: Uuid) -> Result<Examined, SpoolError> {
    let path = state.spool_path(id);
    if is_stub(&path) {
        return remove_files(&path).map(|()| Examined::Nothing);
    }
    let mut file = SpoolFile::open(&path).await?;
    let lost_tail = file.last() > file.acked();
    if !lost_tail && file.after(Sequence(0)).await?.is_none() {
        if file.has_refused().await? {
            let ordinal = file.ordinal();
            file.close().await?;
            return Ok(Examined::OnlyRefused { ordinal, path });
        }
        return file.remove().await.map(|()| Examined::Nothing);
    }
    if file.mesh().is_none() {
        // Rows are appended only after the agent has attached. Without a mesh in the header, its record was lost, and
        // it is unknown which mesh these batches belong to.
        return Err(SpoolError::DamagedHeader { path });
    }
    let old = Old {
        id: file.id(),
        path,
        mesh: file.mesh().map(str::to_owned),
        ordinal: file.ordinal(),
        // For a damaged file, its size on the disk.
        bytes: match file.used_bytes().await {
            Ok(bytes) => bytes,
            Err(_) => file.bytes(),
        },
        acked: file.acked(),
    };
    file.close().await?;
    Ok(Examined::Old(Box::new(old)))
}

/// The page size in the header of an SQLite file, which depends on the version of the agent that created it.
fn page_bytes(path: &Path) -> u64 {
    let mut header = [0; 18];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match (read, header) {
        (Ok(()), [.., high, low]) => u64::from(u16::from_be_bytes([high, low])),
        (Err(_), _) => 0,
    }
}

/// Whether a start ended before its spool was complete: the file has no table, and no batch was appended. A write-ahead
/// log may still contain the tables.
fn is_stub(path: &Path) -> bool {
    let length = |suffix: &str| {
        let mut name = path.to_owned().into_os_string();
        name.push(suffix);
        std::fs::metadata(name).map_or(0, |file| file.len())
    };
    length("") <= page_bytes(path).max(u64::from(PAGE_BYTES))
        && length("-wal") == 0
        && length(MARK_SUFFIX) == 0
}

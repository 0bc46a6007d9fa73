//! One collector per database: an advisory lock on FILE.lock, beside the database.
//!
//! The lock is not on the database file itself: closing any descriptor of that file would drop SQLite's own locks in
//! this process. Readers (the sqlite3 shell, `benchmesh query`) do not look at it. The file is removed at a clean end.

use super::error::StoreError;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of the database at `database`, or says who has it.
    pub(crate) fn take(database: &Path) -> Result<Self, StoreError> {
        let mut name = database.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        loop {
            let mut file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(|source| refused(database, source))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    return Err(StoreError::InUse {
                        path: database.to_owned(),
                        holder: holder(&mut file),
                    });
                }
                Err(errno) => return Err(refused(database, errno.into())),
            }
            // The one that held it may have removed the file between our open and our lock.
            if !is_still_at(&file, &path) {
                continue;
            }
            let written = file
                .set_len(0)
                .and_then(|()| file.rewind())
                .and_then(|()| writeln!(file, "{}", std::process::id()));
            if let Err(source) = written {
                return Err(refused(database, source));
            }
            return Ok(Self { file, path });
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if is_still_at(&self.file, &self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "the lock file stays");
        }
    }
}

fn is_still_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(held), Ok(there)) => held.ino() == there.ino() && held.dev() == there.dev(),
        _ => false,
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

pub(crate) fn refused(path: &Path, source: std::io::Error) -> StoreError {
    let path = path.to_owned();
    match source.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::ReadOnly { path, source }
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StoreError::Full { path },
        _ => StoreError::Open { path, source },
    }
}

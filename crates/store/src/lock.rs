//! One collector per database: advisory locks on FILE.lock, beside the database, and on the database's inode.
//!
//! FILE.lock contains the process id, for messages; it is removed at a clean exit. The lock on the inode also
//! excludes a collector that reaches the file by another path: symlinks, hard links, other mounts. Readers (the
//! sqlite3 shell, `benchmesh query`) check neither. Closing a descriptor of the database drops SQLite's own locks in
//! this process. Therefore an inode that this process has locked is never opened here a second time, and the lock is
//! released after SQLite has closed the file.

use crate::database::StoreError;
use rustix::fs::{FlockOperation, flock};
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Both locks of a database.
#[derive(Debug)]
pub(crate) struct Lock {
    _inode: InodeLock,
    _beside: LockFile,
}

impl Lock {
    /// Locks the database at `database`, or returns an error that names the process that holds it. A missing file is
    /// created empty.
    pub(crate) fn take(database: &Path) -> Result<Self, StoreError> {
        // The lock file is beside a symlink's target.
        let real = std::fs::canonicalize(database);
        let beside = LockFile::take(real.as_deref().unwrap_or(database))?;
        Ok(Self {
            _inode: InodeLock::take(database)?,
            _beside: beside,
        })
    }
}

/// Device and inode.
type FileId = (u64, u64);

/// The databases that this process has locked.
static HELD: LazyLock<Mutex<HashSet<FileId>>> = LazyLock::new(Mutex::default);

/// The lock of the database's inode.
#[derive(Debug)]
struct InodeLock {
    id: FileId,
    _file: File,
}

impl InodeLock {
    fn take(database: &Path) -> Result<Self, StoreError> {
        let failed = |source| refused(database, source);
        let in_use = |holder| StoreError::InUse {
            path: database.to_owned(),
            holder,
        };
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(there) = std::fs::metadata(database)
            && held.contains(&(there.dev(), there.ino()))
        {
            return Err(in_use(Some(std::process::id())));
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            // A new database is private to its owner; SQLite gives its companion files the same mode.
            .mode(0o600)
            .open(database)
            .map_err(failed)?;
        let there = file.metadata().map_err(failed)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(in_use(flock_holder(there.ino()))),
            Err(errno) => return Err(failed(errno.into())),
        }
        let id = (there.dev(), there.ino());
        held.insert(id);
        Ok(Self { id, _file: file })
    }
}

impl Drop for InodeLock {
    fn drop(&mut self) {
        let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        held.remove(&self.id);
    }
}

/// The process that holds an flock on a file with this inode number, from `/proc/locks`: `3: FLOCK  ADVISORY  WRITE
/// 1234 08:01:131 0 EOF`.
fn flock_holder(inode: u64) -> Option<u32> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = words.as_slice() else {
            return None;
        };
        (file.rsplit(':').next()?.parse() == Ok(inode)).then(|| pid.parse().ok())?
    })
}

/// The lock of FILE.lock.
#[derive(Debug)]
struct LockFile {
    file: File,
    path: PathBuf,
}

impl LockFile {
    fn take(database: &Path) -> Result<Self, StoreError> {
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
            // The previous holder may have removed the file between our open and our lock.
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

impl Drop for LockFile {
    fn drop(&mut self) {
        if is_still_at(&self.file, &self.path)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(path = %self.path.display(), %error, "cannot remove the lock file");
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

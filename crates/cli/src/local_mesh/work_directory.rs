//! A directory that a command makes for itself: removed at its end, or by the next such command if it was killed.
//!
//! A locked file in it shows that its owner is alive; the kernel releases the lock when the process ends. On a file
//! system without locks there is no such file, and then nothing but its owner removes the directory.

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

const OWNER: &str = "owner";

/// Errors from file systems without locks, such as some mounts of Lustre and NFS.
const NO_LOCKS: [Errno; 3] = [Errno::NOLCK, Errno::OPNOTSUPP, Errno::NOSYS];

/// A directory owned by this process.
#[derive(Debug)]
pub struct WorkDirectory {
    /// Keeps the lock; `None` if there are no locks. Closed before the directory is removed: on NFS, an open file stays
    /// in its directory.
    owner: Option<File>,
    directory: TempDir,
}

impl WorkDirectory {
    /// Creates one for `command` among the temporary files, and removes those of killed owners.
    pub fn make(command: &str) -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        Self::make_in(&parent, command).with_context(|| {
            format!(
                "make a temporary directory in {}; set TMPDIR to use another directory",
                parent.display()
            )
        })
    }

    /// The same in another directory.
    pub fn make_in(parent: &Path, command: &str) -> anyhow::Result<Self> {
        Self::make_locked(parent, command, |owner| {
            flock(owner, FlockOperation::NonBlockingLockExclusive)
        })
    }

    fn make_locked(
        parent: &Path,
        command: &str,
        lock: impl FnOnce(&File) -> Result<(), Errno>,
    ) -> anyhow::Result<Self> {
        let prefix = prefix(command);
        sweep(parent, &prefix);
        let directory = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent)?;
        let path = directory.path().join(OWNER);
        let owner = File::create_new(&path)?;
        let owner = match lock(&owner) {
            Ok(()) => Some(owner),
            Err(error) if NO_LOCKS.contains(&error) => {
                // A host with locks would take the directory for an abandoned one.
                std::fs::remove_file(&path)?;
                None
            }
            Err(error) => return Err(error.into()),
        };
        Ok(Self { owner, directory })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes it with its content.
    pub fn remove(self) -> anyhow::Result<()> {
        let Self { owner, directory } = self;
        let path = directory.path().to_owned();
        if let Some(owner) = owner {
            // Without this file nobody else removes the directory. If it cannot be removed, the directory cannot
            // either.
            let _ = std::fs::remove_file(path.join(OWNER));
            drop(owner);
        }
        directory
            .close()
            .with_context(|| format!("remove {}", path.display()))
    }
}

fn prefix(command: &str) -> String {
    format!("benchmesh-{command}-")
}

/// Removes directories whose owner is gone. Those that cannot be read or removed stay.
fn sweep(parent: &Path, prefix: &str) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(prefix) && is_abandoned(&entry.path()) {
            match std::fs::remove_dir_all(entry.path()) {
                Ok(()) => tracing::info!(
                    "removed {}, left by a command that was killed",
                    entry.path().display()
                ),
                Err(error) => tracing::debug!(%error, "remove {}", entry.path().display()),
            }
        }
    }
}

fn is_abandoned(directory: &Path) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    if !std::fs::symlink_metadata(directory)
        .is_ok_and(|found| found.is_dir() && found.uid() == ours)
    {
        return false;
    }
    // A directory without an owner file is being created or removed, or its file system has no locks.
    File::open(directory.join(OWNER))
        .is_ok_and(|owner| flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_abandoned_is_swept() {
        let parent = tempfile::tempdir().unwrap();
        let living = WorkDirectory::make_in(parent.path(), "test").unwrap();
        let being_made = parent.path().join(prefix("test") + "new");
        let foreign = parent.path().join("other");
        let abandoned = parent.path().join(prefix("test") + "old");
        for directory in [&being_made, &foreign, &abandoned] {
            std::fs::create_dir_all(directory.join("state")).unwrap();
        }
        for directory in [&foreign, &abandoned] {
            std::fs::write(directory.join(OWNER), "").unwrap();
        }
        sweep(parent.path(), &prefix("test"));
        assert!(living.path().exists() && being_made.exists() && foreign.exists());
        assert!(!abandoned.exists());
        let path = living.path().to_owned();
        living.remove().unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn without_locks_only_its_owner_removes_it() {
        let parent = tempfile::tempdir().unwrap();
        for error in NO_LOCKS {
            let made = WorkDirectory::make_locked(parent.path(), "test", |_| Err(error)).unwrap();
            sweep(parent.path(), &prefix("test"));
            assert!(made.path().exists(), "{error}");
            made.remove().unwrap();
        }
        let refused = WorkDirectory::make_locked(parent.path(), "test", |_| Err(Errno::IO));
        assert!(refused.is_err());
        assert_eq!(std::fs::read_dir(parent.path()).unwrap().count(), 0);
    }
}

//! The temporary directory of a quickstart: removed at its end, or by the next quickstart if it was killed.
//!
//! A locked file in it shows that its owner is alive; the kernel releases the lock when the process ends.

use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "benchmesh-quickstart-";
const OWNER: &str = "owner";

/// A temporary directory owned by this process.
#[derive(Debug)]
pub struct WorkDirectory {
    directory: TempDir,
    /// Keeps the lock.
    _owner: File,
}

impl WorkDirectory {
    /// Creates one, and removes those of killed owners.
    pub fn make() -> anyhow::Result<Self> {
        let parent = std::env::temp_dir();
        sweep(&parent);
        Self::make_in(&parent)
    }

    fn make_in(parent: &Path) -> anyhow::Result<Self> {
        let what = || {
            format!(
                "make a temporary directory in {}; set TMPDIR to use another directory",
                parent.display()
            )
        };
        let directory = tempfile::Builder::new()
            .prefix(PREFIX)
            .tempdir_in(parent)
            .with_context(what)?;
        let owner = File::create_new(directory.path().join(OWNER)).with_context(what)?;
        flock(&owner, FlockOperation::NonBlockingLockExclusive).with_context(what)?;
        Ok(Self {
            directory,
            _owner: owner,
        })
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Removes it with its content.
    pub fn remove(self) -> anyhow::Result<()> {
        let path = self.directory.path().to_owned();
        self.directory
            .close()
            .with_context(|| format!("remove {}", path.display()))
    }
}

/// Removes quickstart directories whose owner is gone. Those that cannot be read or removed stay.
fn sweep(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_abandoned(&entry.path()) {
            match std::fs::remove_dir_all(entry.path()) {
                Ok(()) => tracing::info!(
                    "removed {}, left by a quickstart that was killed",
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
    // A directory without an owner file is being created.
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
        let living = WorkDirectory::make_in(parent.path()).unwrap();
        let being_made = parent.path().join(format!("{PREFIX}new"));
        let foreign = parent.path().join("other");
        let abandoned = parent.path().join(format!("{PREFIX}old"));
        for directory in [&being_made, &foreign, &abandoned] {
            std::fs::create_dir_all(directory.join("state")).unwrap();
        }
        for directory in [&foreign, &abandoned] {
            std::fs::write(directory.join(OWNER), "").unwrap();
        }
        sweep(parent.path());
        assert!(living.path().exists() && being_made.exists() && foreign.exists());
        assert!(!abandoned.exists());
        let path = living.path().to_owned();
        living.remove().unwrap();
        assert!(!path.exists());
    }
}

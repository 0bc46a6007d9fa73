//! Database files of local meshes. The name of a new one is always unused, even if two commands start at the same
//! instant.

use anyhow::Context;
use benchmesh_answers::query;
use std::cell::Cell;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Maximum number of names tried: `x.db`, `x-2.db`, ...
const NAMES: u32 = 1000;

/// A file created empty to reserve its name. Removed again unless a run began in it.
#[derive(Debug)]
pub struct NewDatabase {
    path: PathBuf,
    kept: Cell<bool>,
}

impl NewDatabase {
    /// Reserves the first free name.
    pub fn reserve(wanted: &Path) -> anyhow::Result<Self> {
        for number in 1..=NAMES {
            let path = numbered(wanted, number);
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(_) => {
                    return Ok(Self {
                        path,
                        kept: Cell::new(false),
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!(
                            "make the database {}; choose another file with --db FILE",
                            path.display()
                        )
                    });
                }
            }
        }
        anyhow::bail!(
            "{} and {} further names exist; choose another with --db FILE",
            wanted.display(),
            NAMES - 1
        )
    }

    /// From now on the database contains a run and is kept.
    pub fn keep(&self) {
        self.kept.set(true);
    }

    pub fn is_kept(&self) -> bool {
        self.kept.get()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for NewDatabase {
    fn drop(&mut self) {
        if !self.kept.get() {
            for suffix in ["", "-wal", "-shm", ".lock"] {
                // Nothing was measured. Files that cannot be removed do no harm.
                let _ = std::fs::remove_file(with_suffix(&self.path, suffix));
            }
        }
    }
}

/// Converts a database to a single file without a write-ahead log. No process may have it open.
pub async fn seal(path: &Path) -> anyhow::Result<()> {
    query::seal(path)
        .await
        .with_context(|| format!("close the database {}", path.display()))?;
    // A collector holds this lock while it lives; a killed one leaves the file behind.
    let lock = with_suffix(path, ".lock");
    match std::fs::remove_file(&lock) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", lock.display()))
        }
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// `x.db`, then `x-2.db`, `x-3.db`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    if number == 1 {
        return path.to_owned();
    }
    let mut name = OsString::from(path.file_stem().unwrap_or_default());
    name.push(format!("-{number}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_taken_name_is_never_taken_again() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("my.mesh.db");
        std::fs::write(&wanted, "mine").unwrap();
        let second = NewDatabase::reserve(&wanted).unwrap();
        let third = NewDatabase::reserve(&wanted).unwrap();
        assert_eq!(second.path(), directory.path().join("my.mesh-2.db"));
        assert_eq!(third.path(), directory.path().join("my.mesh-3.db"));
        std::fs::write(second.path(), "made and not used").unwrap();
        std::fs::write(third.path(), "measured").unwrap();
        let kept = third.path().to_owned();
        third.keep();
        drop((second, third));
        assert_eq!(std::fs::read_to_string(&wanted).unwrap(), "mine");
        assert_eq!(std::fs::read_to_string(kept).unwrap(), "measured");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
        assert!(NewDatabase::reserve(&directory.path().join("no/such/x.db")).is_err());
    }

    #[test]
    fn names_without_an_extension_are_numbered_too() {
        assert_eq!(numbered(Path::new("a/x"), 2), Path::new("a/x-2"));
        assert_eq!(numbered(Path::new("x.db"), 1), Path::new("x.db"));
    }
}

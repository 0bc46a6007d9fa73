//! Files readable only by their owner, replaced atomically.

use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Creates a directory and its parents for their owner alone. An existing one keeps its mode.
///
/// # Errors
///
/// When it cannot be created.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file with mode 0600 atomically, also in case of a crash.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Created with mode 0600.
    let mut draft = tempfile::NamedTempFile::new_in(directory)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    draft.persist(path)?;
    File::open(directory)?.sync_all()
}

/// Reads a private file of this user; `None`: it does not exist.
///
/// # Errors
///
/// When others can read or write it, when it is another user's, or when it cannot be read.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let found = file.metadata()?;
    if found.uid() != geteuid().as_raw() {
        let problem = "it belongs to another user";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    if found.mode() & 0o077 != 0 {
        let problem = format!("others can read it: chmod 600 {}", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, problem));
    }
    io::read_to_string(file).map(Some)
}

/// Removes a file if it exists.
///
/// # Errors
///
/// When it cannot be removed.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn files_are_private_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/file");
        make_directory(path.parent().unwrap()).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(path.parent().unwrap()), 0o700);
        assert_eq!(read(&path).unwrap(), None);
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(mode(&path), 0o600);
        assert_eq!(read(&path).unwrap().as_deref(), Some("two"));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.to_string().contains("chmod 600"), "{error}");
        remove(&path).unwrap();
        remove(&path).unwrap();
    }
}

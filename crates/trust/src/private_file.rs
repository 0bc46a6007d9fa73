//! Files readable only by their owner, replaced atomically.

use rustix::fs::OFlags;
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// The names of files under construction begin with it.
const DRAFT: &str = ".tmp";

/// Creates a directory and its parents for their owner alone. An existing one keeps its mode.
///
/// # Errors
///
/// When it cannot be created.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file with mode 0600 atomically, also in case of a crash, which may leave a draft beside it.
///
/// # Errors
///
/// When it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (draft, directory) = draft(path, bytes)?;
    draft.persist(path)?;
    File::open(directory)?.sync_all()
}

/// Like [`write`], for a file that does not exist yet.
///
/// # Errors
///
/// `AlreadyExists`, or when it cannot be written.
pub fn create(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (draft, directory) = draft(path, bytes)?;
    draft.persist_noclobber(path)?;
    File::open(directory)?.sync_all()
}

/// A complete file beside `path`, and their directory.
fn draft(path: &Path, bytes: &[u8]) -> io::Result<(NamedTempFile, PathBuf)> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // Created with mode 0600.
    let mut draft = tempfile::Builder::new()
        .prefix(DRAFT)
        .tempfile_in(directory)?;
    draft.write_all(bytes)?;
    draft.as_file().sync_all()?;
    Ok((draft, directory.to_owned()))
}

/// Removes drafts that were left by a crash, in a directory with one writer.
///
/// # Errors
///
/// When the directory cannot be read, or one cannot be removed.
pub fn remove_drafts(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_draft = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(DRAFT.as_bytes());
        if is_draft && entry.file_type()?.is_file() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Opens an existing regular file for reading. Another kind, such as a named pipe without a writer, is refused.
///
/// # Errors
///
/// When it cannot be opened, or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    Ok(file)
}

/// Reads a private file of this user; `None`: it does not exist.
///
/// # Errors
///
/// When others can read or write it, when it is another user's, or when it cannot be read.
pub fn read(path: &Path) -> io::Result<Option<String>> {
    let file = match open(path) {
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

    /// Opening one blocks until a writer comes.
    #[test]
    fn a_named_pipe_is_refused_at_once() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }

    #[test]
    fn a_file_is_created_once_and_drafts_of_a_crash_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        create(&path, b"one").unwrap();
        let error = create(&path, b"two").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        let (left, _) = draft(&path, b"three").unwrap();
        left.keep().unwrap();
        fs::create_dir(directory.path().join(".tmp-of-another")).unwrap();
        remove_drafts(directory.path()).unwrap();
        let names = fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, [".tmp-of-another", "file"]);
        assert_eq!(read(&path).unwrap().as_deref(), Some("one"));
    }

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

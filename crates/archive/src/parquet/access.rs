//! Who may read what an export writes: those who may read the database.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// The modes of files and folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    file: u32,
    folder: u32,
}

impl Access {
    /// That of the database: a folder may be entered where a file may be read.
    pub fn of(database: &Path) -> io::Result<Self> {
        Ok(Self::of_mode(std::fs::metadata(database)?.mode()))
    }

    fn of_mode(mode: u32) -> Self {
        // Its owner writes, also where the database is only read.
        let file = (mode & 0o666) | 0o600;
        Self {
            file,
            folder: file | ((file & 0o444) >> 2),
        }
    }

    /// Opens a file for writing, empty.
    pub fn create_file(self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(self.file)
            .open(path)?;
        let mode = file.metadata()?.mode();
        permit(mode, self.file, |mode| file.set_permissions(mode))?;
        Ok(file)
    }

    /// Makes the folders that are missing. Those that are there stay as they are.
    pub fn create_folders(self, path: &Path) -> io::Result<()> {
        if path.as_os_str().is_empty() || path.is_dir() {
            return Ok(());
        }
        if let Some(parent) = path.parent() {
            self.create_folders(parent)?;
        }
        match DirBuilder::new().mode(self.folder).create(path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        let mode = std::fs::metadata(path)?.mode();
        permit(mode, self.folder, |mode| {
            std::fs::set_permissions(path, mode)
        })
    }
}

/// Gives what was made the bits that the umask took. File systems without modes refuse it.
fn permit(
    mode: u32,
    wanted: u32,
    set: impl FnOnce(Permissions) -> io::Result<()>,
) -> io::Result<()> {
    if mode & 0o777 == wanted {
        return Ok(());
    }
    // A folder inherits the bit that hands on its group.
    let wanted = Permissions::from_mode((mode & 0o7000) | wanted);
    match set(wanted) {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_may_be_entered_by_those_who_may_read_files() {
        for (database, file, folder) in [
            (0o100_600, 0o600, 0o700),
            (0o100_640, 0o640, 0o750),
            (0o100_644, 0o644, 0o755),
            (0o100_660, 0o660, 0o770),
            (0o100_440, 0o640, 0o750),
        ] {
            assert_eq!(
                Access::of_mode(database),
                Access { file, folder },
                "{database:o}"
            );
        }
    }
}

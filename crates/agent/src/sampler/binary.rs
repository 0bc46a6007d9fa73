//! The file of a running program, from `/proc/PID/exe`.
//!
//! The link leads to the file that runs, even if a package upgrade has put another file at its path.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel appends it to the path of a file that has been unlinked.
const DELETED: &str = " (deleted)";

/// Identifies one content of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
    modified_s: i64,
    modified_ns: i64,
}

impl FileId {
    fn of(file: &Metadata) -> Self {
        Self {
            device: file.dev(),
            inode: file.ino(),
            modified_s: file.mtime(),
            modified_ns: file.mtime_nsec(),
        }
    }
}

/// The file that a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) file: FileId,
    pub(crate) path: String,
    /// The file was removed or replaced since the process started it.
    pub(crate) is_replaced: bool,
}

impl Binary {
    /// The program that the process at `directory` (`/proc/PID`) runs. `None` for a kernel thread, and without the
    /// right to look.
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let link = directory.join("exe");
        let path = fs::read_link(&link).ok()?;
        let file = fs::metadata(&link).ok()?;
        let path = path.to_string_lossy().into_owned();
        Some(Self {
            file: FileId::of(&file),
            is_replaced: path.ends_with(DELETED),
            path,
        })
    }

    /// Whether the agent has the same file at the same path in its own mounts. A container's files belong to no package
    /// of this host.
    pub(crate) fn is_at_its_path(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| FileId::of(&found) == self.file)
    }
}

//! The file of a running program, from `/proc/PID/exe`.
//!
//! The link leads to the file that runs, even if a package upgrade has put another file at its path.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The kernel appends it to the path of a file that has been unlinked.
const DELETED: &[u8] = b" (deleted)";
/// Write permission of group and others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
const ROOT: u32 = 0;

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
    /// The file was removed or replaced since the process started it.
    pub(crate) is_replaced: bool,
}

/// Why a file is not executed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotTrusted {
    #[error("the process runs another file by now")]
    Another,
    #[error("it is not root's, or others may write to it")]
    Owner,
    #[error("it is not the file at this path in the agent's own mounts")]
    Container,
    #[error("it cannot be opened")]
    Open(#[source] io::Error),
}

impl Binary {
    /// The program that the process at `directory` (`/proc/PID`) runs. `None` for a kernel thread, and without the
    /// right to look.
    pub(crate) fn of(directory: &Path) -> Option<Self> {
        let link = directory.join("exe");
        let path = fs::read_link(&link).ok()?;
        let file = fs::metadata(&link).ok()?;
        Some(Self {
            file: FileId::of(&file),
            is_replaced: path.as_os_str().as_bytes().ends_with(DELETED),
        })
    }

    /// The file, opened for execution. It must be writable by root only, and belong to this host rather than to a
    /// container.
    pub(crate) fn open_trusted(&self, directory: &Path) -> Result<File, NotTrusted> {
        let link = directory.join("exe");
        let path = fs::read_link(&link).map_err(NotTrusted::Open)?;
        let file = File::open(&link).map_err(NotTrusted::Open)?;
        let found = file.metadata().map_err(NotTrusted::Open)?;
        if FileId::of(&found) != self.file {
            return Err(NotTrusted::Another);
        }
        let is_writable = found.mode() & WRITABLE_BY_OTHERS != 0;
        if !found.is_file() || found.uid() != ROOT || is_writable {
            return Err(NotTrusted::Owner);
        }
        let is_own = match path.as_os_str().as_bytes().strip_suffix(DELETED) {
            Some(_) => has_mounts_of_agent(directory),
            None => fs::metadata(&path).is_ok_and(|own| FileId::of(&own) == self.file),
        };
        match is_own {
            true => Ok(file),
            false => Err(NotTrusted::Container),
        }
    }
}

fn has_mounts_of_agent(directory: &Path) -> bool {
    let namespace = |directory: &Path| fs::read_link(directory.join("ns/mnt")).ok();
    let own = namespace(Path::new("/proc/self"));
    own.is_some() && namespace(directory) == own
}

//! Removes a tree beneath open descriptors: resolves no name twice, follows no symlink, touches nothing above.
//!
//! Each directory is listed from its beginning until it is empty, so file systems may lose the listing's position while
//! entries vanish. Entries removed by other processes meanwhile are no error. A listing that keeps naming removed
//! entries is an error, so that removal ends on any file system.

use super::SandboxError;
use super::dir::{DIRECTORY, Dir, open_beneath};
use rustix::fs::{AtFlags, FileType, Mode, RawDir, SeekFrom};
use rustix::io::Errno;
use std::collections::HashSet;
use std::ffi::{CString, OsStr};
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LISTING_BYTES: usize = 64 << 10;
/// Entries between two calls of `progress`.
const PROGRESS_EVERY: u64 = 1000;
/// How many listings in a row may contain removed entries only: a cached listing may lag behind for a moment.
const STALE_LISTINGS: u32 = 16;

impl Dir {
    /// Removes the directory of that name with its contents; a missing one is no error. `progress` gets the number of
    /// removed entries now and then.
    pub fn remove_all(
        &self,
        name: &str,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SandboxError> {
        let Some(top) = self.dir_not_mounted_on(OsStr::new(name))? else {
            return Ok(());
        };
        Removal::new(progress).empty(top, None)?;
        match rustix::fs::unlinkat(self.fd(), name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error("remove", name, errno)),
        }
    }
}

/// Removes everything in `dir` except the file `kept`.
pub(super) fn remove_contents(
    dir: &Dir,
    kept: &str,
    progress: &mut dyn FnMut(u64),
) -> Result<(), SandboxError> {
    let again = open_beneath(&dir.fd(), Path::new("."), DIRECTORY, Mode::empty())
        .map_err(|errno| dir.error("open", ".", errno))?;
    let top = Dir::new(again, dir.path().to_owned());
    Removal::new(progress).empty(top, Some(kept))
}

struct Removal<'a> {
    listing: Vec<MaybeUninit<u8>>,
    removed: u64,
    progress: &'a mut dyn FnMut(u64),
}

/// A directory on the path down, and its subdirectories that are not emptied yet.
struct Level {
    dir: Dir,
    subdirs: Vec<CString>,
    /// The names of the last listing, all of which were removed.
    gone: HashSet<CString>,
    /// Number of listings in a row without a new name.
    stale: u32,
}

impl Level {
    fn new(dir: Dir) -> Level {
        Level {
            dir,
            subdirs: Vec::new(),
            gone: HashSet::new(),
            stale: 0,
        }
    }

    /// Takes the names of a listing. An error if the file system keeps naming removed entries.
    fn listed(&mut self, names: HashSet<CString>) -> Result<(), SandboxError> {
        let Some(first) = names.iter().min() else {
            return Ok(());
        };
        self.stale = match names.is_subset(&self.gone) {
            true => self.stale + 1,
            false => 0,
        };
        if self.stale > STALE_LISTINGS {
            return Err(SandboxError::Io {
                doing: "get rid of",
                path: self.dir.path().join(OsStr::from_bytes(first.to_bytes())),
                source: io::Error::other(format!(
                    "its file system still lists it after it was removed {STALE_LISTINGS} times"
                )),
            });
        }
        self.gone = names;
        Ok(())
    }
}

impl Removal<'_> {
    fn new(progress: &mut dyn FnMut(u64)) -> Removal<'_> {
        Removal {
            listing: vec![MaybeUninit::uninit(); LISTING_BYTES],
            removed: 0,
            progress,
        }
    }

    /// Empties `top`, except for the file `kept` directly in it.
    fn empty(&mut self, top: Dir, kept: Option<&str>) -> Result<(), SandboxError> {
        let mut levels = vec![Level::new(top)];
        while let Some(depth) = levels.len().checked_sub(1) {
            let Some(level) = levels.last_mut() else {
                break;
            };
            if let Some(name) = level.subdirs.last() {
                match open_subdir(&level.dir, name)? {
                    Some(dir) => levels.push(Level::new(dir)),
                    None => drop(level.subdirs.pop()),
                }
                continue;
            }
            let kept = if depth == 0 { kept } else { None };
            if self.sweep(level, kept)? {
                continue;
            }
            levels.pop();
            if let Some(above) = levels.last_mut()
                && let Some(name) = above.subdirs.pop()
            {
                self.unlink(&above.dir, &name, AtFlags::REMOVEDIR)?;
            }
        }
        (self.progress)(self.removed);
        Ok(())
    }

    /// Removes the files of one listing and notes its subdirectories. False if nothing was left.
    fn sweep(&mut self, level: &mut Level, kept: Option<&str>) -> Result<bool, SandboxError> {
        let listing = |errno| SandboxError::io("list", level.dir.path(), errno);
        rustix::fs::seek(level.dir.fd(), SeekFrom::Start(0)).map_err(listing)?;
        let mut names = Vec::new();
        let mut entries = RawDir::new(level.dir.fd(), &mut self.listing);
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(Errno::NOENT) => break,
                Err(errno) => return Err(listing(errno)),
            };
            let name = entry.file_name();
            let stays = [Some(c".".to_bytes()), Some(b".."), kept.map(str::as_bytes)];
            if !stays.contains(&Some(name.to_bytes())) {
                names.push((name.to_owned(), entry.file_type()));
            }
            if entries.is_buffer_empty() && !names.is_empty() {
                break;
            }
        }
        level.listed(names.iter().map(|(name, _)| name.clone()).collect())?;
        let found = !names.is_empty();
        for (name, kind) in names {
            let is_dir = kind == FileType::Directory
                || (kind == FileType::Unknown && is_directory(&level.dir, &name)?);
            match is_dir {
                true => level.subdirs.push(name),
                false => self.unlink(&level.dir, &name, AtFlags::empty())?,
            }
        }
        Ok(found)
    }

    fn unlink(&mut self, dir: &Dir, name: &CString, flags: AtFlags) -> Result<(), SandboxError> {
        match rustix::fs::unlinkat(dir.fd(), name, flags) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(dir.error("remove", &name.to_string_lossy(), errno)),
        }
        self.removed += 1;
        if self.removed.is_multiple_of(PROGRESS_EVERY) {
            (self.progress)(self.removed);
        }
        Ok(())
    }
}

/// Opens a subdirectory on the same mount. Other mounts in the tree are not ours to empty, not even a bind mount of the
/// same file system.
fn open_subdir(dir: &Dir, name: &CString) -> Result<Option<Dir>, SandboxError> {
    dir.dir_not_mounted_on(OsStr::from_bytes(name.to_bytes()))
}

/// For file systems whose listings lack the file type.
fn is_directory(dir: &Dir, name: &CString) -> Result<bool, SandboxError> {
    match rustix::fs::statat(dir.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(dir.error("stat", &name.to_string_lossy(), errno)),
    }
}

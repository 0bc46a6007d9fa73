//! A directory by its open descriptor: names are opened beneath it and nowhere else.

use super::{SandboxError, Space};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

pub(super) const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW);

/// Attempts at an open that concurrent renames disturb.
const MAX_TRIES: u32 = 10_000;

/// A directory that stays the same even if its name changes.
#[derive(Debug)]
pub struct Dir {
    fd: OwnedFd,
    /// For messages only; never resolved again.
    path: PathBuf,
}

impl Dir {
    pub(super) fn new(fd: OwnedFd, path: PathBuf) -> Dir {
        Dir { fd, path }
    }

    /// The descriptor, for system calls on names in it. Such a call has to refuse symlinks itself (O_NOFOLLOW,
    /// AT_SYMLINK_NOFOLLOW) and to use a single component.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Its path when it was opened, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a regular file with one link beneath it. Refuses symlinks, devices, pipes, sockets and hard links: other
    /// users who may write to the target could put one in the place of a file.
    pub fn open(&self, name: &str, flags: OFlags, mode: Mode) -> Result<OwnedFd, SandboxError> {
        // NONBLOCK: opening a pipe or a device must not wait for its other end.
        let asked = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let file = match open_beneath(&self.fd, Path::new(name), asked, mode) {
            Ok(file) => file,
            // A pipe without a reader, or a socket.
            Err(Errno::NXIO) => return Err(self.not_ours(name, "a pipe or a socket")),
            Err(errno) => return Err(self.error("open", name, errno)),
        };
        let facts = rustix::fs::fstat(&file).map_err(|errno| self.error("stat", name, errno))?;
        if let Some(what) = foreign_kind(&facts) {
            return Err(self.not_ours(name, what));
        }
        if !flags.contains(OFlags::NONBLOCK) {
            rustix::fs::fcntl_getfl(&file)
                .and_then(|flags| rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK))
                .map_err(|errno| self.error("open", name, errno))?;
        }
        Ok(file)
    }

    fn not_ours(&self, name: &str, what: &'static str) -> SandboxError {
        SandboxError::Replaced {
            path: self.path.join(name),
            what,
        }
    }

    /// The directory of that name; `None` if it does not exist.
    pub fn dir(&self, name: &str) -> Result<Option<Dir>, SandboxError> {
        match open_beneath(&self.fd, Path::new(name), DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(Some(Dir::new(fd, self.path.join(name)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("open", name, errno)),
        }
    }

    /// As [`Dir::dir`], but refuses mount points, even bind mounts of the same file system.
    pub(super) fn dir_not_mounted_on(&self, name: &OsStr) -> Result<Option<Dir>, SandboxError> {
        let mounted = || SandboxError::NotOurs {
            path: self.path.join(name),
            why: "something is mounted there".to_owned(),
        };
        let shown = name.to_string_lossy();
        match open_same_mount(&self.fd, Path::new(name), DIRECTORY) {
            Ok(fd) => match is_same_mount(&self.fd, &fd) {
                true => Ok(Some(Dir::new(fd, self.path.join(name)))),
                false => Err(mounted()),
            },
            Err(Errno::XDEV) => Err(mounted()),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("open", &shown, errno)),
        }
    }

    /// The directory of that name; creates it if needed.
    pub fn make_dir(&self, name: &str) -> Result<Dir, SandboxError> {
        super::check_name("directory", name)?;
        match rustix::fs::mkdirat(&self.fd, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(self.error("make", name, errno)),
        }
        self.dir(name)?
            .ok_or_else(|| self.error("open", name, Errno::NOENT))
    }

    /// The size of a regular file; `None` if it does not exist.
    pub fn file_bytes(&self, name: &str) -> Result<Option<u64>, SandboxError> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                Ok(Some(u64::try_from(stat.st_size).unwrap_or(0)))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.error("stat", name, errno)),
        }
    }

    /// Removes a file; a missing one is no error.
    pub fn remove_file(&self, name: &str) -> Result<(), SandboxError> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.error("remove", name, errno)),
        }
    }

    /// Its entries, unordered; names that are not UTF-8 are converted lossily.
    pub fn names(&self) -> Result<Vec<String>, SandboxError> {
        let failed = |errno| SandboxError::io("list", &self.path, errno);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if name != "." && name != ".." {
                names.push(name.into_owned());
            }
        }
        Ok(names)
    }

    /// Bytes of its file system that an unprivileged user may still use; `u64::MAX` if the file system does not report
    /// its size.
    pub fn free_bytes(&self) -> Result<u64, SandboxError> {
        Space::of(&self.fd)
            .map(|space| space.free_bytes)
            .map_err(|errno| SandboxError::io("ask for the free space of", &self.path, errno))
    }

    /// Device number of its file system: directories with the same number share their free space.
    pub fn device(&self) -> Result<u64, SandboxError> {
        rustix::fs::fstat(&self.fd)
            .map(|stat| stat.st_dev)
            .map_err(|errno| SandboxError::io("stat", &self.path, errno))
    }

    /// Writes back all data of its file system.
    pub fn sync(&self) -> Result<(), SandboxError> {
        rustix::fs::syncfs(&self.fd).map_err(|errno| SandboxError::io("sync", &self.path, errno))
    }

    pub(super) fn error(&self, doing: &'static str, name: &str, errno: Errno) -> SandboxError {
        SandboxError::io(doing, self.path.join(name), errno)
    }
}

/// Describes a file that is not a regular file with one link; `None` for one that is.
pub(crate) fn foreign_kind(facts: &Stat) -> Option<&'static str> {
    Some(match FileType::from_raw_mode(facts.st_mode) {
        FileType::RegularFile if facts.st_nlink > 1 => "a file with another name elsewhere",
        FileType::RegularFile => return None,
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a character device",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::Directory => "a directory",
        FileType::Symlink | FileType::Unknown => "no regular file",
    })
}

/// As [`open_beneath`], and refuses mount points on the way if the kernel can.
fn open_same_mount(dir: &impl AsFd, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    if !has_openat2() {
        return open_by_component(dir.as_fd(), path, flags, Mode::empty());
    }
    open_resolved(dir, path, flags, Mode::empty(), ResolveFlags::NO_XDEV)
}

/// Whether both are on the same mount. The kernel reports the mount of each open file since 3.15; without that the
/// device decides, which is the same on both sides of a bind mount.
fn is_same_mount(one: &OwnedFd, other: &OwnedFd) -> bool {
    let mount = |fd: &OwnedFd| {
        let facts = format!("/proc/self/fdinfo/{}", fd.as_raw_fd());
        let facts = std::fs::read_to_string(facts).ok()?;
        let id = facts
            .lines()
            .find_map(|line| line.strip_prefix("mnt_id:"))?;
        id.trim().parse::<u64>().ok()
    };
    let device = |fd: &OwnedFd| rustix::fs::fstat(fd).map(|facts| facts.st_dev);
    mount(one) == mount(other) && device(one).is_ok_and(|one| device(other) == Ok(one))
}

/// Opens `path` beneath `dir`: refuses symlinks, `..` and absolute paths.
pub(super) fn open_beneath(
    dir: &impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    if !has_openat2() {
        return open_by_component(dir.as_fd(), path, flags, mode);
    }
    // Unlike openat, openat2 refuses a mode if the call cannot create a file.
    let mode = match flags.contains(OFlags::CREATE) {
        true => mode,
        false => Mode::empty(),
    };
    open_resolved(dir, path, flags, mode, ResolveFlags::empty())
}

fn open_resolved(
    dir: &impl AsFd,
    path: &Path,
    flags: OFlags,
    mode: Mode,
    more: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let resolve = resolve | more;
    let mut tries = 0;
    loop {
        match rustix::fs::openat2(dir, path, flags, mode, resolve) {
            // The kernel could not rule out a concurrent rename and asks for a retry. A lease on the file returns the
            // same error.
            Err(Errno::AGAIN) if tries < MAX_TRIES => tries += 1,
            other => return other,
        }
    }
}

/// Kernels before 5.6 and the seccomp filters of some containers lack openat2.
fn has_openat2() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let probe = rustix::fs::openat2(
            rustix::fs::CWD,
            "/",
            flags,
            Mode::empty(),
            ResolveFlags::empty(),
        );
        probe.is_ok()
    })
}

pub(super) fn open_by_component(
    dir: BorrowedFd<'_>,
    path: &Path,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => {
                return Err(Errno::XDEV);
            }
        }
    }
    let Some((last, parents)) = names.split_last() else {
        return rustix::fs::openat(dir, ".", flags, mode);
    };
    let mut held: Option<OwnedFd> = None;
    for name in parents {
        let at = held.as_ref().map_or(dir, AsFd::as_fd);
        held = Some(rustix::fs::openat(
            at,
            *name,
            DIRECTORY | OFlags::PATH,
            Mode::empty(),
        )?);
    }
    let at = held.as_ref().map_or(dir, AsFd::as_fd);
    rustix::fs::openat(at, *last, flags | OFlags::NOFOLLOW, mode)
}

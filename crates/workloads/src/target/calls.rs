//! The system calls of each operation on one file or directory: no clock, no allocation, no formatting.
//!
//! Every name is a single component in a directory that is kept open, and symlinks are refused, so nothing outside of
//! the tree is reached. Preparation uses the same calls as the measured loops.

use crate::target::sandbox::foreign_kind;
use crate::target::write_buffer::WriteBuffer;
use rustix::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, openat};
use rustix::io::{Errno, retry_on_intr};
use std::ffi::CStr;
use std::mem::MaybeUninit;

/// Flags for opening a directory to list it.
pub(crate) const OPEN_DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// A failed call and its offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallError {
    pub errno: Errno,
    pub offset: Option<u64>,
}

impl From<Errno> for CallError {
    fn from(errno: Errno) -> Self {
        Self {
            errno,
            offset: None,
        }
    }
}

impl CallError {
    pub(crate) fn at(errno: Errno, offset: u64) -> Self {
        Self {
            errno,
            offset: Some(offset),
        }
    }
}

/// Whether a written file is on stable storage when its operation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    No,
    Fsync,
}

const CREATE: OFlags = OFlags::CREATE
    .union(OFlags::EXCL)
    .union(OFlags::WRONLY)
    .union(OFlags::CLOEXEC);
/// If another user replaced a file with a pipe, the open must not wait for a writer. Opening a device for reading does
/// no harm.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const APPEND: OFlags = OFlags::WRONLY
    .union(OFlags::APPEND)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const WRITE_OVER: OFlags = OFlags::WRONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const EMPTIED: OFlags = OFlags::WRONLY
    .union(OFlags::TRUNC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);
const FILE_MODE: Mode = Mode::RUSR
    .union(Mode::WUSR)
    .union(Mode::RGRP)
    .union(Mode::ROTH);

/// Creates a file that must not exist yet.
#[inline]
pub(crate) fn open_new(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(dir, name, CREATE, FILE_MODE))
}

/// As [`open_new`], with more flags, such as O_DIRECT.
#[inline]
pub(crate) fn open_new_with(
    dir: BorrowedFd<'_>,
    name: &CStr,
    more: OFlags,
) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(dir, name, CREATE | more, FILE_MODE))
}

/// Opens an existing file and truncates it. Refuses (EPERM) what [`check_regular`] refuses; checks it by name first, as
/// cp does, because the open truncates at once.
#[inline]
pub(crate) fn open_emptied_with(
    dir: BorrowedFd<'_>,
    name: &CStr,
    more: OFlags,
) -> Result<OwnedFd, Errno> {
    let facts = retry_on_intr(|| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW))?;
    if foreign_kind(&facts).is_some() {
        return Err(Errno::PERM);
    }
    let file = retry_on_intr(|| openat(dir, name, EMPTIED | more, Mode::empty()))?;
    check_regular(file.as_fd())?;
    Ok(file)
}

#[inline]
pub(crate) fn open_to_read_with(
    dir: BorrowedFd<'_>,
    name: &CStr,
    more: OFlags,
) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(dir, name, READ | more, Mode::empty()))
}

#[inline]
pub(crate) fn open_to_read(dir: BorrowedFd<'_>, name: &CStr) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| openat(dir, name, READ, Mode::empty()))
}

/// Refuses (EPERM) to write to anything but a regular file with one link, such as a device or a hard link placed there
/// by another user.
#[inline]
pub(crate) fn check_regular(file: BorrowedFd<'_>) -> Result<(), Errno> {
    match foreign_kind(&rustix::fs::fstat(file)?) {
        None => Ok(()),
        Some(_) => Err(Errno::PERM),
    }
}

/// Closes a descriptor and returns the error: network file systems report a failed write here at the latest.
#[inline]
pub(crate) fn close(fd: OwnedFd) -> Result<(), Errno> {
    // SAFETY: the descriptor is owned, and not used after this.
    let result = unsafe { libc::close(fd.into_raw_fd()) };
    if result == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().raw_os_error() {
        // Linux has closed it all the same, and no data are known to be lost.
        Some(libc::EINTR) | None => Ok(()),
        Some(errno) => Err(Errno::from_raw_os_error(errno)),
    }
}

/// Open, write `bytes` in units of the data's capacity, fsync where asked, close. `index` identifies the content.
/// `allow` is called before each write with the offset and the bytes to write, and returns how many of them may be
/// written.
#[inline]
pub(crate) fn create(
    dir: BorrowedFd<'_>,
    name: &CStr,
    index: u64,
    bytes: u64,
    data: &mut WriteBuffer,
    durable: Durable,
    allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<u64, CallError> {
    let fd = open_new(dir, name)?;
    write_and_close(fd, index, bytes, data, durable, allow)
}

/// Open, overwrite `bytes` in units of the data's capacity, fsync where asked, close. A longer file keeps
/// its length. Refuses (EPERM) what [`check_regular`] refuses.
#[inline]
pub(crate) fn write_over(
    dir: BorrowedFd<'_>,
    name: &CStr,
    index: u64,
    bytes: u64,
    data: &mut WriteBuffer,
    durable: Durable,
    allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<u64, CallError> {
    let fd = retry_on_intr(|| openat(dir, name, WRITE_OVER, Mode::empty()))?;
    check_regular(fd.as_fd())?;
    write_and_close(fd, index, bytes, data, durable, allow)
}

#[inline]
fn write_and_close(
    fd: OwnedFd,
    index: u64,
    bytes: u64,
    data: &mut WriteBuffer,
    durable: Durable,
    mut allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<u64, CallError> {
    let mut written = 0;
    while written < bytes {
        let wanted = usize::try_from(bytes - written).unwrap_or(usize::MAX);
        let mut block = data.stamped(index, written, wanted);
        while !block.is_empty() {
            let chunk = allowed_part(&mut block, written, &mut allow)?;
            write_all(fd.as_fd(), chunk, &mut written)?;
        }
    }
    if durable == Durable::Fsync {
        rustix::fs::fsync(&fd).map_err(|errno| CallError::at(errno, written))?;
    }
    close(fd).map_err(|errno| CallError::at(errno, written))?;
    Ok(written)
}

/// Whether an append must check for hard links, because another name could be another user's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HardLinks {
    /// The kernel lets users link only to files that they may write (`fs.protected_hardlinks`).
    Protected,
    /// One fstat per file.
    Check,
}

impl HardLinks {
    /// The setting of this kernel; `Check` if it cannot be read.
    pub(crate) fn of_kernel() -> Self {
        match std::fs::read("/proc/sys/fs/protected_hardlinks") {
            Ok(setting) if setting.trim_ascii() == b"1" => Self::Protected,
            _ => Self::Check,
        }
    }
}

/// The offset of every append. Linux appends to a regular file at its end whatever the offset (pwrite(2), "BUGS"). A
/// block device ends before this offset (ENOSPC), and pipes and terminals take no offset (ESPIPE). So only a regular
/// file takes the data, and no extra system call has to check the type.
const APPEND_OFFSET: u64 = 1 << 62;

/// Open for appending, write `bytes` in units of the data's capacity, fsync where asked, close. The file had `had`
/// bytes before. Refuses (EPERM) anything but a regular file.
#[inline]
pub(crate) fn append(
    dir: BorrowedFd<'_>,
    name: &CStr,
    (index, had): (u64, u64),
    bytes: u64,
    data: &mut WriteBuffer,
    (durable, links): (Durable, HardLinks),
    mut allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<u64, CallError> {
    let fd = retry_on_intr(|| openat(dir, name, APPEND, Mode::empty()))?;
    if links == HardLinks::Check {
        check_regular(fd.as_fd())?;
    }
    let mut written = 0;
    let at = |failed: CallError| CallError {
        offset: failed.offset.map(|offset| offset + had),
        ..failed
    };
    while written < bytes {
        let wanted = usize::try_from(bytes - written).unwrap_or(usize::MAX);
        let mut block = data.stamped(index, had + written, wanted);
        while !block.is_empty() {
            let chunk = allowed_part(&mut block, had + written, &mut allow)?;
            let write = |rest: &[u8]| rustix::io::pwrite(&fd, rest, APPEND_OFFSET);
            write_all_by(write, chunk, &mut written).map_err(|failed| {
                let foreign = check_regular(fd.as_fd()).err();
                at(CallError {
                    errno: foreign.unwrap_or(failed.errno),
                    ..failed
                })
            })?;
        }
    }
    if durable == Durable::Fsync {
        rustix::fs::fsync(&fd).map_err(|errno| at(CallError::at(errno, written)))?;
    }
    close(fd).map_err(|errno| at(CallError::at(errno, written)))?;
    Ok(written)
}

/// Takes the part of the block that may be written at `offset` now.
#[inline]
pub(crate) fn allowed_part<'a>(
    block: &mut &'a [u8],
    offset: u64,
    allow: impl FnOnce(u64, usize) -> Result<usize, Errno>,
) -> Result<&'a [u8], CallError> {
    let allowed = allow(offset, block.len()).map_err(|errno| CallError::at(errno, offset))?;
    let (chunk, rest) = block.split_at(allowed.clamp(1, block.len()));
    *block = rest;
    Ok(chunk)
}

#[inline]
pub(crate) fn write_all(
    fd: BorrowedFd<'_>,
    data: &[u8],
    written: &mut u64,
) -> Result<(), CallError> {
    write_all_by(|rest| rustix::io::write(fd, rest), data, written)
}

#[inline]
fn write_all_by(
    write: impl Fn(&[u8]) -> Result<usize, Errno>,
    mut rest: &[u8],
    written: &mut u64,
) -> Result<(), CallError> {
    while !rest.is_empty() {
        match write(rest) {
            Ok(0) => return Err(CallError::at(Errno::IO, *written)),
            Ok(count) => {
                *written += u64::try_from(count).unwrap_or(0);
                rest = rest.get(count..).unwrap_or_default();
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(CallError::at(errno, *written)),
        }
    }
    Ok(())
}

/// Open, read the `bytes` of the file, close. A file that ends earlier is an error (NODATA).
#[inline]
pub(crate) fn read(
    dir: BorrowedFd<'_>,
    name: &CStr,
    bytes: u64,
    buffer: &mut [u8],
    mut allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<u64, CallError> {
    let fd = open_to_read(dir, name)?;
    let mut have = 0;
    while have < bytes {
        let room = buffer.len();
        let allowed = allow(have, room).map_err(|errno| CallError::at(errno, have))?;
        let block = buffer.get_mut(..allowed.min(room)).unwrap_or_default();
        match rustix::io::read(&fd, block) {
            Ok(0) => return Err(CallError::at(Errno::NODATA, have)),
            Ok(count) => have += u64::try_from(count).unwrap_or(0),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(CallError::at(errno, have)),
        }
    }
    close(fd)?;
    Ok(have)
}

/// Fills the block. A file that ends earlier is an error (NODATA). `offset` is used for the error only.
#[inline]
pub(crate) fn read_full(
    fd: BorrowedFd<'_>,
    block: &mut [u8],
    offset: u64,
) -> Result<(), CallError> {
    let mut filled = 0;
    while let Some(rest) = block.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = |errno| CallError::at(errno, offset + u64::try_from(filled).unwrap_or(0));
        match rustix::io::read(fd, rest) {
            Ok(0) => return Err(at(Errno::NODATA)),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(at(errno)),
        }
    }
    Ok(())
}

/// Whether a file that was read up to `offset` ends there; reads a byte.
pub(crate) fn is_at_end(fd: BorrowedFd<'_>, offset: u64) -> Result<bool, CallError> {
    match retry_on_intr(|| rustix::io::read(fd, &mut [0_u8][..])) {
        Ok(count) => Ok(count == 0),
        Err(errno) => Err(CallError::at(errno, offset)),
    }
}

#[inline]
pub(crate) fn stat(dir: BorrowedFd<'_>, name: &CStr) -> Result<u64, Errno> {
    let facts = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(u64::try_from(facts.st_size).unwrap_or(0))
}

#[inline]
pub(crate) fn delete(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(dir, name, AtFlags::empty())
}

#[inline]
pub(crate) fn make_directory(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::mkdirat(dir, name, Mode::RWXU)
}

#[inline]
pub(crate) fn remove_directory(dir: BorrowedFd<'_>, name: &CStr) -> Result<(), Errno> {
    rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

#[inline]
pub(crate) fn make_symlink(dir: BorrowedFd<'_>, name: &CStr, target: &CStr) -> Result<(), Errno> {
    rustix::fs::symlinkat(target, dir, name)
}

/// A buffer for `list`.
pub(crate) fn listing_buffer() -> Vec<MaybeUninit<u8>> {
    // Enough for a directory of 1000 of our files in one call.
    vec![MaybeUninit::new(1); 64 << 10]
}

/// Opens a directory, reads its names to the end, closes it. Leaves out hidden names (`.`, `..`, a network file
/// system's placeholders for deleted files).
#[inline]
pub(crate) fn list(
    parent: BorrowedFd<'_>,
    name: &CStr,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(&CStr),
) -> Result<(), Errno> {
    list_in(parent, name, buffer, |_, name| {
        each(name);
        Ok(())
    })
}

/// As [`list`], passing the opened directory with each name; ends at the first error.
#[inline]
pub(crate) fn list_in(
    parent: BorrowedFd<'_>,
    name: &CStr,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(BorrowedFd<'_>, &CStr) -> Result<(), Errno>,
) -> Result<(), Errno> {
    list_all(parent, name, buffer, |dir, name, _| {
        match name.to_bytes().starts_with(b".") {
            true => Ok(()),
            false => each(dir, name),
        }
    })
}

/// As [`list_in`], with hidden names except `.` and `..`, and with the file type in the listing.
#[inline]
pub(crate) fn list_all(
    parent: BorrowedFd<'_>,
    name: &CStr,
    buffer: &mut [MaybeUninit<u8>],
    mut each: impl FnMut(BorrowedFd<'_>, &CStr, FileType) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let fd = retry_on_intr(|| openat(parent, name, OPEN_DIRECTORY, Mode::empty()))?;
    {
        let mut entries = RawDir::new(&fd, buffer);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                each(fd.as_fd(), entry.file_name(), entry.file_type())?;
            }
        }
    }
    close(fd)
}

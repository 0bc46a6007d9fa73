//! Small kernel files that are read repeatedly: kept open, or opened each time if descriptors are short.
//!
//! A kept descriptor of `/proc/PID/...` always belongs to that process: it answers ESRCH once the process is reaped,
//! even if its pid is reused. A file that is opened each time gives no such guarantee, so its owner compares the start
//! ticks.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;

/// Files that are read here are far smaller; a larger one is not the expected file.
const TEXT_MAX: usize = 4 << 20;
const TEXT_MIN: usize = 16 << 10;

/// The buffer into which every text is read.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Vec<u8>,
}

impl Buffer {
    pub(crate) fn new() -> Buffer {
        Buffer {
            bytes: vec![0; TEXT_MIN],
        }
    }

    /// The result of a single read. Files of a process are complete in one read.
    pub(crate) fn fill_once(&mut self, fd: &OwnedFd) -> Result<&[u8], Errno> {
        loop {
            let length = retry(|| rustix::io::pread(fd, self.bytes.as_mut_slice(), 0))?;
            if length < self.bytes.len() {
                return Ok(self.bytes.get(..length).unwrap_or_default());
            }
            self.grow()?;
        }
    }

    /// Reads to the end: lists of devices arrive in pieces of a page.
    fn fill(&mut self, fd: &OwnedFd) -> Result<&[u8], Errno> {
        let mut length = 0usize;
        loop {
            let Some(room) = self.bytes.get_mut(length..).filter(|room| !room.is_empty()) else {
                self.grow()?;
                continue;
            };
            let offset = u64::try_from(length).unwrap_or(u64::MAX);
            match retry(|| rustix::io::pread(fd, &mut *room, offset))? {
                0 => return Ok(self.bytes.get(..length).unwrap_or_default()),
                read => length = length.saturating_add(read),
            }
        }
    }

    /// Reads only the first bytes.
    fn fill_head(&mut self, fd: &OwnedFd, head: usize) -> Result<&[u8], Errno> {
        let head = head.min(self.bytes.len());
        let room = self.bytes.get_mut(..head).unwrap_or_default();
        let length = retry(|| rustix::io::pread(fd, &mut *room, 0))?;
        Ok(self.bytes.get(..length).unwrap_or_default())
    }

    fn grow(&mut self) -> Result<(), Errno> {
        let size = self.bytes.len().saturating_mul(2);
        if size > TEXT_MAX {
            return Err(Errno::FBIG);
        }
        self.bytes.resize(size, 0);
        Ok(())
    }
}

fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

/// Whether a file stays open between readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    Open,
    /// Because descriptors are short.
    Anew,
}

/// The part of a file to read.
#[derive(Debug, Clone, Copy)]
enum Extent {
    OneRead,
    Whole,
    Head(usize),
}

#[derive(Debug)]
pub(crate) struct ProcFile {
    path: CString,
    kept: Option<OwnedFd>,
}

impl ProcFile {
    /// Opens the file in either case, so that a missing or forbidden one is detected at once.
    pub(crate) fn open(path: &Path, keeping: Keeping) -> Result<ProcFile, Errno> {
        let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
        let file = open(&path)?;
        Ok(ProcFile {
            path,
            kept: (keeping == Keeping::Open).then_some(file),
        })
    }

    pub(crate) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    pub(crate) fn read_once<'buffer>(
        &self,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], Errno> {
        self.read(buffer, Extent::OneRead)
    }

    pub(crate) fn read_whole<'buffer>(
        &self,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], Errno> {
        self.read(buffer, Extent::Whole)
    }

    pub(crate) fn read_head<'buffer>(
        &self,
        buffer: &'buffer mut Buffer,
        head: usize,
    ) -> Result<&'buffer [u8], Errno> {
        self.read(buffer, Extent::Head(head))
    }

    fn read<'buffer>(
        &self,
        buffer: &'buffer mut Buffer,
        extent: Extent,
    ) -> Result<&'buffer [u8], Errno> {
        let anew;
        let fd = match &self.kept {
            Some(fd) => fd,
            None => {
                anew = open(&self.path)?;
                &anew
            }
        };
        match extent {
            Extent::OneRead => buffer.fill_once(fd),
            Extent::Whole => buffer.fill(fd),
            Extent::Head(head) => buffer.fill_head(fd, head),
        }
    }
}

fn open(path: &CString) -> Result<OwnedFd, Errno> {
    retry(|| {
        rustix::fs::openat(
            CWD,
            path.as_c_str(),
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY,
            Mode::empty(),
        )
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_whole_files_however_long() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("long");
        let text = "0123456789abcde\n".repeat(TEXT_MIN / 4);
        std::fs::write(&path, &text).unwrap();
        let mut buffer = Buffer::new();
        for keeping in [Keeping::Open, Keeping::Anew] {
            let file = ProcFile::open(&path, keeping).unwrap();
            assert_eq!(file.read_whole(&mut buffer).unwrap(), text.as_bytes());
            assert_eq!(file.read_once(&mut buffer).unwrap(), text.as_bytes());
            assert_eq!(file.read_head(&mut buffer, 10).unwrap(), b"0123456789");
        }
    }

    #[test]
    fn an_endless_file_is_refused() {
        let file = ProcFile::open(Path::new("/dev/zero"), Keeping::Open).unwrap();
        assert_eq!(file.read_whole(&mut Buffer::new()), Err(Errno::FBIG));
    }

    #[test]
    fn a_missing_file_says_so() {
        assert_eq!(
            ProcFile::open(Path::new("/proc/none/stat"), Keeping::Anew).err(),
            Some(Errno::NOENT)
        );
    }
}

//! Copies one file from one directory into another, like cp: in the kernel, through a buffer, or past the caches.
//!
//! It does not depend on trees, clocks or modes. With `auto` it finds out with the first file whether the kernel can
//! copy, and remembers it, because that depends on the two file systems and not on the file.

use crate::engine::author::*;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::fs::{FileType, OFlags, copy_file_range, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;

/// Most bytes per call; a stop is noticed between two calls. At 20 MB/s a call takes 0.4 s.
const CHUNK_BYTES: usize = 8 << 20;
/// Largest alignment that O_DIRECT requires of lengths and offsets.
pub(super) const DIRECT_BYTES: usize = 4096;

declare_words! {
    /// How bytes go from one file to the other.
    pub(super) enum CopyMethod {
        /// copy_file_range; read and write where the kernel cannot.
        Auto = "auto",
        CopyFileRange = "copy-file-range",
        ReadWrite = "read-write",
        /// read and write, with O_DIRECT on the side of the target.
        Direct = "direct",
    }
}

/// The file that is on the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetSide {
    From,
    To,
}

/// Destination of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// A file that does not exist.
    New,
    /// An existing file, which is truncated.
    Existing,
}

/// Outcome of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copied {
    Whole(u64),
    /// Stopped before the end. A new file is removed; an existing one keeps what was copied.
    Stopped,
}

#[derive(Debug)]
pub(super) struct Engine {
    in_kernel: bool,
    may_fall_back: bool,
    direct: Option<TargetSide>,
    onto: Destination,
    buffer: Pages,
}

/// Refuses (EPERM) anything but a regular file.
fn check_ends(source: BorrowedFd<'_>) -> Result<(), Errno> {
    match FileType::from_raw_mode(rustix::fs::fstat(source)?.st_mode) {
        FileType::RegularFile => Ok(()),
        _ => Err(Errno::PERM),
    }
}

impl Engine {
    pub(super) fn new(
        method: CopyMethod,
        target: TargetSide,
        buffer_bytes: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            in_kernel: matches!(method, CopyMethod::Auto | CopyMethod::CopyFileRange),
            may_fall_back: method == CopyMethod::Auto,
            direct: (method == CopyMethod::Direct).then_some(target),
            onto: Destination::New,
            buffer: Pages::new(buffer_bytes)?,
        })
    }

    /// Returns the same engine with another destination.
    pub(super) fn onto(self, onto: Destination) -> Self {
        Self { onto, ..self }
    }

    /// Copies a whole file of at least `bytes`; a source that ends before is an error (NODATA). `allow` is called
    /// before each chunk with the bytes copied so far and the bytes of the chunk, and returns how many of them may be
    /// copied now; an error stops the copy.
    pub(super) fn copy(
        &mut self,
        (from, to): (BorrowedFd<'_>, BorrowedFd<'_>),
        name: &CStr,
        bytes: u64,
        durable: Durable,
        mut allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
    ) -> Result<Copied, CallError> {
        let flags = |side| match self.direct == Some(side) {
            true => OFlags::DIRECT,
            false => OFlags::empty(),
        };
        let source = calls::open_to_read_with(from, name, flags(TargetSide::From))?;
        let copy = match self.onto {
            Destination::New => calls::open_new_with(to, name, flags(TargetSide::To))?,
            Destination::Existing => calls::open_emptied_with(to, name, flags(TargetSide::To))?,
        };
        let mut copied = 0;
        loop {
            let Ok(most) = allow(copied, self.most_per_call()) else {
                drop(copy);
                if self.onto == Destination::New {
                    calls::delete(to, name)?;
                }
                return Ok(Copied::Stopped);
            };
            if !self.step((source.as_fd(), copy.as_fd()), (bytes, most), &mut copied)? {
                break;
            }
            if copied > bytes {
                // Longer than expected: a file that has grown, or a device without an end.
                check_ends(source.as_fd()).map_err(|errno| CallError::at(errno, copied))?;
            }
        }
        if copied < bytes {
            return Err(CallError::at(Errno::NODATA, copied));
        }
        if durable == Durable::Fsync {
            rustix::fs::fsync(&copy).map_err(|errno| CallError::at(errno, copied))?;
        }
        calls::close(copy).map_err(|errno| CallError::at(errno, copied))?;
        calls::close(source)?;
        Ok(Copied::Whole(copied))
    }

    /// Bytes of a call that must not be divided, because the plan chooses them; 0 if it does not.
    pub(super) fn chosen_call(&self) -> usize {
        match self.in_kernel {
            true => 0,
            false => self.buffer.len(),
        }
    }

    fn most_per_call(&self) -> usize {
        match self.in_kernel {
            true => CHUNK_BYTES,
            false => self.buffer.len(),
        }
    }

    /// Copies one chunk of at most `most` bytes; false at the end of the source, which is expected after `bytes`.
    fn step(
        &mut self,
        (source, copy): (BorrowedFd<'_>, BorrowedFd<'_>),
        (bytes, most): (u64, usize),
        copied: &mut u64,
    ) -> Result<bool, CallError> {
        // At the end of the source, where nothing is left to allow, a call has to ask for something.
        let most = match most {
            0 => DIRECT_BYTES,
            most => most,
        };
        if self.in_kernel {
            match copy_file_range(source, None, copy, None, most) {
                // Some file systems return 0 for files of unknown size; only a read can tell.
                Ok(0) if self.may_fall_back => {}
                Ok(0) => return Ok(false),
                Ok(count) => {
                    *copied += u64::try_from(count).unwrap_or(0);
                    return Ok(true);
                }
                Err(Errno::INTR) => return Ok(true),
                Err(Errno::XDEV | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM)
                    if *copied == 0 && self.may_fall_back =>
                {
                    self.in_kernel = false;
                }
                Err(errno) => return Err(CallError::at(errno, *copied)),
            }
        }
        // O_DIRECT moves whole blocks; a read may ask for more than is left.
        let most = match self.direct {
            Some(_) => most.next_multiple_of(DIRECT_BYTES),
            None => most,
        };
        let room = most.min(self.buffer.len());
        let block = self.buffer.get_mut(..room).unwrap_or_default();
        let mut count = match rustix::io::read(source, block) {
            Ok(0) => return Ok(false),
            Ok(count) => count,
            Err(Errno::INTR) => return Ok(true),
            Err(errno) => return Err(CallError::at(errno, *copied)),
        };
        let left = usize::try_from(bytes.saturating_sub(*copied)).unwrap_or(usize::MAX);
        if self.direct.is_some() && !count.is_multiple_of(DIRECT_BYTES) && count < left {
            count = self
                .complete_block(source, count)
                .map_err(|errno| CallError::at(errno, *copied))?;
        }
        let chunk = self.buffer.get(..count).unwrap_or_default();
        let odd = count % DIRECT_BYTES;
        if self.direct != Some(TargetSide::To) || odd == 0 {
            calls::write_all(copy, chunk, copied)?;
            // With O_DIRECT a read that ends within a block has reached the end, and another read there is not allowed.
            return Ok(self.direct != Some(TargetSide::From) || odd == 0);
        }
        // The last partial block cannot be written with O_DIRECT; dd writes it through the cache too.
        let (whole, rest) = chunk.split_at(count - odd);
        calls::write_all(copy, whole, copied)?;
        through_the_cache(copy).map_err(|errno| CallError::at(errno, *copied))?;
        calls::write_all(copy, rest, copied)?;
        Ok(true)
    }

    /// Continues a read that ended within a block before the end of the file: reads to the end of the block or of the
    /// file, after the first `count` bytes of the buffer. Returns the bytes in the buffer.
    #[cold]
    fn complete_block(&mut self, source: BorrowedFd<'_>, count: usize) -> Result<usize, Errno> {
        let until = count.next_multiple_of(DIRECT_BYTES).min(self.buffer.len());
        let past_the_cache = match self.direct {
            Some(TargetSide::From) => Some(through_the_cache(source)?),
            _ => None,
        };
        let mut have = count;
        while let Some(rest) = self
            .buffer
            .get_mut(have..until)
            .filter(|rest| !rest.is_empty())
        {
            match rustix::io::read(source, rest) {
                Ok(0) => break,
                Ok(more) => have += more,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        if let Some(flags) = past_the_cache {
            fcntl_setfl(source, flags)?;
        }
        Ok(have)
    }
}

/// Turns O_DIRECT off, so that partial blocks can be moved; returns the previous flags.
fn through_the_cache(file: BorrowedFd<'_>) -> Result<OFlags, Errno> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags - OFlags::DIRECT)?;
    Ok(flags)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::fs::{self, File};
    use std::path::Path;

    const BOTH: [TargetSide; 2] = [TargetSide::From, TargetSide::To];

    fn copy_between(from: &Path, to: &Path, method: CopyMethod, target: TargetSide) {
        let mut engine = Engine::new(method, target, 8192).unwrap();
        let dirs = (File::open(from).unwrap(), File::open(to).unwrap());
        for (name, bytes) in [(c"empty", 0_u64), (c"small", 999), (c"large", 3_000_001)] {
            let name_text = name.to_str().unwrap();
            let content: Vec<u8> = (0..bytes).map(|i| u8::try_from(i % 251).unwrap()).collect();
            fs::write(from.join(name_text), &content).unwrap();
            let copied = engine.copy(
                (dirs.0.as_fd(), dirs.1.as_fd()),
                name,
                bytes,
                Durable::Fsync,
                |_, wanted| Ok(wanted),
            );
            assert_eq!(copied, Ok(Copied::Whole(bytes)));
            assert_eq!(fs::read(to.join(name_text)).unwrap(), content);
        }
    }

    #[test]
    fn a_copy_is_the_same_file_on_every_way_and_between_file_systems() {
        // O_DIRECT needs a disk, and a temporary directory may not be on one.
        let on_disk = || tempfile::tempdir_in("/var/tmp").unwrap();
        for method in [
            CopyMethod::Auto,
            CopyMethod::CopyFileRange,
            CopyMethod::ReadWrite,
            CopyMethod::Direct,
        ] {
            for target in BOTH {
                let (here, there) = (on_disk(), on_disk());
                copy_between(here.path(), there.path(), method, target);
            }
        }
        for method in [CopyMethod::Auto, CopyMethod::ReadWrite] {
            let (here, there) = (on_disk(), tempfile::tempdir_in("/dev/shm").unwrap());
            copy_between(here.path(), there.path(), method, TargetSide::To);
        }
    }

    /// A pipe returns pieces of any size. All but a partial block at the end bypasses the cache.
    #[test]
    fn a_read_that_ends_within_a_block_is_not_the_end() {
        for (target, pieces, bytes) in [
            (TargetSide::To, [3000, 5192, 1, 4095], 12_288),
            (TargetSide::From, [3000, 5192, 1, 4095], 12_288),
            (TargetSide::From, [3000, 5192, 1, 999], 9192),
        ] {
            let there = tempfile::tempdir_in("/var/tmp").unwrap();
            let dir = File::open(there.path()).unwrap();
            let mut engine = Engine::new(CopyMethod::Direct, target, 8192).unwrap();
            let (source, end) = io::pipe().unwrap();
            let more = match target {
                TargetSide::To => OFlags::DIRECT,
                TargetSide::From => OFlags::empty(),
            };
            if target == TargetSide::From {
                fcntl_setfl(&source, fcntl_getfl(&source).unwrap() | OFlags::DIRECT).unwrap();
            }
            let copy = calls::open_new_with(dir.as_fd(), c"copy", more).unwrap();
            let (mut copied, mut written) = (0, Vec::new());
            for piece in pieces {
                let piece: Vec<u8> = (written.len()..written.len() + piece)
                    .map(|at| u8::try_from(at % 251).unwrap())
                    .collect();
                written.extend_from_slice(&piece);
            }
            let content = written.clone();
            let writer = std::thread::spawn(move || {
                let mut rest = &content[..];
                for piece in pieces {
                    let (now, later) = rest.split_at(piece);
                    calls::write_all(end.as_fd(), now, &mut 0).unwrap();
                    // Write the next piece once this one has been read.
                    while rustix::io::ioctl_fionread(&end).unwrap() > 0 {
                        std::thread::yield_now();
                    }
                    rest = later;
                }
            });
            while engine
                .step((source.as_fd(), copy.as_fd()), (bytes, 8192), &mut copied)
                .unwrap()
            {}
            assert_eq!(copied, bytes);
            writer.join().unwrap();
            assert_eq!(fs::read(there.path().join("copy")).unwrap(), written);
            let direct = match target {
                TargetSide::To => copy.as_fd(),
                TargetSide::From => source.as_fd(),
            };
            assert!(fcntl_getfl(direct).unwrap().contains(OFlags::DIRECT));
        }
    }

    #[test]
    fn a_stop_leaves_no_partial_copy_and_a_short_source_is_an_error() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(here.path().join("file"), vec![7; 5000]).unwrap();
        let dirs = (
            File::open(here.path()).unwrap(),
            File::open(there.path()).unwrap(),
        );
        let dirs = (dirs.0.as_fd(), dirs.1.as_fd());
        let mut engine = Engine::new(CopyMethod::Auto, TargetSide::To, 1000).unwrap();
        let stopped = engine.copy(dirs, c"file", 5000, Durable::No, |_, _| {
            Err(Errno::CANCELED)
        });
        assert_eq!(stopped, Ok(Copied::Stopped));
        assert!(!there.path().join("file").exists());
        let short = engine.copy(dirs, c"file", 6000, Durable::No, |_, wanted| Ok(wanted));
        assert_eq!(short, Err(CallError::at(Errno::NODATA, 5000)));
        // An existing file is not removed.
        let mut engine = engine.onto(Destination::Existing);
        let stopped = engine.copy(dirs, c"file", 5000, Durable::No, |_, _| {
            Err(Errno::CANCELED)
        });
        assert_eq!(stopped, Ok(Copied::Stopped));
        assert!(there.path().join("file").exists());
    }
}

//! A tar archive that the agent may read, plain or compressed, as the source of a tree.
//!
//! It is read as a stream, and memory is bounded whatever the archive claims (decompressors' windows, long names,
//! numbers of entries). It is read completely before anything is created, so that an archive that cannot be unpacked is
//! refused as a whole. Everything read after that is still checked.

use super::compressed::decompressed;
use super::source::{EntryKind, SourceError, TreeEntry, TreeSource};
use super::tar::{self, BLOCK_BYTES, Block, ExtendedHeader, Header};
use crate::engine::author::BLOCK_BYTES as FILE_SYSTEM_BLOCK_BYTES;
use crate::engine::author::*;
use rustix::fs::{FileType, Mode, OFlags, fstat};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a file that are read and decompressed before its clock starts. The rest of a larger file is read between
/// its writes, which does not count in their time.
pub(super) const READ_AHEAD_BYTES: usize = 8 << 20;
/// Limit on an extended header, which holds only a path or two.
const MAX_EXTRA_BYTES: u64 = 1 << 20;
/// Limit on a chain of extended headers; a single one would suffice.
const MAX_EXTRAS: u32 = 16;
const MAX_ENTRIES: u64 = 50_000_000;
/// After its end an archive is padded to a whole record.
const MAX_AFTER_END_BYTES: u64 = 64 << 20;

/// An opened archive.
pub(super) struct Archive {
    path: PathBuf,
    file: File,
}

impl Archive {
    pub(super) fn open(path: &Path, sources: &Allowed) -> Result<Self, TaskError> {
        let path = sources.permits(path).map_err(TaskError::Sandbox)?;
        let opening = |errno: rustix::io::Errno| {
            TaskError::io(format!("open the archive `{}`", path.display()), errno)
        };
        let unsupported = |why: &str| TaskError::Unsupported {
            why: format!("`{}` {why}", path.display()),
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(unsupported("is no file"));
        };
        let parent = open_canonical(parent).map_err(TaskError::Sandbox)?;
        // Opening a pipe must not block before it is recognized as one.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = rustix::fs::openat(parent.fd(), name.as_bytes(), flags, Mode::empty())
            .map_err(opening)?;
        let facts = fstat(&fd).map_err(opening)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile {
            return Err(unsupported("is no regular file"));
        }
        Ok(Self {
            file: File::from(fd),
            path,
        })
    }

    /// Changes whenever the archive changes.
    pub(super) fn identity(&self) -> Result<String, TaskError> {
        let facts = fstat(&self.file)
            .map_err(|errno| TaskError::io(format!("look at `{}`", self.path.display()), errno))?;
        Ok(format!(
            "archive {} of {} bytes, {}.{:09}",
            self.path.display(),
            facts.st_size,
            facts.st_mtime,
            facts.st_mtime_nsec
        ))
    }

    pub(super) fn entries(self, unit: usize) -> Result<Entries, TaskError> {
        let path = self.path;
        let stream = decompressed(self.file)
            .map_err(cut_short)
            .map_err(|error| TaskError::io(format!("read `{}`", path.display()), error))?;
        Ok(Entries {
            stream,
            path,
            unit: unit.min(READ_AHEAD_BYTES),
            buffer: vec![1; READ_AHEAD_BYTES],
            have: 0,
            given: 0,
            from: 0,
            left: 0,
            padding: 0,
            ended: false,
            excluded: Duration::ZERO,
        })
    }
}

/// The entries of an archive, one after the other.
pub(super) struct Entries {
    stream: Box<dyn Read + Send>,
    path: PathBuf,
    unit: usize,
    buffer: Vec<u8>,
    /// Bytes of the entry's content: read into the buffer, consumed from it, and still in the stream (`left`).
    have: usize,
    given: usize,
    /// Start of the last piece.
    from: usize,
    left: u64,
    /// Padding after the content, up to a whole block.
    padding: u64,
    ended: bool,
    /// Time spent reading the archive while a file's content was being written.
    excluded: Duration,
}

impl Entries {
    /// The last piece.
    fn piece(&self) -> &[u8] {
        self.buffer.get(self.from..self.given).unwrap_or_default()
    }

    fn block(&mut self) -> io::Result<Block> {
        let mut block = [0; BLOCK_BYTES];
        self.stream.read_exact(&mut block).map_err(cut_short)?;
        Ok(block)
    }

    fn pass_over(&mut self, bytes: u64) -> io::Result<()> {
        let passed = io::copy(&mut (&mut self.stream).take(bytes), &mut io::sink())?;
        match passed == bytes {
            true => Ok(()),
            false => Err(cut_short(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let room = u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
        let wanted = usize::try_from(self.left.min(room)).unwrap_or(0);
        (self.have, self.given) = (0, 0);
        let buffer = self.buffer.get_mut(..wanted).unwrap_or_default();
        self.stream.read_exact(buffer).map_err(cut_short)?;
        self.have = wanted;
        self.left -= u64::try_from(wanted).unwrap_or(0);
        Ok(())
    }

    fn next_header(&mut self, entry: &mut TreeEntry) -> Result<bool, SourceError> {
        let mut extended = ExtendedHeader::default();
        let mut extras = 0;
        loop {
            let block = self.block()?;
            match tar::read(&block, &mut extended, entry)? {
                Header::End => return Ok(false),
                Header::Top => {}
                Header::Entry(bytes) => {
                    self.left = bytes;
                    self.padding = padding(bytes);
                    return Ok(true);
                }
                Header::Extra(extra, bytes) => {
                    extras += 1;
                    if bytes > MAX_EXTRA_BYTES || extras > MAX_EXTRAS {
                        let why = "the archive has an extended header that is too long";
                        return Err(SourceError::Refused(why.into()));
                    }
                    let mut content = vec![0; usize::try_from(bytes).unwrap_or(0)];
                    self.stream.read_exact(&mut content).map_err(cut_short)?;
                    self.pass_over(padding(bytes))?;
                    extended.apply(extra, &content)?;
                }
            }
        }
    }
}

fn padding(bytes: u64) -> u64 {
    let block = u64::try_from(BLOCK_BYTES).unwrap_or(1);
    bytes.next_multiple_of(block) - bytes
}

fn cut_short(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(
            error.kind(),
            "it is empty, or ends in the middle of an entry",
        ),
        _ => error,
    }
}

impl Entries {
    /// Moves to the next entry and leaves its content unread.
    fn next_unread(&mut self, entry: &mut TreeEntry) -> Result<bool, SourceError> {
        if self.ended {
            return Ok(false);
        }
        self.pass_over(self.left + self.padding)?;
        (self.left, self.padding, self.have, self.given) = (0, 0, 0, 0);
        if !self.next_header(entry)? {
            self.ended = true;
            self.read_rest()?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Reads to the end, because the compression's checksum may follow the end of the archive.
    fn read_rest(&mut self) -> Result<(), SourceError> {
        let mut rest = (&mut self.stream).take(MAX_AFTER_END_BYTES);
        match io::copy(&mut rest, &mut io::sink())? {
            MAX_AFTER_END_BYTES => {
                let why = "the archive goes on behind its end";
                Err(SourceError::Refused(why.into()))
            }
            _ => Ok(()),
        }
    }
}

impl TreeSource for Entries {
    fn next(&mut self, entry: &mut TreeEntry) -> Result<bool, SourceError> {
        let found = self.next_unread(entry)?;
        if found {
            self.fill()?;
        }
        Ok(found)
    }

    fn content(&mut self) -> io::Result<&[u8]> {
        if self.given == self.have && self.left > 0 {
            let began = MonoNanos::now();
            let filled = self.fill();
            self.excluded += MonoNanos::now().since(began);
            filled?;
        }
        self.from = self.given;
        self.given = self.have.min(self.from + self.unit);
        Ok(self.piece())
    }

    fn take_excluded_time(&mut self) -> Duration {
        std::mem::take(&mut self.excluded)
    }

    fn check(&self, found: &[u8], offset: u64, wrong: &mut Mismatches) {
        wrong.compare(self.piece(), found, offset);
    }
}

/// Totals of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contents {
    pub entries: u64,
    /// Space on a file system that allocates whole blocks.
    pub space: u64,
}

impl Contents {
    /// Reads an archive to its end. `room` is the limit on the space of one copy.
    pub(super) fn of(
        mut entries: Entries,
        room: u64,
        control: &PrepareControl,
    ) -> Result<Self, TaskError> {
        let path = entries.path.clone();
        let unsupported = |why: String| TaskError::Unsupported {
            why: format!("`{}`: {why}", path.display()),
        };
        let mut contents = Self {
            entries: 0,
            space: 0,
        };
        let mut entry = TreeEntry::new();
        loop {
            match entries.next_unread(&mut entry) {
                Ok(true) => {}
                Ok(false) if contents.entries == 0 => {
                    return Err(unsupported("the archive has no entry".into()));
                }
                Ok(false) => return Ok(contents),
                Err(SourceError::Refused(why)) => return Err(unsupported(why)),
                Err(SourceError::Io(error)) => {
                    return Err(TaskError::io(format!("read `{}`", path.display()), error));
                }
            }
            control.check()?;
            contents.entries += 1;
            let taken = match entry.kind {
                EntryKind::File => entry.bytes.next_multiple_of(FILE_SYSTEM_BLOCK_BYTES),
                EntryKind::Directory => FILE_SYSTEM_BLOCK_BYTES,
                EntryKind::Symlink | EntryKind::Link => 0,
            };
            contents.space = contents.space.saturating_add(taken);
            if contents.space > room {
                let space = contents.space;
                let why = format!(
                    "what it says to hold is more than the target has free ({space} bytes so far, {room} free for each worker)"
                );
                return Err(unsupported(why));
            }
            if contents.entries > MAX_ENTRIES {
                return Err(unsupported(format!(
                    "it has more than {MAX_ENTRIES} entries"
                )));
            }
            control.progress(contents.entries, 0, "entries found");
        }
    }
}

//! Reads a file back piece by piece, and compares each piece with the expected data.
//!
//! Does not know who wrote the file; an [`Original`] provides the pieces. Every wrong sector is reported. Generating
//! and comparing the expected data is excluded from the operation's time.

use super::calls::{self, CallError, read_full};
use super::fault::Fault;
use crate::measure::clock::MonoNanos;
use crate::measure::recorder::Began;
use crate::target::data::{Content, FoundData, Mismatch, Mismatches, Written};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use std::ffi::CStr;
use std::time::Duration;

/// The expected content of a file.
pub(crate) trait Original {
    /// Prepares the next piece, which begins at `offset`. Returns its length, at most `room`; 0 at the end.
    fn next(&mut self, offset: u64, room: usize) -> Result<usize, CallError>;

    /// Compares data read at `offset` with that piece, or with its beginning if the file has ended in it.
    fn check(&mut self, found: &[u8], offset: u64, wrong: &mut Mismatches);

    /// Whether the file has to end after the last piece.
    fn ends(&mut self, _offset: u64) -> Result<bool, CallError> {
        Ok(true)
    }
}

/// The result of an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub bytes: u64,
    /// Time to subtract from the operation.
    pub excluded: Duration,
}

impl Moved {
    pub(crate) const NOTHING: Self = Self {
        bytes: 0,
        excluded: Duration::ZERO,
    };

    /// Moves the begin later by the excluded time.
    #[inline]
    pub(crate) fn minus_excluded(self, began: Began) -> Began {
        Began {
            at: began.at.saturating_add(self.excluded),
            intended: began.intended.saturating_add(self.excluded),
        }
    }
}

impl From<u64> for Moved {
    #[inline]
    fn from(bytes: u64) -> Self {
        Self {
            bytes,
            ..Self::NOTHING
        }
    }
}

/// Open, read piece by piece, check that it ends there, close. `allow` is called before each
/// read with the offset and the bytes to read, and returns how many of them may be read.
pub(crate) fn read_back(
    dir: BorrowedFd<'_>,
    name: &CStr,
    buffer: &mut [u8],
    original: &mut impl Original,
    allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<Moved, Fault> {
    read_open(calls::open_to_read(dir, name)?, buffer, original, allow)
}

/// As [`read_back`], for an open file.
fn read_open(
    file: OwnedFd,
    buffer: &mut [u8],
    original: &mut impl Original,
    allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<Moved, Fault> {
    let mut pass = Pass {
        original,
        wrong: Mismatches::default(),
        excluded: Duration::ZERO,
    };
    let read = pass.through(file.as_fd(), buffer, allow);
    let Pass {
        wrong, excluded, ..
    } = pass;
    let closed = match read {
        Ok(_) => calls::close(file).map_err(CallError::from),
        Err(_) => Ok(()),
    };
    match read.and_then(|bytes| closed.map(|()| bytes)) {
        Ok(bytes) if wrong.is_empty() => Ok(Moved { bytes, excluded }),
        read => Err(Fault {
            failed: read.err(),
            mismatches: wrong,
        }),
    }
}

struct Pass<'a, O> {
    original: &'a mut O,
    wrong: Mismatches,
    excluded: Duration,
}

impl<O: Original> Pass<'_, O> {
    fn through(
        &mut self,
        file: BorrowedFd<'_>,
        buffer: &mut [u8],
        mut allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
    ) -> Result<u64, CallError> {
        let room = buffer.len();
        let mut have = 0;
        loop {
            let length = self.exclude(|original, _| original.next(have, room))?;
            if length == 0 {
                break;
            }
            let block = buffer.get_mut(..length.min(room)).unwrap_or_default();
            let read = read_by_chunks(file, block, have, &mut allow);
            let came = match read {
                Ok(()) => length,
                Err(CallError { offset, .. }) => {
                    let came = offset.unwrap_or(have).saturating_sub(have);
                    usize::try_from(came).unwrap_or(0)
                }
            };
            let came = block.get(..came).unwrap_or_default();
            self.exclude(|original, wrong| original.check(came, have, wrong));
            read?;
            have += u64::try_from(length).unwrap_or(0);
        }
        self.exclude(|original, wrong| {
            if original.ends(have)? && !calls::is_at_end(file, have)? {
                let (offset, found) = (have, FoundData::More);
                wrong.add(Mismatch { offset, found });
            }
            Ok(have)
        })
    }

    fn exclude<T>(&mut self, act: impl FnOnce(&mut O, &mut Mismatches) -> T) -> T {
        let began = MonoNanos::now();
        let done = act(self.original, &mut self.wrong);
        self.excluded += MonoNanos::now().since(began);
        done
    }
}

/// Fills the block with as many bytes at once as `allow` lets through.
fn read_by_chunks(
    file: BorrowedFd<'_>,
    mut block: &mut [u8],
    mut offset: u64,
    mut allow: impl FnMut(u64, usize) -> Result<usize, Errno>,
) -> Result<(), CallError> {
    while !block.is_empty() {
        let allowed = allow(offset, block.len()).map_err(|errno| CallError::at(errno, offset))?;
        let (chunk, rest) = block.split_at_mut(allowed.clamp(1, block.len()));
        read_full(file, chunk, offset)?;
        offset += u64::try_from(chunk.len()).unwrap_or(0);
        block = rest;
    }
    Ok(())
}

/// A file of self-describing blocks, written from a [`Data`](super::write_buffer::WriteBuffer) of their length. The
/// read buffer has to be as long.
#[derive(Debug)]
pub(crate) struct Blocks<'a> {
    content: &'a Content,
    file: u64,
    bytes: u64,
    /// The first `base` bytes were written at once, the others `seam` at a time.
    base: u64,
    seam: u64,
    piece: u64,
}

impl<'a> Blocks<'a> {
    pub(crate) fn new(content: &'a Content, file: u64, bytes: u64) -> Self {
        Self {
            content,
            file,
            bytes,
            base: bytes,
            seam: 1,
            piece: 0,
        }
    }

    /// The last `appended` bytes were appended, `seam` at a time.
    pub(crate) fn appended(self, appended: u64, seam: u64) -> Self {
        Self {
            base: self.bytes.saturating_sub(appended),
            seam: seam.max(1),
            ..self
        }
    }
}

impl Original for Blocks<'_> {
    fn next(&mut self, offset: u64, room: usize) -> Result<usize, CallError> {
        let until = match offset.checked_sub(self.base) {
            None => self.base,
            Some(beyond) => self.base + (beyond / self.seam + 1).saturating_mul(self.seam),
        };
        let left = until.min(self.bytes).saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(room);
        self.piece = u64::try_from(length).unwrap_or(0);
        Ok(length)
    }

    fn check(&mut self, found: &[u8], offset: u64, wrong: &mut Mismatches) {
        let written = Written {
            file: self.file,
            offset,
            bytes: self.piece,
            generation: 0,
        };
        self.content.check_part(found, offset, &written, wrong);
    }
}

#[cfg(test)]
mod tests;

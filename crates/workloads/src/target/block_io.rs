//! Reads and writes whole blocks at an offset. A block that the kernel moves in pieces is still one operation.
//!
//! Nearly every block goes in one call, so that path is short; partial calls continue in a cold function.

use crate::target::calls::CallError;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Fills all of `block`. A file that ends earlier is an error (NODATA). The error has the offset that was reached.
#[inline(always)]
pub(crate) fn read_at(fd: BorrowedFd<'_>, block: &mut [u8], offset: u64) -> Result<(), CallError> {
    let first = rustix::io::pread(fd, &mut *block, offset);
    if first == Ok(block.len()) {
        return Ok(());
    }
    let bytes = block.len();
    let next = |from: usize, at: u64| {
        let rest = block.get_mut(from..).unwrap_or_default();
        rustix::io::pread(fd, rest, at)
    };
    continue_io(first, bytes, offset, Errno::NODATA, next)
}

/// Writes all of `block`.
#[inline(always)]
pub(crate) fn write_at(fd: BorrowedFd<'_>, block: &[u8], offset: u64) -> Result<(), CallError> {
    let first = rustix::io::pwrite(fd, block, offset);
    if first == Ok(block.len()) {
        return Ok(());
    }
    let next = |from: usize, at: u64| {
        let rest = block.get(from..).unwrap_or_default();
        rustix::io::pwrite(fd, rest, at)
    };
    continue_io(first, block.len(), offset, Errno::IO, next)
}

/// Continues after the `first` call until all `bytes` are done. A call that moves nothing is the error `nothing`.
#[cold]
#[inline(never)]
fn continue_io(
    first: Result<usize, Errno>,
    bytes: usize,
    offset: u64,
    nothing: Errno,
    mut next: impl FnMut(usize, u64) -> Result<usize, Errno>,
) -> Result<(), CallError> {
    let (mut done, mut at, mut result) = (0, offset, first);
    loop {
        match result {
            Ok(0) => return Err(CallError::at(nothing, at)),
            Ok(count) => (done, at) = (done + count, at + count as u64),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(CallError::at(errno, at)),
        }
        if done >= bytes {
            return Ok(());
        }
        result = next(done, at);
    }
}

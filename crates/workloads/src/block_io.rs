//! Whole blocks at an offset: what the kernel does in pieces is one operation all the same.

use crate::files::calls::Failed;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Fills all of `block`; a file that ends before is an error (NODATA). The error says how far it came.
#[inline]
pub(crate) fn read_at(fd: BorrowedFd<'_>, block: &mut [u8], offset: u64) -> Result<(), Failed> {
    let (mut rest, mut at) = (block, offset);
    while !rest.is_empty() {
        match rustix::io::pread(fd, &mut *rest, at) {
            Ok(0) => return Err(Failed::at(Errno::NODATA, at)),
            Ok(count) => {
                rest = rest.get_mut(count..).unwrap_or_default();
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failed::at(errno, at)),
        }
    }
    Ok(())
}

/// Writes all of `block`.
#[inline]
pub(crate) fn write_at(fd: BorrowedFd<'_>, block: &[u8], offset: u64) -> Result<(), Failed> {
    let (mut rest, mut at) = (block, offset);
    while !rest.is_empty() {
        match rustix::io::pwrite(fd, rest, at) {
            Ok(0) => return Err(Failed::at(Errno::IO, at)),
            Ok(count) => {
                rest = rest.get(count..).unwrap_or_default();
                at += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Failed::at(errno, at)),
        }
    }
    Ok(())
}

//! Buffers for the load: page-aligned, on huge pages if large enough, touched before anything is measured.
//!
//! A block on 2 MiB pages is one piece of physical memory instead of hundreds. Direct I/O of large blocks is up to
//! twice as fast with it.

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

pub(crate) const HUGE_PAGE: usize = 2 << 20;
/// Below this, the gain of a huge page is not worth 2 MiB of memory per worker.
pub(crate) const HUGE_FROM: usize = 64 << 10;

/// Bytes that begin at a multiple of 4096. A `Vec` that is so large that malloc maps it begins 16 bytes after one; into
/// such memory, 1 to 31 bytes beyond the offset of the source in its page, AMD EPYC copies three times as slowly (1 MiB
/// from the page cache: 1.9 and 6.3 GB/s).
pub(crate) struct AlignedBytes {
    memory: Vec<u8>,
    from: usize,
    bytes: usize,
}

impl AlignedBytes {
    const ALIGNMENT: usize = 4096;

    /// `bytes` times `value`, backed by memory.
    pub(crate) fn new(value: u8, bytes: usize) -> AlignedBytes {
        let memory = vec![value; bytes.saturating_add(Self::ALIGNMENT)];
        AlignedBytes {
            // Stays right, because the vector never grows.
            from: memory.as_ptr().align_offset(Self::ALIGNMENT),
            memory,
            bytes,
        }
    }
}

impl std::fmt::Debug for AlignedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBytes({})", self.bytes)
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let end = self.from + self.bytes;
        self.memory.get(self.from..end).unwrap_or_default()
    }
}

impl DerefMut for AlignedBytes {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        let end = self.from + self.bytes;
        self.memory.get_mut(self.from..end).unwrap_or_default()
    }
}

/// A separate anonymous mapping, aligned to 4 KiB at least and to 2 MiB from 64 KiB on.
#[derive(Debug)]
pub struct Pages {
    start: NonNull<u8>,
    bytes: usize,
    mapping: *mut c_void,
    mapped: usize,
}

// SAFETY: the memory is mapped privately and owned by this value alone.
unsafe impl Send for Pages {}
// SAFETY: as for a slice; it changes through `&mut` only.
unsafe impl Sync for Pages {}

impl Pages {
    /// Zeroed memory, backed by the kernel before this returns.
    pub fn new(bytes: usize) -> io::Result<Pages> {
        Pages::mapped(bytes, bytes >= HUGE_FROM)
    }

    /// As [`Pages::new`], on pages of ordinary size whatever the length.
    pub(crate) fn small(bytes: usize) -> io::Result<Pages> {
        Pages::mapped(bytes, false)
    }

    fn mapped(bytes: usize, huge: bool) -> io::Result<Pages> {
        let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
        let rounded = match huge {
            true => bytes.checked_next_multiple_of(HUGE_PAGE),
            false => bytes.max(1).checked_next_multiple_of(4096),
        };
        let rounded = rounded.ok_or_else(too_large)?;
        let slack = if huge { HUGE_PAGE } else { 0 };
        let mapped = rounded.checked_add(slack).ok_or_else(too_large)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping, at an address of the kernel's choice, overlaps nothing.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, MapFlags::PRIVATE)? };
        let first = mapping.cast::<u8>();
        let skip = if huge {
            first.align_offset(HUGE_PAGE)
        } else {
            0
        };
        // SAFETY: a huge mapping has 2 MiB of slack, and the next aligned address is less than that away.
        let start = unsafe { first.add(skip) };
        let mut pages = Pages {
            start: NonNull::new(start).ok_or_else(too_large)?,
            bytes,
            mapping,
            mapped,
        };
        if huge {
            // SAFETY: the range lies within our mapping. Without huge pages the advice has no effect.
            let _ = unsafe { madvise(start.cast(), rounded, Advice::LinuxHugepage) };
        }
        pages.touch();
        Ok(pages)
    }

    /// Begin of the memory, for parts of it that are shared with the kernel: a reference to the whole would alias those
    /// parts.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    fn touch(&mut self) {
        for page in self.chunks_mut(4096) {
            if let Some(byte) = page.first_mut() {
                *byte = std::hint::black_box(0);
            }
        }
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` and the `bytes` after it lie within our mapping, which is initialised (zeroed).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no reference into it can outlive `self`.
        let unmapped = unsafe { munmap(self.mapping, self.mapped) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_zeroed_and_writable() -> io::Result<()> {
        for bytes in [0, 1, 512, 4096, 65_536, (1 << 20) + 512, 3 << 20] {
            let mut pages = Pages::new(bytes)?;
            let alignment = if bytes < HUGE_FROM { 4096 } else { HUGE_PAGE };
            assert!(pages.as_ptr().addr().is_multiple_of(alignment));
            assert_eq!(pages.len(), bytes);
            assert!(pages.iter().all(|byte| *byte == 0));
            pages.fill(7);
        }
        assert!(Pages::new(usize::MAX).is_err());
        Ok(())
    }
}

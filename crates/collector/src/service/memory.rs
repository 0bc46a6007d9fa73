//! Returns the memory of one large request to the system.
//!
//! glibc keeps free memory in each thread's arena. By default it raises the size up to which it keeps it to twice that
//! of the largest block ever freed, up to 64 MiB per arena. Other allocators do not need this.

/// Free memory at the end of an arena, in bytes, that glibc keeps.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 8 << 20;
/// Larger blocks are mapped on their own, and unmapped when they are freed. Messages of the wire are mostly smaller.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 4 << 20;
/// A freed block of this size makes glibc check the end of its arena.
#[cfg(target_env = "gnu")]
const TRIMS_BYTES: usize = 128 << 10;

/// Sets how much free memory glibc keeps, for the whole process.
pub(super) fn limit_kept() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes no pointers, and glibc allows it at any time and in any thread.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// Returns freed memory to the system, including memory between blocks in use.
pub(super) fn give_back() {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: malloc_trim takes no pointers, and glibc allows it at any time and in any thread.
        unsafe {
            libc::malloc_trim(0);
        }
        // It merges small free blocks into the end of each arena, and shortens only the first one.
        drop(std::hint::black_box(vec![1_u8; TRIMS_BYTES]));
    }
}

//! The runtime of a collector, and the memory that it returns to the system: after a large request, and once a minute.
//!
//! glibc keeps free memory in each thread's arena. By default it raises the size limit for that to twice the size of
//! the largest block ever freed, up to 64 MiB per arena. Other allocators do not need this.
//!
//! Each thread also keeps up to 235 KiB of small free blocks, and each of them keeps its page from being returned. Only
//! the environment can turn that off, before the process starts: `GLIBC_TUNABLES=glibc.malloc.tcache_count=0`, as the
//! packaged service does.

use std::time::Duration;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// All threads share one arena: with several, each keeps the memory freed between its blocks in use. Ingest at full
/// speed takes the same CPU time per row.
#[cfg(target_env = "gnu")]
const MAX_ARENAS: libc::c_int = 1;
/// Free bytes that glibc keeps at the end of an arena.
#[cfg(target_env = "gnu")]
const KEPT_BYTES: libc::c_int = 8 << 20;
/// Larger blocks are mapped individually, and unmapped when they are freed. Messages of the wire are mostly smaller.
#[cfg(target_env = "gnu")]
const MAPPED_BYTES: libc::c_int = 4 << 20;
/// A freed block of this size makes glibc check the end of its arena.
#[cfg(target_env = "gnu")]
const TRIMS_BYTES: usize = 128 << 10;

/// How long a blocking thread waits for the next task. tokio counts a thread as busy until it waits again, so short
/// tasks in quick succession each start one, which keeps pages of its stack: with tokio's 10 s, about thirty threads.
const THREAD_KEEP_ALIVE: Duration = Duration::from_millis(200);

const GIVE_BACK_INTERVAL: Duration = Duration::from_secs(60);

/// Returns freed memory periodically until it is cancelled.
pub(super) async fn keep_low(closing: CancellationToken) {
    let mut ticks = tokio::time::interval(GIVE_BACK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = closing.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if tokio::task::spawn_blocking(give_back).await.is_err() {
            return;
        }
    }
}

/// The runtime of a collector. Call it before the process starts other threads: those that are already running keep
/// their arenas.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    limit_kept();
    tokio::runtime::Builder::new_multi_thread()
        .thread_keep_alive(THREAD_KEEP_ALIVE)
        .enable_all()
        .build()
}

/// Sets how much free memory glibc keeps, for the whole process.
fn limit_kept() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes no pointers, and glibc allows it at any time and in any thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, MAX_ARENAS);
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT_BYTES);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_BYTES);
    }
}

/// Returns freed memory to the system, including memory between blocks in use.
pub fn give_back() {
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

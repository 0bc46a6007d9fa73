//! Checks a running query every hundred instructions of SQLite. Ends it if its receiver is gone, or its limits of
//! time, memory or temporary files are exceeded.

use super::{Limits, QueryError, ResultRow, functions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// SQLite's instructions between two checks: about a microsecond, and at most as many values of 8 MiB.
pub(super) const INSTRUCTIONS_PER_CHECK: i32 = 100;
/// How often the size of the thread's temporary files is checked.
const TEMP_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Why a query was ended; 0 if it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum StopReason {
    TimeUp = 1,
    MemoryFull,
    TempFull,
    /// Its receiver was dropped.
    Abandoned,
}

/// The reason, shared by the handler that sets it and the thread that reports it.
#[derive(Clone, Debug, Default)]
pub(super) struct Stop(Arc<AtomicU8>);

impl Stop {
    /// The error of a query that was ended; `None` if it was not.
    pub(super) fn error(&self, limits: &Limits) -> Option<QueryError> {
        let is = |reason: StopReason| self.0.load(Ordering::Relaxed) == reason as u8;
        if is(StopReason::MemoryFull) {
            return Some(QueryError::MemoryLimit {
                limit_bytes: limits.memory_bytes,
            });
        }
        if is(StopReason::TempFull) {
            return Some(QueryError::TempLimit {
                limit_bytes: limits.temp_bytes,
            });
        }
        (is(StopReason::TimeUp) || is(StopReason::Abandoned))
            .then_some(QueryError::TimeLimit { limit: limits.time })
    }

    /// The query would need more memory than allowed.
    pub(super) fn memory_full(&self) {
        self.0
            .store(StopReason::MemoryFull as u8, Ordering::Relaxed);
    }

    /// Whether the query may continue; called repeatedly on the query's thread.
    pub(super) fn handler(
        &self,
        limits: &Limits,
        deadline: Instant,
        rows_out: mpsc::Sender<Vec<ResultRow>>,
    ) -> impl FnMut() -> bool + Send + 'static {
        let stop = self.clone();
        let (max_memory_bytes, max_temp_bytes) = (limits.memory_bytes, limits.temp_bytes);
        let temp = TempUse::of_this_thread();
        let mut checked = Instant::now();
        move || {
            let now = Instant::now();
            let reason = if rows_out.is_closed() {
                StopReason::Abandoned
            } else if now >= deadline {
                StopReason::TimeUp
            } else if memory_bytes() > max_memory_bytes {
                StopReason::MemoryFull
            } else if now.duration_since(checked) < TEMP_CHECK_INTERVAL {
                return true;
            } else {
                checked = now;
                if temp.bytes() <= max_temp_bytes {
                    return true;
                }
                StopReason::TempFull
            };
            stop.0.store(reason as u8, Ordering::Relaxed);
            false
        }
    }
}

/// SQLite's memory in this process, and that of our functions.
pub(super) fn memory_bytes() -> u64 {
    // SAFETY: it takes no pointer and may be called at any time, by any thread.
    let of_sqlite = unsafe { libsqlite3_sys::sqlite3_memory_used() }.unsigned_abs();
    of_sqlite.saturating_add(functions::held_bytes())
}

/// Bytes written by a thread: the query's thread writes only SQLite's temporary files.
struct TempUse {
    /// `/proc/thread-self/io`; `None` if the kernel does not provide it.
    io: Option<File>,
    before: u64,
}

impl TempUse {
    fn of_this_thread() -> Self {
        let mut temp = Self {
            io: File::open("/proc/thread-self/io").ok(),
            before: 0,
        };
        temp.before = temp.bytes();
        temp
    }

    fn bytes(&self) -> u64 {
        let mut text = [0_u8; 256];
        let read = self
            .io
            .as_ref()
            .and_then(|io| io.read_at(&mut text, 0).ok())
            .unwrap_or(0);
        let text = String::from_utf8_lossy(text.get(..read).unwrap_or_default());
        let written = text
            .lines()
            .find_map(|line| line.strip_prefix("wchar:"))
            .and_then(|bytes| bytes.trim().parse::<u64>().ok());
        written.unwrap_or(0).saturating_sub(self.before)
    }
}

//! Resource limits of a query. Temporary files are counted for the query's own thread, memory for the process.

use libsqlite3_sys as ffi;
use std::ffi::c_int;
use std::time::Duration;

/// Resource limits of one query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the call to the last row.
    pub time: Duration,
    /// Maximum memory of SQLite in the process, including page caches. Above it, queries end at their next check.
    pub memory_bytes: u64,
    /// Maximum size of temporary files (sorting, materialized views).
    pub temp_bytes: u64,
    /// Maximum size of the values of all rows together.
    pub answer_bytes: u64,
}

impl Limits {
    /// For a query in the collector's process, whose writer and readers cache up to 72 MiB of pages.
    pub fn shared(time: Duration) -> Self {
        Self {
            time,
            memory_bytes: 512 << 20,
            temp_bytes: 1 << 30,
            answer_bytes: 4 << 30,
        }
    }

    /// For a query in its own process.
    pub fn own_process(time: Duration) -> Self {
        Self {
            time,
            memory_bytes: 1 << 30,
            temp_bytes: 16 << 30,
            answer_bytes: u64::MAX,
        }
    }
}

impl Limits {
    /// SQLite's heap limit. It exceeds the query's limit because one row can be larger than the remaining memory
    /// between two checks. It applies to the whole process, and a write that fails because of it is retried. Only a
    /// query's value of up to 8 MiB reaches it, which leaves room for other allocations until that query has ended.
    pub(super) fn heap_bytes(&self) -> i64 {
        i64::try_from(self.memory_bytes / 2 * 3).unwrap_or(i64::MAX)
    }
}

/// Maximum size of the values of one row together, in bytes: a row is sent in one message (8 MiB).
pub const MAX_ROW_BYTES: usize = 7 << 20;

/// SQLite's limits per statement. The time of functions such as `instr` and `replace` grows with the square of a
/// value's length, and they check no clock. Therefore a value is at most as long as an agent's message.
pub(super) const SQLITE_LIMITS: &[(c_int, c_int)] = &[
    (ffi::SQLITE_LIMIT_ATTACHED, 0),
    (ffi::SQLITE_LIMIT_LENGTH, 8 << 20),
    (ffi::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (ffi::SQLITE_LIMIT_COLUMN, 500),
    (ffi::SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (ffi::SQLITE_LIMIT_WORKER_THREADS, 0),
];

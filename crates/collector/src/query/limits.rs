//! What a query may use. Temporary files are counted for the query's own thread, memory for the process.

use libsqlite3_sys as ffi;
use std::ffi::c_int;
use std::time::Duration;

/// What one query may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the call to the last row.
    pub time: Duration,
    /// What SQLite holds in the process, page caches too: beyond it, queries end at their next look.
    pub memory_bytes: u64,
    /// What it writes to temporary files (sorting, materialized views).
    pub temp_bytes: u64,
    /// The values of all rows together.
    pub answer_bytes: u64,
}

impl Limits {
    /// For a query beside a collector, whose page caches hold 320 MiB at most.
    pub fn shared(time: Duration) -> Self {
        Self {
            time,
            memory_bytes: 512 << 20,
            temp_bytes: 1 << 30,
            answer_bytes: 4 << 30,
        }
    }

    /// For a query in a process of its own.
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
    /// What SQLite gets at all: one row can be larger than the rest of the memory, between two looks. It is for the
    /// whole process, and a write that it refuses is made again; the value that reaches it is a query's, of up to 8 MiB,
    /// which leaves room for what others allocate until that query has ended.
    pub(super) fn heap_bytes(&self) -> i64 {
        i64::try_from(self.memory_bytes / 2 * 3).unwrap_or(i64::MAX)
    }
}

/// The values of one row together, in bytes: a row travels in one message (8 MiB).
pub(crate) const MAX_ROW_BYTES: usize = 7 << 20;

/// SQLite's limits per statement. Functions such as `instr` and `replace` compare in time that grows with the square of
/// a value's length and look at no clock, so a value is as long as a message from an agent and no longer.
pub(super) const SQLITE_LIMITS: &[(c_int, c_int)] = &[
    (ffi::SQLITE_LIMIT_ATTACHED, 0),
    (ffi::SQLITE_LIMIT_LENGTH, 8 << 20),
    (ffi::SQLITE_LIMIT_SQL_LENGTH, 1 << 20),
    (ffi::SQLITE_LIMIT_COLUMN, 500),
    (ffi::SQLITE_LIMIT_COMPOUND_SELECT, 100),
    (ffi::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1000),
    (ffi::SQLITE_LIMIT_WORKER_THREADS, 0),
];

//! Resource usage of this process, from /proc.

use std::time::Duration;

/// User and system CPU time of all its threads, to 10 ms.
pub fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks: u64 = after_name
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse::<u64>().unwrap())
        .sum();
    Duration::from_millis(ticks * 10)
}

/// Resident memory in MiB.
pub fn rss_mib() -> f64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: f64 = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096.0 / 1_048_576.0
}

/// Resident memory in MiB, without pages of files.
pub fn anonymous_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kib: f64 = line
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    kib / 1024.0
}

/// Allocated memory in MiB, without freed memory that the allocator keeps; 0 if the allocator does not report it.
pub fn malloc_mib() -> f64 {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: mallinfo2 takes no pointers.
        let info = unsafe { libc::mallinfo2() };
        (info.uordblks + info.hblkhd) as f64 / 1_048_576.0
    }
    #[cfg(not(target_env = "gnu"))]
    0.0
}

/// Memory allocated by SQLite, in MiB.
pub fn sqlite_mib() -> f64 {
    // SAFETY: it takes no pointers, and SQLite allows it in any thread.
    let bytes = unsafe { libsqlite3_sys::sqlite3_memory_used() };
    bytes as f64 / 1_048_576.0
}

/// Bytes that this process has dirtied on its disks, WAL and checkpoints together.
pub fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}

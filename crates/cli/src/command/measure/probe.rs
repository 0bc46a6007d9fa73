//! A second of load in each directory, from which the sizes of the measurement follow. Its figures are not results.

use crate::local_mesh::{WorkDirectory, takes_direct_io};
use anyhow::Context;
use benchmesh_workloads::random::Random;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Duration of each of the two parts.
const PART: Duration = Duration::from_millis(500);
const BLOCK: usize = 1 << 20;
/// Alignment of buffers for O_DIRECT that every device accepts.
const ALIGNMENT: usize = 4096;
/// Blocks between two calls of fsync, without O_DIRECT.
const BLOCKS_PER_FSYNC: u64 = 8;
/// Number of threads that create files, as in the measurement.
pub const FILE_WORKERS: u64 = 4;
const FILE_BYTES: usize = 4096;
/// Maximum number of files of each thread.
const MAX_FILES: u32 = 20_000;

/// How fast a directory is, roughly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probe {
    /// Small files created, each flushed to stable storage.
    pub files_per_s: f64,
    /// Bytes written in order, past the cache.
    pub bytes_per_s: f64,
    /// Whether the file system supports O_DIRECT.
    pub takes_direct: bool,
}

/// Probes a directory and removes everything that it has written. At most `max_bytes` are written by each part. Ends
/// early once `is_cancelled`.
pub fn probe(directory: &Path, max_bytes: u64, is_cancelled: &AtomicBool) -> anyhow::Result<Probe> {
    let what = || format!("try out {}", directory.display());
    let work = WorkDirectory::make_in(directory, "probe").with_context(what)?;
    let takes_direct = takes_direct_io(work.path()).with_context(what)?;
    let files_per_s = create_files(work.path(), max_bytes, is_cancelled).with_context(what)?;
    let bytes_per_s =
        write_blocks(work.path(), max_bytes, takes_direct, is_cancelled).with_context(what)?;
    work.remove()?;
    Ok(Probe {
        files_per_s,
        bytes_per_s,
        takes_direct,
    })
}

fn create_files(
    directory: &Path,
    max_bytes: u64,
    is_cancelled: &AtomicBool,
) -> std::io::Result<f64> {
    let fitting = max_bytes / FILE_WORKERS / FILE_BYTES as u64;
    let most = u32::try_from(fitting)
        .unwrap_or(MAX_FILES)
        .clamp(1, MAX_FILES);
    let began = Instant::now();
    let counts: Vec<std::io::Result<u32>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..FILE_WORKERS)
            .map(|worker| {
                let own = directory.join(format!("files{worker}"));
                scope.spawn(move || create_until(&own, most, began + PART, is_cancelled))
            })
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or(Ok(0)))
            .collect()
    });
    let elapsed = began.elapsed().as_secs_f64();
    let mut created = 0;
    for count in counts {
        created += count?;
    }
    Ok(f64::from(created) / elapsed)
}

fn create_until(
    directory: &Path,
    most: u32,
    until: Instant,
    is_cancelled: &AtomicBool,
) -> std::io::Result<u32> {
    std::fs::create_dir(directory)?;
    let mut content = vec![0; FILE_BYTES];
    Random::of(&[1]).fill(&mut content);
    let mut created = 0;
    while created < most && !is_over(until, is_cancelled, created > 0) {
        let mut file = File::create_new(directory.join(created.to_string()))?;
        file.write_all(&content)?;
        file.sync_all()?;
        created += 1;
    }
    Ok(created)
}

fn write_blocks(
    directory: &Path,
    max_bytes: u64,
    direct: bool,
    is_cancelled: &AtomicBool,
) -> std::io::Result<f64> {
    let mut buffer = vec![0; BLOCK + ALIGNMENT];
    let from = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let block = buffer.get_mut(from..from + BLOCK).unwrap_or_default();
    Random::of(&[2]).fill(block);
    let flags = if direct { libc::O_DIRECT } else { 0 };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(flags)
        .open(directory.join("blocks"))?;
    let most = (max_bytes / BLOCK as u64).max(1);
    let began = Instant::now();
    let mut written: u64 = 0;
    while written < most && !is_over(began + PART, is_cancelled, written > 0) {
        file.write_all(block)?;
        written += 1;
        if !direct && written.is_multiple_of(BLOCKS_PER_FSYNC) {
            file.sync_data()?;
        }
    }
    file.sync_data()?;
    let blocks = u32::try_from(written).unwrap_or(u32::MAX);
    Ok(f64::from(blocks) * 1_048_576.0 / began.elapsed().as_secs_f64())
}

/// The first operation is always completed.
fn is_over(until: Instant, is_cancelled: &AtomicBool, has_begun: bool) -> bool {
    has_begun && (Instant::now() >= until || is_cancelled.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_probe_finds_rates_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let found = probe(directory.path(), 1 << 20, &AtomicBool::new(false)).unwrap();
        assert!(
            found.files_per_s > 0.0 && found.bytes_per_s > 0.0,
            "{found:?}"
        );
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        // Cancelled at once: one operation of each kind.
        probe(directory.path(), u64::MAX, &AtomicBool::new(true)).unwrap();
        assert!(
            probe(
                &directory.path().join("missing"),
                1,
                &AtomicBool::new(false)
            )
            .is_err()
        );
    }
}

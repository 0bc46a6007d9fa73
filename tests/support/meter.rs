//! Reads a kernel counter during a run, as the reference of truth tests.

use super::wait::until_true;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longer than any metered run.
const LIMIT: Duration = Duration::from_secs(300);

/// Readings of a counter: wall clock in microseconds, and its value.
#[derive(Debug)]
pub struct Meter(Vec<(i64, u64)>);

impl Meter {
    /// Reads the counter continuously while `body` runs.
    pub fn during<T>(counter: impl Fn() -> u64 + Sync, body: impl FnOnce() -> T) -> (T, Self) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = StopOnDrop(&stop);
            let reader = scope.spawn(|| {
                let mut readings = Vec::new();
                until_true("the metered run ends", LIMIT, || {
                    readings.push((wall_us(), counter()));
                    stop.0.load(Ordering::Relaxed)
                });
                Self(readings)
            });
            let value = body();
            stop.0.store(true, Ordering::Relaxed);
            (value, reader.join().unwrap())
        })
    }

    /// The growth of the counter per second between two instants, interpolated linearly between readings.
    #[expect(
        clippy::cast_precision_loss,
        reason = "differences far below 2^52 of what is counted"
    )]
    pub fn rate(&self, from_us: i64, until_us: i64) -> f64 {
        let first = self.0[0].1;
        let at = |instant: i64| {
            let after = self.0.partition_point(|reading| reading.0 < instant);
            let ((t0, c0), (t1, c1)) = (self.0[after - 1], self.0[after]);
            (c0 - first) as f64 + (c1 - c0) as f64 * (instant - t0) as f64 / (t1 - t0) as f64
        };
        (at(until_us) - at(from_us)) * 1e6 / (until_us - from_us) as f64
    }
}

/// Stops the reader even if the body panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Bytes read and written by a block device (`loop0`) since its creation, from the kernel's counters.
pub fn bytes_moved(device: &str) -> u64 {
    let stat = std::fs::read_to_string(format!("/sys/class/block/{device}/stat")).unwrap();
    let fields: Vec<u64> = stat
        .split_whitespace()
        .map(|field| field.parse().unwrap())
        .collect();
    (fields[2] + fields[6]) * 512
}

/// The wall clock, from which mesh time starts.
pub fn wall_us() -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "compared with mesh time, which begins as the wall clock"
    )]
    let now = SystemTime::now();
    i64::try_from(now.duration_since(UNIX_EPOCH).unwrap().as_micros()).unwrap()
}

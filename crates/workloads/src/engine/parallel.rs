//! Unmeasured work on many shares at once, because one thread may be slower than the target at laying out or checking
//! data.
//!
//! Does not know files. Progress is reported from the calling thread; a cancellation or the first error ends all
//! shares.

use crate::engine::task::{PrepareControl, TaskError};
use rustix::io::Errno;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Enough to saturate a network file system; more would only queue there.
const MAX_THREADS: u32 = 16;
/// Interval of progress reports and checks for a cancellation.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Progress of all shares together.
#[derive(Debug)]
pub(crate) struct Done<'a> {
    count: AtomicU64,
    cancelled: AtomicBool,
    counts_bytes: bool,
    control: &'a PrepareControl,
}

impl Done<'_> {
    /// Waits until a chunk of the `left` bytes of a file may be moved, and returns its size, at most `wanted`.
    ///
    /// # Errors
    /// CANCELED if the work was cancelled.
    pub(crate) fn next_chunk(&self, left: u64, wanted: usize) -> Result<usize, Errno> {
        let wanted = usize::try_from(left).map_or(wanted, |left| left.min(wanted));
        let chunk = self.control.next_chunk(wanted);
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(Errno::CANCELED),
            false => Ok(chunk),
        }
    }

    /// See [`PrepareControl::check_layout_allowed`].
    pub(crate) fn check_layout_allowed(
        &self,
        what: impl FnOnce() -> String,
    ) -> Result<(), TaskError> {
        self.control.check_layout_allowed(what)
    }

    /// Adds finished work. An error if the work was cancelled.
    pub(crate) fn add(&self, count: u64) -> Result<(), TaskError> {
        if self.counts_bytes {
            self.control.wait_for_limit(count);
        }
        self.count(count)
    }

    /// Adds work on data that were not moved, or have waited for the limit already.
    pub(crate) fn count(&self, count: u64) -> Result<(), TaskError> {
        self.count.fetch_add(count, Ordering::Relaxed);
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(TaskError::Cancelled),
            false => Ok(()),
        }
    }
}

/// Calls `work` for each share from 0, several at a time, and returns the first error.
pub(crate) fn in_parallel(
    shares: u32,
    (total, unit): (u64, &'static str),
    control: &PrepareControl,
    work: impl Fn(u32, &Done<'_>) -> Result<(), TaskError> + Sync,
) -> Result<(), TaskError> {
    let done = Done {
        count: AtomicU64::new(0),
        cancelled: AtomicBool::new(false),
        counts_bytes: unit == "bytes",
        control,
    };
    let next = AtomicU32::new(0);
    let threads = shares.min(MAX_THREADS);
    thread::scope(|scope| {
        let (alive, all_ended) = sync_channel::<()>(0);
        let mut running = Vec::new();
        for number in 0..threads {
            let (alive, done, next, work) = (alive.clone(), &done, &next, &work);
            let body = move || {
                let _present = control.present();
                let result = work_through(shares, next, done, work);
                if result.is_err() {
                    done.cancelled.store(true, Ordering::Relaxed);
                }
                drop(alive);
                result
            };
            let spawned = thread::Builder::new()
                .name(format!("bm-lay{number}"))
                .spawn_scoped(scope, body);
            match spawned {
                Ok(thread) => running.push(thread),
                Err(error) => {
                    done.cancelled.store(true, Ordering::Relaxed);
                    return Err(TaskError::io("start a thread to lay out data", error));
                }
            }
        }
        drop(alive);
        while all_ended.recv_timeout(POLL_INTERVAL) == Err(RecvTimeoutError::Timeout) {
            if control.cancelled() {
                done.cancelled.store(true, Ordering::Relaxed);
            }
            control.progress(done.count.load(Ordering::Relaxed), total, unit);
        }
        let mut first_error = None;
        for thread in running {
            match thread.join() {
                Ok(Ok(())) => {}
                // The other shares were cancelled because one failed.
                Ok(Err(TaskError::Cancelled)) => {
                    first_error.get_or_insert(TaskError::Cancelled);
                }
                Ok(Err(error)) => match first_error {
                    None | Some(TaskError::Cancelled) => first_error = Some(error),
                    Some(_) => {}
                },
                Err(panic) => resume_unwind(panic),
            }
        }
        control.progress(done.count.load(Ordering::Relaxed), total, unit);
        first_error.map_or(Ok(()), Err)
    })
}

fn work_through(
    shares: u32,
    next: &AtomicU32,
    done: &Done<'_>,
    work: &(impl Fn(u32, &Done<'_>) -> Result<(), TaskError> + Sync),
) -> Result<(), TaskError> {
    loop {
        let share = next.fetch_add(1, Ordering::Relaxed);
        if share >= shares {
            return Ok(());
        }
        done.add(0)?;
        work(share, done)?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::{Arc, Mutex};

    #[test]
    fn each_share_is_worked_once_and_progress_reaches_the_total() {
        let seen = Mutex::new(vec![0_u32; 100]);
        let last = Arc::new(AtomicU64::new(0));
        let reported = Arc::clone(&last);
        let control = PrepareControl::new(Arc::default(), move |p| {
            reported.store(p.done, Ordering::Relaxed)
        });
        in_parallel(100, (200, "files"), &control, |share, done| {
            *seen
                .lock()
                .unwrap()
                .get_mut(usize::try_from(share).unwrap())
                .unwrap() += 1;
            done.add(2)
        })
        .unwrap();
        assert!(seen.into_inner().unwrap().iter().all(|&count| count == 1));
        assert_eq!(last.load(Ordering::Relaxed), 200);
    }

    #[test]
    fn the_first_real_error_ends_all() {
        let failed = in_parallel(
            32,
            (0, "files"),
            &PrepareControl::silent(),
            |share, done| {
                if share == 3 {
                    return Err(TaskError::Unsupported { why: "full".into() });
                }
                loop {
                    done.add(1)?;
                    thread::yield_now();
                }
            },
        );
        assert!(failed.unwrap_err().to_string().contains("full"));
    }

    #[test]
    fn a_cancellation_is_noticed() {
        let cancelled = Arc::new(AtomicBool::new(false));
        let by_progress = Arc::clone(&cancelled);
        let control = PrepareControl::new(cancelled, move |_| {
            by_progress.store(true, Ordering::Relaxed)
        });
        let ended = in_parallel(1, (0, "files"), &control, |_, done| {
            loop {
                done.add(1)?;
                thread::yield_now();
            }
        });
        assert!(matches!(ended, Err(TaskError::Cancelled)));
    }
}

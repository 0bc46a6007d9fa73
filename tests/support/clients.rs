//! The read calls of each client of a step, from the kernel's count for its workers' threads.
//!
//! Readings are cumulative counts per client, taken continuously. This module does not know intervals, rates or tasks.

use super::wait::{until, until_true};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Time limit for every client to have its workers.
const WORKERS: Duration = Duration::from_secs(60);
/// Longer than any observation.
const LIMIT: Duration = Duration::from_secs(600);
/// Before the load a worker reads its CPU usage, the clock source, and little else.
const BEFORE_THE_LOAD: u64 = 16;

/// Cumulative counts at one instant, of each worker of every client.
#[derive(Debug)]
struct Reading {
    at: Instant,
    clients: Vec<Vec<Count>>,
}

/// The count of one worker; a worker that ended keeps its last count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Count {
    reads: u64,
    is_there: bool,
}

/// The readings of a load.
#[derive(Debug)]
pub struct Clients(Vec<Reading>);

/// The kernel's files with the counts of each client's workers; a client is the process of one agent.
#[derive(Debug)]
pub struct Workers(Vec<Vec<PathBuf>>);

impl Workers {
    /// Waits until every process has workers, and all of them run load.
    pub fn of(pids: &[u32]) -> Self {
        let files = |pid: &u32| {
            until("a client has workers", WORKERS, || {
                let files = worker_files(*pid);
                let loads = |file: &PathBuf| reads(file) > Some(BEFORE_THE_LOAD);
                (!files.is_empty() && files.iter().all(loads)).then_some(files)
            })
        };
        Self(pids.iter().map(files).collect())
    }

    /// Whether no client has any of its workers.
    pub fn are_gone(&self) -> bool {
        self.0.iter().flatten().all(|file| reads(file).is_none())
    }

    /// Counts continuously while `body` runs.
    pub fn during<T>(&self, body: impl FnOnce() -> T) -> (T, Clients) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut readings: Vec<Reading> = Vec::new();
                until_true("what is watched ends", LIMIT, || {
                    let reading = self.read(readings.last());
                    readings.push(reading);
                    stop.load(Ordering::Relaxed)
                });
                Clients(readings)
            });
            let stopping = StopOnDrop(&stop);
            let value = body();
            drop(stopping);
            (value, reader.join().unwrap())
        })
    }

    fn read(&self, before: Option<&Reading>) -> Reading {
        let at = Instant::now();
        let last = |client: usize, worker: usize| {
            before.map_or(0, |before| before.clients[client][worker].reads)
        };
        let count = |client, worker, file| match reads(file) {
            Some(reads) => Count {
                reads,
                is_there: true,
            },
            None => Count {
                reads: last(client, worker),
                is_there: false,
            },
        };
        let clients = self.0.iter().enumerate();
        let clients = clients.map(|(client, files)| {
            let files = files.iter().enumerate();
            files
                .map(|(worker, file)| count(client, worker, file))
                .collect()
        });
        Reading {
            at,
            clients: clients.collect(),
        }
    }
}

impl Reading {
    /// The reads of each client, summed over its workers.
    fn reads(&self) -> impl Iterator<Item = u64> {
        let sum = |workers: &Vec<Count>| workers.iter().map(|worker| worker.reads).sum();
        self.clients.iter().map(sum)
    }
}

/// Stops the reader even if the body panics.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn worker_files(pid: u32) -> Vec<PathBuf> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    threads
        .flatten()
        .map(|thread| thread.path())
        .filter(|thread| {
            std::fs::read_to_string(thread.join("comm")).is_ok_and(|name| name.starts_with("bm-w"))
        })
        .map(|thread| thread.join("io"))
        .collect()
}

/// The thread's read calls; `None` if it has ended.
fn reads(file: &PathBuf) -> Option<u64> {
    let text = std::fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("syscr: "))?;
    line.trim().parse().ok()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts far below 2^52 of what a test does"
)]
impl Clients {
    /// Each client's reads per second between two instants.
    pub fn rates(&self, from: Instant, until: Instant) -> Vec<f64> {
        let (first, last) = (self.first_at(from), self.last_at(until));
        let seconds = (last.at - first.at).as_secs_f64();
        let pairs = last.reads().zip(first.reads());
        pairs
            .map(|(last, first)| (last - first) as f64 / seconds)
            .collect()
    }

    /// All clients' reads per second between two instants.
    pub fn total(&self, from: Instant, until: Instant) -> f64 {
        self.rates(from, until).iter().sum()
    }

    /// The first reading after which no client read anything; it is not later than the first check after the last read.
    /// `None` if some clients still read.
    pub fn quiet_from(&self) -> Option<Instant> {
        let same = |pair: &[Reading]| pair[0].clients == pair[1].clients;
        let last_change = self.0.windows(2).rposition(|pair| !same(pair));
        let quiet = last_change.map_or(0, |change| change + 1);
        let last = self.0.last()?;
        let is_over = last.clients.iter().flatten().all(|it| !it.is_there);
        is_over.then(|| self.0[quiet].at)
    }

    fn first_at(&self, at: Instant) -> &Reading {
        &self.0[self.0.partition_point(|reading| reading.at < at)]
    }

    fn last_at(&self, at: Instant) -> &Reading {
        &self.0[self.0.partition_point(|reading| reading.at <= at) - 1]
    }
}

//! The baselines: plain loops of the same system calls, and dd and fio as processes if they are installed.

use benchmesh_workloads::clock::{MonoNanos, sleep_until};
use benchmesh_workloads::memory::Pages;
use benchmesh_workloads::random::Random;
use rustix::fs::{Advice, CWD, Mode, OFlags};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

/// One direction of a loop or a tool.
#[derive(Clone, Copy, PartialEq)]
pub enum Direction {
    Read,
    Write,
}

/// Passes over a file in blocks of `bs`, without reading the clock within a pass; MiB per second.
pub fn plain_passes(path: &Path, bs: usize, direction: Direction, at_least: Duration) -> f64 {
    let flags = match direction {
        Direction::Read => OFlags::RDONLY,
        Direction::Write => OFlags::WRONLY,
    };
    let file = rustix::fs::openat(CWD, path, flags, Mode::empty()).expect("the file is there");
    let size = rustix::fs::fstat(&file).expect("it is open").st_size;
    let blocks = u64::try_from(size).unwrap_or(0) / bs as u64;
    let mut block = Pages::new(bs).expect("a buffer");
    let mut passes = 0;
    let began = Instant::now();
    while began.elapsed() < at_least {
        for number in 0..blocks {
            let offset = number * bs as u64;
            let moved = match direction {
                Direction::Read => rustix::io::pread(&file, &mut *block, offset),
                Direction::Write => rustix::io::pwrite(&file, &block, offset),
            };
            assert_eq!(moved, Ok(bs));
        }
        passes += 1;
    }
    let mib = (passes * blocks * bs as u64) as f64 / f64::from(1 << 20);
    mib / began.elapsed().as_secs_f64()
}

/// Data that a loop writes repeatedly.
#[derive(Clone, Copy)]
pub enum Block {
    Random,
    Zeros,
}

/// Writes a new file of `size` bytes in blocks of `bs` and syncs it; MiB per second, sync included.
pub fn plain_write(path: &Path, bs: usize, size: u64, data: Block) -> f64 {
    let mut block = Pages::new(bs).expect("a buffer");
    if let Block::Random = data {
        Random::new(7).fill(&mut block);
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let began = Instant::now();
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).expect("a new file");
    for number in 0..size / bs as u64 {
        let moved = rustix::io::pwrite(&file, &block, number * bs as u64);
        assert_eq!(moved, Ok(bs));
    }
    rustix::fs::fsync(&file).expect("it was written");
    size as f64 / f64::from(1 << 20) / began.elapsed().as_secs_f64()
}

/// Runs each in a thread. Returns the time from their common start, as our workers have, to the end of the last one.
pub fn together<A: FnOnce() + Send>(acts: Vec<A>) -> Duration {
    let (all_there, start) = (Barrier::new(acts.len() + 1), OnceLock::new());
    std::thread::scope(|scope| {
        let (all_there, start) = (&all_there, &start);
        let threads: Vec<_> = acts
            .into_iter()
            .map(|act| {
                scope.spawn(move || {
                    all_there.wait();
                    sleep_until(*start.wait());
                    act();
                    MonoNanos::now()
                })
            })
            .collect();
        all_there.wait();
        let start =
            *start.get_or_init(|| MonoNanos::now().saturating_add(Duration::from_millis(20)));
        let ends = threads.into_iter().map(|thread| thread.join());
        let last = ends.map(|end| end.expect("it counted")).max();
        last.unwrap_or(start).since(start)
    })
}

/// Writes back a file and evicts its pages from the cache.
pub fn forget(path: &Path) {
    let file = rustix::fs::openat(CWD, path, OFlags::RDONLY, Mode::empty());
    let file = file.expect("the file is there");
    rustix::fs::fsync(&file).expect("written back");
    rustix::fs::fadvise(&file, 0, None, Advice::DontNeed).expect("forgotten");
}

/// dd's own figure in MiB per second; `None` if it is not installed.
pub fn dd(arguments: &[String], bytes: u64) -> Option<f64> {
    let output = Command::new("dd")
        .args(arguments)
        .env("LC_ALL", "C")
        .output();
    let output = output.ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "dd {arguments:?}: {text}");
    let seconds = text.rsplit_once(" copied, ")?.1.split(' ').next()?;
    let seconds: f64 = seconds.parse().ok()?;
    Some(bytes as f64 / f64::from(1 << 20) / seconds)
}

/// fio's report of its one job.
pub struct Fio(Value);

/// Runs fio; `None` if it is not installed.
pub fn fio(arguments: &[String]) -> Option<Fio> {
    let output = Command::new("fio")
        .args(["--name=peer", "--output-format=json", "--thread"])
        .args(arguments)
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "fio {arguments:?}: {text} {error}");
    let json = text.get(text.find('{')?..)?;
    let mut json: Value = serde_json::from_str(json).ok()?;
    json.pointer_mut("/jobs/0").map(|job| Fio(job.take()))
}

impl Fio {
    fn figure(&self, direction: Direction, name: &str) -> f64 {
        let side = match direction {
            Direction::Read => "read",
            Direction::Write => "write",
        };
        let figure = self.0.pointer(&format!("/{side}/{name}"));
        figure.and_then(Value::as_f64).unwrap_or(f64::NAN)
    }

    pub fn ops_per_second(&self, direction: Direction) -> f64 {
        self.figure(direction, "iops")
    }

    /// User CPU time of the job.
    pub fn user_nanos_per_op(&self, direction: Direction) -> f64 {
        self.nanos_per_op(direction, &["/usr_cpu"])
    }

    /// User and system CPU time of the job.
    pub fn cpu_nanos_per_op(&self, direction: Direction) -> f64 {
        self.nanos_per_op(direction, &["/usr_cpu", "/sys_cpu"])
    }

    /// From percentages of the job's time.
    fn nanos_per_op(&self, direction: Direction, of: &[&str]) -> f64 {
        let of_job = |name: &str| self.0.pointer(name).and_then(Value::as_f64);
        let percents = of.iter().map(|name| of_job(name).unwrap_or(f64::NAN));
        let percent: f64 = percents.sum();
        let millis = of_job("/job_runtime").unwrap_or(f64::NAN);
        percent / 100.0 * millis * 1e6 / self.figure(direction, "total_ios")
    }

    pub fn mib_per_second(&self, direction: Direction) -> f64 {
        self.figure(direction, "bw_bytes") / f64::from(1 << 20)
    }

    /// Bytes over its whole run, including the final sync.
    pub fn mib_per_second_in_all(&self, direction: Direction) -> f64 {
        let seconds = self.0.pointer("/job_runtime").and_then(Value::as_f64);
        let seconds = seconds.unwrap_or(f64::NAN) / 1000.0;
        self.figure(direction, "io_bytes") / f64::from(1 << 20) / seconds
    }
}

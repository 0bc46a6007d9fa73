//! The record matrix: 128 MiB on tmpfs in every mode and record size, against a loop without measuring.
//!
//! Both sides make the same system calls at the same offsets in the same order (the loop has random offsets in a table)
//! and write the same data: small blocks cut by their offsets from a stretch in which nothing repeats, each made unique
//! by a stamp. The loop runs in a thread, as a worker does. Figures are per second of CPU time, which only the loops
//! use here: on a shared machine, wall time would include other processes.
//! others.

#![expect(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "the rows are constants, and their sizes are small"
)]

use crate::ours::{self, Scene};
use crate::peers;
use crate::table::{Baseline, Row, Unit};
use benchmesh_workloads::memory::Pages;
use benchmesh_workloads::random::{Random, stamp};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use std::path::Path;

const MEMORY: &str = "/dev/shm";
const FILE_BYTES: u64 = 128 << 20;
/// Passes per figure, except for new files: enough for a few tenths of a second per figure.
const PASSES: u64 = 8;
const STRIDE: u64 = 17;
/// The stretch that small blocks are cut from, of the same length as ours.
const VARIETY_BYTES: usize = 256 << 10;

/// A mode and its record size in KiB.
pub fn cell<const MODE: usize, const KIB: u64>() -> Row {
    let (mode, names) = MODES[MODE];
    let name = names[match KIB {
        4 => 0,
        16 => 1,
        _ => 2,
    }];
    let scene = Scene::new(Path::new(MEMORY));
    let bs = KIB << 10;
    let passes = if mode == "write" { 1 } else { PASSES };
    let spec = scene.spec(
        "io",
        mode,
        json!({"size": FILE_BYTES, "bs": bs, "loops": passes}),
    );
    let file = scene.task_dir().join("w0.dat");
    let offsets = offsets(mode, bs);
    Row {
        name,
        unit: Unit::MibPerSecond,
        ours: Box::new(move || Some(ours::run(&spec).mib_per_cpu_second())),
        baselines: vec![Baseline {
            name: "plain loop",
            bar: "0.95",
            measure: Box::new(move || {
                let _keep = &scene;
                let plain = || plain(&file, mode, bs, &offsets, passes);
                Some(std::thread::scope(|scope| {
                    scope.spawn(plain).join().expect("it counted")
                }))
            }),
        }],
    }
}

/// Each mode, and the names of its rows for 4, 16 and 64 KiB.
const MODES: [(&str, [&str; 3]); 9] = [
    (
        "write",
        ["matrix 4k write", "matrix 16k write", "matrix 64k write"],
    ),
    (
        "rewrite",
        [
            "matrix 4k rewrite",
            "matrix 16k rewrite",
            "matrix 64k rewrite",
        ],
    ),
    (
        "read",
        ["matrix 4k read", "matrix 16k read", "matrix 64k read"],
    ),
    (
        "reread",
        ["matrix 4k reread", "matrix 16k reread", "matrix 64k reread"],
    ),
    (
        "randread",
        [
            "matrix 4k randread",
            "matrix 16k randread",
            "matrix 64k randread",
        ],
    ),
    (
        "randwrite",
        [
            "matrix 4k randwrite",
            "matrix 16k randwrite",
            "matrix 64k randwrite",
        ],
    ),
    (
        "backread",
        [
            "matrix 4k backread",
            "matrix 16k backread",
            "matrix 64k backread",
        ],
    ),
    (
        "strideread",
        [
            "matrix 4k strideread",
            "matrix 16k strideread",
            "matrix 64k strideread",
        ],
    ),
    (
        "recrewrite",
        [
            "matrix 4k recrewrite",
            "matrix 16k recrewrite",
            "matrix 64k recrewrite",
        ],
    ),
];

fn offsets(mode: &str, bs: u64) -> Vec<u64> {
    let blocks = FILE_BYTES / bs;
    let mut numbers: Vec<u64> = match mode {
        "backread" => (0..blocks).rev().collect(),
        "recrewrite" => (0..blocks).map(|_| 0).collect(),
        "strideread" => (0..STRIDE)
            .flat_map(|first| (first..blocks).step_by(STRIDE as usize))
            .collect(),
        _ => (0..blocks).collect(),
    };
    if mode.starts_with("rand") {
        let mut random = Random::new(3);
        for last in (1..numbers.len()).rev() {
            let other = random.below(last as u64 + 1) as usize;
            numbers.swap(last, other);
        }
    }
    numbers.iter().map(|number| number * bs).collect()
}

fn plain(path: &Path, mode: &str, bs: u64, offsets: &[u64], passes: u64) -> f64 {
    let writes = mode.contains("write");
    let flags = match (mode, writes) {
        ("write", _) => {
            std::fs::remove_file(path).expect("it was laid out");
            OFlags::WRONLY | OFlags::CREATE
        }
        (_, true) => OFlags::WRONLY,
        (_, false) => OFlags::RDONLY,
    };
    let file = rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR).expect("it is there");
    let bytes = bs as usize;
    let stretch = if writes { VARIETY_BYTES } else { 0 };
    let mut blocks = Pages::new(stretch + bytes).expect("a buffer");
    Random::new(7).fill(&mut blocks);
    let mut number = 1;
    let began = clock_gettime(ClockId::ThreadCPUTime);
    for _ in 0..passes {
        for offset in offsets {
            let moved = match writes {
                true => {
                    let from = *offset as usize % VARIETY_BYTES;
                    let block = &mut blocks[from..from + bytes];
                    stamp(block, &mut number);
                    rustix::io::pwrite(&file, block, *offset)
                }
                false => rustix::io::pread(&file, &mut blocks[..bytes], *offset),
            };
            assert_eq!(moved, Ok(bytes));
        }
    }
    let mib = (passes * FILE_BYTES) as f64 / f64::from(1 << 20);
    let took = clock_gettime(ClockId::ThreadCPUTime) - began;
    mib / (took.tv_sec as f64 + took.tv_nsec as f64 / 1e9)
}

/// More workers than CPUs, each with its own file, against as many threads.
pub fn many_workers() -> Row {
    const WORKERS: u64 = 64;
    const BYTES: u64 = 4 << 20;
    const BS: u64 = 4096;
    const LOOPS: u64 = 24;
    let scene = Scene::new(Path::new(MEMORY));
    let params = json!({"size": BYTES, "bs": BS, "numjobs": WORKERS, "loops": LOOPS});
    let spec = scene.spec("io", "read", params);
    let dir = scene.task_dir();
    Row {
        name: "64 workers read 4 KiB, tmpfs",
        unit: Unit::KiloOpsPerSecond,
        ours: Box::new(move || Some(ours::run(&spec).kilo_ops_per_second())),
        baselines: vec![Baseline {
            name: "64 plain threads",
            bar: "0.95",
            measure: Box::new(move || {
                let _keep = &scene;
                let offsets: Vec<u64> = (0..BYTES / BS).map(|block| block * BS).collect();
                let offsets = &offsets;
                let dir = &dir;
                let one = |worker| {
                    let path = dir.join(format!("w{worker}.dat"));
                    let file = rustix::fs::openat(CWD, &path, OFlags::RDONLY, Mode::empty());
                    let file = file.expect("it was laid out");
                    let mut block = Pages::new(BS as usize).expect("a buffer");
                    move || {
                        for _ in 0..LOOPS {
                            for offset in offsets {
                                let read = rustix::io::pread(&file, &mut *block, *offset);
                                assert_eq!(read, Ok(BS as usize));
                            }
                        }
                    }
                };
                let took = peers::together((0..WORKERS).map(one).collect());
                let ops = (WORKERS * LOOPS * (BYTES / BS)) as f64;
                Some(ops / 1000.0 / took.as_secs_f64())
            }),
        }],
    }
}

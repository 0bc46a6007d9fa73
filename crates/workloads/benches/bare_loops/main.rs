//! Our load against loops of the same system calls without measuring, and against fio, iperf3 and sockperf if they are
//! installed: our figure, the baseline's, and the ratio.
//!
//! `cargo bench -p benchmesh-workloads --bench bare_loops [-- [--rounds N] PART OF A ROW'S NAME]...`
//!
//! Both sides of a row run in turns, so that disturbances of the machine affect both. Figures are medians, the ratio is
//! the median of each round's ratio. Rows of the disk work in the target directory, those of tmpfs in /dev/shm, those
//! of the network on loopback.
#![expect(
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the rows are constants, and their sizes are small"
)]

mod files;
mod links;

use benchmesh_workloads::clock::{MonoNanos, sleep_until};
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::memory::Pages;
use benchmesh_workloads::registry;
use benchmesh_workloads::sandbox::{Allowed, Make, RunDirectory};
use benchmesh_workloads::task::{CellDir, End, Place, PrepareControl, Task, TaskSpec};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier, OnceLock};
use std::time::{Duration, Instant};

const MIB: f64 = 1_048_576.0;
const TMPFS: &str = "/dev/shm";
const DISK: &str = env!("CARGO_TARGET_TMPDIR");
const PLAIN: &str = "plain loop";

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    if !words.iter().any(|word| word == "--bench") {
        // `cargo test --benches` only needs it to link.
        return;
    }
    let mut rounds = 7;
    if let Some(at) = words.iter().position(|word| word == "--rounds") {
        rounds = words[at + 1].parse().expect("--rounds has a number");
        words.drain(at..at + 2);
    }
    words.retain(|word| !word.starts_with("--"));
    println!(
        "| what | ours, median (least .. most) | baseline | its median (least .. most) | ours is | bar |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for row in rows() {
        if words.is_empty() || words.iter().any(|word| row.name.contains(word.as_str())) {
            row.measure(rounds);
        }
    }
}

fn rows() -> Vec<Row> {
    let mut rows = vec![
        null("fio null engine", "ours at most 100 ns", "--gtod_reduce=0"),
        null("fio null engine, no latencies", "-", "--gtod_reduce=1"),
        passes("rewrite"),
        passes("read"),
        many_workers(),
    ];
    for mode in [("read", "read"), ("rewrite", "write")] {
        let name = format!("io {} 1 MiB direct, disk", mode.0);
        let params = json!({"bs": "1m", "direct": true});
        let psync = "--ioengine=psync --bs=1m --direct=1".to_owned();
        rows.push(against_fio(name, DISK, mode, params, psync, RATE));
    }
    for mode in ["randread", "randwrite"] {
        for (what, parent, direct, figure) in [
            ("4 KiB, tmpfs", TMPFS, 0, OPS),
            ("4 KiB direct, disk", DISK, 1, OPS),
            ("user CPU, disk", DISK, 1, USER_CPU),
        ] {
            let name = format!("depth 32 {mode} {what}");
            let params = json!({
                "bs": "4k", "direct": direct == 1, "iodepth": 32, "runtime": "2s", "norandommap": true
            });
            let uring = format!(
                "--ioengine=io_uring --bs=4k --direct={direct} --iodepth=32 --fixedbufs=1 --registerfiles=1 \
                 --time_based --runtime=2 --norandommap=1"
            );
            rows.push(against_fio(
                name,
                parent,
                (mode, mode),
                params,
                uring,
                figure,
            ));
        }
    }
    rows.extend(files::rows());
    rows.extend(links::rows());
    rows
}

/// Meaning of a figure.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    NanosPerOp,
    MibPerSecond,
    KiloOpsPerSecond,
    Percent,
}

/// One measurement; `None` if the tool is not installed.
type Measure = Box<dyn FnMut() -> Option<f64>>;

/// One comparison.
struct Row {
    name: String,
    unit: Unit,
    baseline: &'static str,
    /// The target ratio.
    bar: &'static str,
    /// Makes both sides, ours first, with their data.
    sides: Box<dyn FnOnce() -> (Measure, Measure)>,
}

fn row(
    name: impl Into<String>,
    unit: Unit,
    (baseline, bar): (&'static str, &'static str),
    sides: impl FnOnce() -> (Measure, Measure) + 'static,
) -> Row {
    let (name, sides) = (name.into(), Box::new(sides));
    Row {
        name,
        unit,
        baseline,
        bar,
        sides,
    }
}

impl Row {
    fn measure(self, rounds: usize) {
        eprintln!("{}, {rounds} rounds", self.name);
        let (mut our_side, mut their_side) = (self.sides)();
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..rounds {
            // Alternates the order, so that neither side always runs after the other.
            if round % 2 == 0 {
                ours.extend(our_side());
            }
            theirs.extend(their_side());
            if round % 2 == 1 {
                ours.extend(our_side());
            }
        }
        let ratio = |(ours, theirs): (&f64, &f64)| match self.unit {
            Unit::NanosPerOp => theirs / ours,
            _ => ours / theirs,
        };
        let ratios: Vec<f64> = ours.iter().zip(&theirs).map(ratio).collect();
        let unit = match self.unit {
            Unit::NanosPerOp => "ns/op",
            Unit::MibPerSecond => "MiB/s",
            Unit::KiloOpsPerSecond => "k op/s",
            Unit::Percent => "%",
        };
        let (ours, theirs, ratio) = (spread(ours, 1), spread(theirs, 1), spread(ratios, 2));
        println!(
            "| {} | {ours} {unit} | {} | {theirs} {unit} | {ratio} | {} |",
            self.name, self.baseline, self.bar
        );
    }
}

fn spread(mut figures: Vec<f64>, digits: usize) -> String {
    figures.sort_by(f64::total_cmp);
    let (Some(least), Some(most)) = (figures.first(), figures.last()) else {
        return "not installed".to_owned();
    };
    let median = figures[figures.len() / 2];
    format!("{median:.digits$} ({least:.digits$} .. {most:.digits$})")
}

/// A temporary directory with one cell in it.
struct Scene {
    root: tempfile::TempDir,
    run: Arc<RunDirectory>,
}

impl Scene {
    fn new(parent: &str) -> Scene {
        let root = tempfile::tempdir_in(parent).expect("a directory for the data");
        let allowed = Allowed::new(vec![root.path().to_owned()]).expect("it exists");
        let run =
            RunDirectory::open_or_make(&allowed, root.path(), "bench", "bench", Make::IfMissing);
        let run = Arc::new(run.ok().flatten().expect("a run directory in it").0);
        Scene { root, run }
    }

    /// A task in the cell of this scene.
    fn spec(&self, workload: &str, mode: &str, params: Value) -> TaskSpec {
        let (run, cell) = (Arc::clone(&self.run), "cell".to_owned());
        TaskSpec {
            place: Some(Place::Directory(CellDir { run, cell })),
            ..spec(workload, mode, params)
        }
    }

    /// The directory of that task.
    fn task_dir(&self) -> PathBuf {
        self.run.dir().path().join("cell/t0")
    }
}

/// A task without a target.
fn spec(workload: &str, mode: &str, params: Value) -> TaskSpec {
    let params = params.as_object().cloned().unwrap_or_default();
    TaskSpec::new(workload, mode, params)
}

/// Lays out missing data.
fn prepare(spec: &TaskSpec) -> Task {
    registry::prepare(spec, &PrepareControl::silent())
        .unwrap_or_else(|error| panic!("{}", benchmesh_workloads::error_chain(&error)))
}

/// Results of a task.
struct Outcome {
    ops: f64,
    bytes: f64,
    /// From the planned start, or the end of the ramp, to the end of the last worker.
    seconds: f64,
    user_seconds: f64,
    service: Histogram,
}

impl Outcome {
    fn mib_per_second(&self) -> f64 {
        self.bytes / MIB / self.seconds
    }

    fn kilo_ops_per_second(&self) -> f64 {
        self.ops / 1000.0 / self.seconds
    }
}

/// Our side: a figure of a task without a ramp.
fn ours(spec: TaskSpec, figure: fn(&Outcome) -> f64) -> Measure {
    Box::new(move || Some(figure(&run(&spec, Duration::ZERO))))
}

/// Runs a task from start to end, and counts its results after `ramp`, its `ramp_time`.
fn run(spec: &TaskSpec, ramp: Duration) -> Outcome {
    let mut task = prepare(spec);
    task.arm(soon()).expect("20 ms are enough");
    let (mut ops, mut bytes, mut service) = (0, 0, Histogram::new());
    let end = task.run_to_end(&mut |interval| {
        if !interval.ramp {
            ops += interval.ops;
            bytes += interval.bytes;
            service.add(&interval.service);
        }
        assert_eq!(interval.errors, 0);
    });
    assert_eq!(end.state, End::Done, "{:?}", end.error);
    let user = end.cpu_user.expect("no worker was left behind");
    Outcome {
        ops: ops as f64,
        bytes: bytes as f64,
        seconds: (end.ended.since(end.planned_start) - ramp).as_secs_f64(),
        user_seconds: user.as_secs_f64(),
        service,
    }
}

/// The start instant of both sides.
fn soon() -> MonoNanos {
    MonoNanos::now().saturating_add(Duration::from_millis(20))
}

/// Output of a tool; `None` if it is not installed.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// fio's report of its one job.
fn fio(arguments: &str) -> Option<Value> {
    let mut fio = Command::new("fio");
    fio.args(["--name=peer", "--output-format=json", "--thread"]);
    let text = output(fio.args(arguments.split(' ')))?;
    let mut json: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    Some(json["jobs"][0].take())
}

fn null(baseline: &'static str, bar: &'static str, gtod: &'static str) -> Row {
    let name = "null, one worker";
    row(name, Unit::NanosPerOp, (baseline, bar), move || {
        let spec = spec("null", "run", json!({"ops": 5_000_000}));
        let job = format!("--ioengine=null --rw=read --bs=4k --size=20g {gtod}");
        let theirs = move || Some(1e9 / fio(&job)?["read"]["iops"].as_f64()?);
        (
            ours(spec, |one| 1e9 * one.seconds / one.ops),
            Box::new(theirs),
        )
    })
}

/// A figure of a task, and that of fio's job and its direction.
struct Figure {
    unit: Unit,
    bar: &'static str,
    ours: fn(&Outcome) -> f64,
    theirs: fn(&Value, &Value) -> Option<f64>,
}

const RATE: Figure = Figure {
    unit: Unit::MibPerSecond,
    bar: "1.00",
    ours: Outcome::mib_per_second,
    theirs: |_, side| Some(side["bw_bytes"].as_f64()? / MIB),
};
const OPS: Figure = Figure {
    unit: Unit::KiloOpsPerSecond,
    bar: "equal",
    ours: Outcome::kilo_ops_per_second,
    theirs: |_, side| Some(side["iops"].as_f64()? / 1000.0),
};
const USER_CPU: Figure = Figure {
    unit: Unit::NanosPerOp,
    bar: "1.00",
    ours: |one| one.user_seconds * 1e9 / one.ops,
    theirs: |job, side| {
        let percent_of_ms = job["usr_cpu"].as_f64()? * job["job_runtime"].as_f64()?;
        Some(percent_of_ms * 1e4 / side["total_ios"].as_f64()?)
    },
};

/// Both on one file of 512 MiB. `mode` is ours and fio's.
fn against_fio(
    name: String,
    parent: &'static str,
    mode: (&'static str, &'static str),
    mut params: Value,
    arguments: String,
    figure: Figure,
) -> Row {
    row(name, figure.unit, ("fio", figure.bar), move || {
        let scene = Scene::new(parent);
        params["size"] = json!("512m");
        let spec = scene.spec("io", mode.0, params);
        drop(prepare(&spec));
        let file = scene.task_dir().join("w0.dat");
        let more = "--size=512m --overwrite=1 --scramble_buffers=1";
        let job = format!(
            "{arguments} {more} --rw={} --filename={}",
            mode.1,
            file.display()
        );
        let theirs = move || {
            let _keep = &scene;
            let job = fio(&job)?;
            let side = mode.1.trim_start_matches("rand");
            (figure.theirs)(&job, &job[side])
        };
        (ours(spec, figure.ours), Box::new(theirs))
    })
}

/// Passes of 1 MiB blocks over one file: allocating new pages would cost more than anything measured here.
fn passes(mode: &'static str) -> Row {
    let name = format!("io {mode} 1 MiB, tmpfs");
    row(name, Unit::MibPerSecond, (PLAIN, "0.95"), move || {
        let scene = Scene::new(TMPFS);
        let params = json!({"bs": "1m", "size": "128m", "runtime": "600ms"});
        let spec = scene.spec("io", mode, params);
        drop(prepare(&spec));
        let theirs = move || {
            let file = open(&scene.task_dir().join("w0.dat"), OFlags::RDWR);
            let mut block = Pages::new(1 << 20).expect("a buffer");
            let (mut blocks, began) = (0.0, Instant::now());
            while began.elapsed() < Duration::from_millis(600) {
                pass(&file, &mut block, 128, mode);
                blocks += 128.0;
            }
            Some(blocks / began.elapsed().as_secs_f64())
        };
        (ours(spec, Outcome::mib_per_second), Box::new(theirs))
    })
}

/// Reads or rewrites the first blocks of a file.
fn pass(file: &OwnedFd, block: &mut [u8], blocks: u64, mode: &str) {
    for number in 0..blocks {
        let offset = number * block.len() as u64;
        let moved = match mode {
            "read" => rustix::io::pread(file, &mut *block, offset),
            _ => rustix::io::pwrite(file, block, offset),
        };
        assert_eq!(moved, Ok(block.len()));
    }
}

fn open(path: &Path, flags: OFlags) -> OwnedFd {
    rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty()).expect("it is there")
}

/// More workers than CPUs, each with its own file.
fn many_workers() -> Row {
    const WORKERS: u64 = 64;
    const LOOPS: u64 = 24;
    const BLOCKS: u64 = 1024;
    let (name, baseline) = ("64 workers read 4 KiB, tmpfs", ("64 plain threads", "0.95"));
    row(name, Unit::KiloOpsPerSecond, baseline, || {
        let scene = Scene::new(TMPFS);
        let params = json!({"size": "4m", "bs": "4k", "numjobs": WORKERS, "loops": LOOPS});
        let spec = scene.spec("io", "read", params);
        drop(prepare(&spec));
        let theirs = move || {
            let one = |worker| {
                let path = scene.task_dir().join(format!("w{worker}.dat"));
                let file = open(&path, OFlags::RDONLY);
                let mut block = Pages::new(4096).expect("a buffer");
                move || (0..LOOPS).for_each(|_| pass(&file, &mut block, BLOCKS, "read"))
            };
            let took = together((0..WORKERS).map(one).collect());
            Some((WORKERS * LOOPS * BLOCKS) as f64 / 1000.0 / took.as_secs_f64())
        };
        (ours(spec, Outcome::kilo_ops_per_second), Box::new(theirs))
    })
}

/// Runs each in a thread, also a single one: once threads share descriptors, the kernel counts references to them.
/// Returns the time from their common start, as our workers have, to the end of the last one.
fn together<A: FnOnce() + Send>(acts: Vec<A>) -> Duration {
    let (all_there, start) = (Barrier::new(acts.len() + 1), OnceLock::new());
    std::thread::scope(|scope| {
        let (all_there, start) = (&all_there, &start);
        let spawn = |act: A| {
            scope.spawn(move || {
                all_there.wait();
                sleep_until(*start.wait());
                act();
                MonoNanos::now()
            })
        };
        let threads: Vec<_> = acts.into_iter().map(spawn).collect();
        all_there.wait();
        let start = *start.get_or_init(soon);
        let ends = threads.into_iter().map(|thread| thread.join());
        let last = ends.map(|end| end.expect("it counted")).max();
        last.unwrap_or(start).since(start)
    })
}

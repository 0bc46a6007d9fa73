//! A file system that delays each call by 2 ms, and every workload on it: the time of an operation is that of its calls.
//!
//! Of the quickest tenth, which a busy machine holds up least, an operation takes as long as the file system took for its calls, as its log says, and as the kernel takes
//! to bring them there and back, which a bare loop of the test's own on the same mount tells. Tolerance: 5 % above, and
//! 1 % below what the file system alone took, for a histogram has two digits.

use crate::needs;
use crate::support::database::Database;
use crate::support::fuse_fs::{Call, Fate, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::wall_us;
use benchmesh_workloads::histogram::Histogram;
use rusqlite::types::Value;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(2);
/// The quantile that is compared.
const QUICK: f64 = 0.1;

/// What is measured, and of which calls each of its operations is made.
struct Slow {
    phase: &'static str,
    kind: &'static str,
    calls: &'static [Op],
}

const fn slow(phase: &'static str, kind: &'static str, calls: &'static [Op]) -> Slow {
    Slow { phase, kind, calls }
}

/// All that the operations below wait for.
const DELAYED: &[Op] = &[
    Op::Lookup,
    Op::Create,
    Op::Open,
    Op::Read,
    Op::Write,
    Op::Unlink,
    Op::CopyFileRange,
];

const CREATE: &[Op] = &[Op::Lookup, Op::Create, Op::Write];
const READ: &[Op] = &[Op::Lookup, Op::Open, Op::Read];
const DELETE: &[Op] = &[Op::Lookup, Op::Unlink];

const SLOW: &[Slow] = &[
    slow(
        "workload = \"files\"\nfiles = 60\nsize = \"4k\"\nmodes = [\"create\"]",
        "create",
        CREATE,
    ),
    slow(
        "workload = \"files\"\nfiles = 60\nsize = \"4k\"\nmodes = [\"stat\"]",
        "stat",
        &[Op::Lookup],
    ),
    slow(
        "workload = \"files\"\nfiles = 60\nsize = \"4k\"\nmodes = [\"read\"]",
        "read",
        READ,
    ),
    slow(
        "workload = \"files\"\nfiles = 60\nsize = \"4k\"\nappend = \"4k\"\nmodes = [\"append\"]",
        "append",
        &[Op::Lookup, Op::Open, Op::Write],
    ),
    slow(
        "workload = \"files\"\nfiles = 60\nsize = \"4k\"\nmodes = [\"delete\"]",
        "delete",
        DELETE,
    ),
    slow(
        "workload = \"io\"\nsize = \"240k\"\nbs = \"4k\"\nmodes = [\"write\"]",
        "write",
        &[Op::Write],
    ),
    slow(
        "workload = \"io\"\nsize = \"240k\"\nbs = \"4k\"\nmodes = [\"randread\"]",
        "read",
        &[Op::Read],
    ),
    slow(
        "workload = \"io\"\nsize = \"240k\"\nbs = \"4k\"\nioengine = \"io_uring\"\niodepth = 3\nmodes = [\"write\"]",
        "write",
        // The kernel lets writes of one file through one after the other: each waits for the two before it.
        &[Op::Write, Op::Write, Op::Write],
    ),
    slow(
        "workload = \"io\"\nsize = \"240k\"\nbs = \"4k\"\nioengine = \"io_uring\"\niodepth = 3\nmodes = [\"randread\"]",
        "read",
        &[Op::Read],
    ),
    slow(
        "workload = \"bytes\"\nsize = \"60k\"\nbuffer = \"1k\"\nbs = \"1k\"\nrewrite-share = 0\nseeks = 60\nmodes = [\"putc\"]",
        "putc",
        &[Op::Write],
    ),
    slow(
        "workload = \"bytes\"\nsize = \"60k\"\nbuffer = \"1k\"\nbs = \"1k\"\nrewrite-share = 0\nseeks = 60\nmodes = [\"getc\"]",
        "getc",
        &[Op::Read],
    ),
    slow(
        "workload = \"bytes\"\nsize = \"60k\"\nbuffer = \"1k\"\nbs = \"1k\"\nrewrite-share = 0\nseeks = 60\nmodes = [\"rewrite\"]",
        "rewrite",
        &[Op::Read, Op::Write],
    ),
    slow(
        "workload = \"bytes\"\nsize = \"60k\"\nbuffer = \"1k\"\nbs = \"1k\"\nrewrite-share = 0\nseeks = 60\nmodes = [\"fwrite\"]",
        "fwrite",
        &[Op::Write],
    ),
    slow(
        "workload = \"bytes\"\nsize = \"60k\"\nbuffer = \"1k\"\nbs = \"1k\"\nrewrite-share = 0\nseeks = 60\nmodes = [\"fread\"]",
        "fread",
        &[Op::Read],
    ),
    slow(
        "workload = \"bytes\"\nsize = \"60k\"\nbuffer = \"1k\"\nbs = \"1k\"\nrewrite-share = 0\nseeks = 60\nmodes = [\"seek\"]",
        "seek",
        &[Op::Read],
    ),
    slow(
        "workload = \"copy\"\nfiles = 60\nsize = \"4k\"\nbs = \"4k\"\nmodes = [\"in\"]",
        "copy",
        CREATE,
    ),
    slow(
        "workload = \"copy\"\nfiles = 60\nsize = \"4k\"\nbs = \"4k\"\nway = \"read-write\"\nmodes = [\"in\"]",
        "copy",
        CREATE,
    ),
    slow(
        "workload = \"copy\"\nfiles = 60\nsize = \"4k\"\nbs = \"4k\"\nway = \"direct\"\nmodes = [\"in\"]",
        "copy",
        CREATE,
    ),
    slow(
        "workload = \"copy\"\nfiles = 60\nsize = \"4k\"\nbs = \"4k\"\nway = \"read-write\"\nmodes = [\"out\"]",
        "copy",
        &[Op::Lookup, Op::Open, Op::Read, Op::Read],
    ),
    slow(
        "workload = \"tree\"\nfiles = 60\ndirectories = 3\nsize = \"4k\"\nmodes = [\"unpack\"]",
        "create",
        CREATE,
    ),
    slow(
        "workload = \"tree\"\nfiles = 60\ndirectories = 3\nsize = \"4k\"\nmodes = [\"read\"]",
        "read",
        READ,
    ),
    slow(
        "workload = \"tree\"\nfiles = 60\ndirectories = 3\nsize = \"4k\"\nmodes = [\"walk\"]",
        "stat",
        &[Op::Lookup],
    ),
    slow(
        "workload = \"tree\"\nfiles = 60\ndirectories = 3\nsize = \"4k\"\nmodes = [\"remove\"]",
        "delete",
        DELETE,
    ),
    slow(
        "workload = \"fill\"\namount = \"6m\"\nbs = \"100k\"\nmodes = [\"fill\"]",
        "write",
        &[Op::Write],
    ),
    slow(
        "workload = \"replay\"\noperations = \"\"\"@\"\"\"",
        "read",
        &[Op::Read],
    ),
];

/// Thirty reads, for a list.
fn reads() -> String {
    let reads = (0..30).map(|block| format!("- read old {} 4096\n", block * 4096));
    format!("- open old\n{}- close old\n", reads.collect::<String>())
}

fn check(fs: &FuseFs, mesh: &Mesh, target: &Path, cases: &[Slow]) {
    let phases: Vec<String> = (cases.iter().enumerate())
        .map(|(number, case)| {
            let phase = case.phase.replace('@', &reads());
            format!("[[phase]]\nname = \"p{number}\"\n{phase}\n")
        })
        .collect();
    let plan = format!(
        "[targets.slow]\nsystem = \"fuse\"\npath = \"{}\"\n{}",
        target.display(),
        phases.concat()
    );
    let (bare, run) = Bare::during(fs, || mesh.run(&plan));
    let (db, log) = (mesh.db(), fs.log());
    let mut wrong = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        let phase = format!("p{number}");
        let step = Step::of(&db, run, &phase, case.kind);
        let server = step.server(case, &log);
        let (reported, transport) = (step.quick_ns, bare.transport(step.span));
        let calls = case.calls.len() as f64;
        let (least, most) = (0.99 * server, 1.05 * (server + calls * transport));
        if !(least..=most).contains(&reported) {
            wrong.push(format!(
                "{} of {:?}: {reported:.0} ns, and it is {least:.0} to {most:.0}, {transport:.0} there and back",
                case.kind, case.phase
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A bare loop of reads on the same mount, all the while: what it takes more than the file system does, the kernel takes to
/// bring a call there and its answer back, on a machine that does at that moment what it does for the workloads too.
struct Bare<'a> {
    fs: &'a FuseFs,
    /// When each read ended, and how long it took.
    reads: Vec<(i64, Duration)>,
}

impl<'a> Bare<'a> {
    fn during<T>(fs: &'a FuseFs, body: impl FnOnce() -> T) -> (Self, T) {
        let path = fs.path().join("bare");
        std::fs::write(&path, [1; 4096]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut reads = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    file.read_exact_at(&mut [0; 4096], 0).unwrap();
                    let took = began.elapsed();
                    reads.push((wall_us(), took));
                }
                reads
            });
            let done = body();
            stop.store(true, Ordering::Relaxed);
            let reads = reading.join().unwrap();
            (Self { fs, reads }, done)
        })
    }

    /// There and back, in nanoseconds, while a step ran.
    fn transport(&self, (from, until): (i64, i64)) -> f64 {
        let reads = self.reads.iter();
        let mut took: Vec<Duration> = reads
            .filter(|(at, _)| (from..=until).contains(at))
            .map(|(_, took)| *took)
            .collect();
        took.sort_unstable();
        let log = self.fs.log();
        let calls = log.iter().filter(|call| {
            let is_bare = call.op == Op::Read && call.path == "bare";
            is_bare && call.began_us >= from && call.ended_us <= until
        });
        took[rank(took.len())].as_nanos() as f64 - quick(calls)
    }
}

/// Where the quickest tenth of so many ends.
fn rank(count: usize) -> usize {
    ((count as f64 * QUICK).ceil() as usize).max(1) - 1
}

/// What the quickest tenth of the calls that were delayed took at most, in nanoseconds.
fn quick<'a>(calls: impl Iterator<Item = &'a Call>) -> f64 {
    let took = calls.map(|call| call.ended_us - call.began_us);
    let mut took: Vec<i64> = took
        .filter(|took| *took >= DELAY.as_micros() as i64)
        .collect();
    took.sort_unstable();
    assert!(took.len() >= 25, "{} calls", took.len());
    took[rank(took.len())] as f64 * 1e3
}

/// What is reported of one kind of operation of a step.
struct Step {
    quick_ns: f64,
    /// From its start to the end of its last task.
    span: (i64, i64),
}

impl Step {
    fn of(db: &Database, run: i64, phase: &str, kind: &str) -> Self {
        let row = &db.rows(&format!(
            "SELECT r.histogram, s.start_us, max(t.ended_us) AS ended_us FROM step_results r
             JOIN steps s ON s.id = r.step_id JOIN tasks t ON t.step_id = s.id
             WHERE s.run_id = {run} AND s.phase = '{phase}' AND r.op = '{kind}' GROUP BY s.id"
        ))[0];
        let Value::Blob(packed) = row.value("histogram") else {
            panic!("{row:?}")
        };
        let histogram = Histogram::from_v2_deflate(packed).unwrap();
        Self {
            quick_ns: histogram.quantile(QUICK) as f64,
            span: (row.integer("start_us"), row.integer("ended_us")),
        }
    }

    /// What the calls of an operation took, in nanoseconds, each of its quickest tenth.
    fn server(&self, case: &Slow, log: &[Call]) -> f64 {
        let (from, until) = self.span;
        let calls = |op: Op| {
            let calls = log
                .iter()
                .filter(move |call| call.op == op && call.path != "bare");
            calls.filter(move |call| call.began_us >= from && call.ended_us <= until)
        };
        case.calls.iter().map(|op| quick(calls(*op))).sum()
    }
}

#[test]
fn every_workload_reports_the_delay_of_its_calls() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    // The other side of a copy takes no time to speak of.
    let mut scratch = tempfile::Builder::new();
    let scratch = scratch
        .prefix("bm-scratch-")
        .tempdir_in("/dev/shm")
        .unwrap();
    let agent = Agent::named("a").allow(fs.path()).argument("--scratch");
    mesh.add(agent.argument(scratch.path().to_str().unwrap()));
    for op in DELAYED {
        fs.add_rule(Rule::every(*op, Fate::Delay(DELAY)));
    }
    check(&fs, &mesh, fs.path(), SLOW);
}

/// What the kernel copies within one file system is one call for the target, and no read and no write.
#[test]
fn a_copy_within_the_file_system_has_the_delay_of_its_call() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let (target, scratch) = (fs.path().join("target"), fs.path().join("scratch"));
    for directory in [&target, &scratch] {
        std::fs::create_dir(directory).unwrap();
    }
    let mut mesh = Mesh::start();
    let agent = Agent::named("a").allow(&target).argument("--scratch");
    mesh.add(agent.argument(scratch.to_str().unwrap()));
    for op in DELAYED {
        fs.add_rule(Rule::every(*op, Fate::Delay(DELAY)));
    }
    let case = slow(
        "workload = \"copy\"\nfiles = 60\nsize = \"4k\"\nway = \"copy-file-range\"\nmodes = [\"in\"]",
        "copy",
        &[
            Op::Lookup,
            Op::Open,
            Op::Lookup,
            Op::Create,
            Op::CopyFileRange,
        ],
    );
    check(&fs, &mesh, &target, &[case]);
}

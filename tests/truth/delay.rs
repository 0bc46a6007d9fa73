//! A file system that delays each call by 2 ms, with every workload: the time of an operation is that of its calls.
//!
//! An operation takes the time of its calls in the file system, by its log, plus the kernel's transport of the calls,
//! which a bare loop of the test measures on the same mount. The test compares the medians, and on a busy machine the
//! fastest tenths, which other work delays least. For operations in flight together, it compares the mean with that of
//! the log alone. Tolerance: 5 % above, and 1 % below, because a histogram has two digits.

mod cases;

use crate::needs;
use crate::support::database::Database;
use crate::support::fuse_fs::{Call, Fault, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::meter::wall_us;
use crate::support::plan;
use benchmesh_testing::{TimingError, measured, timing};
use benchmesh_workloads::histogram::Histogram;
use cases::{DELAYED, Made, SLOW, Slow};
use rusqlite::types::Value;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const DELAY: Duration = Duration::from_millis(2);
const DELAY_NS: f64 = 2e6;
/// If the median of the transport times exceeds their fastest tenth by no more than this, the machine is calm enough
/// for medians.
const CALM_NS: f64 = 0.01 * DELAY_NS;
/// Maximum difference between the agent's estimate of mesh time, which dates a step, and the clock of the log.
const APART_US: i64 = 2000;
/// The file of the bare loop.
const BARE: &str = "bare";

/// A hundred reads for a list.
fn reads() -> String {
    let reads = (0..100).map(|block| format!("- read old {} 4096\n", block * 4096));
    format!("- open old\n{}- close old\n", reads.collect::<String>())
}

/// A phase and the expected report of its operation.
type Case<'a> = (String, &'a Slow);

fn cases<'a>(groups: &[(&str, &'a [Slow])]) -> Vec<Case<'a>> {
    (groups.iter())
        .flat_map(|(common, cases)| cases.iter().map(move |case| (common, case)))
        .map(|(common, case)| (format!("{common}{}", case.0.replace('@', &reads())), case))
        .collect()
}

/// Runs the cases and keeps those that are wrong, to measure them again.
fn check(
    fs: &FuseFs,
    mesh: &Mesh,
    target: &Path,
    cases: &mut Vec<Case<'_>>,
) -> Result<(), TimingError> {
    let phases: Vec<String> = (cases.iter().enumerate())
        .map(|(number, (phase, _))| format!("[[phase]]\nname = \"p{number}\"\n{phase}\n"))
        .collect();
    let plan = plan::on(target, "", &phases.concat());
    let (bare, run) = Bare::during(fs, || mesh.run(&plan));
    let (db, log) = (mesh.db(), fs.log());
    let (mut wrong, mut again) = (Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let (phase, (_, kind, made)) = case;
        let step = Step::of(&db, run, &format!("p{number}"), kind);
        let calls = step.calls(&log);
        let (what, reported, least, most) = match made {
            Made::Of(pattern) => step.each(pattern, &on_names(&calls), &bare),
            Made::OfNames(pattern) => step.each(pattern, &[calls], &bare),
            Made::InFlight(op, depth) => step.together(*op, *depth, &calls),
        };
        if !(least..=most).contains(&reported) {
            wrong.push(format!(
                "{kind} of {phase:?}: the {what} is {reported:.0} ns, and has to be {least:.0} to {most:.0}"
            ));
            again.push(case.clone());
        }
    }
    *cases = again;
    timing!(wrong.is_empty(), "{wrong:#?}");
    Ok(())
}

/// A bare loop of reads on the same mount, which runs all the time. Its time beyond the file system's is the kernel's
/// transport of a call and its answer, under the same other work of the machine as for the workloads at that moment.
struct Bare {
    /// When each read ended, and how much longer than its call it took, in nanoseconds.
    reads: Vec<(i64, f64)>,
}

impl Bare {
    fn during<T>(fs: &FuseFs, body: impl FnOnce() -> T) -> (Self, T) {
        let path = fs.path().join(BARE);
        std::fs::write(&path, [1; 4096]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let stop = AtomicBool::new(false);
        let (reads, done) = std::thread::scope(|scope| {
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
            (reading.join().unwrap(), done)
        });
        let log = fs.log();
        let calls = log.iter();
        let calls = calls.filter(|call| (call.op, call.path.as_str()) == (Op::Read, BARE));
        // Sequential reads, each with its call.
        let reads = reads.into_iter().zip(calls);
        let more = |took: Duration, call: &Call| took.as_nanos() as f64 - took_ns(call);
        let reads = reads.map(|((at, took), call)| (at, more(took, call)));
        let reads = reads.collect();
        (Self { reads }, done)
    }

    /// Transport time of a call and its answer, in nanoseconds, while a step ran.
    fn transport(&self, (from, until): (i64, i64), q: f64) -> f64 {
        let reads = self.reads.iter();
        let during = reads.filter(|(at, _)| (from..=until).contains(at));
        quantile(during.map(|(_, more)| *more).collect(), q)
    }
}

fn took_ns(call: &Call) -> f64 {
    (call.ended_us - call.began_us) as f64 * 1e3
}

/// The value that a share of all values do not exceed.
fn quantile(mut values: Vec<f64>, q: f64) -> f64 {
    assert!(values.len() >= 25, "{} values", values.len());
    values.sort_by(f64::total_cmp);
    values[((values.len() as f64 * q).ceil() as usize).max(1) - 1]
}

/// The reported figures of one kind of operation of a step.
struct Step {
    histogram: Histogram,
    mean_ns: f64,
    ops: usize,
    /// From its start to the end of its last task.
    span: (i64, i64),
}

/// A reported figure, and its allowed range.
type Figure = (&'static str, f64, f64, f64);

impl Step {
    fn of(db: &Database, run: i64, phase: &str, kind: &str) -> Self {
        let row = &db.rows(&format!(
            "SELECT r.histogram, r.mean_ns, r.ops, s.start_us, max(t.ended_us) AS ended_us FROM step_results r
             JOIN steps s ON s.id = r.step_id JOIN tasks t ON t.step_id = s.id
             WHERE s.run_id = {run} AND s.phase = '{phase}' AND r.op = '{kind}' GROUP BY s.id"
        ))[0];
        let Value::Blob(packed) = row.value("histogram") else {
            panic!("{row:?}")
        };
        Self {
            histogram: Histogram::from_v2_deflate(packed).unwrap(),
            mean_ns: row.number("mean_ns"),
            ops: row.integer("ops") as usize,
            span: (row.integer("start_us"), row.integer("ended_us")),
        }
    }

    /// The calls of the workload that were delayed during the step, in the order in which they ended.
    fn calls<'a>(&self, log: &'a [Call]) -> Vec<&'a Call> {
        let (from, until) = (self.span.0 - APART_US, self.span.1 + APART_US);
        let within = |call: &&Call| call.began_us >= from && call.ended_us <= until;
        let calls = log.iter().filter(within);
        let delayed = |call: &&Call| call.path != BARE && took_ns(call) >= DELAY_NS;
        calls.filter(delayed).collect()
    }

    /// For sequential operations: the file system's time for each, plus the transport of each of its calls.
    fn each(&self, pattern: &[Op], calls: &[Vec<&Call>], bare: &Bare) -> Figure {
        let spread = bare.transport(self.span, 0.5) - bare.transport(self.span, 0.1);
        let (what, q) = match spread <= CALM_NS {
            true => ("median", 0.5),
            false => ("p10", 0.1),
        };
        let server = quantile(operations(pattern, calls), q);
        // Every opened file is closed: a call without a delay that the load waits for too.
        let closed = |op: &&Op| matches!(op, Op::Open | Op::Create);
        let trips = pattern.len() + pattern.iter().filter(closed).count();
        let transport = trips as f64 * bare.transport(self.span, q);
        let reported = self.histogram.quantile(q) as f64;
        (what, reported, 0.99 * server, 1.05 * (server + transport))
    }

    /// For several in flight: each begins when another ends, whatever the kernel does in between, so the file system's
    /// log gives the mean of all without an addition for the machine. The transport from the end of one to the worker
    /// is missing where the next begins.
    fn together(&self, op: Op, depth: usize, calls: &[&Call]) -> Figure {
        let calls = calls.iter().filter(|call| call.op == op);
        let start = calls.clone().map(|call| call.began_us).min().unwrap();
        let ends: Vec<i64> = calls.map(|call| call.ended_us).collect();
        assert_eq!(ends.len(), self.ops);
        let first = std::iter::repeat_n(start, depth);
        let begins = first.chain(ends.iter().copied());
        let all: i64 = ends
            .iter()
            .zip(begins)
            .map(|(end, begin)| end - begin)
            .sum();
        let mean = all as f64 * 1e3 / self.ops as f64;
        ("mean", self.mean_ns, 0.99 * mean, 1.05 * mean)
    }
}

/// The calls grouped by name.
fn on_names<'a>(calls: &[&'a Call]) -> Vec<Vec<&'a Call>> {
    let mut names: BTreeMap<&str, Vec<&Call>> = BTreeMap::new();
    for call in calls {
        let name = call.path.rsplit('/').next().unwrap();
        names.entry(name).or_default().push(call);
    }
    names.into_values().collect()
}

/// The file system's time for each operation made of such sequential calls, in nanoseconds.
fn operations(pattern: &[Op], calls: &[Vec<&Call>]) -> Vec<f64> {
    let mut all = Vec::new();
    for calls in calls {
        let calls = calls.iter().filter(|call| pattern.contains(&call.op));
        let calls: Vec<&Call> = calls.copied().collect();
        let mut rest = &calls[..];
        while let Some(next) = rest.get(..pattern.len()) {
            let is_one = next.iter().map(|call| call.op).eq(pattern.iter().copied());
            if is_one {
                all.push(next.iter().map(|call| took_ns(call)).sum());
            }
            rest = &rest[if is_one { pattern.len() } else { 1 }..];
        }
    }
    all
}

#[test]
fn every_workload_reports_the_delay_of_its_calls() {
    needs!("fuse");
    let mut cases = cases(SLOW);
    measured(|| {
        let fs = FuseFs::mount();
        let mut mesh = Mesh::start();
        // The other side of a copy takes negligible time.
        let mut scratch = tempfile::Builder::new();
        let scratch = scratch
            .prefix("bm-scratch-")
            .tempdir_in("/dev/shm")
            .unwrap();
        mesh.add(Agent::named("a").allow(fs.path()).scratch(scratch.path()));
        for op in DELAYED {
            fs.add_rule(Rule::every(*op, Fault::Delay(DELAY)));
        }
        check(&fs, &mesh, fs.path(), &mut cases)
    });
}

/// A copy by the kernel within one file system is a single call for the target, without reads or writes.
#[test]
fn a_copy_within_the_file_system_has_the_delay_of_its_call() {
    needs!("fuse");
    let calls = &[
        Op::Lookup,
        Op::Open,
        Op::Lookup,
        Op::Create,
        Op::CopyFileRange,
    ];
    let case = [("modes = [\"in\"]", "copy", Made::Of(calls))];
    let common = "workload = \"copy\"\nfiles = 100\nsize = \"4k\"\nway = \"copy-file-range\"\n";
    let mut cases = cases(&[(common, &case)]);
    measured(|| {
        let fs = FuseFs::mount();
        let (target, scratch) = (fs.path().join("target"), fs.path().join("scratch"));
        for directory in [&target, &scratch] {
            std::fs::create_dir(directory).unwrap();
        }
        let mut mesh = Mesh::start();
        mesh.add(Agent::named("a").allow(&target).scratch(&scratch));
        for op in DELAYED {
            fs.add_rule(Rule::every(*op, Fault::Delay(DELAY)));
        }
        check(&fs, &mesh, &target, &mut cases)
    });
}

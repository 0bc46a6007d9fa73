//! Shared by the tests of workloads: a cell in its own directory, and a task run to its end.
#![allow(clippy::unwrap_used)]

use crate::engine::task::{
    CellDir, End, Place, PrepareControl, Task, TaskEnd, TaskError, TaskSpec,
};
use crate::measure::clock::MonoNanos;
use crate::measure::interval::Interval;
use crate::measure::op::Op;
use crate::measure::recorder::MISMATCH;
use crate::registry;
use crate::target::data::{Content, DataSpec};
use crate::target::sandbox::{Allowed, Make, RunDirectory};
use benchmesh_testing::{TimingError, timing};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) struct TestCell {
    workload: &'static str,
    pub top: TempDir,
    pub place: CellDir,
}

impl TestCell {
    pub(crate) fn new(workload: &'static str) -> Self {
        Self::beneath(workload, &std::env::temp_dir())
    }

    pub(crate) fn beneath(workload: &'static str, parent: &Path) -> Self {
        Self::within(workload, tempfile::tempdir_in(parent).unwrap())
    }

    pub(crate) fn within(workload: &'static str, top: TempDir) -> Self {
        let allowed = Allowed::new(vec![top.path().to_owned()]).unwrap();
        let opened =
            RunDirectory::open_or_make(&allowed, top.path(), "mesh", "run", Make::IfMissing);
        let place = CellDir {
            run: Arc::new(opened.unwrap().unwrap().0),
            cell: "c1".into(),
        };
        Self {
            workload,
            top,
            place,
        }
    }

    /// The task may read files in the cell's top directory.
    pub(crate) fn spec(&self, mode: &str, params: Value) -> TaskSpec {
        TaskSpec {
            place: Some(Place::Directory(self.place.clone())),
            sources: Allowed::new(vec![self.top.path().to_owned()]).unwrap(),
            ..TaskSpec::new(self.workload, mode, params.as_object().unwrap().clone())
        }
    }

    pub(crate) fn task_dir(&self) -> PathBuf {
        self.top.path().join("benchmesh-run/c1/t0")
    }

    pub(crate) fn run(&self, mode: &str, params: Value) -> LoadOutcome {
        run(&self.spec(mode, params))
    }

    /// Why the task cannot be prepared.
    pub(crate) fn refusal(&self, mode: &str, params: Value) -> TaskError {
        let prepared = registry::prepare(&self.spec(mode, params), &PrepareControl::silent());
        prepared.err().unwrap()
    }
}

/// CPU time needed here to generate this many bytes of self-describing blocks, independent of other load.
pub(crate) fn making(bytes: u64) -> Duration {
    let spec = DataSpec {
        verify: true,
        ..DataSpec::default()
    };
    let content = Content::new(spec, 1);
    let mut block = vec![1; 1 << 20];
    let spent = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
    let began = spent();
    for offset in (0..bytes).step_by(1 << 20) {
        content.place(&mut block, 1, offset, 0);
    }
    spent().saturating_sub(began)
}

#[derive(Debug)]
pub(crate) struct LoadOutcome {
    pub end: TaskEnd,
    pub intervals: Vec<Interval>,
}

impl LoadOutcome {
    /// Over all kinds and intervals.
    pub(crate) fn sum(&self, pick: fn(&Interval) -> u64) -> u64 {
        self.intervals.iter().map(pick).sum()
    }

    /// Checks operations, bytes and errors of all kinds together, and an end without an error of its own.
    pub(crate) fn expect_sums(&self, ops: u64, bytes: u64, errors: u64) {
        assert_eq!(self.end.error, None);
        let sums = (
            self.sum(|it| it.ops),
            self.sum(|it| it.bytes),
            self.sum(|it| it.errors),
        );
        assert_eq!(sums, (ops, bytes, errors), "{:?}", self.end.errors);
        assert_eq!(self.sum(|it| it.service.count()), ops);
    }

    /// Operations, bytes and errors of one kind.
    pub(crate) fn of(&self, op: Op) -> (u64, u64, u64) {
        let intervals = self.intervals.iter().filter(|it| it.op == op);
        intervals.fold((0, 0, 0), |sum, it| {
            (sum.0 + it.ops, sum.1 + it.bytes, sum.2 + it.errors)
        })
    }

    /// The longest service and response time of one kind.
    pub(crate) fn slowest(&self, op: Op) -> (Duration, Option<Duration>) {
        let intervals = || self.intervals.iter().filter(|it| it.op == op);
        let service = intervals().map(|it| it.service.max_ns()).max();
        let response = intervals()
            .filter_map(|it| it.response.as_ref())
            .map(|response| response.max_ns())
            .max();
        (
            Duration::from_nanos(service.unwrap_or(0)),
            response.map(Duration::from_nanos),
        )
    }

    /// At least half of `took` has been excluded from the operations of the only worker.
    pub(crate) fn expect_apart(&self, took: Duration) -> Result<(), TimingError> {
        let all = self.end.ended.since(self.end.planned_start);
        let served: f64 = self.intervals.iter().map(|it| it.service.sum_ns()).sum();
        let apart = all.as_secs_f64() - served / 1e9;
        timing!(apart > took.as_secs_f64() / 2.0, "{apart} s, {took:?}");
        Ok(())
    }

    /// Checks all successful operations: each kind with its operations and bytes.
    pub(crate) fn expect(&self, expected: &[(Op, u64, u64)]) {
        assert_eq!(
            (self.end.state, &self.end.error),
            (End::Done, &None),
            "{:?}",
            self.end
        );
        for (op, ops, bytes) in expected {
            assert_eq!(
                self.of(*op),
                (*ops, *bytes, 0),
                "{op}: {:?}",
                self.end.errors
            );
        }
        let sum: u64 = self.intervals.iter().map(|it| it.ops + it.errors).sum();
        let known: u64 = expected.iter().map(|(_, ops, _)| ops).sum();
        assert_eq!(sum, known, "{:?}", self.intervals);
    }
}

/// Arms a task with a start in 20 ms, and retries if this thread was delayed beyond it.
pub(crate) fn arm_soon(task: &mut Task) -> MonoNanos {
    loop {
        let start = MonoNanos::now().saturating_add(Duration::from_millis(20));
        if task.arm(start).is_ok() {
            return start;
        }
    }
}

pub(crate) fn run(spec: &TaskSpec) -> LoadOutcome {
    let task = registry::prepare(spec, &PrepareControl::silent());
    run_prepared(task.unwrap_or_else(|error| panic!("{}", crate::error_chain(&error))))
}

pub(crate) fn run_prepared(mut task: Task) -> LoadOutcome {
    arm_soon(&mut task);
    let mut intervals = Vec::new();
    let end = task.run_to_end(&mut |interval| intervals.push(interval));
    LoadOutcome { end, intervals }
}

/// Flips a bit in each of these bytes of a file.
pub(crate) fn flip(path: &Path, at: &[u64]) {
    let file = File::options().read(true).write(true).open(path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for at in at.iter().copied() {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
}

/// Checks that the only errors are `count` wrong sectors, and that the kept ones include each of these places.
pub(crate) fn expect_mismatches(end: &TaskEnd, count: u64, places: &[impl AsRef<str>]) {
    let [error] = &end.errors[..] else {
        panic!("{:?}", end.errors)
    };
    assert_eq!(end.state, End::Done, "{:?}", end.error);
    assert_eq!((error.errno, error.count), (MISMATCH, count), "{error:?}");
    for place in places.iter().map(AsRef::as_ref) {
        assert!(error.first.contains(place), "{place}: {}", error.first);
    }
}

/// A tmpfs of `kib` KiB at a temporary directory, until the value is dropped; needs root.
pub(crate) struct Tmpfs {
    pub path: PathBuf,
    _top: TempDir,
}

impl Tmpfs {
    /// `None`, with a reported skip, if it cannot be mounted and is not required.
    pub(crate) fn mount(kib: u32) -> Option<Self> {
        Self::mount_with(&format!("size={kib}k"))
    }

    /// As [`Tmpfs::mount`], with these options.
    pub(crate) fn mount_with(options: &str) -> Option<Self> {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().to_owned();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "benchmesh-test"])
            .arg(&path)
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self { path, _top: top });
        }
        benchmesh_testing::skip("root", "a full target is a tmpfs, which cannot be mounted");
        None
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount")
            .arg(&self.path)
            .status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

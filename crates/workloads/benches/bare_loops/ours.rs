//! One task of ours, prepared once and run any number of times.

use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::histogram::Histogram;
use benchmesh_workloads::registry;
use benchmesh_workloads::sandbox::{Allowed, Make, RunDirectory};
use benchmesh_workloads::task::{CellDir, End, Place, PrepareControl, Task, TaskSpec};
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

/// A directory in which rows of the disk and of memory work instead, such as a mount of a storage system:
/// `BENCHMESH_BENCH_DIR`.
pub fn elsewhere() -> Option<&'static Path> {
    static NAMED: OnceLock<Option<PathBuf>> = OnceLock::new();
    let named = || std::env::var_os("BENCHMESH_BENCH_DIR").map(PathBuf::from);
    NAMED.get_or_init(named).as_deref()
}

/// A temporary directory with one cell in it.
pub struct Scene {
    _root: TempDir,
    run: Arc<RunDirectory>,
}

impl Scene {
    pub fn new(beneath: &Path) -> Scene {
        let root = tempfile::tempdir_in(beneath).expect("a directory for the data");
        let allowed = Allowed::new(vec![root.path().to_owned()]).expect("it exists");
        let run =
            RunDirectory::open_or_make(&allowed, root.path(), "bench", "bench", Make::IfMissing);
        let run = run.ok().flatten().expect("a run directory in it").0;
        Scene {
            _root: root,
            run: Arc::new(run),
        }
    }

    /// A task in the cell of this scene.
    pub fn spec(&self, workload: &str, mode: &str, params: Value) -> TaskSpec {
        let mut spec = spec(workload, mode, params);
        spec.place = Some(Place::Directory(CellDir {
            run: Arc::clone(&self.run),
            cell: "cell".to_owned(),
        }));
        spec
    }

    /// The directory of that task.
    pub fn task_dir(&self) -> PathBuf {
        self.run.dir().path().join("cell/t0")
    }
}

/// A task without a target.
pub fn spec(workload: &str, mode: &str, params: Value) -> TaskSpec {
    let params: Map<String, Value> = params.as_object().cloned().unwrap_or_default();
    TaskSpec::new(workload, mode, params)
}

/// Results of a task.
pub struct Outcome {
    pub ops: u64,
    pub bytes: u64,
    /// From the planned start, or the end of the ramp, to the end of the last worker.
    pub seconds: f64,
    pub user_seconds: f64,
    pub cpu_seconds: f64,
    /// From issue to completion.
    pub service: Histogram,
}

impl Outcome {
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.seconds
    }

    pub fn mib_per_cpu_second(&self) -> f64 {
        self.bytes as f64 / f64::from(1 << 20) / self.cpu_seconds
    }

    pub fn kilo_ops_per_second(&self) -> f64 {
        self.ops as f64 / 1000.0 / self.seconds
    }

    pub fn user_nanos_per_op(&self) -> f64 {
        self.user_seconds * 1e9 / self.ops as f64
    }

    pub fn cpu_nanos_per_op(&self) -> f64 {
        self.cpu_seconds * 1e9 / self.ops as f64
    }

    pub fn median_nanos(&self) -> f64 {
        self.service.quantile(0.5) as f64
    }

    pub fn nanos_per_op(&self) -> f64 {
        self.seconds * 1e9 / self.ops as f64
    }
}

/// Lays out missing data.
pub fn lay_out(spec: &TaskSpec) {
    drop(prepare(spec));
}

/// Runs it from start to end. `before` is called between preparation and start.
pub fn run_after(spec: &TaskSpec, before: impl FnOnce()) -> Outcome {
    measure(spec, Duration::ZERO, before)
}

/// Runs it and counts results after its `ramp_time`, which is `ramp`.
pub fn run_ramped(spec: &TaskSpec, ramp: Duration) -> Outcome {
    measure(spec, ramp, || {})
}

fn measure(spec: &TaskSpec, ramp: Duration, before: impl FnOnce()) -> Outcome {
    let mut task = prepare(spec);
    before();
    let start = MonoNanos::now().saturating_add(Duration::from_millis(20));
    task.arm(start).expect("20 ms are enough");
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
    Outcome {
        ops,
        bytes,
        seconds: (end.ended.since(end.planned_start) - ramp).as_secs_f64(),
        user_seconds: seconds(end.cpu_user),
        cpu_seconds: seconds(end.cpu_user) + seconds(end.cpu_system),
        service,
    }
}

fn seconds(span: Option<Duration>) -> f64 {
    span.expect("no worker was left behind").as_secs_f64()
}

pub fn run(spec: &TaskSpec) -> Outcome {
    run_after(spec, || {})
}

fn prepare(spec: &TaskSpec) -> Task {
    match registry::prepare(spec, &PrepareControl::silent()) {
        Ok(task) => task,
        Err(error) => panic!("{}", benchmesh_workloads::error_chain(&error)),
    }
}

//! Objects and images of a RADOS pool, against `rados bench` and fio's rbd engine with the same parameters: in
//! operations per second and in CPU of the whole client per operation.
//!
//! `BENCHMESH_BENCH_POOL=bench,conf=/tmp/c/ceph.conf,user=admin` names the pool, as `--allow-pool` does; without it the
//! rows have no figures. `BM_LAB_OSD_GIB=10 tests/lab/ceph.sh up /tmp/c` creates a cluster for it. The rows' data for
//! reading stay until the process ends, so that both sides find them; written data are removed after each round.

use crate::ours;
use crate::table::{Baseline, Row, Unit};
use benchmesh_workloads::target::place::PoolRun;
use benchmesh_workloads::target::rados::PoolSpec;
use benchmesh_workloads::task::{Place, TaskSpec};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

const SECONDS: u64 = 5;
/// Operations in flight.
const DEPTH: u64 = 16;
/// Reads fit into the caches of the lab's OSDs; otherwise the disk below them would decide.
const IMAGE_MIB: u64 = 64;
const SMALL_OBJECTS: &str = "6000";
const LARGE_OBJECTS: &str = "100";
const FEATURES: &str = "layering,exclusive-lock,object-map,fast-diff,deep-flatten";

pub const ALL: &[fn() -> Row] = &[
    || ops(Work::Objects("write", 4 << 10), "objects 4 KiB write"),
    || cpu(Work::Objects("write", 4 << 10), "objects 4 KiB write, CPU"),
    || ops(Work::Objects("seq", 4 << 10), "objects 4 KiB seq"),
    || cpu(Work::Objects("seq", 4 << 10), "objects 4 KiB seq, CPU"),
    || ops(Work::Objects("rand", 4 << 10), "objects 4 KiB rand"),
    || cpu(Work::Objects("rand", 4 << 10), "objects 4 KiB rand, CPU"),
    || ops(Work::Objects("write", 4 << 20), "objects 4 MiB write"),
    || cpu(Work::Objects("write", 4 << 20), "objects 4 MiB write, CPU"),
    || ops(Work::Objects("seq", 4 << 20), "objects 4 MiB seq"),
    || cpu(Work::Objects("seq", 4 << 20), "objects 4 MiB seq, CPU"),
    || ops(Work::Objects("rand", 4 << 20), "objects 4 MiB rand"),
    || cpu(Work::Objects("rand", 4 << 20), "objects 4 MiB rand, CPU"),
    || ops(Work::Image("randread"), "image 4 KiB randread"),
    || cpu(Work::Image("randread"), "image 4 KiB randread, CPU"),
    || ops(Work::Image("randwrite"), "image 4 KiB randwrite"),
    || cpu(Work::Image("randwrite"), "image 4 KiB randwrite, CPU"),
];

/// The work of both sides.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Work {
    /// A mode, and bytes per object.
    Objects(&'static str, u64),
    Image(&'static str),
}

impl Work {
    /// The other tool.
    fn peer(self) -> &'static str {
        match self {
            Work::Objects(..) => "rados bench",
            Work::Image(_) => "fio rbd, no cache",
        }
    }
}

/// Results of one run.
#[derive(Clone, Copy)]
struct Figures {
    kilo_ops_per_second: f64,
    cpu_nanos_per_op: f64,
}

/// Which side ran.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Side {
    Ours,
    Theirs,
}

thread_local! {
    static POOL: Option<Rc<Pool>> = Pool::named().map(Rc::new);
    /// CPU of runs that a row about the rate has made: the row about CPU reuses them instead of running again.
    static MEASURED: RefCell<HashMap<(Work, Side), VecDeque<f64>>> = RefCell::default();
}

fn ops(work: Work, name: &'static str) -> Row {
    let rate = move |side| {
        let figures = run(work, side)?;
        MEASURED.with_borrow_mut(|measured| {
            let of_side = measured.entry((work, side)).or_default();
            of_side.push_back(figures.cpu_nanos_per_op);
        });
        Some(figures.kilo_ops_per_second)
    };
    row(name, Unit::KiloOpsPerSecond, work, rate)
}

fn cpu(work: Work, name: &'static str) -> Row {
    let cpu = move |side| {
        let measured = MEASURED.with_borrow_mut(|all| all.get_mut(&(work, side))?.pop_front());
        measured.or_else(|| Some(run(work, side)?.cpu_nanos_per_op))
    };
    row(name, Unit::NanosPerOp, work, cpu)
}

fn row(
    name: &'static str,
    unit: Unit,
    work: Work,
    measure: impl Fn(Side) -> Option<f64> + Copy + 'static,
) -> Row {
    Row {
        name,
        unit,
        ours: Box::new(move || measure(Side::Ours)),
        baselines: vec![Baseline {
            name: work.peer(),
            bar: "1.00",
            measure: Box::new(move || measure(Side::Theirs)),
        }],
    }
}

fn run(work: Work, side: Side) -> Option<Figures> {
    let pool = POOL.with(Option::clone)?;
    match (work, side) {
        (Work::Objects(mode, bytes), Side::Ours) => Some(pool.our_objects(mode, bytes)),
        (Work::Objects(mode, bytes), Side::Theirs) => pool.rados_bench(mode, bytes),
        (Work::Image(mode), Side::Ours) => Some(pool.our_image(mode)),
        (Work::Image(mode), Side::Theirs) => pool.fio_rbd(mode),
    }
}

/// The pool, and the data laid out in it.
struct Pool {
    name: String,
    user: String,
    conf: String,
    /// As `conf`, without librbd's cache, which `io` on images never uses.
    conf_without_cache: tempfile::NamedTempFile,
    run: PoolRun,
    /// CPU of a client that connects and does nothing.
    idle_cpu: Duration,
    /// Existing objects of `rados bench`, by size.
    laid_out: RefCell<HashMap<u64, u64>>,
}

impl Pool {
    fn named() -> Option<Pool> {
        let text = std::env::var("BENCHMESH_BENCH_POOL").ok()?;
        let spec = PoolSpec::parse(&text).expect("a pool as --allow-pool names one");
        let key = |key: &str| {
            let mut parts = text.split(',');
            let found = parts.find_map(|part| part.strip_prefix(key)?.strip_prefix('='));
            found
                .unwrap_or_else(|| panic!("BENCHMESH_BENCH_POOL has {key}"))
                .to_owned()
        };
        let run = PoolRun {
            spec,
            mesh: "bench".to_owned(),
            run: "bench".to_owned(),
        };
        run.marker(true)
            .expect("the pool is there")
            .expect("and takes a marker");
        let conf = key("conf");
        let conf_without_cache = tempfile::NamedTempFile::new().expect("a file");
        let text_of_conf = std::fs::read_to_string(&conf).expect("the configuration is there");
        std::fs::write(
            &conf_without_cache,
            format!("{text_of_conf}\n[client]\nrbd cache = false\n"),
        )
        .expect("there is room");
        let mut pool = Pool {
            name: text.split(',').next().unwrap_or_default().to_owned(),
            user: key("user"),
            conf,
            conf_without_cache,
            run,
            idle_cpu: Duration::ZERO,
            laid_out: RefCell::default(),
        };
        let idle = with_cpu(|| pool.client("rados").args(["ls", "-N", "nothing"]).output());
        pool.idle_cpu = idle.1;
        let mut rbd = pool.client("rbd");
        let size = format!("{IMAGE_MIB}M");
        rbd.args([
            "create",
            "peer",
            "--size",
            &size,
            "--image-feature",
            FEATURES,
        ]);
        text_of(&mut rbd)?;
        let mut rbd = pool.client("rbd");
        rbd.args([
            "bench",
            "peer",
            "--io-type",
            "write",
            "--io-size",
            "4M",
            "--io-total",
            &size,
        ]);
        text_of(&mut rbd)?;
        Some(pool)
    }

    /// One of Ceph's commands for the pool.
    fn client(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.args(["-c", &self.conf, "--id", &self.user, "-p", &self.name]);
        command
    }

    fn rados(&self, bytes: u64, verb: &[&str]) -> Option<(String, Duration)> {
        let name = format!("peer-{bytes}");
        let mut rados = self.client("rados");
        rados.args(["-N", "peer", "--run-name", &name]).args(verb);
        let (text, cpu) = with_cpu(|| text_of(&mut rados));
        Some((text?, cpu.saturating_sub(self.idle_cpu)))
    }

    fn rados_bench(&self, mode: &str, bytes: u64) -> Option<Figures> {
        let (seconds, depth, size) = (SECONDS.to_string(), DEPTH.to_string(), bytes.to_string());
        if mode != "write" {
            self.objects_laid_out(bytes);
        }
        let mut verb = vec!["bench", &seconds, mode, "-t", &depth];
        if mode == "write" {
            verb.extend(["-b", &size, "--no-cleanup"]);
        }
        let (text, cpu) = self.rados(bytes, &verb)?;
        if mode == "write" {
            self.rados(bytes, &["cleanup"])?;
            self.laid_out.borrow_mut().remove(&bytes);
        }
        let made = figure(&text, "writes made").or_else(|| figure(&text, "reads made"))?;
        Some(Figures {
            kilo_ops_per_second: made / figure(&text, "time run")? / 1000.0,
            cpu_nanos_per_op: cpu.as_secs_f64() * 1e9 / made,
        })
    }

    /// Number of objects of this size for `rados bench`; creates them if there are none.
    fn objects_laid_out(&self, bytes: u64) -> u64 {
        if let Some(there) = self.laid_out.borrow().get(&bytes) {
            return *there;
        }
        let size = bytes.to_string();
        let most = if bytes < 1 << 20 {
            SMALL_OBJECTS
        } else {
            LARGE_OBJECTS
        };
        let mut verb = vec!["bench", "60", "write", "-t", "16", "-b", &size];
        verb.extend(["--max-objects", most, "--no-cleanup"]);
        let (text, _) = self.rados(bytes, &verb).expect("rados is installed");
        let made = text
            .lines()
            .find_map(|line| line.strip_prefix("Total writes made:"));
        let made = made.and_then(|made| made.trim().parse().ok());
        let made: u64 = made.expect("rados bench says it");
        self.laid_out.borrow_mut().insert(bytes, made);
        made
    }

    fn our_objects(&self, mode: &'static str, bytes: u64) -> Figures {
        let runtime = format!("{SECONDS}s");
        // `rados bench` writes the same block repeatedly too.
        let mut params = json!({
            "size": bytes, "iodepth": DEPTH, "runtime": runtime, "data": {"pattern": "0x55"}
        });
        if mode != "write"
            && let Some(params) = params.as_object_mut()
        {
            params.insert("objects".to_owned(), self.objects_laid_out(bytes).into());
        }
        let figures = self.measure("objects", mode, params);
        if mode == "write" {
            self.remove_cell();
        }
        figures
    }

    fn our_image(&self, mode: &'static str) -> Figures {
        let runtime = format!("{SECONDS}s");
        let params = json!({
            "size": IMAGE_MIB << 20, "bs": "4k", "iodepth": DEPTH, "runtime": runtime
        });
        self.measure("io", mode, params)
    }

    fn measure(&self, workload: &str, mode: &str, params: Value) -> Figures {
        let place = self
            .run
            .task("c1", 0)
            .expect("the pool is there")
            .expect("and the run");
        let params = params.as_object().cloned().unwrap_or_default();
        let spec = TaskSpec {
            place: Some(Place::Pool(Arc::new(place))),
            ..TaskSpec::new(workload, mode, params)
        };
        ours::lay_out(&spec);
        let outcome = ours::run(&spec);
        Figures {
            kilo_ops_per_second: outcome.kilo_ops_per_second(),
            cpu_nanos_per_op: outcome.cpu_nanos_per_op(),
        }
    }

    fn remove_cell(&self) {
        self.run.remove_cell("c1", 0, &mut |_| ()).expect("removed");
    }

    fn fio_rbd(&self, mode: &str) -> Option<Figures> {
        let mut fio = Command::new("fio");
        fio.env("CEPH_CONF", self.conf_without_cache.path())
            .args([
                "--name=peer",
                "--output-format=json",
                "--ioengine=rbd",
                "--rbdname=peer",
            ])
            .args(["--bs=4k", "--time_based", "--thread"])
            .arg(format!("--clientname={}", self.user))
            .arg(format!("--pool={}", self.name))
            .arg(format!("--rw={mode}"))
            .arg(format!("--iodepth={DEPTH}"))
            .arg(format!("--runtime={SECONDS}"));
        let (text, cpu) = with_cpu(|| text_of(&mut fio));
        let text = text?;
        let json: Value = serde_json::from_str(text.get(text.find('{')?..)?).ok()?;
        let side = if mode.ends_with("write") {
            "write"
        } else {
            "read"
        };
        let of_side = |name: &str| json.pointer(&format!("/jobs/0/{side}/{name}"))?.as_f64();
        let cpu = cpu.saturating_sub(self.idle_cpu);
        Some(Figures {
            kilo_ops_per_second: of_side("iops")? / 1000.0,
            cpu_nanos_per_op: cpu.as_secs_f64() * 1e9 / of_side("total_ios")?,
        })
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let ended = self.run.remove(&mut |_| ());
        for bytes in self.laid_out.borrow().keys() {
            self.rados(*bytes, &["cleanup"]);
        }
        let removed = self
            .client("rbd")
            .args(["rm", "--no-progress", "peer"])
            .status();
        if ended.is_err() || removed.is_err() {
            let _ =
                std::io::Write::write_all(&mut std::io::stderr(), b"data are left in the pool\n");
        }
    }
}

/// Its output; `None` if it is not installed.
fn text_of(command: &mut Command) -> Option<String> {
    let output = command.output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {text} {error}");
    Some(text)
}

/// Parses the value of a line such as `Total writes made:      4523`.
fn figure(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains(name))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

/// Returns the result of `act`, and the CPU time of the child processes that it waited for.
fn with_cpu<A>(act: impl FnOnce() -> A) -> (A, Duration) {
    let before = children_cpu();
    let outcome = act();
    (outcome, children_cpu().saturating_sub(before))
}

fn children_cpu() -> Duration {
    // SAFETY: all zeros are a valid rusage, which getrusage fills in.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a rusage of this frame.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    assert_eq!(answer, 0, "getrusage knows RUSAGE_CHILDREN");
    let span = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::from_secs(seconds)
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

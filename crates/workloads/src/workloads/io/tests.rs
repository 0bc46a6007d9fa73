#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::*;
use crate::engine::task::{CellDir, End, Place, TaskEnd};
use crate::measure::clock::MonoNanos;
use crate::measure::interval::Interval;
use crate::measure::op::Op;
use crate::registry;
use crate::target::sandbox::{Allowed, Make, RunDirectory};
use crate::testing::arm_soon;
use benchmesh_testing::{measured, timing};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// A target of its own, and tasks of `io` on it.
struct Scene {
    _root: Option<TempDir>,
    run: Arc<RunDirectory>,
}

impl Scene {
    fn new() -> Scene {
        let root = tempfile::tempdir().unwrap();
        let run = Scene::run_at(root.path());
        Scene {
            _root: Some(root),
            run,
        }
    }

    fn run_at(target: &Path) -> Arc<RunDirectory> {
        let allowed = Allowed::new(vec![target.to_owned()]).unwrap();
        let made = RunDirectory::open_or_make(&allowed, target, "m", "r", Make::IfMissing);
        Arc::new(made.unwrap().unwrap().0)
    }

    fn spec(&self, mode: &str, params: Value) -> TaskSpec {
        let mut spec = TaskSpec::new("io", mode, params.as_object().unwrap().clone());
        spec.place = Some(Place::Directory(CellDir {
            run: Arc::clone(&self.run),
            cell: "c".to_owned(),
        }));
        spec
    }

    fn file(&self, worker: u32) -> PathBuf {
        let dir = self.run.dir().path().join("c/t0");
        dir.join(format!("w{worker}.dat"))
    }

    fn run(&self, mode: &str, params: Value) -> (TaskEnd, Vec<Interval>) {
        run(&self.spec(mode, params))
    }
}

fn run(spec: &TaskSpec) -> (TaskEnd, Vec<Interval>) {
    let mut task = registry::prepare(spec, &PrepareControl::silent()).unwrap();
    arm_soon(&mut task);
    let mut intervals = Vec::new();
    let end = task.run_to_end(&mut |interval| intervals.push(interval));
    (end, intervals)
}

fn totals(intervals: &[Interval]) -> (u64, u64, u64) {
    let total = |pick: fn(&Interval) -> u64| intervals.iter().map(pick).sum();
    (total(|i| i.ops), total(|i| i.bytes), total(|i| i.errors))
}

/// Modes of the other engines.
fn block_modes() -> impl Iterator<Item = &'static ModeInfo> {
    MODES
        .iter()
        .filter(|mode| !keys::STDIO.contains(&mode.name))
}

#[test]
fn one_pass_of_each_mode_counts_every_block() {
    let scene = Scene::new();
    let params = json!({"size": "70k", "bs": "4k", "numjobs": 3, "fsync": 4, "end_fsync": 1});
    for mode in block_modes() {
        let mut params = params.clone();
        if mode.name == "strideread" {
            params["stride"] = json!("20k");
        }
        let (end, intervals) = scene.run(mode.name, params);
        assert_eq!((end.state, &end.error), (End::Done, &None), "{}", mode.name);
        assert_eq!(totals(&intervals), (51, 51 * 4096, 0), "{}", mode.name);
        assert!(
            intervals
                .iter()
                .all(|interval| mode.ops.contains(&interval.op))
        );
        assert_eq!(fs::metadata(scene.file(2)).unwrap().len(), 17 * 4096);
    }
}

#[test]
fn data_are_laid_out_whole_and_without_repetition() {
    let scene = Scene::new();
    let params = json!({"size": "3m", "bs": "64k", "numjobs": 2});
    scene.run("read", params.clone());
    let mut pages = HashSet::new();
    for worker in 0..2 {
        let data = fs::read(scene.file(worker)).unwrap();
        assert_eq!(data.len(), 3 << 20);
        let blocks = fs::metadata(scene.file(worker)).unwrap().blocks();
        assert!(blocks * 512 >= 3 << 20, "a hole");
        assert!(data.chunks(4096).all(|page| pages.insert(page.to_vec())));
    }
    let before = fs::metadata(scene.file(0)).unwrap();
    scene.run("reread", params.clone());
    let after = fs::metadata(scene.file(0)).unwrap();
    assert_eq!(
        (before.ino(), before.mtime_nsec()),
        (after.ino(), after.mtime_nsec())
    );

    fs::File::options()
        .write(true)
        .open(scene.file(0))
        .unwrap()
        .set_len(5000)
        .unwrap();
    let (end, intervals) = scene.run("randread", params);
    assert_eq!((end.state, totals(&intervals).0), (End::Done, 96));
}

#[test]
fn with_a_runtime_it_goes_on_over_the_file() {
    measured(|| {
        let scene = Scene::new();
        let params = json!({"size": "8k", "bs": "4k", "runtime": "60ms", "ramp_time": "20ms"});
        for mode in ["write", "randread"] {
            let (end, intervals) = scene.run(mode, params.clone());
            assert_eq!(end.state, End::Done);
            assert!(end.ended.since(end.planned_start) >= Duration::from_millis(80));
            timing!(totals(&intervals).0 > 2);
            timing!(intervals.iter().any(|interval| interval.ramp));
        }
        assert_eq!(fs::metadata(scene.file(0)).unwrap().len(), 8192);
        Ok(())
    });
}

#[test]
fn a_mix_of_sizes_and_directions_counts_what_it_moves() {
    let scene = Scene::new();
    let params =
        json!({"size": "1m", "offset": "8k", "bssplit": "4k/60:64k/40", "loops": 2, "numjobs": 2});
    for mode in block_modes() {
        if ["strideread", "recrewrite"].contains(&mode.name) {
            continue;
        }
        let (end, intervals) = scene.run(mode.name, params.clone());
        let (ops, bytes, errors) = totals(&intervals);
        assert_eq!(
            (end.state, bytes, errors),
            (End::Done, 4 << 20, 0),
            "{}",
            mode.name
        );
        assert!((64..1024).contains(&ops), "{}: {ops}", mode.name);
        let kinds: HashSet<Op> = intervals.iter().map(|interval| interval.op).collect();
        assert_eq!(kinds, mode.ops.iter().copied().collect(), "{}", mode.name);
        assert_eq!(fs::metadata(scene.file(1)).unwrap().len(), (1 << 20) + 8192);
    }
}

#[test]
fn an_amount_of_work_and_a_runtime_end_it_whichever_comes_first() {
    measured(|| {
        let scene = Scene::new();
        let params = json!({"size": "64k", "bs": "4k", "io_size": "100k"});
        assert_eq!(totals(&scene.run("randread", params).1).1, 100 << 10);
        let params = json!({"size": "64k", "bs": "4k", "io_size": "100k", "runtime": "10m"});
        assert_eq!(totals(&scene.run("randrw", params).1).1, 100 << 10);
        let params = json!({"size": "64k", "bs": "4k", "loops": 1_000_000_000, "runtime": "50ms"});
        let (end, intervals) = scene.run("rewrite", params);
        assert_eq!(end.state, End::Done);
        timing!(totals(&intervals).0 > 16);
        Ok(())
    });
}

#[test]
fn direct_io_works_where_the_file_system_has_it() {
    let scene = Scene::new();
    let params = json!({"size": "2m", "bs": "128k", "direct": true, "numjobs": 2});
    for mode in ["write", "read", "randwrite"] {
        let (end, intervals) = scene.run(mode, params.clone());
        assert_eq!(
            (end.state, totals(&intervals)),
            (End::Done, (32, 4 << 20, 0))
        );
    }
    let mut bypass = scene.spec("read", json!({"size": "2m", "bs": "1000"}));
    bypass.cache = Cache::Bypass;
    let error = registry::prepare(&bypass, &PrepareControl::silent()).unwrap_err();
    assert!(
        crate::error_chain(&error).contains("multiple of 512"),
        "{}",
        crate::error_chain(&error)
    );
}

#[test]
fn a_file_that_is_cut_short_is_an_error_per_block_with_its_place() {
    let scene = Scene::new();
    let spec = scene.spec("read", json!({"size": "40k", "bs": "4k"}));
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    fs::File::options()
        .write(true)
        .open(scene.file(0))
        .unwrap()
        .set_len(5000)
        .unwrap();
    arm_soon(&mut task);
    let mut intervals = Vec::new();
    let end = task.run_to_end(&mut |interval| intervals.push(interval));
    assert_eq!((end.state, totals(&intervals)), (End::Done, (1, 4096, 9)));
    let [error] = &end.errors[..] else {
        panic!("{:?}", end.errors)
    };
    assert_eq!(
        (error.op, error.errno, error.count),
        (Op::Read, libc::ENODATA, 9)
    );
    let first = "read w0.dat at offset 4096: the file ended before the block was full; ";
    assert!(error.first.starts_with(first), "{}", error.first);
}

#[test]
fn a_layout_reports_its_progress_and_can_be_cancelled() {
    let scene = Scene::new();
    let (cancelled, most) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicU64::new(0)),
    );
    let (cancel, reached) = (Arc::clone(&cancelled), Arc::clone(&most));
    let control = PrepareControl::new(cancelled, move |progress| {
        assert_eq!((progress.total, progress.unit), (8 << 30, "bytes"));
        reached.fetch_max(progress.done, Ordering::Relaxed);
        cancel.store(true, Ordering::Relaxed);
    });
    // More than is written before the first progress report.
    let long = scene.spec("read", json!({"size": "4g", "bs": "4k", "numjobs": 2}));
    let error = registry::prepare(&long, &control).unwrap_err();
    assert!(matches!(error, TaskError::Cancelled));
    assert!((1..8 << 30).contains(&most.load(Ordering::Relaxed)));

    let reports = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&reports);
    let other = Scene::new();
    let mut warm = other.spec("read", json!({"size": "4m", "bs": "4k", "numjobs": 2}));
    warm.cache = Cache::Warm;
    let control = PrepareControl::new(Arc::default(), move |progress| {
        heard.lock().unwrap().push(progress.done)
    });
    registry::prepare(&warm, &control).unwrap();
    assert_eq!(reports.lock().unwrap().iter().max(), Some(&(16 << 20)));
}

#[test]
fn a_task_without_a_target_is_refused() {
    let params = json!({"size": "1m"});
    let spec = TaskSpec::new("io", "write", params.as_object().unwrap().clone());
    let error = registry::prepare(&spec, &PrepareControl::silent()).unwrap_err();
    assert!(matches!(error, TaskError::NoPlace { .. }));
}

/// Whether the test can run as root; reports a skip, and panics where root is required.
fn may_be_root(what: &str) -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    benchmesh_testing::skip("root", what);
    false
}

/// A tmpfs of 2 MiB that is unmounted at the end.
struct SmallFileSystem(TempDir);

impl SmallFileSystem {
    /// `None` without root: reports a skip, and panics where root is required.
    fn mount() -> Option<SmallFileSystem> {
        if !may_be_root("a full file system") {
            return None;
        }
        let at = tempfile::tempdir().unwrap();
        let mount = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=2m", "tmpfs"])
            .arg(at.path())
            .status();
        assert!(mount.unwrap().success());
        Some(SmallFileSystem(at))
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let umount = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
        drop(umount);
    }
}

#[test]
fn a_full_target_stops_the_task_with_a_clear_word() {
    let Some(small) = SmallFileSystem::mount() else {
        return;
    };
    let scene = Scene {
        _root: None,
        run: Scene::run_at(small.0.path()),
    };
    let (end, intervals) = scene.run("write", json!({"size": "8m", "bs": "64k", "numjobs": 2}));
    assert_eq!(end.state, End::Failed);
    assert!(end.error.unwrap().contains("no space left: write w"));
    let (_, bytes, errors) = totals(&intervals);
    assert!(bytes > 1 << 20 && (1..=2).contains(&errors));

    let laid = registry::prepare(
        &scene.spec("read", json!({"size": "8m"})),
        &PrepareControl::silent(),
    );
    let error = crate::error_chain(&laid.unwrap_err());
    assert!(
        error.contains("lay out") && error.contains("No space left"),
        "{error}"
    );
}

mod depth;
mod devices;
mod parameters;
mod shared;
mod stdio;
mod verify;

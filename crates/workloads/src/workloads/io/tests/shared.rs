//! One file shared by several workers, and reading the data of other tasks.

use super::super::keys::{FilePer, Ranges};
use super::super::shared::Placement;
use super::*;

/// Runs a step of two tasks: both prepare, and run, at the same time.
fn step(scene: &Scene, mode: &str, params: &Value) -> [TaskEnd; 2] {
    let specs = [0, 1].map(|task_index| TaskSpec {
        task_index,
        tasks: 2,
        ..scene.spec(mode, params.clone())
    });
    std::thread::scope(|scope| {
        let running = specs.each_ref().map(|spec| scope.spawn(|| run(spec).0));
        running.map(|task| task.join().unwrap())
    })
}

fn data_file(scene: &Scene, name: &str) -> PathBuf {
    scene.run.dir().path().join("c").join(name)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn ranges_cover_a_file_once() {
    let scene = Scene::new();
    for (per, ranges, ranks) in [
        (FilePer::Task, Ranges::Segmented, 3),
        (FilePer::Step, Ranges::Segmented, 6),
        (FilePer::Task, Ranges::Strided, 3),
        (FilePer::Step, Ranges::Strided, 6),
    ] {
        let mut blocks = HashSet::new();
        for task_index in 0..2 {
            let shared = SharedFile {
                dir: scene.run.cell("d").unwrap(),
                task: scene.run.cell("e").unwrap(),
                per,
                ranges,
                task_index,
                tasks: 2,
                workers: 3,
                part: 40,
                block: 10,
            };
            let tasks = if per == FilePer::Step { 2 } else { 1 };
            for worker in (0..3).filter(|_| task_index < tasks) {
                let Placement { base, factor } = shared.placement(task_index, worker);
                let own = (0..40).step_by(10).map(|at| base + at * factor);
                assert!(own.clone().all(|at| at % 10 == 0));
                blocks.extend(own);
            }
        }
        let all: HashSet<u64> = (0..ranks * 4).map(|block| block * 10).collect();
        assert_eq!(blocks, all, "{per:?} {ranges:?}");
    }
}

/// Each mode reads what each layout wrote, and a worker that reads a flipped bit reports it.
#[test]
fn workers_of_a_task_share_a_file() {
    for ranges in ["segmented", "strided"] {
        for depth in [1, 4] {
            let scene = Scene::new();
            let params = |verify: bool| {
                let mut params = json!({
                    "size": "64k", "bs": "4k", "numjobs": 3, "file-per": "task", "ranges": ranges, "iodepth": depth,
                });
                params["verify"] = json!(verify);
                params
            };
            let file = data_file(&scene, "t0/shared.dat");
            for mode in [
                "write",
                "read",
                "rewrite",
                "randread",
                "randwrite",
                "reread",
            ] {
                let (end, intervals) = scene.run(mode, params(true));
                assert_eq!((end.state, end.error), (End::Done, None), "{ranges} {mode}");
                assert_eq!(intervals.iter().map(|it| it.ops).sum::<u64>(), 48);
                assert_eq!(
                    intervals.iter().map(|it| it.errors).sum::<u64>(),
                    0,
                    "{mode}"
                );
                assert_eq!(fs::metadata(&file).unwrap().len(), 3 * (64 << 10));
            }
            flip(&file, 100_000);
            let (_, intervals) = scene.run("randread", params(true));
            assert_eq!(intervals.iter().map(|it| it.errors).sum::<u64>(), 1);
        }
    }
}

/// bonnie++'s seekers: each reads the whole file.
#[test]
fn workers_may_each_work_on_the_whole_file() {
    let scene = Scene::new();
    let params = json!({
        "size": "64k", "bs": "4k", "numjobs": 5, "file-per": "task", "ranges": "whole", "verify": true,
    });
    for mode in ["randread", "randwrite", "read"] {
        let (end, intervals) = scene.run(mode, params.clone());
        assert_eq!((end.state, end.error), (End::Done, None), "{mode}");
        assert_eq!(intervals.iter().map(|it| it.ops).sum::<u64>(), 80);
        assert_eq!(
            intervals.iter().map(|it| it.errors).sum::<u64>(),
            0,
            "{mode}"
        );
    }
    let file = data_file(&scene, "t0/shared.dat");
    assert_eq!(fs::metadata(&file).unwrap().len(), 64 << 10);
    flip(&file, 0);
    let (_, intervals) = scene.run("read", params);
    assert_eq!(intervals.iter().map(|it| it.errors).sum::<u64>(), 5);
}

#[test]
fn tasks_of_a_step_share_a_file_and_read_what_the_other_wrote() {
    for ranges in ["segmented", "strided"] {
        let scene = Scene::new();
        let params = json!({
            "size": "64k", "bs": "4k", "numjobs": 2, "file-per": "step", "ranges": ranges, "verify": true,
        });
        let file = data_file(&scene, "t0/shared.dat");
        for mode in ["write", "read"] {
            for end in step(&scene, mode, &params) {
                assert_eq!((end.state, end.error), (End::Done, None), "{ranges} {mode}");
                assert!(end.errors.is_empty(), "{ranges} {mode}: {:?}", end.errors);
            }
            assert_eq!(fs::metadata(&file).unwrap().len(), 4 * (64 << 10));
        }
        // The first block belongs to the first worker of the first task.
        flip(&file, 0);
        let mut reordered = params.clone();
        reordered["reorder-tasks"] = json!(1);
        let wrong = |params: &Value| step(&scene, "read", params).map(|end| end.errors.len());
        assert_eq!(
            (wrong(&params), wrong(&reordered)),
            ([1, 0], [0, 1]),
            "{ranges}"
        );
    }
}

/// Each worker has its own file and reads that of another task, after a preparation and after a write.
#[test]
fn a_task_reads_the_files_of_the_next() {
    let scene = Scene::new();
    let params =
        json!({"size": "32k", "bs": "4k", "numjobs": 2, "reorder-tasks": 1, "verify": true});
    for mode in ["read", "write", "read"] {
        let own = match mode {
            "write" => json!({"size": "32k", "bs": "4k", "numjobs": 2, "verify": true}),
            _ => params.clone(),
        };
        for end in step(&scene, mode, &own) {
            assert_eq!((end.state, end.error), (End::Done, None), "{mode}");
            assert!(end.errors.is_empty(), "{mode}: {:?}", end.errors);
        }
    }
    flip(&data_file(&scene, "t1/w0.dat"), 5000);
    let wrong = step(&scene, "read", &params).map(|end| end.errors.len());
    assert_eq!(wrong, [1, 0]);
    let [first, _] = step(&scene, "read", &params);
    assert!(
        first.errors[0].first.contains("w0.dat"),
        "{:?}",
        first.errors
    );
}

/// On separate file systems a task never sees the other's data; the wait ends when the preparation is cancelled.
#[test]
fn a_task_that_cannot_see_the_others_waits_until_it_is_cancelled() {
    let scene = Scene::new();
    let cancelled = Arc::new(AtomicBool::new(false));
    let spec = TaskSpec {
        tasks: 2,
        ..scene.spec("write", json!({"size": "8k", "file-per": "step"}))
    };
    let control = PrepareControl::new(Arc::clone(&cancelled), |_| {});
    let prepared = std::thread::scope(|scope| {
        let preparing = scope.spawn(|| registry::prepare(&spec, &control).map(drop));
        while !data_file(&scene, "t0/here.t0").exists() {
            std::thread::yield_now();
        }
        cancelled.store(true, Ordering::Relaxed);
        preparing.join().unwrap()
    });
    assert!(
        matches!(prepared, Err(TaskError::Cancelled)),
        "{prepared:?}"
    );
}

#[test]
fn contradictions_are_refused() {
    let refused = |mode: &str, params: Value| {
        let error = IO.check(mode, params.as_object().unwrap()).unwrap_err();
        (error.key.unwrap_or_default(), error.message)
    };
    for (mode, params, key) in [
        (
            "write",
            json!({"size": "1m", "file-per": "task", "ranges": "strided", "bssplit": "4k/50:8k/50"}),
            "ranges",
        ),
        (
            "read",
            json!({"size": "1m", "file-per": "task", "ranges": "strided", "offset": 512}),
            "ranges",
        ),
        (
            "randrw",
            json!({"size": "1m", "file-per": "task", "ranges": "whole", "verify": true}),
            "verify",
        ),
    ] {
        let (found, message) = refused(mode, params);
        assert_eq!(found, key, "{message}");
    }
}

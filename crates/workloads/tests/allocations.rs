//! Counts allocations of workers during their operations with a counting allocator. There are none, except for the
//! names that `tree` makes between two operations, each of which is small.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::recorder::{Settings, pair};
use benchmesh_workloads::registry;
use benchmesh_workloads::sandbox::{Allowed, Make, RunDirectory};
use benchmesh_workloads::task::{CellDir, Place, PrepareControl, TaskSpec};
use serde_json::{Value, json};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write as _;
use std::sync::Arc;

/// Allocations of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    times: u64,
    /// Largest single allocation.
    bytes: usize,
}

const NOTHING: Asked = Asked { times: 0, bytes: 0 };

thread_local! {
    static ASKED: Cell<Asked> = const { Cell::new(NOTHING) };
}

struct Counting;

fn count(bytes: usize) {
    // A thread that is being destroyed is not a worker.
    let _ = ASKED.try_with(|asked| {
        let before = asked.get();
        asked.set(Asked {
            times: before.times + 1,
            bytes: before.bytes.max(bytes),
        });
    });
}

// SAFETY: every call is forwarded unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of this function, which is that of the forwarded one.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count(bytes);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of a task's first worker from its start to its end, and its number of operations.
fn asked(name: &str, mode: &str, params: &Value) -> (Asked, u64) {
    let top = tempfile::tempdir().unwrap();
    let allowed = Allowed::new(vec![top.path().to_owned()]).unwrap();
    let made = RunDirectory::open_or_make(&allowed, top.path(), "m", "r", Make::IfMissing);
    let mut spec = TaskSpec::new(name, mode, params.as_object().unwrap().clone());
    spec.place = Some(Place::Directory(CellDir {
        run: Arc::new(made.unwrap().unwrap().0),
        cell: "c".to_owned(),
    }));
    let workload = registry::find(name).unwrap();
    let ops = workload
        .modes()
        .iter()
        .find(|it| it.name == mode)
        .unwrap()
        .ops;
    let load = workload.load(&spec).unwrap().load;
    load.prepare(&PrepareControl::silent()).unwrap();
    let mut worker = load.worker(0).unwrap();
    let (mut recorder, consumer) = pair(Settings {
        own_instants: load.issue().own_instants.then_some(1),
        depth: load.issue().depth,
        ..Settings::of(ops)
    });
    recorder.set_start(MonoNanos::now());
    ASKED.set(NOTHING);
    worker.run(&mut recorder).unwrap();
    let asked = ASKED.get();
    assert_eq!(recorder.finish(), [], "{name} {mode}");
    let mut done = 0;
    consumer.take(&mut |buffer| {
        done += buffer
            .series
            .iter()
            .map(|it| it.service.count())
            .sum::<u64>();
    });
    (asked, done)
}

#[test]
fn a_worker_asks_for_no_memory() {
    let mut list = String::from("- create a\n");
    for number in 0..100_u64 {
        let at = number * 4096;
        writeln!(
            list,
            "- write a {at} 4096\n- read a {at} 4096\n- truncate a 409600"
        )
        .unwrap();
        writeln!(
            list,
            "- create f{number}\n- close f{number}\n- stat f{number}"
        )
        .unwrap();
        writeln!(
            list,
            "- rename f{number} g{number}\n- symlink s{number} a\n- delete s{number}"
        )
        .unwrap();
        writeln!(
            list,
            "- mkdir d{number}\n- list d{number}\n- rmdir d{number}\n- fsync a"
        )
        .unwrap();
    }
    let files = json!({"files": 200, "size": "10k", "append": 100, "xattr-size": 10});
    let io = json!({"size": "1m", "bs": "4k"});
    let mix = json!({"size": "1m", "bssplit": "4k/50:16k/50", "verify": true});
    let stdio = json!({"size": "100k", "buffer": "1k", "bs": "1k", "seeks": 100});
    let check = |name: &str, mode: &str, params: &Value| {
        let (asked, done) = asked(name, mode, params);
        assert!(done >= 50, "{name} {mode}: {done}");
        assert_eq!(asked, NOTHING, "{name} {mode}");
    };
    check(
        "replay",
        "replay",
        &json!({"operations": list, "timing": "none"}),
    );
    let timed: String = (0..60)
        .map(|number| format!("0.{number:03} create t{number}\n"))
        .collect();
    check(
        "replay",
        "replay",
        &json!({"operations": timed, "timing": "recorded"}),
    );
    for mode in [
        "create", "stat", "read", "append", "chmod", "rename", "symlink", "mkdir", "delete",
    ] {
        check("files", mode, &files);
    }
    for mode in [
        "write",
        "read",
        "randwrite",
        "randrw",
        "backread",
        "strideread",
    ] {
        check("io", mode, &io);
    }
    for mode in ["write", "randread", "randrw"] {
        check("io", mode, &mix);
    }
    let deep = json!({"size": "8m", "bs": "4k", "iodepth": 32, "ioengine-fallback": "psync"});
    for mode in ["randwrite", "randread", "randrw"] {
        check("io", mode, &deep);
    }
    for mode in ["putc", "getc", "fwrite", "fread", "rmw", "seek"] {
        check("io", mode, &stdio);
    }
}

#[test]
fn to_list_a_directory_asks_for_no_memory() {
    let tree = json!({"files": 3000, "directories": 3, "size": 10});
    for mode in ["walk", "remove"] {
        let (asked, done) = asked("tree", mode, &tree);
        assert!(done >= 3000, "{mode}: {done}");
        // One name each, and one for a directory on the path.
        assert!(
            asked.times <= 2 * done && asked.bytes < 1024,
            "{mode}: {asked:?}"
        );
    }
}

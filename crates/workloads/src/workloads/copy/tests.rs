//! Whole copies on real directories, compared with the content on disk.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod overwritten;
mod verified;

use super::*;
use crate::engine::task::End;
use crate::measure::op::Op;
use crate::measure::pacing::RateLimit;
use crate::registry;
use crate::testing::{self, LoadOutcome, arm_soon, run};
use benchmesh_testing::{measured, scheduled, timing};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// A cell, and the scratch directory of its agent.
struct CopyCell {
    on_target: testing::TestCell,
    scratch: tempfile::TempDir,
}

impl CopyCell {
    fn new() -> Self {
        Self::between(tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap())
    }

    fn between(top: tempfile::TempDir, scratch: tempfile::TempDir) -> Self {
        let on_target = testing::TestCell::within(NAME, top);
        Self { on_target, scratch }
    }

    /// Nothing may be read except the target and the scratch directory.
    fn spec(&self, mode: &str, params: Value) -> TaskSpec {
        TaskSpec {
            scratch: Some(self.scratch.path().to_owned()),
            sources: Allowed::default(),
            ..self.on_target.spec(mode, params)
        }
    }

    fn data(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files_beneath(&self.on_target.task_dir().join("data"))
    }

    fn scratch_is_empty(&self) -> bool {
        fs::read_dir(self.scratch.path()).unwrap().next().is_none()
    }
}

fn files_beneath(top: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.symlink_metadata().unwrap().is_dir() {
                true => directories.push(path),
                false => {
                    let name = path.strip_prefix(top).unwrap().to_owned();
                    found.insert(name, fs::read(path).unwrap());
                }
            }
        }
    }
    found
}

fn expect(spec: &TaskSpec, ops: u64, bytes: u64) {
    let outcome = run(spec);
    assert_eq!(outcome.end.state, End::Done);
    outcome.expect_sums(ops, bytes, 0);
}

fn bytes_of(files: &BTreeMap<PathBuf, Vec<u8>>) -> u64 {
    files
        .values()
        .map(|content| u64::try_from(content.len()).unwrap())
        .sum()
}

fn many() -> Value {
    json!({"files": 1500, "size": {"min": 0, "max": "8k"}, "numjobs": 3})
}

#[test]
fn files_go_in_and_out_and_no_scratch_is_left() {
    for params in [
        many(),
        json!({"size": "20m"}),
        json!({"files": 3, "size": 10, "numjobs": 2, "fsync": true}),
    ] {
        let cell = CopyCell::new();
        let footprint = COPY.check("in", params.as_object().unwrap()).unwrap();
        expect(
            &cell.spec("in", params.clone()),
            footprint.files,
            footprint.moved_bytes,
        );
        let copied = cell.data();
        assert_eq!(u64::try_from(copied.len()).unwrap(), footprint.files);
        assert_eq!(bytes_of(&copied), footprint.moved_bytes);
        assert!(cell.scratch_is_empty());
        expect(
            &cell.spec("out", params.clone()),
            footprint.files,
            footprint.moved_bytes,
        );
        assert_eq!(
            cell.data(),
            copied,
            "what was copied in was used, and left as it was"
        );
        assert!(cell.scratch_is_empty());
        expect(
            &cell.spec("in", params),
            footprint.files,
            footprint.moved_bytes,
        );
    }
}

#[test]
fn a_copy_ends_with_its_files_or_with_its_time_whichever_comes_first() {
    measured(|| {
        let cell = CopyCell::new();
        let params = |more: Value| {
            let mut params = json!({"files": 1500, "size": 3000, "numjobs": 3});
            for (key, value) in more.as_object().unwrap() {
                params[key] = value.clone();
            }
            params
        };
        let timed = params(json!({"runtime": "1h", "ramp_time": 0}));
        let footprint = COPY.check("in", timed.as_object().unwrap()).unwrap();
        // The duration of the last copy is unknown.
        assert_eq!(footprint.runtime, None);
        for mode in ["in", "out"] {
            expect(&cell.spec(mode, timed.clone()), 1500, 1500 * 3000);
        }
        // Each worker's schedule has fifteen copies within the runtime; a worker that is late does not continue after
        // it.
        let paced = params(json!({"runtime": "300ms", "rate_iops": 50}));
        for mode in ["in", "out"] {
            let outcome = run(&cell.spec(mode, paced.clone()));
            let copied = outcome.sum(|it| it.ops);
            assert_eq!(outcome.end.state, End::Done);
            outcome.expect_sums(copied, copied * 3000, 0);
            scheduled(copied, 3..=45)?;
            assert!(cell.scratch_is_empty());
            // `out` lays out the files that were not copied in.
            let there = if mode == "in" { copied } else { 1500 };
            assert_eq!(u64::try_from(cell.data().len()).unwrap(), there);
        }
        let ramped = params(json!({"runtime": "2s", "ramp_time": "1s", "rate_iops": 10}));
        let outcome = run(&cell.spec("in", ramped));
        let copied = |ramp: bool| {
            let intervals = outcome.intervals.iter().filter(|it| it.ramp == ramp);
            intervals.map(|it| it.ops).sum::<u64>()
        };
        scheduled(copied(true) + copied(false), 0..=90)?;
        // Each copy counts in the ramp or after it, depending on when it ended.
        timing!(
            copied(true) > 0 && copied(false) > copied(true),
            "{outcome:?}"
        );
        assert_eq!(
            u64::try_from(cell.data().len()).unwrap(),
            copied(true) + copied(false)
        );
        Ok(())
    });
}

#[test]
fn a_copy_past_the_caches_is_one_with_o_direct() {
    let cell = CopyCell::new();
    let params = json!({"files": 4, "size": 100_000, "bs": "16k"});
    for mode in ["in", "out"] {
        let mut spec = cell.spec(mode, params.clone());
        spec.cache = Cache::Bypass;
        let prepared = COPY.bypassing(&spec.params).unwrap();
        assert_eq!(prepared["way"], json!("direct"));
        // As without bypass: a file system without O_DIRECT gives one clear error.
        match registry::prepare(&spec, &PrepareControl::silent()) {
            Ok(_) => expect(&spec, 4, 400_000),
            Err(error) => assert!(
                crate::error_chain(&error).contains("O_DIRECT"),
                "{}",
                crate::error_chain(&error)
            ),
        }
    }
    for (bad, key) in [(json!({"way": "auto"}), "way"), (json!({"bs": 5000}), "bs")] {
        let mut spec = cell.spec("in", bad);
        spec.cache = Cache::Bypass;
        let error = registry::prepare(&spec, &PrepareControl::silent()).unwrap_err();
        let TaskError::Params(error) = error else {
            panic!("{}", crate::error_chain(&error))
        };
        assert_eq!(error.key.as_deref(), Some(key), "{error}");
    }
}

/// A chunk within a limit ends with the file, and O_DIRECT reads whole blocks only.
#[test]
fn a_limited_direct_copy_of_a_partial_block_is_whole() {
    let on_disk = || tempfile::tempdir_in("/var/tmp").unwrap();
    let cell = CopyCell::between(on_disk(), on_disk());
    let params = json!({"files": 2, "size": 10_001, "bs": "8k", "way": "direct"});
    for mode in ["in", "out"] {
        let spec = TaskSpec {
            limit: Some(std::sync::Arc::new(RateLimit::new(64 << 20))),
            ..cell.spec(mode, params.clone())
        };
        expect(&spec, 2, 20_002);
    }
}

#[test]
fn out_lays_out_what_it_needs() {
    let cell = CopyCell::new();
    let footprint = COPY.check("out", many().as_object().unwrap()).unwrap();
    let spec = TaskSpec {
        cache: Cache::Warm,
        ..cell.spec("out", many())
    };
    expect(&spec, footprint.files, footprint.moved_bytes);
    assert_eq!(bytes_of(&cell.data()), footprint.moved_bytes);
}

/// A tree with typical content: depth, hidden and odd names, an empty file, links and special files.
fn source_tree() -> tempfile::TempDir {
    let source = tempfile::tempdir().unwrap();
    let at = |name: &str| source.path().join(name);
    fs::create_dir_all(at("a/b/c")).unwrap();
    fs::create_dir_all(at(".hidden dir")).unwrap();
    fs::create_dir_all(at("empty")).unwrap();
    for (name, bytes) in [
        ("a/one", 1),
        ("a/b/c/large", 3_000_000),
        (".hidden dir/ü", 77),
        ("none", 0),
    ] {
        fs::write(at(name), vec![b'x'; bytes]).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", at("a/link")).unwrap();
    std::os::unix::fs::symlink("/etc", at("a/linked")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    source
}

#[test]
fn a_tree_is_copied_as_a_tree_without_its_links() {
    let (cell, source) = (CopyCell::new(), source_tree());
    let regular: BTreeMap<_, _> = {
        let kept = |path: &Path| !path.is_symlink() && path.is_file();
        let mut names = vec![];
        let mut directories = vec![source.path().to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() && !path.is_symlink() {
                    directories.push(path);
                } else if kept(&path) {
                    names.push(path);
                }
            }
        }
        let relative = |path: &PathBuf| path.strip_prefix(source.path()).unwrap().to_owned();
        names
            .iter()
            .map(|path| (relative(path), fs::read(path).unwrap()))
            .collect()
    };
    let allowing = |spec: TaskSpec| TaskSpec {
        sources: Allowed::new(vec![source.path().to_owned()]).unwrap(),
        ..spec
    };
    let params = json!({"from": source.path(), "numjobs": 2});
    for mode in ["in", "out", "overwrite", "out", "overwrite", "in"] {
        expect(&allowing(cell.spec(mode, params.clone())), 4, 3_000_078);
        assert_eq!(cell.data(), regular, "{mode}");
    }
    let fresh = CopyCell::new();
    expect(&allowing(fresh.spec("out", params)), 4, 3_000_078);
    let one = json!({"from": source.path().join("a/one")});
    expect(&allowing(cell.spec("in", one)), 1, 1);
    assert_eq!(cell.data(), BTreeMap::from([("one".into(), b"x".to_vec())]));
}

#[test]
fn a_source_that_may_not_be_read_or_has_nothing_is_refused() {
    let (cell, source) = (CopyCell::new(), source_tree());
    let refuse = |spec: TaskSpec, part: &str| {
        let refused = registry::prepare(&spec, &PrepareControl::silent()).unwrap_err();
        let message = crate::error_chain(&refused);
        assert!(message.contains(part), "{message}");
        assert!(cell.scratch_is_empty());
    };
    let from = |name: &str| json!({"from": source.path().join(name), "numjobs": 2});
    refuse(
        cell.spec("in", from("a")),
        "not beneath a path that this agent allows",
    );
    let allowing = |spec: TaskSpec| TaskSpec {
        sources: Allowed::new(vec![source.path().to_owned()]).unwrap(),
        ..spec
    };
    refuse(
        allowing(cell.spec("in", from("a/linked"))),
        "not beneath a path",
    );
    refuse(allowing(cell.spec("in", from("missing"))), "No such file");
    refuse(allowing(cell.spec("in", from("empty"))), "no regular file");
    refuse(
        allowing(cell.spec("in", from("none"))),
        "too few for 2 workers",
    );
    let no_scratch = TaskSpec {
        scratch: None,
        ..cell.spec("in", json!({"size": 1}))
    };
    refuse(no_scratch, "needs a scratch directory");
    refuse(cell.spec("in", json!({"size": "1p"})), "free; copy less");
}

#[test]
fn a_failed_copy_is_counted_and_the_data_are_not_trusted() {
    let cell = CopyCell::new();
    let params = json!({"files": 5, "size": 100});
    expect(&cell.spec("in", params.clone()), 5, 500);
    let data = cell.on_target.task_dir().join("data/d000000");
    fs::remove_file(data.join("c000000001")).unwrap();
    fs::write(data.join("c000000002"), b"short").unwrap();
    let LoadOutcome { end, intervals } = run(&cell.spec("out", params.clone()));
    assert_eq!(end.state, End::Done);
    assert_eq!(
        intervals
            .iter()
            .map(|i| (i.ops, i.errors))
            .fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (3, 2)
    );
    let mut errnos: Vec<i32> = end.errors.iter().map(|error| error.errno).collect();
    errnos.sort_unstable();
    assert_eq!(errnos, [libc::ENOENT, libc::ENODATA]);
    assert!(cell.scratch_is_empty());
}

#[test]
fn a_stop_ends_a_large_copy_soon() {
    measured(|| {
        let cell = CopyCell::new();
        let mut task = registry::prepare(
            &cell.spec("in", json!({"files": 4, "size": "48m"})),
            &PrepareControl::silent(),
        )
        .unwrap();
        let (stopper, in_flight) = (task.stopper(), task.in_flight());
        arm_soon(&mut task);
        let end = std::thread::scope(|scope| {
            scope.spawn(move || {
                while in_flight().is_none() {
                    std::thread::yield_now();
                }
                stopper.stop();
            });
            task.run_to_end(&mut |_| {})
        });
        assert_eq!((end.state, end.error), (End::Stopped, None));
        timing!(end.ended.since(end.planned_start) < Duration::from_secs(2));
        assert!(
            cell.data()
                .values()
                .all(|content| content.len() == 48 << 20),
            "a partial copy was left"
        );
        assert!(cell.scratch_is_empty());
        Ok(())
    });
}

#[test]
fn an_abandoned_task_leaves_no_scratch() {
    let cell = CopyCell::new();
    let task = registry::prepare(
        &cell.spec("in", json!({"size": 100})),
        &PrepareControl::silent(),
    )
    .unwrap();
    assert!(!cell.scratch_is_empty());
    drop(task);
    assert!(cell.scratch_is_empty());
}

#[test]
fn parameters_are_checked() {
    let check = |params: Value| COPY.check("in", params.as_object().unwrap());
    let footprint = check(json!({"files": 3, "size": "5k"})).unwrap();
    assert_eq!(
        (
            footprint.bytes,
            footprint.scratch_bytes,
            footprint.moved_bytes
        ),
        (24_576, 24_576, 15_360)
    );
    assert_eq!(check(json!({"from": "/data"})).unwrap().files, 0);
    for (bad, key) in [
        (json!({"numjobs": 2}), "files"),
        (json!({"files": 0}), "files"),
        (json!({"files": 100_000_000}), "files"),
        (json!({"from": "data"}), "from"),
        (json!({"from": "/data", "size": 5}), "size"),
        (json!({"from": "/data", "files": 5}), "files"),
        (json!({"bs": 0}), "bs"),
        (json!({"bs": "6k", "way": "direct"}), "bs"),
        (json!({"way": "reflink"}), "way"),
        (json!({"from": "/data", "data": "zero"}), "data"),
        (json!({"verify": true, "data": "zero"}), "verify"),
        (json!({"runtime": 0}), "runtime"),
        (json!({"from": "/data", "seed": 7}), "seed"),
    ] {
        let error = check(bad.clone()).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{bad}: {error}");
    }
}

#[test]
fn a_way_that_the_file_systems_do_not_have_is_one_clear_error() {
    let memory = || tempfile::tempdir_in("/dev/shm").unwrap();
    let disk = || tempfile::tempdir_in("/var/tmp").unwrap();
    let cell = CopyCell::between(memory(), disk());
    let spec = cell.spec("in", json!({"size": "8k", "way": "copy-file-range"}));
    let error = registry::prepare(&spec, &PrepareControl::silent()).unwrap_err();
    assert!(matches!(error, TaskError::Unsupported { .. }), "{error:?}");
    assert!(error.to_string().contains("use another `way`"), "{error}");
    assert!(cell.scratch_is_empty());
}

/// 2500 generated files lie in three directories beneath the root.
#[test]
fn a_copied_tree_is_listed_and_each_name_looked_up() {
    let cell = CopyCell::new();
    let params = json!({"files": 2500, "size": 10, "numjobs": 2});
    run(&cell.spec("in", params.clone()));
    let inodes = cell.data().len();
    let outcome = run(&cell.spec("list", params.clone()));
    assert_eq!(outcome.end.error, None);
    outcome.expect(&[(Op::List, 4, 0), (Op::Stat, 2503, 0)]);
    assert_eq!(cell.data().len(), inodes, "nothing was laid out again");
    assert!(cell.scratch_is_empty());

    let gone = cell.on_target.task_dir().join("data/d000001/c000001234");
    fs::remove_file(gone).unwrap();
    let outcome = run(&cell.spec("list", params));
    assert_eq!(outcome.of(Op::List), (3, 0, 1));
    assert_eq!(outcome.of(Op::Stat), (2502, 0, 1));
}

/// A tree from `from`, with nested directories and a hidden file; laid out first if nothing has copied it.
#[test]
fn a_tree_from_elsewhere_is_listed_as_it_was_copied() {
    let (cell, source) = (CopyCell::new(), tempfile::tempdir().unwrap());
    fs::create_dir_all(source.path().join("a/b/c")).unwrap();
    fs::create_dir_all(source.path().join("d")).unwrap();
    for name in ["top", "a/one", "a/.hidden", "a/b/c/two", "d/three"] {
        fs::write(source.path().join(name), name).unwrap();
    }
    let spec = TaskSpec {
        sources: Allowed::new(vec![source.path().to_owned()]).unwrap(),
        ..cell.spec("list", json!({"from": source.path(), "numjobs": 3}))
    };
    let outcome = run(&spec);
    assert_eq!(outcome.end.error, None);
    // The root, a, a/b, a/b/c and d; all names except the root's.
    outcome.expect(&[(Op::List, 5, 0), (Op::Stat, 9, 0)]);
}

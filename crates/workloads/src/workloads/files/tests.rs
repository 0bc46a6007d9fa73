//! Whole passes through tasks on real directories, compared with the content on disk.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod beside;
mod parameters;
mod shared;
mod verified;

use super::*;
use crate::engine::task::{Cache, End};
use crate::registry;
use crate::target::dataset::{DatasetContent, DatasetRecord};
use crate::target::size::SizeSpec;
use crate::testing::{TestCell, Tmpfs, run};
use benchmesh_testing::{measured, timing};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The content of a cell on disk.
trait OnDisk {
    fn state(&self) -> Option<DatasetContent>;
    /// Every file of the workers' trees with its size.
    fn files(&self) -> BTreeMap<PathBuf, u64>;
    /// Files whose name begins with a letter.
    fn named(&self, letter: &str) -> usize;
}

impl OnDisk for TestCell {
    fn state(&self) -> Option<DatasetContent> {
        let dir = self.place.task_dir(0).unwrap();
        DatasetRecord::read(&dir)
            .unwrap()
            .map(|state| state.content)
    }

    fn files(&self) -> BTreeMap<PathBuf, u64> {
        let mut found = BTreeMap::new();
        let mut directories = vec![self.task_dir()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                let facts = entry.metadata().unwrap();
                if facts.is_dir() {
                    directories.push(entry.path());
                } else if entry.file_name() != "state" {
                    let path = entry
                        .path()
                        .strip_prefix(self.task_dir())
                        .unwrap()
                        .to_owned();
                    found.insert(path, facts.len());
                }
            }
        }
        found
    }

    fn named(&self, letter: &str) -> usize {
        let is_named = |path: &PathBuf| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(letter)
        };
        self.files().keys().filter(|path| is_named(path)).count()
    }
}

fn small() -> Value {
    json!({"files": 100, "numjobs": 3, "dirs": 7, "size": {"min": 0, "max": "20k"}, "bs": "4k"})
}

/// The directories of `small`: 34, 33 and 33 files, 7 in each.
const SMALL_DIRECTORIES: u64 = 5 + 5 + 5;

fn small_bytes() -> u64 {
    SizeSpec::Uniform {
        min: 0,
        max: 20 << 10,
    }
    .total(1, 100, 1)
}

#[test]
fn every_mode_in_turn_does_what_it_says() {
    let cell = TestCell::new(NAME);
    cell.run("create", small())
        .expect_sums(100, small_bytes(), 0);
    assert_eq!(cell.files().values().sum::<u64>(), small_bytes());
    assert_eq!(cell.named("c"), 100);
    assert_eq!(cell.state(), Some(DatasetContent::Created));

    cell.run("list", small())
        .expect_sums(SMALL_DIRECTORIES, 0, 0);
    cell.run("stat", small()).expect_sums(100, 0, 0);
    cell.run("read", small()).expect_sums(100, small_bytes(), 0);

    cell.run("rename", small()).expect_sums(100, 0, 0);
    assert_eq!((cell.named("c"), cell.named("r")), (0, 100));
    cell.run("stat", small()).expect_sums(100, 0, 0);
    cell.run("read", small()).expect_sums(100, small_bytes(), 0);
    cell.run("rename", small()).expect_sums(100, 0, 0);
    assert_eq!((cell.named("c"), cell.named("r")), (100, 0));
    cell.run("rename", small()).expect_sums(100, 0, 0);

    cell.run("delete", small()).expect_sums(100, 0, 0);
    assert_eq!(cell.files().len(), 0);
    assert_eq!(cell.state(), Some(DatasetContent::Empty));
    cell.run("create", small())
        .expect_sums(100, small_bytes(), 0);
}

#[test]
fn a_mode_without_data_lays_them_out() {
    for mode in ["list", "stat", "read", "rename", "delete"] {
        let cell = TestCell::new(NAME);
        let outcome = cell.run(mode, small());
        let ops = if mode == "list" {
            SMALL_DIRECTORIES
        } else {
            100
        };
        let bytes = if mode == "read" { small_bytes() } else { 0 };
        outcome.expect_sums(ops, bytes, 0);
    }
}

#[test]
fn create_begins_without_files_whatever_was_there() {
    let cell = TestCell::new(NAME);
    for before in ["create", "rename", "stat"] {
        cell.run(before, small());
        cell.run("create", small())
            .expect_sums(100, small_bytes(), 0);
        assert_eq!(cell.files().len(), 100);
    }
}

#[test]
fn what_an_interruption_left_is_repaired() {
    let cell = TestCell::new(NAME);
    cell.run("create", small());
    let whole = cell.files();
    // Simulates a killed mode: some files removed, truncated, renamed or doubled, and a foreign one.
    let dir = cell.place.task_dir(0).unwrap();
    let mut state = DatasetRecord::read(&dir).unwrap().unwrap();
    state.content = DatasetContent::Unsettled;
    state.write(&dir).unwrap();
    let root = cell.task_dir();
    fs::remove_file(root.join("w000000000/d000000001/c000000008")).unwrap();
    fs::write(root.join("w000000001/d000000000/c000000003"), b"").unwrap();
    let renamed = root.join("w000000002/d000000004/r000000030");
    fs::rename(root.join("w000000002/d000000004/c000000030"), renamed).unwrap();
    fs::write(root.join("w000000000/d000000000/r000000000"), b"x").unwrap();
    fs::write(root.join("w000000000/d000000000/foreign"), b"x").unwrap();

    cell.run("stat", small()).expect_sums(100, 0, 0);
    assert_eq!(cell.files(), whole);
    assert_eq!(cell.state(), Some(DatasetContent::Created));
}

#[test]
fn a_lost_or_broken_state_is_found_out_by_looking() {
    let cell = TestCell::new(NAME);
    for broken in ["", "{", "{\"shape\": 1}"] {
        cell.run("rename", small());
        fs::write(cell.task_dir().join("state"), broken).unwrap();
        cell.run("read", small()).expect_sums(100, small_bytes(), 0);
        fs::remove_file(cell.task_dir().join("state")).unwrap();
        cell.run("delete", small()).expect_sums(100, 0, 0);
        assert_eq!(cell.files().len(), 0);
    }
}

#[test]
fn data_of_other_parameters_are_replaced() {
    let cell = TestCell::new(NAME);
    cell.run("create", small());
    let other = json!({"files": 10, "numjobs": 2, "size": 5000});
    cell.run("read", other.clone()).expect_sums(10, 50_000, 0);
    assert_eq!(cell.files().len(), 10);
    cell.run("delete", other).expect_sums(10, 0, 0);
}

#[test]
fn two_tasks_of_a_cell_do_not_meet() {
    let cell = TestCell::new(NAME);
    for task_index in 0..2 {
        let spec = TaskSpec {
            task_index,
            tasks: 2,
            ..cell.spec("create", small())
        };
        run(&spec).expect_sums(100, small_bytes(), 0);
    }
    for task in ["t0", "t1"] {
        assert!(cell.top.path().join("benchmesh-run/c1").join(task).is_dir());
    }
}

#[test]
fn a_file_in_the_way_or_missing_is_a_counted_error() {
    let cell = TestCell::new(NAME);
    let params = json!({"files": 10, "dirs": 5, "size": 10});
    cell.run("create", params.clone());
    let first = cell.task_dir().join("w000000000/d000000000/c000000002");
    fs::remove_file(&first).unwrap();
    for (mode, ops, bytes) in [
        ("stat", 9, 0),
        ("read", 9, 90),
        ("list", 1, 0),
        ("rename", 9, 0),
    ] {
        let outcome = cell.run(mode, params.clone());
        outcome.expect_sums(ops, bytes, 1);
        assert_eq!(outcome.end.state, End::Done);
        let error = &outcome.end.errors[0];
        assert_eq!((error.errno, error.count), (libc::ENOENT, 1));
        assert!(
            error.first.contains("w000000000/d000000000"),
            "{}",
            error.first
        );
    }
    // The rename had an error, so the state is unsettled.
    assert_eq!(cell.state(), Some(DatasetContent::Unsettled));
    cell.run("delete", params).expect_sums(10, 0, 0);
}

#[test]
fn a_file_that_ends_early_is_an_error_of_read() {
    let cell = TestCell::new(NAME);
    let params = json!({"files": 3, "size": "8k", "bs": "3k"});
    cell.run("create", params.clone());
    let path = cell.task_dir().join("w000000000/d000000000/c000000001");
    fs::OpenOptions::new()
        .write(true)
        .open(path)
        .unwrap()
        .set_len(5000)
        .unwrap();
    let outcome = cell.run("read", params);
    outcome.expect_sums(2, 16_384, 1);
    assert!(
        outcome.end.errors[0].first.contains("at offset 5000"),
        "{:?}",
        outcome.end.errors
    );
}

/// The kernel says "No space left on device" for both.
#[test]
fn a_target_without_free_inodes_is_told_from_a_full_one() {
    let Some(tmpfs) = Tmpfs::mount_with("size=8m,nr_inodes=40") else {
        return;
    };
    let cell = TestCell::beneath(NAME, &tmpfs.path);
    let params = json!({"files": 100, "size": "1k"});
    let outcome = cell.run("create", params.clone());
    let error = outcome.end.error.unwrap();
    assert!(error.contains("no free inode left"), "{error}");
    let laid = registry::prepare(&cell.spec("read", params), &PrepareControl::silent());
    let message = crate::error_chain(&laid.unwrap_err());
    assert!(message.contains("no inode is free"), "{message}");
}

#[test]
fn a_full_target_ends_the_task_with_the_reason() {
    let Some(tmpfs) = Tmpfs::mount(256) else {
        return;
    };
    let cell = TestCell::beneath(NAME, &tmpfs.path);
    let outcome = cell.run("create", json!({"files": 100, "size": "16k"}));
    assert_eq!(outcome.end.state, End::Failed);
    assert!(outcome.end.error.unwrap().contains("no space left"));
    let laid = registry::prepare(
        &cell.spec("read", json!({"files": 100, "size": "16k"})),
        &PrepareControl::silent(),
    );
    let message = crate::error_chain(&laid.unwrap_err());
    assert!(
        message.contains("lay out") && message.contains("No space left"),
        "{message}"
    );
}

#[test]
fn timed_modes_repeat_and_stop_in_time() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let params = json!({"files": 20, "runtime": "300ms"});
        for mode in ["stat", "read", "list"] {
            let outcome = cell.run(mode, params.clone());
            let ran = outcome.end.ended.since(outcome.end.planned_start);
            assert!(ran >= Duration::from_millis(300), "{mode}: {ran:?}");
            timing!(outcome.sum(|i| i.ops) > 20, "{mode} did not repeat");
            assert_eq!(outcome.sum(|i| i.errors), 0);
        }
        cell.run("rename", params.clone()).expect_sums(20, 0, 0);
        cell.run("create", params).expect_sums(20, 20 * 4096, 0);
        Ok(())
    });
}

#[test]
fn passes_are_counted_or_ended_by_time_whichever_comes_first() {
    let cell = TestCell::new(NAME);
    let params = json!({"files": 20, "numjobs": 2, "loops": 3, "xattr-size": 7});
    let timed = |runtime: &str, loops: u64| {
        let mut params = params.clone();
        (params["runtime"], params["loops"]) = (json!(runtime), json!(loops));
        params
    };
    for mode in FilesMode::ALL {
        let footprint = |params: &Value| FILES.check(mode.as_str(), params.as_object().unwrap());
        let once = footprint(&json!({"files": 20, "numjobs": 2, "xattr-size": 7})).unwrap();
        let passes = if mode.repeats() { 3 } else { 1 };
        let moved = footprint(&params).unwrap().moved_bytes;
        assert_eq!(moved, once.moved_bytes * passes, "{mode:?}");
        if matches!(mode, FilesMode::GetXattr | FilesMode::Mix) {
            continue;
        }
        let each = match mode {
            // Each worker's only directory.
            FilesMode::List | FilesMode::ListStat => 2,
            _ => 20,
        };
        let bytes = moved;
        cell.run(mode.as_str(), params.clone())
            .expect(&[(mode.op(), each * passes, bytes)]);
        let outcome = cell.run(mode.as_str(), timed("1h", 3));
        outcome.expect(&[(mode.op(), each * passes, bytes)]);
    }
    let outcome = cell.run("stat", timed("150ms", 1_000_000_000));
    let ran = outcome.end.ended.since(outcome.end.planned_start);
    assert!(ran >= Duration::from_millis(150), "{ran:?}");
    assert_eq!(
        (outcome.end.state, outcome.sum(|i| i.errors)),
        (End::Done, 0)
    );
}

#[test]
fn a_mix_comes_by_its_weights_and_leaves_the_files_as_they_were() {
    let cell = TestCell::new(NAME);
    let mut params = json!({
        "files": 40, "numjobs": 2, "dirs": 7, "size": {"min": 1, "max": "20k"}, "bs": "4k",
        "verify": true, "append": 300,
    });
    cell.run("create", params.clone());
    cell.run("append", params.clone());
    cell.run("rename", params.clone());
    let before = cell.files();
    params["mix"] = json!({"read": 40, "write": 30, "stat": 20, "chmod": 10});
    params["loops"] = json!(100);
    let outcome = cell.run("mix", params.clone());
    assert_eq!(outcome.sum(|i| i.errors), 0, "{:?}", outcome.end.errors);
    assert_eq!(outcome.sum(|i| i.ops), 4000);
    for (op, share) in [
        (Op::Read, 40),
        (Op::Write, 30),
        (Op::Stat, 20),
        (Op::Chmod, 10),
    ] {
        let ops = outcome.of(op).0;
        assert!(ops.abs_diff(share * 40) < 160, "{op:?}: {ops}");
    }
    assert_eq!(cell.files(), before);
    // Overwritten content equals created content, and the appended bytes are there.
    params["loops"] = json!(1);
    let bytes: u64 = before.values().sum();
    cell.run("read", params.clone()).expect_sums(40, bytes, 0);
    params["mix"] = json!({"write": 1});
    let outcome = cell.run("mix", params.clone());
    assert_eq!(outcome.of(Op::Write).0, 40);
    // A hard link, which others may have placed, is not written to.
    let name = before.keys().next().unwrap();
    let path = cell.task_dir().join(name);
    fs::hard_link(&path, cell.task_dir().join("another-name")).unwrap();
    params["loops"] = json!(20);
    let outcome = cell.run("mix", params);
    let refused = &outcome.end.errors;
    assert!(
        refused.iter().all(|error| error.errno == libc::EPERM),
        "{refused:?}"
    );
    assert!(!refused.is_empty());
}

/// Keys without an effect are refused according to this list.
#[test]
fn loops_are_for_the_modes_that_repeat() {
    let loops = FILES.keys().find("loops").unwrap().modes.unwrap();
    for mode in FilesMode::ALL {
        assert_eq!(loops.contains(&mode.as_str()), mode.repeats(), "{mode:?}");
    }
}

#[test]
fn a_create_that_was_stopped_early_leaves_an_honest_state() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let params = json!({"files": 200_000, "size": 0, "runtime": "50ms"});
        let outcome = cell.run("create", params.clone());
        let made = outcome.sum(|i| i.ops);
        timing!(made > 0 && made < 200_000, "{made}");
        assert_eq!(u64::try_from(cell.files().len()).unwrap(), made);
        assert_eq!(cell.state(), Some(DatasetContent::Unsettled));
        Ok(())
    });
}

#[test]
fn modes_after_a_create_that_was_stopped_early_find_what_it_made() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let params = json!({"files": 200_000, "size": "1k", "numjobs": 2, "only-existing": true});
        let mut timed = params.clone();
        timed["runtime"] = json!("50ms");
        let made = cell.run("create", timed).sum(|i| i.ops);
        timing!(made > 0 && made < 200_000, "{made}");
        let files = cell.files();
        cell.run("stat", params.clone()).expect_sums(made, 0, 0);
        cell.run("read", params.clone())
            .expect_sums(made, made << 10, 0);
        cell.run("rename", params.clone()).expect_sums(made, 0, 0);
        cell.run("rename", params.clone()).expect_sums(made, 0, 0);
        let listed = cell.run("list", params.clone());
        assert_eq!(listed.sum(|i| i.errors), 0);
        assert_eq!(cell.files(), files, "nothing was laid out");
        cell.run("delete", params).expect_sums(made, 0, 0);
        assert_eq!(cell.files().len(), 0);
        Ok(())
    });
}

#[test]
fn a_part_of_the_files_is_not_enough_where_all_are_wanted() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let timed = json!({"files": 3000, "size": "64k", "only-existing": true, "runtime": "20ms"});
        let made = cell.run("create", timed).sum(|i| i.ops);
        timing!(made > 0 && made < 3000, "{made}");
        let all = json!({"files": 3000, "size": "64k"});
        cell.run("stat", all).expect_sums(3000, 0, 0);
        Ok(())
    });
}

#[test]
fn a_warm_pass_reads_what_was_appended_too() {
    let cell = TestCell::new(NAME);
    let params = json!({"files": 3, "size": "8k", "append": "8k"});
    cell.run("append", params.clone())
        .expect_sums(3, 3 * 8192, 0);
    let file = cell.task_dir().join("w000000000/d000000000/c000000001");
    assert_eq!(fs::metadata(&file).unwrap().len(), 16_384);
    // A warm pass over a file that is too short fails with an error.
    fs::File::options()
        .write(true)
        .open(&file)
        .unwrap()
        .set_len(10_000)
        .unwrap();
    let spec = TaskSpec {
        cache: Cache::Warm,
        ..cell.spec("read", params)
    };
    let error = registry::prepare(&spec, &PrepareControl::silent())
        .err()
        .unwrap();
    let error = crate::error_chain(&error);
    assert!(error.contains("warm the caches"), "{error}");
}

#[test]
fn a_warm_pass_changes_nothing_and_is_not_counted() {
    let cell = TestCell::new(NAME);
    for (mode, ops) in [
        ("stat", 100),
        ("read", 100),
        ("rename", 100),
        ("delete", 100),
    ] {
        let spec = TaskSpec {
            cache: Cache::Warm,
            ..cell.spec(mode, small())
        };
        let outcome = run(&spec);
        assert_eq!(outcome.sum(|i| i.ops), ops);
        assert_eq!(outcome.sum(|i| i.errors), 0);
    }
}

//! Fills a small file system, and compares the file system's own counts.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod verified;

use super::*;
use crate::engine::task::End;
use crate::measure::op::Op;
use crate::testing::{TestCell, Tmpfs, run};
use benchmesh_testing::{measured, scheduled};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Total and free bytes.
fn space_of(path: &Path) -> (u64, u64) {
    let facts = rustix::fs::statvfs(path).unwrap();
    (
        facts.f_blocks * facts.f_frsize,
        facts.f_bavail * facts.f_frsize,
    )
}

fn files(cell: &TestCell, worker: u32) -> Vec<u64> {
    let entries = fs::read_dir(cell.task_dir().join(format!("w{worker}"))).unwrap();
    let mut sizes: Vec<u64> = entries
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .collect();
    sizes.sort_unstable();
    sizes
}

#[test]
fn an_amount_is_written_held_and_removed() {
    let cell = TestCell::new(NAME);
    let params = json!({
        "amount": 10 * MIB + 5, "numjobs": 2, "file-size": "2m", "bs": "512k", "floor": 0, "hold": "300ms"
    });
    // One worker has 5 MiB and 3 bytes, the other one byte less.
    cell.run("fill", params.clone())
        .expect(&[(Op::Write, 22, 10 * MIB + 5)]);
    assert_eq!(files(&cell, 0), [MIB + 3, 2 * MIB, 2 * MIB]);
    assert_eq!(files(&cell, 1), [MIB + 2, 2 * MIB, 2 * MIB]);
    let held = cell.run("hold", params.clone());
    assert_eq!(held.end.state, End::Done);
    let (asked, _, errors) = held.of(Op::Statfs);
    assert!((2..=8).contains(&asked) && errors == 0, "{asked}");
    cell.run("remove", params.clone())
        .expect(&[(Op::Delete, 6, 0)]);
    assert_eq!(files(&cell, 0), [0_u64; 0]);
    // Each mode lays out its data if they are missing.
    cell.run("remove", params).expect(&[(Op::Delete, 6, 0)]);
}

#[test]
fn a_target_that_is_held_is_asked_as_often_as_a_rate_says() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let held = cell.run(
            "hold",
            json!({"amount": "1m", "floor": 0, "hold": "500ms", "rate_iops": 200}),
        );
        let (asked, _, errors) = held.of(Op::Statfs);
        assert_eq!(errors, 0);
        scheduled(asked, 90..=101)
    });
}

#[test]
fn a_share_is_reached_by_all_together_and_not_exceeded() {
    let Some(tmpfs) = Tmpfs::mount(64 << 10) else {
        return;
    };
    let cell = TestCell::beneath(NAME, &tmpfs.path);
    let params = json!({"share": 75, "numjobs": 3, "bs": "256k", "floor": "1m", "data": "zero"});
    let outcome = cell.run("fill", params.clone());
    assert_eq!(outcome.end.state, End::Done, "{:?}", outcome.end);
    let (total, free) = space_of(&tmpfs.path);
    let used = total - free;
    // It stops when the space no longer has a block for each of the three.
    let (least, most) = (total * 3 / 4 - 3 * MIB / 4, total * 3 / 4);
    assert!((least..=most).contains(&used), "{used} of {total}");
    let (_, bytes, _) = outcome.of(Op::Write);
    assert!(used - bytes < MIB, "{used} {bytes}");
    // Already full: nothing to do.
    let spec = TaskSpec {
        task_index: 1,
        tasks: 2,
        ..cell.spec("fill", params)
    };
    run(&spec).expect(&[]);
}

#[test]
fn the_floor_stops_it_and_it_says_so() {
    let Some(tmpfs) = Tmpfs::mount(16 << 10) else {
        return;
    };
    let cell = TestCell::beneath(NAME, &tmpfs.path);
    for aim in [json!({"share": 100}), json!({"amount": "1g"})] {
        let mut params = aim;
        params["floor"] = json!("4m");
        params["bs"] = json!("128k");
        params["numjobs"] = json!(2);
        let outcome = cell.run("fill", params.clone());
        assert_eq!(outcome.end.state, End::Failed);
        let error = outcome.end.error.unwrap();
        assert!(error.contains("`floor` keeps 4.00 MiB"), "{error}");
        let (_, free) = space_of(&tmpfs.path);
        assert!((4 * MIB..4 * MIB + MIB / 2).contains(&free), "{free}");
        // Existing files are removed without being written up to the aim first.
        let removed = cell.run("remove", params.clone());
        let (files, _, errors) = removed.of(Op::Delete);
        assert!((1..=2).contains(&files) && errors == 0, "{files} {errors}");
        assert!(space_of(&tmpfs.path).1 > 15 * MIB);
        // If there are no files, as many are laid out as there is room for.
        let removed = cell.run("remove", params);
        assert_eq!(removed.end.state, End::Done, "{:?}", removed.end);
        assert!(removed.of(Op::Delete).0 > 0);
    }
    let nothing = json!({"share": 100, "floor": "1g", "bs": "128k"});
    let refused = cell.refusal("remove", nothing);
    assert!(
        refused.to_string().contains("nothing to remove"),
        "{refused}"
    );
    // Without a floor a full target is a regular end for any aim, and the files can be read.
    for mut params in [json!({"amount": "1g"}), json!({"share": 100})] {
        params["floor"] = json!(0);
        params["bs"] = json!("128k");
        params["numjobs"] = json!(2);
        let filled = cell.run("fill", params.clone());
        assert_eq!((filled.end.state, &filled.end.error), (End::Done, &None));
        assert_eq!(filled.end.errors, []);
        let (_, free) = space_of(&tmpfs.path);
        assert!(free < MIB, "{free}");
        let read = cell.run("read", params.clone());
        assert_eq!((read.end.state, read.sum(|it| it.errors)), (End::Done, 0));
        assert!(read.sum(|it| it.bytes) > 10 * MIB);
        cell.run("remove", params);
    }
}

#[test]
fn parameters_are_checked() {
    let check = |mode: &str, params: Value| FILL.check(mode, params.as_object().unwrap());
    let footprint = check("fill", json!({"amount": "10g"})).unwrap();
    assert_eq!((footprint.bytes, footprint.files), (10 << 30, 10));
    assert_eq!(check("fill", json!({})).unwrap().bytes, 0);
    let read = check("read", json!({"amount": "10g", "verify": true})).unwrap();
    assert_eq!(read.moved_bytes, 10 << 30);
    let held = check("hold", json!({"hold": "2m"})).unwrap();
    assert_eq!(held.runtime.unwrap().as_secs(), 120);
    for (bad, key) in [
        (json!({"share": 0}), "share"),
        (json!({"share": 101}), "share"),
        (json!({"share": 50, "amount": "1g"}), "share"),
        (json!({"amount": 0}), "amount"),
        (json!({"file-size": "1k"}), "file-size"),
        (json!({"bs": 0}), "bs"),
        (json!({"hold": 0}), "hold"),
        (json!({"verify": true, "data": {"dedupe": 20}}), "verify"),
    ] {
        let error = check("hold", bad.clone()).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{bad}: {error}");
    }
}

//! Whole trees on real directories, and hostile archives.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod hostile;

use super::*;
use crate::engine::task::{Cache, End};
use crate::measure::clock::MonoNanos;
use crate::measure::op::Op;
use crate::measure::random::Random;
use crate::registry;
use crate::testing::{LoadOutcome, TestCell, Tmpfs, arm_soon, expect_mismatches, flip, making};
use benchmesh_testing::{measured, timing};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Made by GNU tar 1.34 in each of its formats, and by gzip, xz and zstd.
const GNU_GZ: &[u8] = include_bytes!("tests/fixtures/gnu.tar.gz");
const PAX_XZ: &[u8] = include_bytes!("tests/fixtures/pax.tar.xz");
const USTAR_ZST: &[u8] = include_bytes!("tests/fixtures/ustar.tar.zst");

fn cell() -> TestCell {
    TestCell::new(NAME)
}

fn with_archive(cell: &TestCell, content: &[u8]) -> Value {
    let path = cell.top.path().join("archive");
    fs::write(&path, content).unwrap();
    json!({ "archive": path })
}

/// Every path beneath `top`, with the size of files.
fn found(top: &Path) -> BTreeMap<PathBuf, Option<u64>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let facts = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(top).unwrap().to_owned();
            found.insert(name, facts.is_file().then_some(facts.len()));
            if facts.is_dir() {
                directories.push(path);
            }
        }
    }
    found
}

#[test]
fn an_archive_of_each_format_and_compression_is_unpacked() {
    let long = "long".repeat(40);
    let deep = format!("{long}/{}", "name".repeat(30));
    for (content, has_long) in [(GNU_GZ, true), (PAX_XZ, true), (USTAR_ZST, false)] {
        let cell = cell();
        let params = with_archive(&cell, content);
        let outcome = cell.run("unpack", params.clone());
        let (files, bytes, directories) = if has_long { (4, 3021, 4) } else { (3, 3016, 3) };
        outcome.expect(&[
            (Op::Create, files, bytes),
            (Op::Mkdir, directories, 0),
            (Op::Symlink, 1, 0),
            (Op::Link, 1, 0),
        ]);
        let top = cell.task_dir().join("w0/top");
        assert_eq!(fs::read(top.join("a.txt")).unwrap(), b"hello\n");
        assert_eq!(fs::read(top.join("sub/zeros")).unwrap(), [0; 3000]);
        assert_eq!(fs::read(top.join("sub/link")).unwrap(), b"hello\n");
        let inode = |name: &str| fs::metadata(top.join(name)).unwrap().ino();
        assert_eq!(inode("sub/hard"), inode("a.txt"));
        let executable =
            |name: &str| fs::metadata(top.join(name)).unwrap().permissions().mode() & 0o100 != 0;
        assert!(executable("sub/run") && !executable("a.txt"));
        assert!(top.join("sub/empty").is_dir());
        if has_long {
            assert_eq!(fs::read(top.join(&deep)).unwrap(), b"deep\n");
        }
        // Every entry is looked up once: all that were made, plus the root's listing.
        cell.run("walk", params.clone()).expect(&[
            (Op::Stat, files + directories + 2, 0),
            (Op::List, directories + 1, 0),
        ]);
        cell.run("remove", params).expect(&[
            (Op::Delete, files + 2, 0),
            (Op::List, directories + 1, 0),
            (Op::Rmdir, directories, 0),
        ]);
        assert_eq!(found(&cell.task_dir().join("w0")), BTreeMap::new());
    }
}

fn small() -> Value {
    json!({"files": 300, "directories": 40, "symlinks": 20, "numjobs": 2, "bs": "8k"})
}

fn made() -> synthetic::SyntheticTree {
    let counts = (Some(300), Some(40), Some(20));
    synthetic::SyntheticTree::new(
        synthetic::Builtin::Source,
        counts,
        None,
        1,
        crate::target::data::DataSpec::default(),
    )
    .unwrap()
}

#[test]
fn a_made_tree_goes_through_all_modes() {
    let cell = cell();
    let bytes = made().bytes(1);
    cell.run("unpack", small()).expect(&[
        (Op::Create, 600, 2 * bytes),
        (Op::Mkdir, 80, 0),
        (Op::Symlink, 40, 0),
    ]);
    let found = found(&cell.task_dir().join("w1"));
    assert_eq!(found.len(), 360);
    assert_eq!(found.values().flatten().sum::<u64>(), bytes);
    let first = fs::read(cell.task_dir().join("w0/d000000000/f000000000")).unwrap();
    let second = fs::read(cell.task_dir().join("w1/d000000000/f000000000")).unwrap();
    assert!(
        first.len() == second.len() && first != second,
        "nothing deduplicates"
    );
    // The root's own listing is counted too.
    cell.run("walk", small())
        .expect(&[(Op::Stat, 720, 0), (Op::List, 82, 0)]);
    cell.run("remove", small()).expect(&[
        (Op::Delete, 640, 0),
        (Op::List, 82, 0),
        (Op::Rmdir, 80, 0),
    ]);
    // Each mode lays out its data if they are missing.
    cell.run("walk", small())
        .expect(&[(Op::Stat, 720, 0), (Op::List, 82, 0)]);
    cell.run("unpack", small()).expect(&[
        (Op::Create, 600, 2 * bytes),
        (Op::Mkdir, 80, 0),
        (Op::Symlink, 40, 0),
    ]);
}

#[test]
fn to_make_what_is_verified_is_no_part_of_an_operation() {
    let params = json!({"files": 4, "directories": 1, "size": "8m", "bs": "1m", "verify": true});
    measured(|| {
        let outcome = cell().run("unpack", params.clone());
        outcome.expect(&[(Op::Create, 4, 32 << 20), (Op::Mkdir, 1, 0)]);
        outcome.expect_apart(making(32 << 20))
    });
}

#[test]
fn to_read_on_in_an_archive_is_no_part_of_an_operation() {
    measured(|| {
        let bytes = 24 << 20;
        let mut content = vec![0; bytes];
        Random::new(1).fill(&mut content);
        let tar = hostile::Tar::new()
            .file("large", bytes as u64, &content)
            .end();
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&tar).unwrap();
        let packed = packed.finish().unwrap();
        let began = MonoNanos::now();
        let mut unpacked = flate2::read::GzDecoder::new(&packed[..]);
        assert_eq!(
            unpacked
                .read_to_end(&mut Vec::with_capacity(tar.len()))
                .unwrap(),
            tar.len()
        );
        let took = MonoNanos::now().since(began);
        let cell = cell();
        let params = with_archive(&cell, &packed);
        let outcome = cell.run("unpack", params);
        outcome.expect(&[(Op::Create, 1, bytes as u64)]);
        // A third of it is read ahead, before the operation starts.
        outcome.expect_apart(took)?;
        assert_eq!(fs::read(cell.task_dir().join("w0/large")).unwrap(), content);
        Ok(())
    });
}

#[test]
fn every_flipped_bit_of_a_made_tree_is_an_error_at_its_offset() {
    let cell = cell();
    let mut params = small();
    params["size"] = json!("20k");
    params["verify"] = json!(true);
    cell.run("read", params.clone())
        .expect(&[(Op::Read, 600, 600 * 20_480)]);
    let path = |name: &str| cell.task_dir().join(name);
    flip(&path("w0/d000000000/f000000000"), &[20_479]);
    // Three sectors of one file, in two blocks.
    let flipped = [4097, 4098, 8191, 8192, 12_287, 16_384];
    flip(&path("w0/d000000000/f000000002"), &flipped);
    // Copy a block of one file into another.
    let other = fs::read(path("w0/d000000000/f000000003")).unwrap();
    let misplace = || {
        let file = fs::File::options()
            .write(true)
            .open(path("w0/d000000000/f000000004"));
        file.unwrap()
            .write_all_at(&other[8192..16_384], 8192)
            .unwrap();
    };
    misplace();
    let found = |outcome: &LoadOutcome, places: &[&str]| {
        expect_mismatches(&outcome.end, 6, places);
        assert_eq!(outcome.of(Op::Read).2, 3, "three files are wrong");
    };
    let outcome = cell.run("read", params.clone());
    let places = [
        "w0/d000000000/f000000000 at offset 20479: expected ",
        "w0/d000000000/f000000002 at offset 4097: expected ",
        "w0/d000000000/f000000002 at offset 8192: expected ",
    ];
    found(&outcome, &places);
    // Warming the caches does not verify.
    let warm = TaskSpec {
        cache: Cache::Warm,
        ..cell.spec("read", params.clone())
    };
    found(&crate::testing::run(&warm), &places);
    cell.run("unpack", params.clone());
    misplace();
    let moved = "f000000004 at offset 12288: found what was written to file 3 at offset 12288";
    expect_mismatches(&cell.run("read", params.clone()).end, 2, &[moved]);
    // Without `verify` it is not found.
    params.as_object_mut().unwrap().remove("verify");
    cell.run("unpack", params.clone());
    flip(&path("w0/d000000000/f000000000"), &[20_479]);
    cell.run("read", params)
        .expect(&[(Op::Read, 600, 600 * 20_480)]);
}

#[test]
fn what_was_unpacked_is_held_against_its_archive() {
    let cell = cell();
    let mut params = with_archive(&cell, GNU_GZ);
    params["verify"] = json!(true);
    params["bs"] = json!(1000);
    cell.run("unpack", params.clone());
    cell.run("read", params.clone())
        .expect(&[(Op::Read, 4, 3021)]);
    // One wrong sector, although it is read in three pieces.
    flip(&cell.task_dir().join("w0/top/sub/zeros"), &[1500, 2500]);
    let outcome = cell.run("read", params.clone());
    expect_mismatches(
        &outcome.end,
        1,
        &["w0/top/sub/zeros at offset 1500: expected 0x00, found 0x04"],
    );
    let longer = fs::File::options()
        .append(true)
        .open(cell.task_dir().join("w0/top/a.txt"));
    longer.unwrap().write_all(b"x").unwrap();
    expect_mismatches(
        &cell.run("read", params).end,
        2,
        &["w0/top/a.txt at offset 6: found more, where the file has to end"],
    );
}

#[test]
fn walks_are_counted_or_ended_by_time_whichever_comes_first() {
    let cell = cell();
    let mut params = small();
    let once = cell.run("walk", params.clone());
    assert_eq!(once.end.state, End::Done);
    params["loops"] = json!(3);
    for runtime in [None, Some("1h")] {
        if let Some(runtime) = runtime {
            params["runtime"] = json!(runtime);
        }
        let outcome = cell.run("walk", params.clone());
        for op in [Op::Stat, Op::List] {
            let (ops, bytes, errors) = once.of(op);
            assert_eq!(outcome.of(op), (3 * ops, 3 * bytes, errors), "{op}");
        }
    }
    (params["loops"], params["runtime"]) = (json!(1_000_000_000), json!("150ms"));
    let outcome = cell.run("walk", params);
    let ran = outcome.end.ended.since(outcome.end.planned_start);
    assert!(
        outcome.end.state == End::Done && ran.as_millis() >= 150,
        "{ran:?}"
    );
}

#[test]
fn walks_repeat_until_the_time_is_over() {
    measured(|| {
        let cell = cell();
        let outcome = cell.run(
            "walk",
            json!({"files": 50, "directories": 5, "runtime": "200ms"}),
        );
        assert_eq!(outcome.end.state, End::Done);
        let (stats, _, errors) = outcome.of(Op::Stat);
        assert_eq!(errors, 0);
        timing!(stats > 110, "{stats}");
        Ok(())
    });
}

#[test]
fn what_vanishes_under_a_removal_is_a_counted_error() {
    let cell = cell();
    let spec = cell.spec("remove", small());
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    fs::remove_dir_all(cell.task_dir().join("w0/d000000000/d000000003")).unwrap();
    fs::remove_dir_all(cell.task_dir().join("w1")).unwrap();
    arm_soon(&mut task);
    let (mut ops, mut errors) = (0, 0);
    let end = task.run_to_end(&mut |interval| {
        ops += interval.ops;
        errors += interval.errors;
    });
    assert_eq!(end.state, End::Done, "{end:?}");
    // A directory removed before the start is not visited at all. Of the other tree, even the root cannot be listed.
    assert!(ops > 200, "{ops}");
    assert_eq!(errors, 1, "{:?}", end.errors);
    assert!(end.errors[0].first.starts_with("list "), "{:?}", end.errors);
    assert_eq!(found(&cell.task_dir().join("w0")), BTreeMap::new());
}

#[test]
fn a_full_target_ends_it_with_the_reason() {
    let Some(tmpfs) = Tmpfs::mount(512) else {
        return;
    };
    let cell = TestCell::beneath(NAME, &tmpfs.path);
    let outcome = cell.run("unpack", json!({"files": 200, "size": "8k"}));
    assert_eq!(outcome.end.state, End::Failed);
    assert!(outcome.end.error.unwrap().contains("no space left"));
    // The totals of an archive are known before anything is created.
    let mut archive = hostile::Tar::new();
    archive.file("large", 600 << 10, &vec![1; 600 << 10]);
    let archives = tempfile::tempdir().unwrap();
    let path = archives.path().join("archive.tar");
    fs::write(&path, archive.end()).unwrap();
    let spec = TaskSpec {
        sources: Allowed::new(vec![archives.path().to_owned()]).unwrap(),
        ..cell.spec("unpack", json!({ "archive": path }))
    };
    let error = registry::prepare(&spec, &PrepareControl::silent()).unwrap_err();
    assert!(
        error.to_string().contains("more than the target has free"),
        "{error}"
    );
}

#[test]
fn parameters_are_checked() {
    let check = |params: Value| TREE.check("unpack", params.as_object().unwrap());
    let footprint = check(json!({})).unwrap();
    assert_eq!((footprint.workers, footprint.files), (1, 124_960 + 7042));
    let twice = check(json!({"tree": "ports", "files": 1000, "numjobs": 2})).unwrap();
    assert_eq!((twice.workers, twice.files), (2, 2 * 1124));
    for (bad, key) in [
        (json!({"archive": "tree.tar"}), "archive"),
        (json!({"archive": "/tree.tar", "tree": "ports"}), "tree"),
        (json!({"archive": "/tree.tar", "files": 5}), "files"),
        (json!({"archive": "/tree.tar", "size": 5}), "size"),
        (json!({"tree": "forest"}), "tree"),
        (json!({"directories": 0}), "directories"),
        (json!({"files": 2_000_000_000_u64}), "files"),
        (json!({"numjobs": 0}), "numjobs"),
        (json!({"bs": 0}), "bs"),
        (json!({"archive": "/tree.tar", "data": "zero"}), "data"),
        (json!({"verify": true, "data": "zero"}), "verify"),
        (json!({"archives": "/a"}), "archives"),
    ] {
        let error = check(bad.clone()).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{bad}: {error}");
    }
}

//! Copies over existing files: each is truncated and written, and keeps its inode.

use super::*;
use crate::testing::flip;
use std::os::unix::fs::MetadataExt;

/// The inode of each file of the tree on the target.
fn inodes(cell: &CopyCell) -> BTreeMap<PathBuf, u64> {
    let top = cell.on_target.task_dir().join("data");
    let inode = |name: &PathBuf| fs::metadata(top.join(name)).unwrap().ino();
    let names = cell.data().into_keys();
    names.map(|name| (name.clone(), inode(&name))).collect()
}

#[test]
fn every_file_is_emptied_and_written_again_on_every_way() {
    // O_DIRECT and copy_file_range between two directories need a disk.
    let on_disk = || tempfile::tempdir_in("/var/tmp").unwrap();
    for way in ["auto", "copy-file-range", "read-write", "direct"] {
        let cell = CopyCell::between(on_disk(), on_disk());
        let params = json!({
            "files": 6, "size": {"min": "5k", "max": "40k"}, "numjobs": 2, "bs": "8k", "way": way, "verify": true
        });
        let footprint = COPY
            .check("overwrite", params.as_object().unwrap())
            .unwrap();
        let bytes = footprint.moved_bytes;
        assert_eq!(footprint.scratch_bytes, footprint.bytes);
        expect(&cell.spec("in", params.clone()), 12, 2 * bytes);
        let (copied, files) = (cell.data(), inodes(&cell));
        assert_eq!((copied.len(), bytes_of(&copied)), (6, bytes));

        // Make files longer, shorter, empty and wrong: only truncating and writing them completely repairs them.
        let top = cell.on_target.task_dir().join("data/d000000");
        let file = |index: u32| top.join(format!("c{index:09}"));
        let mut longer = fs::read(file(0)).unwrap();
        longer.extend([1; 50_000]);
        fs::write(file(0), longer).unwrap();
        fs::write(file(1), b"short").unwrap();
        fs::write(file(2), b"").unwrap();
        flip(&file(3), &[0, 4097]);
        let outcome = run(&cell.spec("overwrite", params.clone()));
        assert_eq!(outcome.end.state, End::Done);
        assert_eq!(outcome.end.error, None);
        for op in [Op::Copy, Op::Read] {
            assert_eq!(outcome.of(op), (6, bytes, 0), "{way} {op}");
        }
        assert_eq!(cell.data(), copied, "{way}");
        assert_eq!(inodes(&cell), files, "{way}: no file was made or removed");
        assert!(cell.scratch_is_empty());

        // The next modes read what was written, without laying it out again.
        expect(&cell.spec("out", params.clone()), 12, 2 * bytes);
        expect(&cell.spec("overwrite", params), 12, 2 * bytes);
        assert_eq!(inodes(&cell), files, "{way}");
    }
}

#[test]
fn what_no_step_has_left_is_laid_out_first_and_not_measured() {
    for cache in [Cache::AsIs, Cache::Warm] {
        let cell = CopyCell::new();
        let params = json!({"files": 1200, "size": 100, "numjobs": 3});
        let spec = TaskSpec {
            cache,
            ..cell.spec("overwrite", params.clone())
        };
        let task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
        let laid = (cell.data(), inodes(&cell));
        assert_eq!((laid.0.len(), bytes_of(&laid.0)), (1200, 120_000));
        drop(task);
        assert!(cell.scratch_is_empty());
        // The task has not run, so the state is unknown.
        expect(&spec, 1200, 120_000);
        let written = (cell.data(), inodes(&cell));
        assert_eq!(written.0, laid.0, "the same content as that of `in`");
        expect(&cell.spec("out", params.clone()), 1200, 120_000);
        assert_eq!((cell.data(), inodes(&cell)), written);
        let other = json!({"files": 3, "size": 10, "numjobs": 3});
        expect(&cell.spec("overwrite", other), 3, 30);
        assert_eq!(cell.data().len(), 3);
    }
}

#[test]
fn a_file_that_is_not_there_or_not_ours_is_an_error_and_left_alone() {
    let cell = CopyCell::new();
    let params = json!({"files": 5, "size": 100});
    expect(&cell.spec("in", params.clone()), 5, 500);
    let copied = cell.data();
    let data = cell.on_target.task_dir().join("data/d000000");
    fs::remove_file(data.join("c000000001")).unwrap();
    let elsewhere = cell.scratch.path().join("elsewhere");
    fs::write(&elsewhere, b"somebody's").unwrap();
    fs::remove_file(data.join("c000000002")).unwrap();
    fs::hard_link(&elsewhere, data.join("c000000002")).unwrap();
    fs::remove_file(data.join("c000000003")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, data.join("c000000003")).unwrap();
    let outcome = run(&cell.spec("overwrite", params.clone()));
    assert_eq!(outcome.end.state, End::Done);
    assert_eq!(outcome.of(Op::Copy), (2, 200, 3));
    let mut errnos: Vec<i32> = outcome.end.errors.iter().map(|it| it.errno).collect();
    errnos.sort_unstable();
    errnos.dedup();
    assert_eq!(errnos, [libc::EPERM, libc::ENOENT]);
    assert_eq!(fs::read(&elsewhere).unwrap(), b"somebody's");
    fs::remove_file(&elsewhere).unwrap();
    // Not all files were written, so the next mode lays all of them out again.
    expect(&cell.spec("out", params), 5, 500);
    assert_eq!(cell.data(), copied);
}

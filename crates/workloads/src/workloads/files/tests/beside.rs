//! Modes that change files, or make something beside them, in any sequence.

use super::*;
use crate::registry;
use crate::target::dataset::DatasetContent;
use crate::testing::arm_soon;
use benchmesh_testing::{measured, timing};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// Uses a disk: tmpfs has user attributes only since Linux 6.6.
fn on_disk() -> TestCell {
    TestCell::beneath(NAME, Path::new("/var/tmp"))
}

fn params() -> Value {
    json!({"files": 40, "numjobs": 2, "dirs": 6, "size": 3000, "append": 700, "xattr-size": 50})
}

const DIRECTORIES: u64 = 4 + 4;

#[test]
fn files_grow_by_what_is_appended() {
    let cell = TestCell::new(NAME);
    cell.run("append", params()).expect_sums(40, 40 * 700, 0);
    cell.run("append", params()).expect_sums(40, 40 * 700, 0);
    assert!(cell.files().values().all(|bytes| *bytes == 4400));
    cell.run("read", params()).expect_sums(40, 40 * 4400, 0);
    cell.run("rename", params()).expect_sums(40, 0, 0);
    cell.run("append", params()).expect_sums(40, 40 * 700, 0);
    cell.run("read", params()).expect_sums(40, 40 * 5100, 0);
    cell.run("delete", params()).expect_sums(40, 0, 0);
    cell.run("read", params()).expect_sums(40, 40 * 3000, 0);
    let empty = json!({"files": 3, "size": 0, "append": 10, "bs": 4});
    cell.run("append", empty.clone()).expect_sums(3, 30, 0);
    cell.run("read", empty).expect_sums(3, 30, 0);
}

#[test]
fn a_file_that_is_gone_cannot_be_appended_to() {
    let cell = TestCell::new(NAME);
    cell.run("create", params());
    fs::remove_file(cell.task_dir().join("w000000001/d000000002/c000000013")).unwrap();
    let outcome = cell.run("append", params());
    outcome.expect_sums(39, 39 * 700, 1);
    // The files that have grown are unknown, so all are checked and repaired.
    cell.run("read", params()).expect_sums(40, 40 * 3000, 0);
}

#[test]
fn permissions_change_on_every_pass() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let timed = json!({"files": 10, "runtime": "100ms"});
        let outcome = cell.run("chmod", timed);
        timing!(outcome.sum(|i| i.ops) >= 20, "{:?}", outcome.end);
        let cell = TestCell::new(NAME);
        cell.run("chmod", params()).expect_sums(40, 0, 0);
        for path in cell.files().keys() {
            let facts = fs::metadata(cell.task_dir().join(path)).unwrap();
            assert_eq!(facts.permissions().mode() & 0o777, 0o600, "{path:?}");
        }
        Ok(())
    });
}

#[test]
fn attributes_are_set_and_read_and_laid_out_where_missing() {
    let cell = on_disk();
    cell.run("setxattr", params()).expect_sums(40, 40 * 50, 0);
    cell.run("getxattr", params()).expect_sums(40, 40 * 50, 0);
    let cell = on_disk();
    cell.run("create", params());
    let before: Vec<u64> = inodes(&cell);
    cell.run("getxattr", params()).expect_sums(40, 40 * 50, 0);
    assert_eq!(inodes(&cell), before, "the files were kept");
    let mut value = [0_u8; 100];
    let path = cell.task_dir().join("w000000000/d000000000/c000000000");
    let read = rustix::fs::lgetxattr(path.as_path(), c"user.benchmesh", &mut value).unwrap();
    assert_eq!(read, 50);
    let mut longer = params();
    longer["xattr-size"] = json!(60);
    cell.run("getxattr", longer).expect_sums(40, 40 * 60, 0);
}

fn inodes(cell: &TestCell) -> Vec<u64> {
    let of = |path: &PathBuf| fs::metadata(cell.task_dir().join(path)).unwrap().ino();
    cell.files().keys().map(of).collect()
}

#[test]
fn a_file_system_that_keeps_no_such_attribute_is_one_clear_error() {
    let check = |parent: &Path, bytes: u32, part: &str| {
        let cell = TestCell::beneath(NAME, parent);
        let spec = cell.spec("setxattr", json!({"files": 10, "xattr-size": bytes}));
        let error = registry::prepare(&spec, &PrepareControl::silent()).unwrap_err();
        assert!(matches!(error, TaskError::Unsupported { .. }), "{error:?}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(cell.files().len(), 0, "nothing was laid out");
    };
    // ext4 stores all attributes of a file in one block.
    let disk = Path::new("/var/tmp");
    let kind = rustix::fs::statfs(disk).unwrap().f_type;
    if kind == 0xEF53 {
        check(disk, 60_000, "smaller `xattr-size`");
    } else {
        benchmesh_testing::skip("ext4-var-tmp", "an attribute can be too long there");
    }
}

#[test]
fn symlinks_and_directories_stand_beside_the_files() {
    let cell = TestCell::new(NAME);
    cell.run("mkdir", params()).expect_sums(40, 0, 0);
    assert_eq!(cell.files().len(), 0, "no file was laid out for them");
    cell.run("create", params()).expect_sums(40, 40 * 3000, 0);
    cell.run("symlink", params()).expect_sums(40, 0, 0);
    let link = cell.task_dir().join("w000000001/d000000003/s000000019");
    assert_eq!(fs::read_link(&link).unwrap(), Path::new("c000000019"));
    assert_eq!(fs::metadata(&link).unwrap().len(), 3000);
    for mode in ["list", "list-stat"] {
        cell.run(mode, params()).expect_sums(DIRECTORIES, 0, 0);
    }
    // Both again: existing entries are removed first.
    cell.run("mkdir", params()).expect_sums(40, 0, 0);
    cell.run("symlink", params()).expect_sums(40, 0, 0);
    cell.run("rmdir", params()).expect_sums(40, 0, 0);
    cell.run("delete", params()).expect_sums(40, 0, 0);
    assert!(!link.with_file_name("m000000019").exists());
    cell.run("rmdir", params()).expect_sums(40, 0, 0);
    cell.run("list", params()).expect_sums(DIRECTORIES, 0, 0);
}

#[test]
fn what_was_not_finished_is_put_in_order() {
    let cell = TestCell::new(NAME);
    cell.run("mkdir", params());
    fs::remove_dir(cell.task_dir().join("w000000000/d000000000/m000000001")).unwrap();
    let outcome = cell.run("rmdir", params());
    outcome.expect_sums(39, 0, 1);
    assert_eq!(outcome.end.errors[0].errno, libc::ENOENT);
    assert_eq!(cell.state(), Some(DatasetContent::Unsettled));
    cell.run("symlink", params()).expect_sums(40, 0, 0);
    assert_eq!(cell.state(), Some(DatasetContent::Empty));
    cell.run("rmdir", params()).expect_sums(40, 0, 0);
}

#[test]
fn a_random_order_touches_each_file_once() {
    let cell = TestCell::new(NAME);
    let mut random = params();
    random["order"] = json!("random");
    for mode in [
        "create", "stat", "append", "rename", "symlink", "mkdir", "rmdir",
    ] {
        let bytes = match mode {
            "create" => 40 * 3000,
            "append" => 40 * 700,
            _ => 0,
        };
        cell.run(mode, random.clone()).expect_sums(40, bytes, 0);
    }
    assert_eq!(cell.named("r"), 40);
    cell.run("list-stat", random.clone())
        .expect_sums(DIRECTORIES, 0, 0);
    cell.run("delete", random).expect_sums(40, 0, 0);
    assert_eq!(cell.named("r"), 0);
}

#[test]
fn a_directory_that_vanishes_under_the_load_is_counted_errors() {
    measured(|| {
        let cell = TestCell::new(NAME);
        let params = json!({"files": 200, "dirs": 100, "size": 0});
        cell.run("create", params.clone());
        let spec = cell.spec(
            "stat",
            json!({"files": 200, "dirs": 100, "size": 0, "runtime": "400ms"}),
        );
        let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
        arm_soon(&mut task);
        let doomed = cell.task_dir().join("w000000000/d000000001");
        let remover = std::thread::spawn(move || fs::remove_dir_all(doomed).unwrap());
        let (mut ops, mut errors) = (0, 0);
        let end = task.run_to_end(&mut |interval| {
            ops += interval.ops;
            errors += interval.errors;
        });
        remover.join().unwrap();
        assert_eq!(end.state, End::Done, "{:?}", end.error);
        timing!(ops > 0 && errors > 0, "{ops} {errors}");
        assert!(end.errors.iter().all(|error| error.errno == libc::ENOENT));
        Ok(())
    });
}

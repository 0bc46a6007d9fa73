//! Verification of copies: differences from the source are reported with their place.

use super::*;
use crate::target::data::{FoundData, Mismatch};
use crate::testing::{expect_mismatches, flip};
use rustix::fd::AsFd;

#[test]
fn every_way_copies_and_a_verified_copy_is_read_again() {
    // O_DIRECT and copy_file_range between two directories need a disk.
    let on_disk = || tempfile::tempdir_in("/var/tmp").unwrap();
    for way in ["auto", "copy-file-range", "read-write", "direct"] {
        let cell = CopyCell::between(on_disk(), on_disk());
        let params = json!({
            "files": 7, "size": {"min": 1, "max": "40k"}, "numjobs": 2, "bs": "8k", "way": way, "verify": true
        });
        let bytes = COPY
            .check("in", params.as_object().unwrap())
            .unwrap()
            .moved_bytes;
        for mode in ["in", "out"] {
            let LoadOutcome { end, intervals } = run(&cell.spec(mode, params.clone()));
            assert_eq!((end.state, end.error), (End::Done, None), "{way} {mode}");
            for op in [Op::Copy, Op::Read] {
                let of_op = intervals.iter().filter(|interval| interval.op == op);
                let sums = of_op.fold((0, 0, 0), |sum, it| {
                    (sum.0 + it.ops, sum.1 + it.bytes, sum.2 + it.errors)
                });
                assert_eq!(sums, (7, bytes, 0), "{way} {mode} {op}");
            }
        }
    }
}

#[test]
fn what_the_target_gives_back_otherwise_than_it_got_is_found_at_its_place() {
    let cell = CopyCell::new();
    let params = json!({"files": 3, "size": "3m", "verify": true});
    expect(&cell.spec("in", params.clone()), 6, 2 * 3 * (3 << 20));
    let path = cell.on_target.task_dir().join("data/d000000/c000000001");
    flip(&path, &[10, 2_345_678, 2_345_679, 3_000_000, 3_145_727]);
    let LoadOutcome { end, intervals } = run(&cell.spec("out", params));
    let errors: u64 = intervals.iter().map(|interval| interval.errors).sum();
    assert_eq!(errors, 1, "one file is wrong");
    let places = [10, 2_345_678, 3_000_000].map(|at| format!("c000000001 at offset {at}: "));
    expect_mismatches(&end, 4, &places);
}

#[test]
fn a_copy_that_is_longer_than_its_source_is_found() {
    let given = tempfile::tempdir().unwrap();
    let copied = tempfile::tempdir().unwrap();
    let name = c"a";
    let dirs = [&given, &copied].map(|it| fs::File::open(it.path()).unwrap());
    let both = (dirs[0].as_fd(), dirs[1].as_fd());
    let write = |dir: &tempfile::TempDir, bytes| fs::write(dir.path().join("a"), vec![1; bytes]);
    let mut verifier = verify::Verifier::new(None, 4096);
    let mut check = || {
        let checked = verifier.check(both, name, 0, 5000, |_, wanted| Ok(wanted));
        checked.map(|moved| moved.bytes).map_err(|fault| {
            assert_eq!(fault.failed, None);
            fault.mismatches.first().to_vec()
        })
    };
    write(&given, 5000).unwrap();
    write(&copied, 5000).unwrap();
    assert_eq!(check(), Ok(5000));
    write(&copied, 5001).unwrap();
    let (offset, found) = (5000, FoundData::More);
    assert_eq!(check(), Err(vec![Mismatch { offset, found }]));
    // Two sectors in two blocks, one of them with two flips.
    write(&copied, 5000).unwrap();
    flip(&copied.path().join("a"), &[100, 200, 4999]);
    let wrong = check().unwrap_err();
    let offsets: Vec<u64> = wrong.iter().map(|it| it.offset).collect();
    assert_eq!(offsets, [100, 4999]);
    // The source has grown since it was scanned, and was copied completely.
    write(&copied, 5001).unwrap();
    write(&given, 5001).unwrap();
    assert_eq!(check(), Ok(5000));
}

#[test]
fn a_copy_of_given_files_is_compared_with_them() {
    let cell = CopyCell::new();
    let given = tempfile::tempdir().unwrap();
    fs::write(given.path().join("a"), vec![1; 5000]).unwrap();
    let params = json!({"from": given.path(), "verify": true});
    let spec = |mode: &str| TaskSpec {
        sources: Allowed::new(vec![given.path().to_owned()]).unwrap(),
        ..cell.spec(mode, params.clone())
    };
    expect(&spec("in"), 2, 10_000);
    expect(&spec("out"), 2, 10_000);
}

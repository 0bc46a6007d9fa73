//! Verification of the files that fill the target: differences are reported with their place.

use super::*;
use crate::engine::task::Cache;
use crate::testing::{expect_mismatches, flip};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// Two workers with 5 MiB and 3 bytes, or 2; files of 2 MiB in blocks of 512 KiB.
fn params(data: Value) -> Value {
    json!({
        "amount": 10 * MIB + 5, "numjobs": 2, "file-size": "2m", "bs": "512k", "floor": 0, "hold": "200ms",
        "verify": true, "data": data
    })
}

fn file(cell: &TestCell, worker: u32, number: u64) -> PathBuf {
    let name = format!("w{worker}/f{number:09}");
    cell.task_dir().join(name)
}

fn options(path: &Path) -> fs::File {
    fs::File::options().write(true).open(path).unwrap()
}

#[test]
fn what_was_filled_is_read_as_it_was_written() {
    for data in [
        json!("random"),
        json!({"compress": 50}),
        json!("zero"),
        json!({"pattern": "0xff00"}),
    ] {
        let cell = TestCell::new(NAME);
        let params = params(data);
        let whole = [(Op::Read, 22, 10 * MIB + 5)];
        // Filled in the step, filled again, and laid out.
        for mode in ["fill", "fill", "remove"] {
            let state = cell.run(mode, params.clone()).end.state;
            assert_eq!(state, End::Done);
            assert_eq!(cell.run("read", params.clone()).end.errors, []);
            cell.run("hold", params.clone());
            cell.run("read", params.clone()).expect(&whole);
        }
        let warm = TaskSpec {
            cache: Cache::Warm,
            ..cell.spec("read", params.clone())
        };
        run(&warm).expect(&whole);
        // Without `verify` as much is read.
        let mut params = params.clone();
        params["verify"] = json!(false);
        cell.run("read", params).expect(&whole);
    }
}

#[test]
fn a_share_is_read_to_the_byte_that_was_reached() {
    let Some(tmpfs) = Tmpfs::mount(32 << 10) else {
        return;
    };
    let cell = TestCell::beneath(NAME, &tmpfs.path);
    let params = json!({
        "share": 60, "numjobs": 3, "bs": "256k", "file-size": "1000k", "floor": "1m", "verify": true
    });
    let filled = cell.run("fill", params.clone());
    let (_, bytes, _) = filled.of(Op::Write);
    assert!(bytes > 10 * MIB, "{bytes}");
    let (ops, read, errors) = cell.run("read", params.clone()).of(Op::Read);
    assert_eq!((read, errors), (bytes, 0));
    assert_eq!(ops, filled.of(Op::Write).0);
    let sizes = files(&cell, 0);
    options(&file(&cell, 0, sizes.len() as u64 - 1))
        .set_len(sizes[0] - 1)
        .unwrap();
    let outcome = cell.run("read", params);
    assert_eq!(outcome.end.errors[0].errno, libc::ENODATA);
}

#[test]
fn every_flipped_bit_is_an_error_at_its_offset() {
    for data in [json!("random"), json!("zero"), json!({"pattern": "0x55"})] {
        let cell = TestCell::new(NAME);
        let params = params(data);
        cell.run("fill", params.clone());
        // Four sectors in one block, one in the last and short block of a worker.
        let flipped = [700_000, 700_001, 704_512, 1_000_000, 1_048_575];
        flip(&file(&cell, 0, 1), &flipped);
        flip(&file(&cell, 1, 2), &[MIB + 1]);
        let outcome = cell.run("read", params.clone());
        let (ops, _, errors) = outcome.of(Op::Read);
        assert_eq!((ops, errors), (20, 2));
        expect_mismatches(&outcome.end, 5, &["/f00000000"]);
        flip(&file(&cell, 1, 2), &[MIB + 1]);
        let outcome = cell.run("read", params);
        let places = [700_000, 704_512, 1_000_000].map(|at| format!("f000000001 at offset {at}: "));
        expect_mismatches(&outcome.end, 4, &places);
    }
}

#[test]
fn files_that_are_cut_short_missing_or_too_long_are_errors() {
    let cell = TestCell::new(NAME);
    let params = params(json!("random"));
    cell.run("fill", params.clone());
    flip(&file(&cell, 0, 0), &[600_000]);
    // Truncate within the second of its four blocks.
    options(&file(&cell, 0, 0)).set_len(700_000).unwrap();
    fs::remove_file(file(&cell, 0, 1)).unwrap();
    options(&file(&cell, 1, 1)).set_len(2 * MIB + 1).unwrap();
    let outcome = cell.run("read", params);
    let (ops, _, errors) = outcome.of(Op::Read);
    // One failed operation each for the truncated file, the missing file, and the file that is too long.
    assert_eq!((ops, errors), (22 - 3 - 4 - 1, 3), "{:?}", outcome.end);
    let error_of = |errno| {
        let errors = outcome.end.errors.iter();
        let of_errno: Vec<_> = errors.filter(|error| error.errno == errno).collect();
        assert_eq!(of_errno.len(), 1, "{:?}", outcome.end.errors);
        (of_errno[0].count, of_errno[0].first.clone())
    };
    let (count, first) = error_of(libc::ENODATA);
    assert!(
        count == 1 && first.contains("w0/f000000000 at offset 700000"),
        "{first}"
    );
    let (count, first) = error_of(libc::ENOENT);
    assert!(count == 1 && first.contains("w0/f000000001"), "{first}");
    // The remaining part of the file is verified up to its end.
    assert_eq!(error_of(libc::EBADMSG).0, 2);
}

#[test]
fn what_an_earlier_fill_has_left_is_not_taken_for_this_one() {
    let cell = TestCell::new(NAME);
    let params = params(json!("random"));
    cell.run("fill", params.clone());
    let before = fs::read(file(&cell, 0, 0)).unwrap();
    cell.run("fill", params.clone());
    // Simulates a storage that has lost the second write of these two sectors.
    let kept = &before[1 << 20..(1 << 20) + 8192];
    options(&file(&cell, 0, 0))
        .write_all_at(kept, 1 << 20)
        .unwrap();
    let outcome = cell.run("read", params);
    let place = "f000000000 at offset 1048576: found what was written to file 0 at offset 1048576";
    expect_mismatches(&outcome.end, 2, &[place]);
}

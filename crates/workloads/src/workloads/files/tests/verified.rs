//! Verification: reads report where the data differs from what was written.

use super::*;
use crate::testing::{expect_mismatches, flip, making};
use benchmesh_testing::measured;

fn params() -> Value {
    json!({"files": 20, "numjobs": 2, "size": {"max": "30k"}, "bs": "8k", "append": 700, "verify": true})
}

fn bytes() -> u64 {
    SizeSpec::Uniform {
        min: 0,
        max: 30 << 10,
    }
    .total(1, 20, 1)
}

#[test]
fn what_was_created_appended_and_renamed_is_read_as_it_was_written() {
    let cell = TestCell::new(NAME);
    cell.run("create", params()).expect_sums(20, bytes(), 0);
    cell.run("read", params()).expect_sums(20, bytes(), 0);
    cell.run("append", params()).expect_sums(20, 20 * 700, 0);
    cell.run("append", params()).expect_sums(20, 20 * 700, 0);
    cell.run("rename", params()).expect_sums(20, 0, 0);
    cell.run("read", params())
        .expect_sums(20, bytes() + 20 * 1400, 0);
    let mut random = params();
    random["order"] = json!("random");
    cell.run("read", random)
        .expect_sums(20, bytes() + 20 * 1400, 0);
    for (key, value) in [
        ("data", json!({"compress": 50})),
        ("directories-per", json!("task")),
    ] {
        let cell = TestCell::new(NAME);
        let mut other = params();
        other[key] = value;
        cell.run("read", other).expect_sums(20, bytes(), 0);
    }
}

#[test]
fn a_flipped_bit_and_a_swapped_file_are_found() {
    let cell = TestCell::new(NAME);
    let params = json!({"files": 5, "size": "20k", "bs": "8k", "verify": true});
    cell.run("create", params.clone());
    let path = |number: u32| {
        cell.task_dir()
            .join(format!("w000000000/d000000000/c{number:09}"))
    };
    // Two in one sector, three sectors in two blocks.
    flip(&path(2), &[1, 2, 12_345, 20_479]);
    let outcome = cell.run("read", params.clone());
    outcome.expect_sums(4, 4 * 20_480, 1);
    let places = [1, 12_345, 20_479].map(|at| format!("c000000002 at offset {at}: expected"));
    expect_mismatches(&outcome.end, 3, &places);
    fs::copy(path(3), path(4)).unwrap();
    let outcome = cell.run("read", params);
    outcome.expect_sums(3, 3 * 20_480, 2);
    // All five sectors of the other one.
    expect_mismatches(&outcome.end, 3 + 5, &["c000000002 at offset 1: "]);
}

#[test]
fn a_file_that_is_cut_short_or_goes_on_is_found() {
    let cell = TestCell::new(NAME);
    let params = json!({"files": 3, "size": "20k", "bs": "8k", "verify": true});
    cell.run("create", params.clone());
    let path = |number: u32| {
        cell.task_dir()
            .join(format!("w000000000/d000000000/c{number:09}"))
    };
    let file = |number| fs::File::options().write(true).open(path(number)).unwrap();
    flip(&path(1), &[9000]);
    file(1).set_len(10_000).unwrap();
    file(2).set_len(20_481).unwrap();
    let outcome = cell.run("read", params);
    outcome.expect_sums(1, 20_480, 2);
    let mut errors = outcome.end.errors.clone();
    errors.sort_by_key(|error| error.errno);
    let counts: Vec<(i32, u64)> = errors.iter().map(|it| (it.errno, it.count)).collect();
    assert_eq!(counts, [(libc::ENODATA, 1), (libc::EBADMSG, 2)]);
    assert!(errors[0].first.contains("c000000001 at offset 10000: "));
    for place in [
        "c000000001 at offset 9000: ",
        "c000000002 at offset 20480: found more",
    ] {
        assert!(errors[1].first.contains(place), "{:?}", errors[1]);
    }
}

#[test]
fn to_make_what_is_verified_is_no_part_of_an_operation() {
    let params = json!({"files": 4, "size": "8m", "append": "8m", "bs": "1m", "verify": true});
    measured(|| {
        let cell = TestCell::new(NAME);
        for mode in ["create", "append"] {
            let outcome = cell.run(mode, params.clone());
            outcome.expect_sums(4, 32 << 20, 0);
            outcome.expect_apart(making(32 << 20))?;
        }
        cell.run("read", params.clone()).expect_sums(4, 64 << 20, 0);
        Ok(())
    });
}

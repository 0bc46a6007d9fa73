//! Verification of a list's reads: differences are reported with their place.

use super::*;
use crate::registry;
use crate::testing::{arm_soon, expect_mismatches, flip};

/// Reads written data in parts, under another name, next to laid-out data, and where nothing was written.
const READS: &str = "
- mkdir logs
- create logs/a
- write logs/a 0 9000
- write logs/a 20000 3000
- write logs/a 4000 1000
- read logs/a 0 23000
- rename logs/a b
- close b
- open b
- read b 4100 300
- open old
- read old 0 70000
- write old 100 50
- read old 0 70000
- truncate old 5000
- write old 8000 10
- read old 0 8010
";

#[test]
fn what_was_written_is_found_again() {
    for numjobs in [1, 3] {
        let cell = TestCell::new(NAME);
        let mut params = operations(READS);
        params["verify"] = json!(true);
        params["numjobs"] = json!(numjobs);
        let outcome = cell.run("replay", params);
        assert_eq!(
            (outcome.end.state, &outcome.end.errors[..]),
            (End::Done, &[][..])
        );
        assert_eq!(
            outcome.of(Op::Read),
            (5 * numjobs, (23_000 + 300 + 140_000 + 8010) * numjobs, 0)
        );
    }
}

#[test]
fn every_flipped_bit_is_an_error_at_its_offset() {
    // The pause between writes and reads gives time for the flips.
    let list = "
- create a
- write a 0 9000
- write a 20000 3000
- open old
1.5 read a 0 5000
- read a 5000 18000
- read a 9000 11000
- read old 0 70000
- read old 0 4096
";
    let cell = TestCell::new(NAME);
    let mut params = operations(list);
    params["verify"] = json!(true);
    let spec = cell.spec("replay", params);
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    arm_soon(&mut task);
    let path = |name: &str| cell.task_dir().join("w0").join(name);
    let flipping = [("a", 4999), ("a", 8999), ("a", 12_000), ("old", 69_999)]
        .map(|(name, at)| (path(name), at));
    let flips = std::thread::spawn(move || {
        let written = || fs::metadata(&flipping[0].0).is_ok_and(|facts| facts.len() == 23_000);
        while !written() {
            std::thread::yield_now();
        }
        for (path, at) in &flipping {
            flip(path, &[*at]);
        }
    });
    let (mut reads, mut errors) = (0, 0);
    let end = task.run_to_end(&mut |interval| {
        if interval.op == Op::Read {
            reads += interval.ops;
            errors += interval.errors;
        }
    });
    flips.join().unwrap();
    // Four reads are wrong, one of them in two sectors; the last one is right.
    assert_eq!((reads, errors), (1, 4), "{:?}", end.errors);
    let places = [4999, 8999, 12_000].map(|at| format!("w0/a at offset {at}: "));
    expect_mismatches(&end, 5, &places);
}

#[test]
fn nothing_is_expected_of_what_could_not_be_written() {
    let cell = TestCell::new(NAME);
    let mut params = operations(
        "- mkdir d\n- create a\n- write a 0 100\n- mkdir d\n- rename a d\n- open b\n- read b 0 10\n- read d 0 50\n",
    );
    params["verify"] = json!(true);
    let outcome = cell.run("replay", params);
    // Only the second mkdir and the rename fail.
    assert_eq!(outcome.of(Op::Read), (2, 60, 0), "{:?}", outcome.end.errors);
    assert_eq!((outcome.of(Op::Mkdir).2, outcome.of(Op::Rename).2), (1, 1));
}

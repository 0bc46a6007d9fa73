//! A file system that fails one in every few calls, and one that moves less than requested.
//!
//! Tolerance: none; there are exactly as many errors as failed calls, and as many bytes as were moved.

mod cases;

use super::counts::{assert_places_agree, steps};
use super::stall::bed::{Bed, Scratch};
use crate::needs;
use crate::support::fuse_fs::{Fault, Op, Rule};
use crate::support::plan;
use cases::Case;

/// Maximum size of a partial call: not a divisor of a block or a page.
const PART: u32 = 3000;

#[test]
fn every_seventh_call_that_fails_is_one_error() {
    needs!("fuse");
    for scratch in [Scratch::Apart, Scratch::Beside] {
        let bed = Bed::new(scratch);
        for group in cases::GROUPS.iter().filter(|it| it.scratch == scratch) {
            for case in group.cases {
                fail_and_count(&bed, group.common, case);
            }
        }
    }
}

fn fail_and_count(bed: &Bed, common: &str, case: &Case) {
    let phase = format!("{common}{}", case.phase).replace('@', &cases::operations());
    let what = format!("{phase}: {:?} of {}", case.op, case.path);
    let strikes = if case.calls == 0 { 5 } else { case.calls / 7 };
    bed.fs.release();
    bed.fs.add_rule(Rule {
        path: case.path.to_owned(),
        one_in: 7,
        times: strikes,
        ..Rule::every(case.op, Fault::Fail(libc::EIO))
    });
    let run = bed.mesh.run(&plan::phase(&bed.target, &phase));
    let db = bed.mesh.db();
    let rows = db.rows(&format!(
        "SELECT r.ops, r.errors FROM step_results r JOIN steps s ON s.id = r.step_id
         WHERE s.run_id = {run} AND r.op = '{}'",
        case.kind
    ));
    let [row] = &rows[..] else {
        panic!("{what}: {rows:?}");
    };
    let errors = row.integer("errors").unsigned_abs();
    assert_eq!(errors, strikes, "{what}");
    let reported: i64 = db.one(&format!(
        "SELECT coalesce(sum(e.errors), 0) FROM task_errors e JOIN tasks t ON t.id = e.task_id JOIN steps s ON s.id = t.step_id
         WHERE s.run_id = {run} AND e.errno = {}",
        libc::EIO
    ));
    assert_eq!(reported.unsigned_abs(), strikes, "{what}");
    if case.kind == "delete" {
        let first: String = db.one(&format!(
            "SELECT e.first FROM task_errors e JOIN tasks t ON t.id = e.task_id JOIN steps s ON s.id = t.step_id
             WHERE s.run_id = {run}"
        ));
        assert!(first.contains("delete"), "{what}: {first}");
    }
    if case.calls > 0 {
        let ops = row.integer("ops").unsigned_abs();
        assert_eq!(ops + errors, case.calls, "{what}");
    }
}

/// The call that moves bytes in each workload and mode.
const MOVING: &[&str] = &[
    "workload = \"files\"\nfiles = 9\nsize = 10000\nappend = 5000\nverify = true\nmodes = [\"create\", \"read\", \"append\"]",
    "workload = \"io\"\nsize = \"40k\"\nbs = \"8k\"\nseeks = 20\nrewrite-share = 0\nverify = true\n\
     modes = [\"putc\", \"getc\", \"rmw\", \"fwrite\", \"fread\", \"seek\"]",
    "workload = \"tree\"\nfiles = 20\ndirectories = 3\nsize = 10000\nverify = true\nmodes = [\"unpack\", \"read\"]",
    "workload = \"copy\"\nfiles = 5\nsize = 70001\nway = \"read-write\"\nverify = true\nmodes = [\"in\", \"out\"]",
    "workload = \"copy\"\nfiles = 5\nsize = 70001\nway = \"direct\"\nverify = true\nmodes = [\"in\", \"out\"]",
    "workload = \"copy\"\nfiles = 5\nsize = 70001\nway = \"copy-file-range\"\nverify = true\nmodes = [\"in\", \"out\"]",
    "workload = \"copy\"\nfiles = 5\nsize = 70001\nway = \"auto\"\nverify = true\nmodes = [\"in\", \"out\"]",
    "workload = \"fill\"\namount = \"1m\"\nbs = \"128k\"\nverify = true\nmodes = [\"fill\", \"read\"]",
    "workload = \"replay\"\nverify = true\noperations = \"- create a\\n- write a 0 9999\\n- read a 777 9000\\n- close a\\n\"",
];

/// Reads, writes and copies that the kernel executes only partly at a time, as it may at any time: each operation
/// continues until it is complete, the count equals the moved bytes, and all of them are in the right place.
#[test]
fn what_is_done_in_parts_is_counted_as_it_was_moved() {
    needs!("fuse");
    let bed = Bed::new(Scratch::Beside);
    bed.fs.move_at_most(PART);
    let phases = (0..).zip(MOVING);
    let phases =
        phases.map(|(number, phase)| format!("[[phase]]\nname = \"p{number}\"\n{phase}\n"));
    let run = bed
        .mesh
        .run(&plan::on(&bed.target, "", &phases.collect::<String>()));
    let db = bed.mesh.db();
    let mut moving = 0;
    for step in &steps(&db, run, &bed.fs.log()) {
        assert_places_agree(&db, step);
        let seen = |op, side: &str| {
            let calls = step.calls.iter();
            let calls = calls.filter(|call| call.op == op && call.path.starts_with(side));
            calls.fold((0, 0), |(count, bytes), call| {
                (count + 1, bytes + call.amount)
            })
        };
        let (reads, writes) = (seen(Op::Read, "target/"), seen(Op::Write, "target/"));
        let both = |one: (u64, u64), other: (u64, u64)| (one.0 + other.0, one.1 + other.1);
        let (calls, bytes) = match (step.mode.as_str(), step.op.as_str()) {
            ("in", "copy") => both(writes, seen(Op::CopyFileRange, "target/")),
            ("out", "copy") => both(reads, seen(Op::CopyFileRange, "scratch/")),
            // The copy is checked.
            ("out", "read") => seen(Op::Read, "scratch/"),
            ("create" | "append" | "putc" | "fwrite" | "fill", _)
            | ("unpack", "create")
            | ("replay", "write") => writes,
            ("read" | "in" | "getc" | "fread" | "seek", _) | ("replay", "read") => reads,
            // Each byte is read and written.
            ("rmw", _) => {
                assert_eq!(reads.1, writes.1);
                writes
            }
            ("unpack" | "replay", _) => continue,
            other => panic!("{other:?}"),
        };
        moving += 1;
        let what = format!("{} {}", step.mode, step.op);
        assert_eq!(step.bytes, bytes, "{what}");
        assert!(
            calls > step.ops && bytes > u64::from(PART),
            "{what}: {calls}"
        );
    }
    assert_eq!(moving, 3 + 6 + 2 + 4 * 4 + 2 + 2);
}

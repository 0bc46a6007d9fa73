//! A file system that fails every so many calls, and one that moves less than it is asked for.
//!
//! Tolerance: none; there are exactly as many errors as calls that failed, and as many bytes as were moved.

mod cases;

use super::counts::{assert_places_agree, steps};
use super::stall::bed::{Bed, Scratch};
use crate::needs;
use crate::support::fuse_fs::{Fate, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use cases::Case;

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
    bed.fs.let_go();
    bed.fs.add_rule(Rule {
        path: case.path.to_owned(),
        one_in: 7,
        times: strikes,
        ..Rule::every(case.op, Fate::Fail(libc::EIO))
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
    let told: i64 = db.one(&format!(
        "SELECT coalesce(sum(e.errors), 0) FROM task_errors e JOIN tasks t ON t.id = e.task_id JOIN steps s ON s.id = t.step_id
         WHERE s.run_id = {run} AND e.errno = {}",
        libc::EIO
    ));
    assert_eq!(told.unsigned_abs(), strikes, "{what}");
    if case.calls > 0 {
        let ops = row.integer("ops").unsigned_abs();
        assert_eq!(ops + errors, case.calls, "{what}");
    }
}

/// Reads and writes of which the kernel does only a part at a time, as it may at any time: each operation goes on until
/// all of it is done, and what is counted is what was moved.
#[test]
fn what_is_done_in_parts_is_counted_as_it_was_moved() {
    needs!("fuse");
    let fs = FuseFs::mount();
    fs.move_at_most(3000);
    let mut mesh = Mesh::start();
    let scratch = mesh.directory().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    mesh.add(Agent::named("a").allow(fs.path()).scratch(&scratch));
    let phases = [
        "workload = \"files\"\nfiles = 9\nsize = 10000\nappend = 5000\nmodes = [\"create\", \"read\", \"append\"]",
        "workload = \"bytes\"\nsize = \"40k\"\nbs = \"8k\"\nseeks = 20\nrewrite-share = 0\nverify = true\n\
         modes = [\"putc\", \"getc\", \"rewrite\", \"fwrite\", \"fread\", \"seek\"]",
        "workload = \"tree\"\nfiles = 20\ndirectories = 3\nsize = 10000\nverify = true\nmodes = [\"unpack\", \"read\"]",
        "workload = \"copy\"\nfiles = 5\nsize = 70001\nway = \"read-write\"\nmodes = [\"in\", \"out\"]",
        "name = \"direct\"\nworkload = \"copy\"\nfiles = 5\nsize = 70001\nbs = \"16k\"\nway = \"direct\"\nmodes = [\"in\", \"out\"]",
        "workload = \"fill\"\namount = \"1m\"\nbs = \"128k\"\nmodes = [\"fill\"]",
    ];
    let plan = plan::phase(fs.path(), &phases.join("\n[[phase]]\n"));
    let run = mesh.run(&plan);
    let db = mesh.db();
    let steps = steps(&db, run, &fs.log());
    let mut moving = 0;
    for step in &steps {
        assert_places_agree(&db, step);
        let (reads, writes) = (step.seen(Op::Read).1, step.seen(Op::Write).1);
        let seen = match (step.mode.as_str(), step.op.as_str()) {
            ("create" | "append" | "putc" | "fwrite" | "in" | "fill", _) | ("unpack", "create") => {
                writes
            }
            ("read" | "getc" | "fread" | "seek" | "out", _) => reads,
            // Each byte is read and written.
            ("rewrite", _) => {
                assert_eq!(reads, writes);
                writes
            }
            ("unpack", _) => continue,
            other => panic!("{other:?}"),
        };
        moving += 1;
        assert_eq!(step.bytes, seen, "{} {}", step.mode, step.op);
        assert!(seen > 0, "{}", step.mode);
    }
    assert_eq!(moving, 3 + 6 + 2 + 2 + 2 + 1);
}

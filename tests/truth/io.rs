//! `io` in every mode, sequentially and at depth, against a file system that logs every call. Tolerance: none.

use super::counts::{Step, assert_places_agree, steps};
use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::loop_device::Bare;
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const MODES: [&str; 11] = [
    "write",
    "rewrite",
    "read",
    "reread",
    "randwrite",
    "randread",
    "rw",
    "randrw",
    "backread",
    "strideread",
    "recrewrite",
];

fn call_of(step: &Step) -> Op {
    match step.op.as_str() {
        "write" => Op::Write,
        _ => Op::Read,
    }
}

/// Offsets of a step's calls per file, in the order in which they ended.
fn offsets(step: &Step) -> BTreeMap<&str, Vec<u64>> {
    let mut offsets: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    let call = call_of(step);
    for seen in step.calls.iter().filter(|seen| seen.op == call) {
        offsets.entry(&seen.path).or_default().push(seen.offset);
    }
    offsets
}

/// Runs phases of `io` on a mesh of one agent; returns each result with the calls of its step.
fn run(fs: &FuseFs, phases: &str) -> Vec<Step> {
    let mesh = Mesh::of(&["a"], fs.path());
    let run = mesh.run(&format!(
        "[targets.log]\nsystem = \"fuse\"\npath = \"{}\"\n{phases}",
        fs.path().display()
    ));
    let db = mesh.db();
    let steps = steps(&db, run, &fs.log());
    for step in &steps {
        assert_places_agree(&db, step);
    }
    steps
}

#[test]
fn every_mode_does_what_it_counts_where_it_says() {
    needs!("fuse");
    let steps = run(
        &FuseFs::mount(),
        &format!(
            "[[phase]]\nworkload = \"io\"\nsize = \"2m\"\noffset = \"32k\"\nbs = \"16k\"\nnumjobs = 2\nstride = \"80k\"\nmodes = {MODES:?}\n"
        ),
    );
    let blocks: Vec<u64> = (0..128).map(|block| 32_768 + block * 16_384).collect();
    for mode in MODES {
        let of_mode: Vec<&Step> = steps.iter().filter(|step| step.mode == mode).collect();
        assert_eq!(
            of_mode.iter().map(|step| step.ops).sum::<u64>(),
            256,
            "{mode}"
        );
        for step in of_mode {
            assert_eq!((step.ops, step.bytes), step.seen(call_of(step)), "{mode}");
            for (file, seen) in offsets(step) {
                let sorted: BTreeSet<u64> = seen.iter().copied().collect();
                let expected: Vec<u64> = match mode {
                    "backread" => blocks.iter().rev().copied().collect(),
                    "strideread" => (0..5)
                        .flat_map(|first| blocks.iter().skip(first).step_by(5).copied())
                        .collect(),
                    "recrewrite" => vec![32_768; 128],
                    // Each direction has its own sequence.
                    "rw" => blocks.iter().take(seen.len()).copied().collect(),
                    "randrw" => {
                        assert!(
                            sorted.len() == seen.len()
                                && sorted.iter().all(|at| blocks.contains(at))
                        );
                        continue;
                    }
                    "randread" | "randwrite" => {
                        assert_ne!(seen, blocks, "{mode} {file}");
                        assert_eq!(
                            sorted.into_iter().collect::<Vec<_>>(),
                            blocks,
                            "{mode} {file}"
                        );
                        continue;
                    }
                    _ => blocks.clone(),
                };
                assert_eq!(seen, expected, "{mode} {file}");
            }
        }
    }
}

#[test]
fn at_depth_every_call_is_counted_and_none_twice() {
    needs!("fuse");
    let steps = run(
        &FuseFs::mount(),
        r#"
        [[phase]]
        workload = "io"
        size = "2m"
        bs = "8k"
        numjobs = 2
        iodepth = 8
        modes = ["write", "read", "randread", "randwrite", "randrw", "backread", "strideread"]
        [[phase]]
        name = "mix"
        workload = "io"
        size = "2m"
        bssplit = "4k/60:16k/40"
        iodepth = 8
        ioengine = "io_uring"
        modes = ["write", "rw", "randrw"]
        "#,
    );
    assert_eq!(steps.len(), 8 + 5);
    for step in &steps {
        assert_eq!(
            (step.ops, step.bytes),
            step.seen(call_of(step)),
            "{}",
            step.mode
        );
    }
    for step in steps.iter().take(8).filter(|step| step.mode != "randrw") {
        assert_eq!((step.ops, step.bytes), (512, 4 << 20), "{}", step.mode);
        for (file, seen) in offsets(step) {
            let different: BTreeSet<u64> = seen.iter().copied().collect();
            assert_eq!(
                (seen.len(), different.len()),
                (256, 256),
                "{} {file}",
                step.mode
            );
        }
    }
}

#[test]
fn what_the_file_system_does_in_pieces_is_one_operation() {
    needs!("fuse");
    let fs = FuseFs::mount();
    fs.move_at_most(5000);
    let steps = run(
        &fs,
        r#"
        [[phase]]
        workload = "io"
        size = "256k"
        bs = "16k"
        modes = ["write", "read"]
        [[phase]]
        name = "depth"
        workload = "io"
        size = "256k"
        bs = "16k"
        iodepth = 4
        modes = ["write", "randread"]
        "#,
    );
    assert_eq!(steps.len(), 4);
    for step in &steps {
        // Three calls of 5000 bytes and one for the rest.
        assert_eq!((step.ops, step.bytes), (16, 256 << 10), "{}", step.mode);
        assert_eq!(step.seen(call_of(step)), (64, 256 << 10), "{}", step.mode);
    }
}

#[test]
fn as_many_errors_as_calls_that_failed() {
    needs!("fuse");
    for depth in [1, 8] {
        let fs = FuseFs::mount();
        let mesh = Mesh::of(&["a"], fs.path());
        for strike in 0..9 {
            fs.add_rule(Rule {
                after: 10 * (strike + 1),
                times: 1,
                ..Rule::every(Op::Read, Fault::Fail(libc::EIO))
            });
        }
        mesh.run(&format!(
            r#"
            [targets.log]
            system = "fuse"
            path = "{}"
            [[phase]]
            workload = "io"
            size = "1m"
            bs = "4k"
            iodepth = {depth}
            modes = ["randread"]
            "#,
            fs.path().display()
        ));
        let log = fs.log();
        let failed = log
            .iter()
            .filter(|call| call.op == Op::Read && call.errno.is_some())
            .count();
        assert_eq!(failed, 9);
        let db = mesh.db();
        let row = &db.rows("SELECT ops, errors FROM step_results WHERE op = 'read'")[0];
        assert_eq!(
            (row.integer("ops"), row.integer("errors")),
            (247, 9),
            "at {depth}"
        );
        let told = &db.rows("SELECT errno, errors FROM task_errors")[0];
        assert_eq!(
            (told.integer("errno"), told.integer("errors")),
            (i64::from(libc::EIO), 9)
        );
    }
}

/// Data that could not be written are missing for later modes; `verify` shows that they were laid out.
#[test]
fn what_could_not_be_written_is_no_hole_for_the_next_mode() {
    needs!("fuse");
    for depth in [1, 8] {
        let fs = FuseFs::mount();
        let mesh = Mesh::of(&["a"], fs.path());
        fs.add_rule(Rule {
            path: ".dat".to_owned(),
            after: 10,
            times: 3,
            ..Rule::every(Op::Write, Fault::Fail(libc::EIO))
        });
        let keys =
            format!("bs = \"4k\"\niodepth = {depth}\nmodes = [\"write\", \"read\", \"randread\"]");
        mesh.run(&verified(fs.path(), &keys));
        let db = mesh.db();
        let rows = db.rows("SELECT ops, errors FROM step_results ORDER BY step_id");
        let counted: Vec<_> = rows
            .iter()
            .map(|row| (row.integer("ops"), row.integer("errors")))
            .collect();
        assert_eq!(counted, [(125, 3), (128, 0), (128, 0)], "at {depth}");
    }
}

/// A plan of half a MiB that is verified.
fn verified(target: &Path, keys: &str) -> String {
    let phase = format!("[[phase]]\nworkload = \"io\"\nsize = \"512k\"\nverify = true\n{keys}");
    plan::on(target, "", &phase)
}

/// A write that fails within its block leaves one of two generations, which must not count as corrupt.
#[test]
fn a_block_of_which_a_part_was_written_is_not_corrupt() {
    needs!("fuse");
    for mode in ["rewrite", "randwrite", "randrw"] {
        let fs = FuseFs::mount();
        fs.move_at_most(4096);
        let mesh = Mesh::of(&["a"], fs.path());
        // The first mode writes 32 blocks in four parts each.
        fs.add_rule(Rule {
            path: ".dat".to_owned(),
            after: 128 + 6,
            one_in: 7,
            times: 3,
            ..Rule::every(Op::Write, Fault::Fail(libc::EIO))
        });
        let keys = format!("bs = \"16k\"\nmodes = [\"write\", \"{mode}\", \"read\", \"randread\"]");
        mesh.run(&verified(fs.path(), &keys));
        let db = mesh.db();
        let sum = |sql: &str| db.rows(sql)[0].integer("errors");
        let errors = "SELECT coalesce(sum(errors), 0) AS errors FROM";
        let written = format!("{errors} step_results WHERE op = 'write'");
        assert_eq!(sum(&written), 3, "{mode}");
        let read = format!("{errors} step_results WHERE op = 'read'");
        let told = db.rows("SELECT * FROM task_errors");
        assert_eq!(sum(&read), 0, "{mode}: {told:?}");
    }
}

#[test]
fn a_raw_device_is_worked_on_where_it_is_allowed() {
    needs!("root", "loop");
    let device = Bare::on_loop(32 << 20);
    let mut mesh = Mesh::start();
    let path = device.path().to_str().unwrap().to_owned();
    mesh.add(Agent::named("a").argument("--allow-device").argument(&path));
    let run = mesh.run(&format!(
        r#"
        [targets.raw]
        system = "loop"
        path = "{path}"
        [[phase]]
        workload = "io"
        size = "8m"
        bs = "64k"
        numjobs = 2
        iodepth = 4
        direct = true
        verify = true
        modes = ["randread", "write", "read"]
        "#
    ));
    let db = mesh.db();
    let rows = db.rows(&format!("SELECT * FROM v_results WHERE run_id = {run}"));
    assert_eq!(rows.len(), 3);
    for row in &rows {
        assert_eq!(
            (row.integer("ops"), row.integer("errors")),
            (256, 0),
            "{row:?}"
        );
    }
    let content = std::fs::read(device.image()).unwrap();
    assert!(
        content[..16 << 20]
            .chunks(4096)
            .all(|page| page.iter().any(|byte| *byte != 0))
    );
    assert!(content[16 << 20..].iter().all(|byte| *byte == 0));
    mesh.assert_no_complaints();
}

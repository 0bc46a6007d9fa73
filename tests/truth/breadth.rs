//! Every further mode against a file system that logs every call.
//!
//! Tolerance: none; operations, bytes and offsets are equal.

use super::counts::{Step, assert_places_agree, steps};
use crate::needs;
use crate::support::fuse_fs::{FuseFs, Op};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use std::collections::BTreeSet;

fn run(phase: &str) -> (FuseFs, Mesh, Vec<Step>) {
    let fs = FuseFs::mount();
    let mesh = Mesh::of(&["a"], fs.path());
    let run = mesh.run(&plan::phase(fs.path(), phase));
    let db = mesh.db();
    let steps = steps(&db, run, &fs.log());
    for step in &steps {
        assert_places_agree(&db, step);
    }
    (fs, mesh, steps)
}

/// Calls of a kind on names whose last part begins with this letter, and bytes.
fn seen(step: &Step, op: Op, letter: char) -> (u64, u64) {
    let calls = step.calls.iter().filter(|call| {
        let last = call.path.rsplit('/').next().unwrap_or_default();
        call.op == op && last.starts_with(letter)
    });
    calls.fold((0, 0), |(count, amount), call| {
        (count + 1, amount + call.amount)
    })
}

#[test]
fn changes_of_files_are_what_the_file_system_saw() {
    needs!("fuse");
    for more in ["", "order = \"random\"", "directories-per = \"step\""] {
        let (fs, _mesh, steps) = run(&format!(
            "workload = \"files\"\nfiles = 60\nsize = 1000\nnumjobs = 2\ndirs = 9\nappend = 300\nxattr-size = 40\n{more}\n\
             modes = [\"mkdir\", \"list-stat\", \"append\", \"chmod\", \"setxattr\", \"getxattr\", \"symlink\", \"rmdir\"]"
        ));
        assert_eq!(steps.len(), 8, "{more}");
        for step in &steps {
            let expected = match step.mode.as_str() {
                "mkdir" => seen(step, Op::Mkdir, 'm'),
                "list-stat" => (seen(step, Op::Opendir, 'd').0, 0),
                "append" => (seen(step, Op::Open, 'c').0, seen(step, Op::Write, 'c').1),
                "chmod" => seen(step, Op::Setattr, 'c'),
                "setxattr" => seen(step, Op::Setxattr, 'c'),
                "getxattr" => seen(step, Op::Getxattr, 'c'),
                "symlink" => seen(step, Op::Symlink, 's'),
                "rmdir" => seen(step, Op::Rmdir, 'm'),
                other => panic!("{other}"),
            };
            assert_eq!((step.ops, step.bytes), expected, "{} {more}", step.mode);
            if step.mode == "list-stat" {
                // Each name is looked up once: a file and a directory for each of the sixty.
                let files = seen(step, Op::Lookup, 'c').0 + seen(step, Op::Lookup, 'm').0;
                let shared = if more.contains("step") { 2 } else { 1 };
                assert_eq!(files, 120 * shared, "{more}");
            } else {
                assert_eq!(step.ops, 60, "{} {more}", step.mode);
            }
            if step.mode == "append" {
                let mut writes = step.calls.iter().filter(|call| call.op == Op::Write);
                assert!(writes.all(|call| (call.offset, call.amount) == (1000, 300)));
            }
        }
        assert_eq!(
            fs.names(),
            Vec::<std::path::PathBuf>::new(),
            "left on the target"
        );
    }
}

#[test]
fn a_tree_is_what_the_file_system_saw() {
    needs!("fuse");
    let (fs, _mesh, steps) = run(
        "workload = \"tree\"\nfiles = 90\ndirectories = 13\nsymlinks = 8\nsize = { max = \"9k\" }\nnumjobs = 2\n\
         modes = [\"unpack\", \"walk\", \"remove\"]",
    );
    let kinds: BTreeSet<(&str, &str)> = steps
        .iter()
        .map(|step| (step.mode.as_str(), step.op.as_str()))
        .collect();
    let expected = [
        ("remove", "delete"),
        ("remove", "list"),
        ("remove", "rmdir"),
        ("unpack", "create"),
        ("unpack", "mkdir"),
        ("unpack", "symlink"),
        ("walk", "list"),
        ("walk", "stat"),
    ];
    assert_eq!(kinds, expected.into());
    for step in &steps {
        let (ops, bytes) = match (step.mode.as_str(), step.op.as_str()) {
            ("unpack", "create") => (step.seen(Op::Create).0, step.seen(Op::Write).1),
            ("unpack", "mkdir") => step.seen(Op::Mkdir),
            ("unpack", "symlink") => step.seen(Op::Symlink),
            (_, "list") => (step.seen(Op::Opendir).0, 0),
            // Directories are looked up once more to be listed, and once to stand in.
            ("walk", "stat") => {
                let leaves = seen(step, Op::Lookup, 'f').0 + seen(step, Op::Lookup, 's').0;
                (leaves + 26, 0)
            }
            ("remove", "delete") => step.seen(Op::Unlink),
            ("remove", "rmdir") => step.seen(Op::Rmdir),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (step.ops, step.bytes),
            (ops, bytes),
            "{} {}",
            step.mode,
            step.op
        );
        let expected = match step.op.as_str() {
            "create" => 180,
            "mkdir" | "rmdir" => 26,
            "symlink" => 16,
            "list" => 28,
            "stat" => 222,
            _ => 196,
        };
        assert_eq!(step.ops, expected, "{} {}", step.mode, step.op);
    }
    assert_eq!(
        fs.names(),
        Vec::<std::path::PathBuf>::new(),
        "left on the target"
    );
}

#[test]
fn records_that_time_has_ended_are_what_the_file_system_saw() {
    needs!("fuse");
    let (_fs, _mesh, steps) = run(
        "workload = \"bytes\"\nsize = \"64m\"\nbuffer = \"4k\"\nbs = 5000\nnumjobs = 2\nrate_iops = 50\nruntime = \"900ms\"\n\
         modes = [\"fwrite\"]",
    );
    let [step] = &steps[..] else {
        panic!("one step")
    };
    assert!((20..=92).contains(&step.ops), "{}", step.ops);
    assert_eq!(
        (step.bytes, step.bytes),
        (5000 * step.ops, step.seen(Op::Write).1)
    );
}

#[test]
fn bytes_and_records_are_what_the_file_system_saw() {
    needs!("fuse");
    let (_fs, _mesh, steps) = run(
        "workload = \"bytes\"\nsize = 100000\nbuffer = \"4k\"\nbs = 5000\nseeks = 50\nnumjobs = 2\n\
         modes = [\"putc\", \"rewrite\", \"getc\", \"fwrite\", \"fread\", \"seek\"]",
    );
    assert_eq!(steps.len(), 6);
    for step in &steps {
        let (reads, writes) = (step.seen(Op::Read), step.seen(Op::Write));
        let offsets = |op| {
            let calls = step.calls.iter().filter(move |call| call.op == op);
            calls
                .map(|call| (call.path.as_str(), call.offset))
                .collect::<BTreeSet<_>>()
        };
        let buffers = |count: u64| -> BTreeSet<u64> { (0..count).map(|at| at * 4096).collect() };
        let places = |op| {
            offsets(op)
                .into_iter()
                .map(|(_, at)| at)
                .collect::<BTreeSet<u64>>()
        };
        match step.mode.as_str() {
            "putc" => {
                assert_eq!((writes, reads.0), ((50, 200_000), 0));
                assert_eq!(places(Op::Write), buffers(25));
            }
            "rewrite" => {
                assert_eq!((writes, reads), ((50, 200_000), (50, 200_000)));
                assert_eq!(offsets(Op::Read), offsets(Op::Write));
            }
            "getc" => {
                assert_eq!((reads, writes.0), ((50, 200_000), 0));
                assert_eq!(places(Op::Read), buffers(25));
            }
            "fwrite" => assert_eq!((writes.1, reads.0), (200_000, 0)),
            "fread" => assert_eq!((reads.1, writes.0), (200_000, 0)),
            "seek" => {
                assert_eq!(reads, (100, 500_000));
                assert_eq!(step.bytes, reads.1 + writes.1);
                assert!(offsets(Op::Write).is_subset(&offsets(Op::Read)));
                assert!(places(Op::Read).iter().all(|place| place % 5000 == 0));
            }
            other => panic!("{other}"),
        }
        let ops = match step.mode.as_str() {
            "putc" | "rewrite" | "getc" => 50,
            "seek" => 100,
            _ => 40,
        };
        assert_eq!(step.ops, ops, "{}", step.mode);
        if step.mode != "seek" {
            assert_eq!(step.bytes, 200_000, "{}", step.mode);
        }
    }
}

#[test]
fn a_fill_is_what_the_file_system_saw() {
    needs!("fuse");
    let (fs, _mesh, steps) = run(
        "workload = \"fill\"\namount = \"5m\"\nfile-size = \"2m\"\nbs = \"256k\"\nhold = \"1s\"\nverify = true\n\
         modes = [\"fill\", \"hold\", \"read\", \"remove\"]",
    );
    for step in &steps {
        match step.mode.as_str() {
            "fill" => {
                assert_eq!((step.ops, step.bytes), step.seen(Op::Write));
                assert_eq!(step.bytes, 5 << 20);
                assert_eq!(step.seen(Op::Create).0, 3);
            }
            "hold" => assert!((5..=11).contains(&step.ops), "{}", step.ops),
            "read" => {
                assert_eq!(step.ops, 20);
                assert_eq!(step.bytes, step.seen(Op::Read).1);
            }
            _ => assert_eq!((step.ops, step.seen(Op::Unlink).0), (3, 3)),
        }
    }
    assert_eq!(
        fs.names(),
        Vec::<std::path::PathBuf>::new(),
        "left on the target"
    );
}

#[test]
fn a_replay_is_what_the_file_system_saw() {
    needs!("fuse");
    let (_fs, _mesh, steps) = run(
        "workload = \"replay\"\noperations = \"\"\"\n- mkdir logs\n- create logs/a\n- write logs/a 0 5000\n\
         0.1 write logs/a 9000 100\n- fsync logs/a\n- close logs/a\n- open old\n- read old 300 700\n- close old\n\
         - rename logs/a b\n- delete b\n- rmdir logs\n\"\"\"",
    );
    let ops: BTreeSet<&str> = steps.iter().map(|step| step.op.as_str()).collect();
    assert_eq!(ops.len(), 9, "{ops:?}");
    for step in &steps {
        let calls = |op| {
            let calls = step.calls.iter().filter(move |call| call.op == op);
            calls
                .map(|call| (call.offset, call.amount))
                .collect::<Vec<_>>()
        };
        let expected = match step.op.as_str() {
            "write" => {
                assert_eq!(calls(Op::Write), [(0, 5000), (9000, 100)]);
                (2, 5100)
            }
            "read" => {
                assert_eq!(calls(Op::Read), [(300, 700)]);
                (1, 700)
            }
            "open" => (step.seen(Op::Create).0 + step.seen(Op::Open).0, 0),
            "close" => step.seen(Op::Release),
            "fsync" => step.seen(Op::Fsync),
            "rename" => step.seen(Op::Rename),
            "delete" => step.seen(Op::Unlink),
            "mkdir" => step.seen(Op::Mkdir),
            "rmdir" => step.seen(Op::Rmdir),
            other => panic!("{other}"),
        };
        assert_eq!((step.ops, step.bytes), expected, "{}", step.op);
    }
}

#[test]
fn every_way_of_copying_is_what_the_file_system_saw() {
    needs!("fuse");
    for way in ["auto", "read-write", "direct"] {
        let fs = FuseFs::mount();
        let scratch = tempfile::Builder::new()
            .prefix("bm-scratch-")
            .tempdir()
            .unwrap();
        let mut mesh = Mesh::start();
        mesh.add(Agent::named("a").allow(fs.path()).scratch(scratch.path()));
        let run = mesh.run(&plan::phase(
            fs.path(),
            &format!(
                "workload = \"copy\"\nfiles = 6\nsize = 70001\nbs = \"16k\"\nway = \"{way}\"\nverify = true\n\
                 modes = [\"in\", \"out\"]"
            ),
        ));
        let db = mesh.db();
        let steps = steps(&db, run, &fs.log());
        assert_eq!(steps.len(), 4, "{way}");
        for step in &steps {
            let bytes = 6 * 70_001;
            let expected = match (step.mode.as_str(), step.op.as_str()) {
                ("in", "copy") => (step.seen(Op::Create).0, step.seen(Op::Write).1),
                ("in", "read") => (step.seen(Op::Open).0, step.seen(Op::Read).1),
                // What is verified on the way out is the copy in the scratch directory.
                ("out", "copy") => (step.seen(Op::Open).0, step.seen(Op::Read).1),
                _ => (6, bytes),
            };
            assert_eq!(
                (step.ops, step.bytes),
                expected,
                "{way} {} {}",
                step.mode,
                step.op
            );
            assert_eq!((step.ops, step.bytes), (6, bytes), "{way}");
            assert_places_agree(&db, step);
        }
    }
}

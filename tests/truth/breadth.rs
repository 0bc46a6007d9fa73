//! Every further mode against a file system that logs every call.
//!
//! Tolerance: none; operations, bytes and offsets are equal.

mod copies;

use super::counts::{Step, assert_places_agree, steps};
use crate::needs;
use crate::support::command::must;
use crate::support::fuse_fs::{FuseFs, Op};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use std::collections::BTreeSet;
use std::path::PathBuf;

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

/// Number of calls of this kind on names whose last part begins with this letter, and their bytes.
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
        assert_eq!(fs.names(), Vec::<PathBuf>::new(), "left on the target");
    }
}

/// The expected number of operations of each mode and kind.
type Counts = [(&'static str, &'static str, u64)];

/// Each kind of operation equals the file system's count of its call, and no call is left over. Directories are listed
/// once each; `looked_up` is the number of their lookups in addition to those of other names.
fn assert_tree(fs: &FuseFs, steps: &[Step], counts: &Counts, looked_up: u64) {
    let done = steps.iter();
    let done = done.map(|step| (step.mode.as_str(), step.op.as_str(), step.ops));
    assert_eq!(
        done.collect::<BTreeSet<_>>(),
        counts.iter().copied().collect()
    );
    for step in steps {
        let expected = match (step.mode.as_str(), step.op.as_str()) {
            ("unpack", "create") => (step.seen(Op::Create).0, step.seen(Op::Write).1),
            ("unpack", "mkdir") => step.seen(Op::Mkdir),
            ("unpack", "symlink") => step.seen(Op::Symlink),
            ("unpack", "link") => step.seen(Op::Link),
            ("read", _) => (step.seen(Op::Open).0, step.seen(Op::Read).1),
            (_, "list") => (step.seen(Op::Opendir).0, 0),
            ("walk", "stat") => {
                let leaves = ['f', 'l', 's'].map(|letter| seen(step, Op::Lookup, letter).0);
                (leaves.iter().sum::<u64>() + looked_up, 0)
            }
            ("remove", "delete") => step.seen(Op::Unlink),
            ("remove", "rmdir") => step.seen(Op::Rmdir),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (step.ops, step.bytes),
            expected,
            "{} {}",
            step.mode,
            step.op
        );
    }
    assert_eq!(fs.names(), Vec::<PathBuf>::new(), "left on the target");
}

#[test]
fn a_tree_is_what_the_file_system_saw() {
    needs!("fuse");
    let (fs, _mesh, steps) = run(
        "workload = \"tree\"\nfiles = 90\ndirectories = 13\nsymlinks = 8\nsize = { max = \"9k\" }\nnumjobs = 2\n\
         modes = [\"unpack\", \"walk\", \"remove\"]",
    );
    let counts = &[
        ("unpack", "create", 180),
        ("unpack", "mkdir", 26),
        ("unpack", "symlink", 16),
        ("walk", "list", 28),
        ("walk", "stat", 222),
        ("remove", "delete", 196),
        ("remove", "list", 28),
        ("remove", "rmdir", 26),
    ];
    // Directories are looked up once more for listing, and once as the parent.
    assert_tree(&fs, &steps, counts, 26);
}

#[test]
fn an_archive_is_what_the_file_system_saw() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let source = tempfile::Builder::new()
        .prefix("bm-tar-")
        .tempdir()
        .unwrap();
    // Three directories of ten files each (one file with a second name), and a symlink in each.
    let mut bytes = 0;
    for directory in ["d0", "d0/d1", "d0/d2"] {
        let directory = source.path().join("tree").join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        for file in 0..10 {
            let content = vec![file + 1; 1000 * usize::from(file) + 1];
            bytes += content.len() as u64;
            std::fs::write(directory.join(format!("f{file}")), content).unwrap();
        }
        std::fs::hard_link(directory.join("f7"), directory.join("l7")).unwrap();
        std::os::unix::fs::symlink("f3", directory.join("s3")).unwrap();
    }
    let archive = source.path().join("tree.tar.gz");
    let tree = source.path().join("tree");
    must(
        "tar",
        &[
            "--sort=name",
            "-czf",
            archive.to_str().unwrap(),
            "-C",
            tree.to_str().unwrap(),
            "d0",
        ],
    );
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(fs.path()).allow_read(source.path()));
    let phase = format!(
        "workload = \"tree\"\narchive = \"{}\"\nnumjobs = 2\nverify = true\n\
         modes = [\"unpack\", \"read\", \"walk\", \"remove\"]",
        archive.display()
    );
    let run = mesh.run(&plan::phase(fs.path(), &phase));
    let db = mesh.db();
    let steps = steps(&db, run, &fs.log());
    let counts = &[
        ("unpack", "create", 60),
        ("unpack", "link", 6),
        ("unpack", "mkdir", 6),
        ("unpack", "symlink", 6),
        ("read", "read", 60),
        ("walk", "list", 8),
        ("walk", "stat", 78),
        ("remove", "delete", 72),
        ("remove", "list", 8),
        ("remove", "rmdir", 6),
    ];
    assert_tree(&fs, &steps, counts, 6);
    for step in &steps {
        assert_places_agree(&db, step);
        let moves = ["create", "read"].contains(&step.op.as_str());
        assert_eq!(step.bytes, if moves { 2 * bytes } else { 0 }, "{}", step.op);
    }
}

#[test]
fn records_that_time_has_ended_are_what_the_file_system_saw() {
    needs!("fuse");
    let (_fs, _mesh, steps) = run(
        "workload = \"io\"\nsize = \"64m\"\nbuffer = \"4k\"\nbs = 5000\nnumjobs = 2\nrate_iops = 50\nruntime = \"900ms\"\n\
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
        "workload = \"io\"\nsize = 100000\nbuffer = \"4k\"\nbs = 5000\nseeks = 50\nnumjobs = 2\n\
         modes = [\"putc\", \"rmw\", \"getc\", \"fwrite\", \"fread\", \"seek\"]",
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
            "rmw" => {
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
            "putc" | "rmw" | "getc" => 50,
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
    assert_eq!(fs.names(), Vec::<PathBuf>::new(), "left on the target");
}

#[test]
fn a_replay_is_what_the_file_system_saw() {
    needs!("fuse");
    let (_fs, _mesh, steps) = run(
        "workload = \"replay\"\noperations = \"\"\"\n- mkdir logs\n- create logs/a\n- write logs/a 0 5000\n\
         0.1 write logs/a 9000 100\n- fsync logs/a\n- truncate logs/a 4321\n- close logs/a\n- open old\n\
         - read old 300 700\n- close old\n- list shelf\n- stat shelf/book\n- stat shelf/map\n- symlink logs/s there\n\
         - rename logs/a b\n- delete b\n- delete logs/s\n- rmdir logs\n\"\"\"",
    );
    let ops: BTreeSet<&str> = steps.iter().map(|step| step.op.as_str()).collect();
    assert_eq!(ops.len(), 13, "{ops:?}");
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
            "truncate" => step.seen(Op::Setattr),
            "stat" => {
                let (books, maps) = (seen(step, Op::Lookup, 'b'), seen(step, Op::Lookup, 'm'));
                // A file renamed to `b` is first looked for under that name, and looked up again for deletion.
                (books.0 + maps.0 - 2, 0)
            }
            "list" => (seen(step, Op::Opendir, 's').0, 0),
            "symlink" => step.seen(Op::Symlink),
            "rename" => step.seen(Op::Rename),
            "delete" => step.seen(Op::Unlink),
            "mkdir" => step.seen(Op::Mkdir),
            "rmdir" => step.seen(Op::Rmdir),
            other => panic!("{other}"),
        };
        assert_eq!((step.ops, step.bytes), expected, "{}", step.op);
    }
}

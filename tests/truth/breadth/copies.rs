//! Copies against a file system that logs every call, with the other side on the same or on another file system.
//!
//! Tolerance: none; files and bytes are equal.

use crate::needs;
use crate::support::fuse_fs::{FuseFs, Op};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use crate::truth::counts::{assert_places_agree, steps};

/// Each mode, and whether the other side is on the same file system, so that the kernel copies within it.
const WAYS: [(&str, bool); 6] = [
    ("auto", false),
    ("read-write", false),
    ("direct", false),
    ("auto", true),
    ("copy-file-range", true),
    ("direct", true),
];

#[test]
fn every_way_of_copying_is_what_the_file_system_saw() {
    needs!("fuse");
    for (way, beside) in WAYS {
        let fs = FuseFs::mount();
        let apart = tempfile::Builder::new()
            .prefix("bm-scratch-")
            .tempdir()
            .unwrap();
        let (target, scratch) = match beside {
            true => (fs.path().join("target"), fs.path().join("scratch")),
            false => (fs.path().to_owned(), apart.path().to_owned()),
        };
        std::fs::create_dir_all(&target).unwrap();
        std::fs::create_dir_all(&scratch).unwrap();
        let mut mesh = Mesh::start();
        mesh.add(Agent::named("a").allow(&target).scratch(&scratch));
        let bs = match way {
            "copy-file-range" => "",
            _ => "bs = \"16k\"\n",
        };
        let run = mesh.run(&plan::phase(
            &target,
            &format!(
                "workload = \"copy\"\nfiles = 6\nsize = 70001\n{bs}way = \"{way}\"\nverify = true\n\
                 modes = [\"in\", \"out\"]"
            ),
        ));
        let db = mesh.db();
        let steps = steps(&db, run, &fs.log());
        assert_eq!(steps.len(), 4, "{way}");
        let in_kernel = beside && way != "direct";
        for step in &steps {
            let seen = |op, of_target: bool| {
                let calls = step.calls.iter();
                let calls = calls.filter(|call| call.op == op);
                let calls = calls.filter(|call| call.path.starts_with("scratch/") != of_target);
                calls.fold((0, 0), |(count, bytes), call| {
                    (count + 1, bytes + call.amount)
                })
            };
            let bytes = 6 * 70_001;
            let (opened, moved) = match (step.mode.as_str(), step.op.as_str()) {
                ("in", "copy") if in_kernel => (Op::Create, seen(Op::CopyFileRange, true).1),
                ("in", "copy") => (Op::Create, seen(Op::Write, true).1),
                ("out", "copy") if in_kernel => (Op::Open, seen(Op::CopyFileRange, false).1),
                ("in", "read") | ("out", "copy") => (Op::Open, seen(Op::Read, true).1),
                // Mode `out` verifies the copy in the scratch directory.
                _ => (
                    Op::Open,
                    if beside {
                        seen(Op::Read, false).1
                    } else {
                        bytes
                    },
                ),
            };
            let on_target = (step.mode == "in") || step.op == "copy";
            let files = match on_target || beside {
                true => seen(opened, on_target).0,
                false => 6,
            };
            let what = format!("{way} {} {}", step.mode, step.op);
            assert_eq!((step.ops, step.bytes), (files, moved), "{what}");
            assert_eq!((step.ops, step.bytes), (6, bytes), "{what}");
            let by_kernel = seen(Op::CopyFileRange, step.mode == "in");
            let expected = if in_kernel { (6, bytes) } else { (0, 0) };
            assert_eq!(by_kernel, expected, "{what}");
            assert_places_agree(&db, step);
        }
    }
}

//! Every workload that verifies detects bits that a file system returns flipped.
//!
//! Tolerance: none. Each wrong sector is counted once, the first three are reported with their offsets, and each
//! operation that read one failed.

use crate::needs;
use crate::support::command::must;
use crate::support::fuse_fs::FuseFs;
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use std::path::Path;
use std::time::Duration;

/// Offsets within 64 KiB: two in the first sector, one each in the second, the fifth and the last one.
const FLIPPED: [u64; 5] = [100, 200, 4096, 20_000, 65_535];
const SECTORS: i64 = 4;

struct Case {
    phase: &'static str,
    /// Suffix of the path of the file that is read wrong.
    file: &'static str,
    op: &'static str,
    /// Number of operations that read a wrong sector.
    failed: i64,
}

const CASES: &[Case] = &[
    Case {
        phase: "workload = \"io\"\nsize = \"64k\"\nbs = \"16k\"\nmodes = [\"read\"]",
        file: "w0.dat",
        op: "read",
        failed: 3,
    },
    Case {
        phase: "workload = \"io\"\nsize = \"64k\"\nbs = \"16k\"\niodepth = 8\nmodes = [\"randread\"]",
        file: "w0.dat",
        op: "read",
        failed: 3,
    },
    Case {
        phase: "workload = \"io\"\nsize = \"64k\"\nbuffer = \"16k\"\nmodes = [\"getc\"]",
        file: "w0.dat",
        op: "getc",
        failed: 3,
    },
    Case {
        phase: "workload = \"io\"\nsize = \"64k\"\nbs = \"64k\"\nmodes = [\"fread\"]",
        file: "w0.dat",
        op: "fread",
        failed: 1,
    },
    Case {
        phase: "workload = \"io\"\nsize = \"64k\"\nbuffer = \"16k\"\nmodes = [\"rmw\"]",
        file: "w0.dat",
        op: "rewrite",
        failed: 3,
    },
    Case {
        phase: "workload = \"io\"\nsize = \"64k\"\nbs = \"64k\"\nseeks = 1\nrewrite-share = 0\nmodes = [\"seek\"]",
        file: "w0.dat",
        op: "seek",
        failed: 1,
    },
    Case {
        phase: "workload = \"files\"\nfiles = 3\nsize = \"64k\"\nbs = \"24k\"\nmodes = [\"read\"]",
        file: "c000000001",
        op: "read",
        failed: 1,
    },
    Case {
        phase: "workload = \"copy\"\nfiles = 3\nsize = \"64k\"\nmodes = [\"in\"]",
        file: "c000000001",
        op: "read",
        failed: 1,
    },
    // Data that are read wrong from the source are wrong in the copy.
    Case {
        phase: "workload = \"copy\"\nfiles = 3\nsize = \"64k\"\nmodes = [\"out\"]",
        file: "c000000001",
        op: "read",
        failed: 1,
    },
    Case {
        phase: "workload = \"copy\"\nfrom = \"@/tree\"\nmodes = [\"in\"]",
        file: "tree-b",
        op: "read",
        failed: 1,
    },
    Case {
        phase: "workload = \"tree\"\narchive = \"@/tree.tar\"\nmodes = [\"read\"]",
        file: "tree-b",
        op: "read",
        failed: 1,
    },
    Case {
        phase: "workload = \"tree\"\nfiles = 3\ndirectories = 1\nsize = \"64k\"\nmodes = [\"read\"]",
        file: "f000000001",
        op: "read",
        failed: 1,
    },
    Case {
        phase: "workload = \"fill\"\namount = \"192k\"\nfile-size = \"64k\"\nbs = \"16k\"\nmodes = [\"read\"]",
        file: "f000000001",
        op: "read",
        failed: 3,
    },
    Case {
        phase: "workload = \"fill\"\namount = \"192k\"\nfile-size = \"64k\"\nbs = \"16k\"\ndata = \"zero\"\nmodes = [\"read\"]",
        file: "f000000001",
        op: "read",
        failed: 3,
    },
    Case {
        phase: "workload = \"replay\"\noperations = \"- open old\\n- read old 0 65536\\n- close old\\n\"",
        file: "old",
        op: "read",
        failed: 1,
    },
];

/// A tree of three files of 64 KiB, and an archive of it.
fn make_source(source: &Path) {
    let tree = source.join("tree");
    std::fs::create_dir_all(&tree).unwrap();
    for (name, seed) in [("a", 1_u32), ("tree-b", 2), ("c", 3)] {
        let content = (0..65_536_u32).map(|at| (at.wrapping_mul(2_654_435_761 + seed) >> 24) as u8);
        std::fs::write(tree.join(name), content.collect::<Vec<u8>>()).unwrap();
    }
    let archive = source.join("tree.tar");
    let [archive, source] = [&archive, source].map(|path| path.to_str().unwrap());
    must("tar", &["-cf", archive, "-C", source, "tree"]);
}

/// A step in which most operations failed has failed, but keeps its errors.
fn ended_run(mesh: &Mesh, plan: &str) -> i64 {
    let mut run = mesh.begin(plan);
    let ended = run
        .exit_within(Duration::from_secs(60))
        .expect("the run ends");
    assert!(
        matches!(ended.code(), Some(0 | 1)),
        "{ended}\n{}",
        run.log()
    );
    mesh.db().one("SELECT max(id) FROM runs")
}

#[test]
fn every_workload_tells_each_wrong_sector_with_its_place() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    let [scratch, source] = ["scratch", "source"].map(|name| mesh.directory().join(name));
    std::fs::create_dir(&scratch).unwrap();
    make_source(&source);
    let agent = Agent::named("a").allow(fs.path()).allow_read(&source);
    mesh.add(agent.scratch(&scratch));
    for case in CASES {
        let phase = case.phase.replace('@', source.to_str().unwrap());
        let phase = format!("{phase}\nverify = true");
        // Correct data raise no error.
        for (flipped, wrong, failed) in [(&[][..], 0, 0), (&FLIPPED[..], SECTORS, case.failed)] {
            fs.rot(case.file, flipped);
            let run = ended_run(&mesh, &plan::phase(fs.path(), &phase));
            let db = mesh.db();
            let errors: i64 = db.one(&format!(
                "SELECT sum(r.errors) FROM step_results r JOIN steps s ON s.id = r.step_id WHERE s.run_id = {run}"
            ));
            assert_eq!(errors, failed, "{phase}");
            let told = db.rows(&format!(
                "SELECT e.op, e.errno, e.errors, e.first FROM task_errors e JOIN tasks t ON t.id = e.task_id
                 JOIN steps s ON s.id = t.step_id WHERE s.run_id = {run}"
            ));
            if wrong == 0 {
                assert!(told.is_empty(), "{phase}: {told:?}");
                continue;
            }
            let [told] = &told[..] else {
                panic!("{phase}: {told:?}");
            };
            let facts = (
                told.text("op"),
                told.integer("errno"),
                told.integer("errors"),
            );
            let expected = (case.op.to_owned(), i64::from(libc::EBADMSG), wrong);
            assert_eq!(facts, expected, "{phase}: {told:?}");
            let first = told.text("first");
            assert!(first.contains(case.file), "{phase}: {first}");
            let in_order = !phase.contains("rand");
            for at in [100, 4096, 20_000] {
                let place = format!("at offset {at}: expected ");
                assert!(!in_order || first.contains(&place), "{phase}: {first}");
            }
            assert_eq!(first.matches("at offset ").count(), 3, "{phase}: {first}");
        }
    }
}

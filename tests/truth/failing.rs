//! A file system that fails every so many calls, and one that moves less than it is asked for.
//!
//! Tolerance: none; there are exactly as many errors as calls that failed, and as many bytes as were moved.

use super::counts::{assert_places_agree, steps};
use crate::needs;
use crate::support::fuse_fs::{Fate, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;

/// What fails, in which mode of what, and of how many calls every seventh.
struct Failing {
    phase: &'static str,
    op: Op,
    path: &'static str,
    kind: &'static str,
    calls: u64,
}

/// A lookup that fails is asked again by the kernel, so names that are looked up are not among them.
const FAILING: &[Failing] = &[
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"append\"]",
        op: Op::Open,
        path: "/c0",
        kind: "append",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"chmod\"]",
        op: Op::Setattr,
        path: "/c0",
        kind: "chmod",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"setxattr\"]",
        op: Op::Setxattr,
        path: "/c0",
        kind: "setxattr",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"getxattr\"]",
        op: Op::Getxattr,
        path: "/c0",
        kind: "getxattr",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"symlink\"]",
        op: Op::Symlink,
        path: "/s0",
        kind: "symlink",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"mkdir\"]",
        op: Op::Mkdir,
        path: "/m0",
        kind: "mkdir",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"rmdir\"]",
        op: Op::Rmdir,
        path: "/m0",
        kind: "rmdir",
        calls: 40,
    },
    Failing {
        phase: "workload = \"tree\"\nfiles = 50\ndirectories = 4\nmodes = [\"unpack\"]",
        op: Op::Create,
        path: "/f0",
        kind: "create",
        calls: 50,
    },
    Failing {
        phase: "workload = \"tree\"\nfiles = 50\ndirectories = 4\nmodes = [\"remove\"]",
        op: Op::Unlink,
        path: "/f0",
        kind: "delete",
        calls: 50,
    },
    Failing {
        phase: "workload = \"bytes\"\nsize = \"200k\"\nmodes = [\"putc\"]",
        op: Op::Write,
        path: "/w0",
        kind: "putc",
        calls: 50,
    },
    Failing {
        phase: "workload = \"bytes\"\nsize = \"200k\"\nmodes = [\"getc\"]",
        op: Op::Read,
        path: "/w0",
        kind: "getc",
        calls: 50,
    },
    Failing {
        phase: "workload = \"fill\"\namount = \"5m\"\nbs = \"128k\"\nmodes = [\"fill\"]",
        op: Op::Write,
        path: "/f0",
        kind: "write",
        calls: 0,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nsize = 100\nmodes = [\"create\"]",
        op: Op::Write,
        path: "/c0",
        kind: "create",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nsize = 100\nmodes = [\"read\"]",
        op: Op::Read,
        path: "/c0",
        kind: "read",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"rename\"]",
        op: Op::Rename,
        path: "/c0",
        kind: "rename",
        calls: 40,
    },
    Failing {
        phase: "workload = \"files\"\nfiles = 40\nmodes = [\"delete\"]",
        op: Op::Unlink,
        path: "/c0",
        kind: "delete",
        calls: 40,
    },
    Failing {
        phase: "workload = \"io\"\nsize = \"400k\"\nbs = \"8k\"\nmodes = [\"write\"]",
        op: Op::Write,
        path: ".dat",
        kind: "write",
        calls: 50,
    },
    Failing {
        phase: "workload = \"io\"\nsize = \"400k\"\nbs = \"8k\"\nmodes = [\"randread\"]",
        op: Op::Read,
        path: ".dat",
        kind: "read",
        calls: 50,
    },
    Failing {
        phase: "workload = \"io\"\nsize = \"400k\"\nbs = \"8k\"\niodepth = 8\nmodes = [\"write\"]",
        op: Op::Write,
        path: ".dat",
        kind: "write",
        calls: 50,
    },
    Failing {
        phase: "workload = \"io\"\nsize = \"400k\"\nbs = \"8k\"\niodepth = 8\nmodes = [\"randread\"]",
        op: Op::Read,
        path: ".dat",
        kind: "read",
        calls: 50,
    },
    Failing {
        phase: "workload = \"io\"\nsize = \"400k\"\nbs = \"8k\"\niodepth = 8\nverify = true\nmodes = [\"randread\"]",
        op: Op::Read,
        path: ".dat",
        kind: "read",
        calls: 50,
    },
    Failing {
        phase: "workload = \"io\"\nsize = \"400k\"\nbs = \"8k\"\nfsync = 1\nmodes = [\"rewrite\"]",
        op: Op::Fsync,
        path: ".dat",
        kind: "write",
        calls: 0,
    },
    Failing {
        phase: "workload = \"bytes\"\nsize = \"200k\"\nmodes = [\"rewrite\"]",
        op: Op::Write,
        path: "/w0",
        kind: "rewrite",
        calls: 50,
    },
    Failing {
        phase: "workload = \"bytes\"\nsize = \"200k\"\nbs = \"4k\"\nmodes = [\"fwrite\"]",
        op: Op::Write,
        path: "/w0",
        kind: "fwrite",
        calls: 50,
    },
    Failing {
        phase: "workload = \"bytes\"\nsize = \"200k\"\nbs = \"4k\"\nmodes = [\"fread\"]",
        op: Op::Read,
        path: "/w0",
        kind: "fread",
        calls: 50,
    },
    Failing {
        phase: "workload = \"bytes\"\nsize = \"200k\"\nseeks = 50\nverify = true\nmodes = [\"seek\"]",
        op: Op::Read,
        path: "/w0",
        kind: "seek",
        calls: 50,
    },
    Failing {
        phase: "workload = \"tree\"\nfiles = 50\ndirectories = 4\nsize = 5000\nmodes = [\"read\"]",
        op: Op::Read,
        path: "/f0",
        kind: "read",
        calls: 50,
    },
    Failing {
        phase: "workload = \"tree\"\nfiles = 50\ndirectories = 60\nmodes = [\"walk\"]",
        op: Op::Readdir,
        path: "/d0",
        kind: "list",
        calls: 0,
    },
    Failing {
        phase: "workload = \"fill\"\namount = \"20m\"\nfile-size = \"1m\"\nmodes = [\"remove\"]",
        op: Op::Unlink,
        path: "/f0",
        kind: "delete",
        calls: 20,
    },
    Failing {
        phase: "workload = \"copy\"\nfiles = 40\nsize = 1000\nway = \"read-write\"\nmodes = [\"in\"]",
        op: Op::Write,
        path: "/c0",
        kind: "copy",
        calls: 40,
    },
    Failing {
        phase: "workload = \"copy\"\nfiles = 40\nsize = 4096\nbs = \"4k\"\nway = \"direct\"\nmodes = [\"in\"]",
        op: Op::Write,
        path: "/c0",
        kind: "copy",
        calls: 40,
    },
    Failing {
        phase: "workload = \"copy\"\nfiles = 40\nsize = 1000\nway = \"read-write\"\nmodes = [\"out\"]",
        op: Op::Read,
        path: "/c0",
        kind: "copy",
        calls: 0,
    },
    Failing {
        phase: "workload = \"copy\"\nfiles = 40\nsize = 1000\nmodes = [\"out\"]",
        op: Op::Open,
        path: "/c0",
        kind: "copy",
        calls: 40,
    },
    Failing {
        phase: REPLAY,
        op: Op::Read,
        path: "/old",
        kind: "read",
        calls: 14,
    },
];

const REPLAY: &str = "workload = \"replay\"\noperations = \"\"\"\n- open old\n- read old 0 10\n- read old 10 10\n\
    - read old 20 10\n- read old 30 10\n- read old 40 10\n- read old 50 10\n- read old 60 10\n- read old 70 10\n\
    - read old 80 10\n- read old 90 10\n- read old 100 10\n- read old 110 10\n- read old 120 10\n- read old 130 10\n\
    - close old\n\"\"\"";

#[test]
fn every_seventh_call_that_fails_is_one_error() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    let scratch = mesh.directory().join("scratch");
    std::fs::create_dir(&scratch).unwrap();
    mesh.add(Agent::named("a").allow(fs.path()).scratch(&scratch));
    for failing in FAILING {
        let strikes = if failing.calls == 0 {
            5
        } else {
            failing.calls / 7
        };
        fs.let_go();
        fs.add_rule(Rule {
            path: failing.path.to_owned(),
            one_in: 7,
            times: strikes,
            ..Rule::every(failing.op, Fate::Fail(libc::EIO))
        });
        let run = mesh.run(&plan::phase(fs.path(), failing.phase));
        let db = mesh.db();
        let rows = db.rows(&format!(
            "SELECT r.ops, r.errors FROM step_results r JOIN steps s ON s.id = r.step_id
             WHERE s.run_id = {run} AND r.op = '{}'",
            failing.kind
        ));
        let [row] = &rows[..] else {
            panic!("{}: {rows:?}", failing.phase);
        };
        let errors = row.integer("errors").unsigned_abs();
        assert_eq!(errors, strikes, "{}", failing.phase);
        let told: i64 = db.one(&format!(
            "SELECT coalesce(sum(e.errors), 0) FROM task_errors e JOIN tasks t ON t.id = e.task_id JOIN steps s ON s.id = t.step_id
             WHERE s.run_id = {run} AND e.errno = {}",
            libc::EIO
        ));
        assert_eq!(told.unsigned_abs(), strikes, "{}", failing.phase);
        if failing.calls > 0 {
            let ops = row.integer("ops").unsigned_abs();
            assert_eq!(ops + errors, failing.calls, "{}", failing.phase);
        }
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

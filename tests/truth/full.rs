//! A full target: whatever the load was writing, the step stops with one error that names the cause and the path, its
//! files are removed, and the next run works. Tolerance: none; earlier writes are counted.
//!
//! A target that reports a lack of space beforehand gets no load at all. Therefore the space is taken here by others,
//! by a quota that statfs does not show, or on the other side of a copy.

use crate::needs;
use crate::support::fuse_fs::{Fault, FuseFs, Op, Rule};
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use crate::support::process::Process;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// Waits for the end of a run of one step, which ends at its first failure for lack of space.
fn assert_stopped(mesh: &Mesh, run: &mut Process, phase: &str, kind: &str, place: &Path) {
    let ended = run.exit_within(LIMIT);
    let ended = ended.unwrap_or_else(|| panic!("{phase}: the run hangs:\n{}", run.log()));
    assert!(!ended.success(), "{phase}: {ended}: {}", run.log());
    let db = mesh.db();
    let id: i64 = db.one("SELECT max(id) FROM runs");
    let states = db.column::<String>(&format!("SELECT state FROM steps WHERE run_id = {id}"));
    assert_eq!(states, ["failed"], "{phase}: {}", run.log());
    let told = db.rows(&format!(
        "SELECT e.op, e.errno, e.errors FROM task_errors e JOIN tasks t ON t.id = e.task_id
         JOIN steps s ON s.id = t.step_id WHERE s.run_id = {id}"
    ));
    let [told] = &told[..] else {
        panic!("{phase}: {told:?}: {}", run.log());
    };
    let facts = (
        told.text("op"),
        told.integer("errno"),
        told.integer("errors"),
    );
    let expected = (kind.to_owned(), i64::from(libc::ENOSPC), 1);
    assert_eq!(facts, expected, "{phase}");
    let reason: String = db.one(&format!("SELECT reason FROM runs WHERE id = {id}"));
    for part in ["no space left", kind, &place.to_string_lossy()] {
        assert!(reason.contains(part), "{phase}: no `{part}` in {reason}");
    }
    assert!(
        run.log().contains("no space left"),
        "{phase}: {}",
        run.log()
    );
}

/// The directories of both sides of a copy, and a mesh of one agent that may use them completely: its minimum of free
/// space would otherwise end a load before the file system does.
fn both_sides(fs: &Path) -> ([PathBuf; 2], Mesh) {
    let sides = ["target", "scratch"].map(|name| fs.join(name));
    for directory in &sides {
        std::fs::create_dir(directory).unwrap();
    }
    let mut mesh = Mesh::start();
    let agent = Agent::named("a").argument("--free-space=0");
    mesh.add(agent.allow(&sides[0]).scratch(&sides[1]));
    (sides, mesh)
}

fn assert_empty(directories: &[PathBuf; 2]) {
    for directory in directories {
        let mut entries = std::fs::read_dir(directory).unwrap();
        assert!(entries.next().is_none(), "left in {}", directory.display());
    }
}

const WAYS: [&str; 4] = ["auto", "copy-file-range", "read-write", "direct"];

#[test]
fn every_way_of_copying_stops_where_there_is_no_room() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let (sides, mesh) = both_sides(fs.path());
    for way in WAYS {
        for (mode, full) in [("in", "/data/"), ("out", "/out/")] {
            let bs = match way {
                "copy-file-range" => "",
                _ => "bs = \"8k\"\n",
            };
            let phase = format!(
                "workload = \"copy\"\nfiles = 6\nsize = \"40k\"\n{bs}way = \"{way}\"\nmodes = [\"{mode}\"]"
            );
            // The third file, which the kernel copies in one call.
            let (op, path, after) = match way {
                "auto" | "copy-file-range" => (Op::CopyFileRange, "/c000000002", 0),
                _ => (Op::Write, full, 2 * 5),
            };
            fs.add_rule(Rule {
                path: path.to_owned(),
                after,
                ..Rule::every(op, Fault::Fail(libc::ENOSPC))
            });
            let mut run = mesh.begin(&plan::phase(&sides[0], &phase));
            let side = &sides[usize::from(mode == "out")];
            assert_stopped(&mesh, &mut run, &phase, "copy", side);
            let sql = "SELECT ops, bytes FROM step_results ORDER BY id DESC LIMIT 1";
            let row = &mesh.db().rows(sql)[0];
            let counted = (row.integer("ops"), row.integer("bytes"));
            assert_eq!(counted, (2, 2 * 40_960), "{phase}");
            fs.release();
            mesh.run(&plan::phase(&sides[0], &phase));
            assert_empty(&sides);
        }
    }
}

/// A disk whose remaining space is taken by another process during the load.
#[test]
fn a_copy_stops_when_others_take_what_was_free() {
    needs!("root", "loop", "ext4");
    let fs = Mounted::on_memory_loop("ext4", 40 << 20);
    let (sides, mesh) = both_sides(&fs.path());
    let ballast = fs.path().join("ballast");
    for way in ["auto", "direct"] {
        let phase = format!(
            "workload = \"copy\"\nfiles = 200\nsize = \"40k\"\nway = \"{way}\"\nmodes = [\"in\"]\nrate_iops = 5"
        );
        let mut run = mesh.begin(&plan::phase(&sides[0], &phase));
        mesh.until_step_is("in", "running", LIMIT);
        let mut file = std::fs::File::create(&ballast).unwrap();
        while file.write_all(&[1; 4096]).is_ok() {}
        assert_stopped(&mesh, &mut run, &phase, "copy", &sides[0]);
        std::fs::remove_file(&ballast).unwrap();
        mesh.run(&plan::phase(&sides[0], &phase.replace("200", "20")));
        assert_empty(&sides);
    }
}

#[test]
fn a_fill_stops_at_a_quota_before_its_floor() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = Mesh::of(&["a"], fs.path());
    let phase = "workload = \"fill\"\namount = \"5m\"\nfile-size = \"256k\"\nbs = \"64k\"\nmodes = [\"fill\"]";
    // In the middle of a file, and at the creation of the next one.
    for (op, after, blocks) in [(Op::Write, 17, 17), (Op::Create, 5, 20)] {
        fs.add_rule(Rule {
            path: "/f0".to_owned(),
            after,
            ..Rule::every(op, Fault::Fail(libc::ENOSPC))
        });
        let mut run = mesh.begin(&plan::phase(fs.path(), phase));
        assert_stopped(&mesh, &mut run, phase, "write", fs.path());
        let sql = "SELECT ops, bytes FROM step_results ORDER BY id DESC LIMIT 1";
        let row = &mesh.db().rows(sql)[0];
        let counted = (row.integer("ops"), row.integer("bytes"));
        assert_eq!(counted, (blocks, blocks << 16), "{op:?}");
        fs.release();
        mesh.run(&plan::phase(fs.path(), phase));
        assert_eq!(fs.names(), Vec::<PathBuf>::new());
    }
}

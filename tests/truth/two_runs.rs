//! Independent meshes that load one target at the same time, beside the leftovers of a third one: none of them uses,
//! counts or removes another's data. Tolerance: none; a file system logs every call.

use super::counts::{assert_places_agree, steps};
use crate::needs;
use crate::support::fuse_fs::{Call, Fault, FuseFs, Op, Rule};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use crate::support::wait::until_true;
use benchmesh_testing::{measured, timing};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// A mesh with an agent that has the same name in every mesh.
fn mesh_on(fs: &FuseFs, other: Option<&Mesh>) -> Mesh {
    let mut mesh = other.map_or_else(Mesh::start, Mesh::beside);
    mesh.add(Agent::named("a").allow(fs.path()));
    mesh
}

/// A load with this number of files, whose reads and writes check their place and generation.
fn load(fs: &FuseFs, files: u64, size: u64) -> String {
    let phases = format!(
        "[[phase]]\nworkload = \"files\"\nfiles = {files}\nsize = 3000\nnumjobs = 2\nverify = true\n\
         modes = [\"create\", \"stat\", \"read\", \"rename\", \"delete\"]\n\
         [[phase]]\nworkload = \"io\"\nsize = {size}\nbs = 4096\nverify = true\n\
         modes = [\"write\", \"randrw\", \"read\"]\n"
    );
    plan::on(fs.path(), "", &phases)
}

/// The paths on the target below directories of these names.
fn beneath(fs: &FuseFs, directories: &BTreeSet<String>) -> Vec<PathBuf> {
    let names = fs.names().into_iter();
    names
        .filter(|name| directories.contains(&top(&name.to_string_lossy())))
        .collect()
}

fn top(path: &str) -> String {
    path.split('/').next().unwrap_or_default().to_owned()
}

/// The directories on the target.
fn tops(fs: &FuseFs) -> BTreeSet<String> {
    let names = fs.names();
    names
        .iter()
        .map(|name| top(&name.to_string_lossy()))
        .collect()
}

/// Counts only the calls of one mesh, and all of them.
fn assert_exact(mesh: &Mesh, log: &[Call], (files, size): (u64, u64)) {
    let db = mesh.db();
    let own: String = db.one("SELECT 'benchmesh-' || uid FROM runs ORDER BY id DESC LIMIT 1");
    let log: Vec<Call> = log
        .iter()
        .filter(|call| top(&call.path) == own)
        .cloned()
        .collect();
    let run = db.one("SELECT max(id) FROM runs");
    let steps = steps(&db, run, &log);
    assert_eq!(steps.len(), 5 + 1 + 2 + 1);
    for step in &steps {
        let expected = match (step.mode.as_str(), step.op.as_str()) {
            ("create", _) => (step.seen(Op::Create).0, step.seen(Op::Write).1),
            ("stat", _) => (files, 0),
            ("rename", _) => step.seen(Op::Rename),
            ("delete", _) => step.seen(Op::Unlink),
            ("read", _) if step.calls.iter().any(|call| call.path.ends_with(".dat")) => {
                assert_eq!(step.bytes, size);
                step.seen(Op::Read)
            }
            ("read", _) => (step.seen(Op::Open).0, step.seen(Op::Read).1),
            (_, "write") => step.seen(Op::Write),
            (_, "read") => step.seen(Op::Read),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (step.ops, step.bytes),
            expected,
            "{} {}",
            step.mode,
            step.op
        );
        let of_files = ["create", "stat", "rename", "delete"].contains(&step.mode.as_str());
        assert!(
            !of_files || step.ops == files,
            "{}: {}",
            step.mode,
            step.ops
        );
        assert_places_agree(&db, step);
    }
}

#[test]
fn runs_on_one_target_have_nothing_in_common() {
    needs!("fuse");
    measured(|| {
        let fs = FuseFs::mount();
        for op in [Op::Write, Op::Unlink] {
            fs.add_rule(Rule::every(op, Fault::Delay(Duration::from_millis(3))));
        }
        // Data left behind by a killed mesh.
        let mut killed = mesh_on(&fs, None);
        // Enough files that the step is seen while it runs.
        let run = killed.begin(&load(&fs, 600, 4096));
        killed.until_step_is("delete", "running", LIMIT);
        killed.kill_agent("a");
        killed.kill_collector();
        drop(run);
        let left = tops(&fs);
        let names = beneath(&fs, &left);
        assert!(names.len() > 9, "{names:?}");

        let (short, long) = ((60, 1 << 18), (150, 1 << 20));
        let (one, other) = (mesh_on(&fs, Some(&killed)), mesh_on(&fs, Some(&killed)));
        let mut first = one.begin(&load(&fs, short.0, short.1));
        let mut second = other.begin(&load(&fs, long.0, long.1));
        until_true("both load the target", LIMIT, || {
            tops(&fs).len() == left.len() + 2
        });
        for (mesh, run) in [(&one, &mut first), (&other, &mut second)] {
            let ended = run.exit_within(LIMIT);
            let ended = ended.unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
            assert!(ended.success(), "{ended}: {}", run.log());
            mesh.assert_no_complaints();
        }
        let log = fs.log();
        assert_exact(&one, &log, short);
        assert_exact(&other, &log, long);
        // The first ended and cleaned up while the second was running. Only the lengths of the loads ensure this: the
        // machine decides which of two meshes begins its load first, and how much later the other one does.
        let [ended, last]: [i64; 2] =
            [&one, &other].map(|mesh| mesh.db().one("SELECT max(ended_us) FROM runs"));
        let begun: i64 = other.db().one("SELECT min(start_us) FROM steps");
        timing!(begun < ended && ended < last, "{begun} {ended} {last}");
        assert_eq!(tops(&fs), left);
        assert_eq!(beneath(&fs, &left), names);
        Ok(())
    });
}

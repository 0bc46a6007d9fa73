//! An agent on a kernel that refuses a part of io_uring: the operations are the same, and the database names the method
//! used. Tolerance: none; a file system logs every call.

use super::counts::{Step, assert_places_agree, steps};
use crate::needs;
use crate::support::database::Row;
use crate::support::fuse_fs::{FuseFs, Op};
use crate::support::mesh::{Agent, Mesh};
use crate::support::plan;
use std::collections::BTreeMap;
use std::time::Duration;

const MODES: [&str; 8] = [
    "write",
    "rewrite",
    "read",
    "randread",
    "randwrite",
    "randrw",
    "backread",
    "strideread",
];
/// Number of blocks of each of the two files.
const BLOCKS: u64 = 64;
const BYTES: u64 = 8192;

/// The events of a run's steps.
fn told(mesh: &Mesh, run: i64) -> Vec<Row> {
    mesh.db().rows(&format!(
        "SELECT e.kind, e.severity, e.message, s.mode, s.phase, a.name AS agent FROM events e
         JOIN steps s ON s.id = e.step_id JOIN agents a ON a.id = e.agent_id
         WHERE s.run_id = {run} AND e.kind IN ('engine-fallback', 'buffers-unregistered') ORDER BY s.ordinal"
    ))
}

/// Each block of each file exactly once, by a read or by a write.
fn assert_each_block_once(step: &[&Step]) {
    let mut blocks: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for step in step {
        let op = match step.op.as_str() {
            "write" => Op::Write,
            _ => Op::Read,
        };
        let counted = (step.ops, step.bytes);
        assert_eq!(counted, step.seen(op), "{} {}", step.mode, step.op);
        for call in step.calls.iter().filter(|call| call.op == op) {
            *blocks.entry((&call.path, call.offset)).or_default() += 1;
        }
    }
    let mode = &step[0].mode;
    assert_eq!(blocks.len() as u64, 2 * BLOCKS, "{mode}");
    assert!(
        blocks.values().all(|count| *count == 1),
        "{mode}: {blocks:?}"
    );
    let sorted = blocks.keys().map(|(_, offset)| offset % BYTES);
    assert!(sorted.max() == Some(0), "{mode}: {blocks:?}");
}

/// Runs all modes; returns their events.
fn run_and_count(fs: &FuseFs, mesh: &Mesh, keys: &str) -> Vec<Row> {
    let size = BLOCKS * BYTES;
    let phase = format!(
        "workload = \"io\"\nsize = {size}\nbs = {BYTES}\nnumjobs = 2\niodepth = 8\n{keys}\nmodes = {MODES:?}"
    );
    let run = mesh.run(&plan::phase(fs.path(), &phase));
    let db = mesh.db();
    let steps = steps(&db, run, &fs.log());
    for mode in MODES {
        let step: Vec<&Step> = steps.iter().filter(|step| step.mode == mode).collect();
        assert_each_block_once(&step);
        for kind in step {
            assert_places_agree(&db, kind);
        }
    }
    told(mesh, run)
}

fn assert_told_of_each_mode(told: &[Row], kind: &str, part: &str) {
    // A step that is rearmed on a busy machine reports it again.
    let mut modes: Vec<String> = told.iter().map(|row| row.text("mode")).collect();
    modes.dedup();
    assert_eq!(modes, MODES, "{told:?}");
    for row in told {
        let facts = (row.text("kind"), row.text("severity"), row.text("agent"));
        let expected = (kind.to_owned(), "warning".to_owned(), "a".to_owned());
        assert_eq!(facts, expected, "{row:?}");
        assert!(row.text("message").contains(part), "{row:?}");
    }
}

#[test]
fn threads_take_the_place_of_a_forbidden_io_uring_and_the_database_says_so() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(fs.path()).without_io_uring());
    let told = run_and_count(&fs, &mesh, "ioengine-fallback = \"psync\"");
    assert_told_of_each_mode(&told, "engine-fallback", "replaced by 8 threads per file");

    // If the plan does not allow it, the step's error names the requirement.
    let phase = "workload = \"io\"\nsize = \"64k\"\niodepth = 8\nmodes = [\"write\"]";
    let mut run = mesh.begin(&plan::phase(fs.path(), phase));
    let ended = run.exit_within(Duration::from_secs(60));
    let ended = ended.unwrap_or_else(|| panic!("the run hangs:\n{}", run.log()));
    assert!(!ended.success(), "{ended}: {}", run.log());
    let errors = mesh
        .db()
        .column::<String>("SELECT message FROM events WHERE kind = 'step-failed'");
    let [error] = &errors[..] else {
        panic!("{errors:?}: {}", run.log())
    };
    for part in ["refuses io_uring", "ioengine-fallback = \"psync\""] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn buffers_that_may_not_be_pinned_are_told() {
    needs!("root", "fuse");
    let fs = FuseFs::mount();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a").allow(fs.path()).pinning_at_most(64 << 10));
    // Buffers of 8 KiB for a depth of eight take all of it, and there are two workers.
    let told = run_and_count(&fs, &mesh, "ioengine = \"io_uring\"");
    assert_told_of_each_mode(&told, "buffers-unregistered", "ulimit -l");
}

#[test]
fn nothing_is_told_where_the_kernel_allows_all() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = Mesh::of(&["a"], fs.path());
    let told = run_and_count(&fs, &mesh, "ioengine-fallback = \"psync\"");
    assert!(told.is_empty(), "{told:?}");
}

//! Compares operations and bytes with a file system that logs every call. Tolerance: none; the counts are equal.

use crate::needs;
use crate::support::database::Database;
use crate::support::fuse_fs::{Call, FuseFs, Op};
use crate::support::mesh::Mesh;
use std::collections::BTreeSet;

/// A result, and the calls on files of the load during its step.
pub(super) struct Step {
    id: i64,
    pub mode: String,
    pub op: String,
    pub ops: u64,
    pub bytes: u64,
    pub calls: Vec<Call>,
}

impl Step {
    /// The number of calls of this kind, and the bytes that they moved.
    pub fn seen(&self, op: Op) -> (u64, u64) {
        let calls = self.calls.iter().filter(|call| call.op == op);
        calls.fold((0, 0), |(count, amount), call| {
            (count + 1, amount + call.amount)
        })
    }
}

/// Each result of a run with the calls between its first worker's start and its last worker's end.
pub(super) fn steps(db: &Database, run: i64, log: &[Call]) -> Vec<Step> {
    let rows = db.rows(&format!(
        "SELECT s.id, s.mode, r.op, r.ops, r.bytes, r.errors, s.start_us, max(t.ended_us) AS ended_us,
                max(t.skew_error_us) AS apart_us
         FROM steps s JOIN step_results r ON r.step_id = s.id JOIN tasks t ON t.step_id = s.id
         WHERE s.run_id = {run}
             AND s.attempt = (SELECT max(n.attempt) FROM steps n WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
         GROUP BY s.id, r.op ORDER BY s.ordinal"
    ));
    let step = |row: &crate::support::database::Row| {
        assert_eq!(row.integer("errors"), 0, "{row:?}");
        // Mesh time and the clock of the file system's log differ by at most the reported error of the start.
        let apart = row.integer("apart_us");
        let (from, until) = (
            row.integer("start_us") - apart,
            row.integer("ended_us") + apart,
        );
        let calls = log.iter();
        let calls = calls.filter(|call| call.began_us >= from && call.ended_us <= until);
        let calls = calls.filter(|call| !is_note(&call.path));
        Step {
            id: row.integer("id"),
            mode: row.text("mode"),
            op: row.text("op"),
            ops: row.integer("ops").unsigned_abs(),
            bytes: row.integer("bytes").unsigned_abs(),
            calls: calls.cloned().collect(),
        }
    };
    rows.iter().map(step).collect()
}

/// benchmesh's own files beside the data are not part of a load: the state that a finished task writes for the next
/// mode while others may still run, and the marker of a run's directory, which is read at each opening of the
/// directory. The larger the error between the two clocks, the more calls before and after the load fall into its
/// window.
fn is_note(path: &str) -> bool {
    path.rsplit('/')
        .next()
        .is_some_and(|name| name.starts_with("state") || name.starts_with('.'))
}

/// The database's figures of a step in its three places: result, intervals of the step, intervals of the tasks.
pub(super) fn assert_places_agree(db: &Database, step: &Step) {
    let id = step.id;
    for sql in [
        format!(
            "SELECT sum(ops), sum(bytes) FROM step_intervals WHERE step_id = {id} AND op = '{}'",
            step.op
        ),
        format!(
            "SELECT sum(i.ops), sum(i.bytes) FROM op_intervals i JOIN tasks t ON t.id = i.task_id
             WHERE t.step_id = {id} AND i.op = '{}'",
            step.op
        ),
    ] {
        let row = &db.rows(&sql)[0];
        let sums: Vec<i64> = ["ops", "bytes"]
            .iter()
            .map(|column| {
                let name = if sql.contains("sum(i.") {
                    format!("sum(i.{column})")
                } else {
                    format!("sum({column})")
                };
                row.integer(&name)
            })
            .collect();
        let expected = [step.ops, step.bytes].map(|number| i64::try_from(number).unwrap());
        assert_eq!(sums, expected, "{}: {sql}", step.mode);
    }
}

#[test]
fn files_counts_what_the_file_system_saw() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mesh = Mesh::of(&["a", "b"], fs.path());
    let run = mesh.run(&format!(
        r#"
        [targets.log]
        system = "fuse"
        path = "{}"
        [[phase]]
        workload = "files"
        files = 150
        size = {{ min = 100, max = 9000 }}
        numjobs = 2
        dirs = 20
        modes = ["create", "list", "stat", "read", "rename", "delete"]
        "#,
        fs.path().display()
    ));
    let log = fs.log();
    let created: BTreeSet<&str> = log
        .iter()
        .filter(|call| call.op == Op::Create && call.errno.is_none())
        .map(|call| call.path.as_str())
        .collect();
    let db = mesh.db();
    let steps = steps(&db, run, &log);
    let modes: Vec<&str> = steps.iter().map(|step| step.mode.as_str()).collect();
    assert_eq!(
        modes,
        ["create", "list", "stat", "read", "rename", "delete"]
    );
    for step in &steps {
        let (ops, bytes) = match step.mode.as_str() {
            "create" => (step.seen(Op::Create).0, step.seen(Op::Write).1),
            "list" => (step.seen(Op::Opendir).0, 0),
            // One name is looked up per file; directories on the path are not created files.
            "stat" => {
                let lookups = step.calls.iter().filter(|call| call.op == Op::Lookup);
                let lookups = lookups.filter(|call| created.contains(call.path.as_str()));
                (lookups.count() as u64, 0)
            }
            "read" => (step.seen(Op::Open).0, step.seen(Op::Read).1),
            "rename" => (step.seen(Op::Rename).0, 0),
            "delete" => (step.seen(Op::Unlink).0, 0),
            other => panic!("{other}"),
        };
        assert_eq!((step.ops, step.bytes), (ops, bytes), "{}", step.mode);
        assert!(
            step.mode == "list" || step.ops == 300,
            "{}: {}",
            step.mode,
            step.ops
        );
        assert_places_agree(&db, step);
    }
    assert_eq!(
        fs.names(),
        Vec::<std::path::PathBuf>::new(),
        "left on the target"
    );
}

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

mod changes;
mod engines;
mod faults;
mod questions;
mod read_back;

use super::*;
use benchmesh_synthetic::{Shape, generate};
use rusqlite::Connection;
use std::collections::BTreeMap;
use tempfile::TempDir;

/// A database and a directory for its Parquet files.
struct Scene {
    directory: TempDir,
}

impl Scene {
    fn new(shape: &Shape) -> Self {
        let scene = Self {
            directory: tempfile::tempdir().unwrap(),
        };
        generate(&scene.db("benchmesh.db"), shape).unwrap();
        scene
    }

    fn db(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn mesh(&self) -> PathBuf {
        self.directory.path().join("mesh")
    }

    /// A request for all runs.
    fn request(&self) -> Request {
        Request {
            db: self.db("benchmesh.db"),
            run: None,
            tables: Vec::new(),
            site: Some(String::from("lab1")),
            directory: self.mesh(),
        }
    }

    fn export(&self) -> Result<Exported, ExportError> {
        export(&self.request(), &mut |_| ())
    }

    fn change(&self, sql: &str) {
        change(&self.db("benchmesh.db"), sql);
    }
}

fn change(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}

/// Values that the generated database has none of.
const UNUSUAL: &str = "
    INSERT INTO facts (run_id, step_id, agent_id, system, at_us, name, value, unit)
        SELECT r.id, NULL, 1, 'cephfs', r.created_us, v.column1, v.column2, NULL
        FROM runs AS r CROSS JOIN (VALUES ('osds', 12), ('full', 0.25), ('health', 'HEALTH_OK'), ('low', -7),
            ('big', 9007199254740993)) AS v;
    INSERT INTO facts (run_id, agent_id, system, at_us, name, value) VALUES (NULL, 1, 'cephfs', 5, 'of no run', 1);
    INSERT INTO events (at_us, severity, kind, message) VALUES (5, 'info', 'daemon-started', 'of no run');
    INSERT INTO run_notes (run_id, at_us, text)
        SELECT id, created_us, 'Zürich → 漢字 ''quoted'' \"x\", ' || id FROM runs;
    INSERT INTO run_tags SELECT id, 'release', 'r' || id FROM runs;
    INSERT INTO losses (agent_id, what, rows, from_us, until_us)
        SELECT 1, 'host_samples', 3, created_us, created_us + 1 FROM runs WHERE id = 2;
    UPDATE step_results SET p99_ns = p99_ns + id * 1000, ops_per_s_min = -0.5, bytes_per_s_max = NULL;
    UPDATE daemons SET version = iif(name LIKE 'ceph%', '18.2.4', '10.5');
    UPDATE step_intervals SET p99_ns = p99_ns + id % 97;";

/// Every file below a directory but the lock, with its size and its inode, by its path there.
fn files(directory: &Path) -> BTreeMap<String, (u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let mut found = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.metadata().unwrap();
            let name = path.strip_prefix(directory).unwrap();
            match metadata.is_dir() {
                true => folders.push(path),
                false if name == Path::new("_lock") => {}
                false => {
                    let name = name.display().to_string();
                    found.insert(name, (metadata.len(), metadata.ino()));
                }
            }
        }
    }
    found
}

/// The conditions for the rows of a run in each table, written apart from `run_rows`: in generated databases, every run
/// has all hosts.
fn of_run(table: &Table, run: &EndedRun) -> String {
    let id = run.id;
    let steps = format!("(SELECT id FROM steps WHERE run_id = {id})");
    let (from, until) = (run.created_us - 60_000_000, run.ended_us + 60_000_000);
    match table.name.as_str() {
        "runs" => format!("id = {id}"),
        "hosts" | "agents" | "samplers" | "daemons" | "disks" | "interfaces" => String::from("1"),
        "losses" => format!("from_us <= {until} AND until_us >= {from}"),
        name if name.ends_with("_samples") || name == "clock_offsets" => {
            format!("at_us >= {from} AND at_us <= {until}")
        }
        _ if table.has("run_id") => format!("run_id = {id}"),
        _ if table.has("step_id") => format!("step_id IN {steps}"),
        _ => format!("task_id IN (SELECT t.id FROM tasks AS t WHERE t.step_id IN {steps})"),
    }
}

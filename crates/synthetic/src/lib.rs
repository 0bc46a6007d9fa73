//! Generates databases with the content that a mesh would have produced, deterministically from a few numbers: for
//! benches, query plans on realistic sizes, and tests that need many rows. For tests only; no shipped crate depends on
//! it.
//!
//! The schema is the collector's own. SQLite writes the rows from a table of seconds, so that a week of twelve hosts
//! takes minutes. Figures follow formulas (see `sql`), so that a test can compute the expected answer. Two things are
//! unrealistic: daemons use the same CPU under any load, and the seconds of a step vary by a fixed pattern instead of
//! randomly. [`soak`] generates smaller runs with noise, and with disturbances for findings to detect.

mod load;
pub mod soak;
mod sql;

use anyhow::Context;
use benchmesh_store::Store;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::Path;

/// The first second of every generated database, in microseconds since 1970.
pub const T0_US: i64 = 1_750_000_000_000_000;
/// The steps of a repeat on one target: three block sizes, three modes.
pub const STEPS_PER_TARGET: u32 = 9;

/// The content of a generated database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of hosts, each with an agent, a disk and an interface, all sampled every second.
    pub hosts: u32,
    pub daemons_per_host: u32,
    /// Number of hosts, from the first, that carry the load.
    pub clients: u32,
    /// Number of targets, at most three: CephFS, GlusterFS and a local disk.
    pub targets: u32,
    /// Number of runs of the plan `nightly`, of [`STEPS_PER_TARGET`] steps per target and repeat, one after the other.
    pub runs: u32,
    pub repeats: u32,
    pub step_seconds: u32,
    /// Pause between two steps.
    pub gap_seconds: u32,
    /// Length of the last run, `soak`, of one step; 0: no such run.
    pub soak_seconds: u32,
}

impl Shape {
    /// A week: 960 runs of nine minutes, and a day of soak. 12 hosts with 10 daemons each, sampled every second.
    pub fn week() -> Self {
        Self {
            hosts: 12,
            daemons_per_host: 10,
            clients: 4,
            targets: 2,
            runs: 960,
            repeats: 1,
            step_seconds: 28,
            gap_seconds: 2,
            soak_seconds: 86_400,
        }
    }

    /// One step of 72 hours on 12 hosts with 10 daemons each, sampled every second.
    pub fn soak() -> Self {
        Self {
            runs: 0,
            soak_seconds: 259_200,
            ..Self::week()
        }
    }

    /// Two runs of two repeats and a minute of soak on four hosts: generated in a second.
    pub fn small() -> Self {
        Self {
            hosts: 4,
            daemons_per_host: 10,
            clients: 2,
            targets: 2,
            runs: 2,
            repeats: 2,
            step_seconds: 8,
            gap_seconds: 2,
            soak_seconds: 60,
        }
    }

    /// Number of steps of a repeat.
    pub fn steps(&self) -> u32 {
        STEPS_PER_TARGET * self.targets
    }

    /// Length of one run of `nightly`.
    pub fn run_seconds(&self) -> u32 {
        self.steps() * self.repeats * (self.step_seconds + self.gap_seconds)
    }

    /// Length of the whole database.
    pub fn seconds(&self) -> u32 {
        self.runs * self.run_seconds() + self.soak_seconds
    }

    /// The id of the soak run.
    pub fn soak_run(&self) -> u32 {
        self.runs + 1
    }
}

/// Facts about the generated database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub bytes: u64,
    /// Number of rows by table.
    pub rows: BTreeMap<String, i64>,
}

/// Generates a database at a path that must not exist.
pub fn generate(path: &Path, shape: &Shape) -> anyhow::Result<Made> {
    anyhow::ensure!(!path.exists(), "{} is there already", path.display());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("start a runtime")?;
    runtime.block_on(async {
        let store = Store::open(path).await.context("make the schema")?;
        store.close().await;
        anyhow::Ok(())
    })?;
    drop(runtime);
    let file = Connection::open(path).context("open the new database")?;
    file.execute_batch(
        "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -262144; PRAGMA foreign_keys = OFF;
         BEGIN",
    )
    .context("prepare for writing")?;
    sql::hosts(&file, shape).context("make hosts, agents and daemons")?;
    load::runs(&file, shape).context("make runs, steps and tasks")?;
    load::intervals(&file, shape).context("make intervals and results")?;
    sql::samples(&file).context("make samples")?;
    sql::usage(&file).context("make what daemons used in steps")?;
    file.execute_batch("COMMIT").context("commit")?;
    drop(file);
    // A connection with temporary tables cannot change the journal mode.
    let file = Connection::open(path).context("open what was made")?;
    file.execute_batch("PRAGMA journal_mode = WAL; PRAGMA wal_checkpoint(TRUNCATE)")
        .context("finish the file")?;
    let rows = counts(&file).context("count the rows")?;
    drop(file);
    let bytes = std::fs::metadata(path).context("look at the file")?.len();
    Ok(Made { bytes, rows })
}

fn counts(file: &Connection) -> rusqlite::Result<BTreeMap<String, i64>> {
    let mut tables = file.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE '\\_%' ESCAPE '\\'",
    )?;
    let names: Vec<String> = tables
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    names
        .into_iter()
        .map(|name| {
            let count = file.query_row(&format!("SELECT count(*) FROM {name}"), [], |row| {
                row.get(0)
            })?;
            Ok((name, count))
        })
        .filter(|row| !matches!(row, Ok((_, 0))))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::indexing_slicing)]
    use super::*;

    #[test]
    fn a_small_database_is_whole_and_the_same_every_time() {
        let directory = tempfile::tempdir().unwrap();
        let shape = Shape::small();
        let made: Vec<(Made, String)> = ["a.db", "b.db"]
            .iter()
            .map(|name| {
                let path = directory.path().join(name);
                let made = generate(&path, &shape).unwrap();
                let file = Connection::open(&path).unwrap();
                let broken: i64 = file
                    .query_row("SELECT count(*) FROM pragma_foreign_key_check", [], |row| row.get(0))
                    .unwrap();
                assert_eq!(broken, 0);
                let sums: String = file
                    .query_row(
                        "SELECT json_array((SELECT sum(ops) FROM op_intervals), (SELECT sum(p99_ns) FROM step_intervals),
                             (SELECT sum(cpu_user_us) FROM step_daemons), (SELECT sum(ops_per_s) FROM step_results))",
                        [],
                        |row| row.get(0),
                    )
                    .unwrap();
                (made, sums)
            })
            .collect();
        let [(first, first_sums), (second, second_sums)] = made.as_slice() else {
            unreachable!()
        };
        assert_eq!((&first.rows, first_sums), (&second.rows, second_sums));
        let steps = i64::from(shape.runs * shape.repeats * shape.steps()) + 1;
        assert_eq!(first.rows["steps"], steps);
        assert_eq!(first.rows["daemons"], 40);
        let seconds = i64::from(shape.seconds()) + 1;
        assert_eq!(first.rows["daemon_samples"], 40 * seconds);
        let load = i64::from(
            shape.runs * shape.repeats * shape.steps() * shape.step_seconds + shape.soak_seconds,
        );
        assert_eq!(first.rows["step_intervals"], load);
        assert_eq!(first.rows["op_intervals"], load * i64::from(shape.clients));
    }

    #[test]
    fn an_existing_file_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("there.db");
        std::fs::write(&path, "mine").unwrap();
        assert!(generate(&path, &Shape::small()).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    }
}

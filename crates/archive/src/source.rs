//! Reads single runs of a database, each in one read transaction: a collector may write at the same time.

use crate::tables::{self, Reference, Table};
use benchmesh_store::maintain::{self, MaintainError};
use benchmesh_store::run_rows;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, params};
use std::path::{Path, PathBuf};

/// Rows of collectors, not of runs: a run has those of its agents, and all others that a row of it names, such as the
/// host that an agent has moved to since.
pub const SHARED: [&str; 6] = [
    "hosts",
    "agents",
    "samplers",
    "daemons",
    "disks",
    "interfaces",
];

/// Daemons are sampled until 5 s after a run, and figures of its first second need the samples before it.
const MARGIN_US: i64 = 60_000_000;

#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    #[error("{0}")]
    Wrong(String),
    /// It had ended when it was looked up.
    #[error("run {id} ({name}) was resumed or deleted meanwhile; it is copied when it has ended")]
    NotEnded { id: i64, name: String },
    #[error(transparent)]
    Open(MaintainError),
    #[error("{}: cannot read {what}", path.display())]
    Read {
        path: PathBuf,
        what: String,
        #[source]
        source: rusqlite::Error,
    },
}

impl SourceError {
    /// Whether the error is in the request, not in the database or the disk.
    pub fn is_request(&self) -> bool {
        match self {
            Self::Open(error) => error.is_request(),
            error => matches!(error, Self::Wrong(_) | Self::NotEnded { .. }),
        }
    }
}

/// A database whose runs are read.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    connection: Connection,
    tables: Vec<Table>,
    references: Vec<Reference>,
    mesh_uid: String,
}

/// A run that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    pub id: i64,
    pub uid: String,
    pub name: String,
    pub created_us: i64,
    pub ended_us: i64,
}

impl Source {
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let connection = maintain::reader(path).map_err(SourceError::Open)?;
        let failed = |source| SourceError::Read {
            path: path.to_owned(),
            what: String::from("the schema"),
            source,
        };
        let tables = tables::all(&connection).map_err(failed)?;
        let references = tables::references(&connection, &tables).map_err(failed)?;
        let mesh_uid = connection
            .query_row("SELECT mesh_uid FROM meta", [], |row| row.get(0))
            .map_err(failed)?;
        Ok(Self {
            path: path.to_owned(),
            connection,
            tables,
            references,
            mesh_uid,
        })
    }

    /// The archived tables; parents come first.
    pub fn tables(&self) -> &[Table] {
        &self.tables
    }

    /// Unique to this database and its copies (`meta.mesh_uid`).
    pub fn mesh_uid(&self) -> &str {
        &self.mesh_uid
    }

    /// All runs that have ended, oldest first.
    pub fn ended_runs(&self) -> Result<Vec<EndedRun>, SourceError> {
        let read = || {
            let mut runs = self.connection.prepare(
                "SELECT id, uid, name, created_us, ended_us FROM runs
                 WHERE state IN ('done', 'failed', 'stopped') AND ended_us IS NOT NULL ORDER BY ended_us, id",
            )?;
            let runs = runs.query_map([], ended_run)?;
            runs.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.failed("runs"))
    }

    /// The run of this id, uid or name (the newest of that name). A run that has not ended is refused.
    pub fn find(&self, wanted: &str) -> Result<EndedRun, SourceError> {
        let found = self
            .connection
            .query_row(
                "SELECT id, uid, name, created_us, coalesce(ended_us, 0), state FROM runs
                 WHERE CAST(id AS TEXT) = ?1 OR uid = ?1 OR name = ?1
                 ORDER BY CAST(id AS TEXT) = ?1 DESC, uid = ?1 DESC, id DESC LIMIT 1",
                params![wanted],
                |row| Ok((ended_run(row)?, row.get::<_, String>(5)?)),
            )
            .optional()
            .map_err(self.failed("runs"))?;
        let Some((run, state)) = found else {
            return Err(SourceError::Wrong(format!(
                "there is no run {wanted:?} in {}; list the runs with benchmesh runs --db {}",
                self.path.display(),
                self.path.display()
            )));
        };
        if matches!(state.as_str(), "queued" | "running") || run.ended_us == 0 {
            return Err(SourceError::Wrong(format!(
                "run {} ({}) is {state}; a run is archived when it has ended",
                run.id, run.name
            )));
        }
        Ok(run)
    }

    /// Begins the read transaction of a run: whatever is read from it shows one instant. Refuses a run that has been
    /// resumed or deleted since it was looked up.
    pub fn begin(&self, run: EndedRun) -> Result<RunRows<'_>, SourceError> {
        let times = "SELECT coalesce(started_us, created_us), ended_us FROM runs
             WHERE id = ? AND uid = ? AND state IN ('done', 'failed', 'stopped') AND ended_us IS NOT NULL";
        let begin = || {
            let transaction = self.connection.unchecked_transaction()?;
            let times: Option<(i64, i64)> = transaction
                .query_row(times, params![run.id, run.uid], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()?;
            Ok((transaction, times))
        };
        let (transaction, times) = begin().map_err(self.failed("the run's times"))?;
        let Some((from_us, until_us)) = times else {
            return Err(SourceError::NotEnded {
                id: run.id,
                name: run.name,
            });
        };
        Ok(RunRows {
            source: self,
            _transaction: transaction,
            from_us: from_us.saturating_sub(MARGIN_US),
            until_us: until_us.saturating_add(MARGIN_US),
            run,
        })
    }

    fn failed(&self, what: &str) -> impl FnOnce(rusqlite::Error) -> SourceError {
        let (path, what) = (self.path.clone(), what.to_owned());
        move |source| SourceError::Read { path, what, source }
    }
}

fn ended_run(row: &rusqlite::Row<'_>) -> rusqlite::Result<EndedRun> {
    Ok(EndedRun {
        id: row.get(0)?,
        uid: row.get(1)?,
        name: row.get(2)?,
        created_us: row.get(3)?,
        ended_us: row.get(4)?,
    })
}

/// The rows of one run.
#[derive(Debug)]
pub struct RunRows<'s> {
    source: &'s Source,
    _transaction: rusqlite::Transaction<'s>,
    run: EndedRun,
    from_us: i64,
    until_us: i64,
}

impl RunRows<'_> {
    pub fn run(&self) -> &EndedRun {
        &self.run
    }

    /// Calls `row` with the values of each row of a table, in the order of its columns and of `Table::order`. An
    /// error of `row` ends the reading and is returned.
    pub fn read<E: From<SourceError>>(
        &self,
        table: &Table,
        mut row: impl FnMut(&[ValueRef<'_>]) -> Result<(), E>,
    ) -> Result<u64, E> {
        let columns: Vec<&str> = table.columns.iter().map(|one| one.name.as_str()).collect();
        let sql = format!(
            "SELECT {} FROM {} WHERE {} ORDER BY {}",
            columns.join(", "),
            table.name,
            self.condition(table),
            table.order().join(", ")
        );
        let failed = |source| {
            let what = format!("{} of run {}", table.name, self.run.id);
            self.source.failed(&what)(source)
        };
        let mut statement = self.source.connection.prepare(&sql).map_err(failed)?;
        let mut found = statement.query([]).map_err(failed)?;
        let mut rows = 0;
        while let Some(next) = found.next().map_err(failed)? {
            let values: Result<Vec<_>, _> = (0..columns.len()).map(|at| next.get_ref(at)).collect();
            row(&values.map_err(failed)?)?;
            rows += 1;
        }
        Ok(rows)
    }

    /// The number of a table's rows.
    pub fn count(&self, table: &Table) -> Result<u64, SourceError> {
        let sql = format!(
            "SELECT count(*) FROM {} WHERE {}",
            table.name,
            self.condition(table)
        );
        let counted = self.source.connection.query_row(&sql, [], |row| row.get(0));
        let rows: i64 = counted.map_err(|source| {
            let what = format!("the number of {} of run {}", table.name, self.run.id);
            self.source.failed(&what)(source)
        })?;
        Ok(rows.unsigned_abs())
    }

    /// Operations and errors in all rows of a table that has them.
    pub fn operations(&self, table: &Table) -> Result<i64, SourceError> {
        let sql = format!(
            "SELECT coalesce(sum(ops), 0) + coalesce(sum(errors), 0) FROM {} WHERE {}",
            table.name,
            self.condition(table)
        );
        let summed = self.source.connection.query_row(&sql, [], |row| row.get(0));
        summed.map_err(|source| {
            let what = format!("the operations in {} of run {}", table.name, self.run.id);
            self.source.failed(&what)(source)
        })
    }

    fn condition(&self, table: &Table) -> String {
        let own = self.own_condition(table);
        if !SHARED.contains(&table.name.as_str()) {
            return own;
        }
        let mut any = vec![format!("({own})")];
        for reference in &self.source.references {
            // Rows of seconds are selected by what they refer to.
            if reference.parent != table.name || run_rows::is_limited_to_its_time(&reference.table)
            {
                continue;
            }
            let named = self
                .source
                .tables
                .iter()
                .find(|one| one.name == reference.table);
            if let Some(named) = named {
                any.push(format!(
                    "id IN (SELECT {} FROM {} WHERE {})",
                    reference.column,
                    named.name,
                    self.condition(named)
                ));
            }
        }
        any.join(" OR ")
    }

    fn own_condition(&self, table: &Table) -> String {
        let of_run = run_rows::condition(&table.name, self.run.id, &|column| table.has(column));
        let (from, until) = (self.from_us, self.until_us);
        if run_rows::is_limited_to_its_time(&table.name) {
            format!("({of_run}) AND at_us BETWEEN {from} AND {until}")
        } else if table.name == "losses" {
            format!("({of_run}) AND from_us <= {until} AND until_us >= {from}")
        } else {
            of_run
        }
    }
}

/// A run that waits or goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnendedRun {
    pub id: i64,
    pub name: String,
    pub state: String,
}

impl Source {
    /// The runs that have not ended, oldest first.
    pub fn unended_runs(&self) -> Result<Vec<UnendedRun>, SourceError> {
        let read = || {
            let mut runs = self.connection.prepare(
                "SELECT id, name, state FROM runs WHERE state IN ('queued', 'running') OR ended_us IS NULL ORDER BY id",
            )?;
            let runs = runs.query_map([], |row| {
                Ok(UnendedRun {
                    id: row.get(0)?,
                    name: row.get(1)?,
                    state: row.get(2)?,
                })
            })?;
            runs.collect::<rusqlite::Result<Vec<_>>>()
        };
        read().map_err(self.failed("runs"))
    }

    /// What a table of a sound file cannot exceed: each row takes more than four bytes. The pages of a damaged file may
    /// refer to each other so that reading them practically never ends.
    pub fn most_rows(&self) -> Result<u64, SourceError> {
        let sql = "SELECT page_count * page_size / 4 FROM pragma_page_count, pragma_page_size";
        self.connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .map(i64::unsigned_abs)
            .map_err(self.failed("its size"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_synthetic::{Shape, generate};

    #[test]
    fn a_run_has_its_rows_and_no_other_runs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("small.db");
        generate(&path, &Shape::small()).unwrap();
        let source = Source::open(&path).unwrap();
        let runs = source.ended_runs().unwrap();
        assert!(runs.len() > 1, "{runs:?}");
        let mut steps = 0;
        for run in runs {
            let uid = run.uid.clone();
            let rows = source.begin(run).unwrap();
            for table in source.tables() {
                let read = rows.read(table, |_| Ok::<_, SourceError>(())).unwrap();
                match table.name.as_str() {
                    "runs" => assert_eq!(read, 1, "{uid}"),
                    "steps" => steps += read,
                    _ => {}
                }
            }
        }
        let all: i64 = Connection::open(&path)
            .unwrap()
            .query_row("SELECT count(*) FROM steps", [], |row| row.get(0))
            .unwrap();
        assert_eq!(steps, all.unsigned_abs());
    }

    #[test]
    fn a_run_that_goes_on_or_is_unknown_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("small.db");
        generate(&path, &Shape::small()).unwrap();
        let file = Connection::open(&path).unwrap();
        file.execute("UPDATE runs SET state = 'running' WHERE id = 1", [])
            .unwrap();
        let source = Source::open(&path).unwrap();
        for (wanted, reason) in [("1", "is running"), ("nobody", "there is no run")] {
            let error = source.find(wanted).unwrap_err();
            assert!(
                error.is_request() && error.to_string().contains(reason),
                "{error}"
            );
        }
        assert_eq!(source.find("2").unwrap().id, 2);
    }
}

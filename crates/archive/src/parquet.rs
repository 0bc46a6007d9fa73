//! Runs as Parquet files in a Hive layout, for engines that read such: DuckDB, pandas, Spark, Trino, ClickHouse.
//!
//! A directory takes the runs of many databases (sites) and grows run by run. All files of a run are written and synced
//! under other names before the first of them gets its own, and the run's mark comes last: whatever ends an export, the
//! next one completes it. What is there already and has not changed is not written again.

mod access;
mod columns;
mod file;
mod layout;
mod run;

use crate::source::{EndedRun, Source, SourceError, UnendedRun};
use crate::tables::{Table, why_not_archived};
use access::Access;
use layout::Layout;
use std::io;
use std::path::{Path, PathBuf};

/// What to export.
#[derive(Clone, Debug)]
pub struct Request {
    pub db: PathBuf,
    /// An id, a uid or a name; `None` for all runs that have ended.
    pub run: Option<String>,
    /// Empty for all archived tables.
    pub tables: Vec<String>,
    /// `None`: the uid of the database's mesh.
    pub site: Option<String>,
    pub directory: PathBuf,
}

/// What an export did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    pub site: String,
    /// Runs of which at least one table was written.
    pub runs_written: usize,
    pub runs_unchanged: usize,
    /// Runs whose rows of seconds the database has merged or deleted since they were written: those files stay.
    pub runs_kept_finer: usize,
    pub rows: u64,
    pub bytes: u64,
    /// What was left out because it has not ended.
    pub unended: Vec<UnendedRun>,
}

/// What happens meanwhile.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// The number of runs is known.
    Begin(usize),
    /// Rows of a run that were written so far.
    Rows(&'a EndedRun, u64),
    /// A run is complete. How many rows of it were written, and the size of their files.
    Written(&'a EndedRun, u64, u64),
    Unchanged(&'a EndedRun),
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(
        "the disk of {} is full; free some of it and export again: runs that were written stay, and the export goes on \
         from there",
        path.display()
    )]
    Full {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {} as Parquet", path.display())]
    Parquet {
        path: PathBuf,
        #[source]
        source: ::parquet::errors::ParquetError,
    },
    #[error(
        "{table}.{column} of run {run} has {found} where its type allows none; run `benchmesh db check`"
    )]
    WrongType {
        table: String,
        column: String,
        run: i64,
        found: &'static str,
    },
    #[error("{table} of run {run} has more rows than its file can; run `benchmesh db check`")]
    Endless { table: String, run: i64 },
}

impl ExportError {
    /// Whether the error is in the request, not in the database or the disk.
    pub fn is_request(&self) -> bool {
        match self {
            Self::Source(error) => error.is_request(),
            error => matches!(error, Self::Wrong(_)),
        }
    }

    fn writing(path: &Path) -> impl Fn(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full {
                path: path.clone(),
                source,
            },
            _ => Self::Write {
                path: path.clone(),
                source,
            },
        }
    }
}

/// Writes what is not there yet, or has changed.
pub fn export(
    request: &Request,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Exported, ExportError> {
    let source = Source::open(&request.db)?;
    let tables = selected(&source, &request.tables)?;
    let runs = match &request.run {
        Some(run) => vec![source.find(run)?],
        None => source.ended_runs()?,
    };
    let layout = Layout::open(
        &request.directory,
        request.site.as_deref(),
        source.mesh_uid(),
        access(&request.db)?,
    )?;
    let mut done = Exported {
        site: layout.site().to_owned(),
        ..Exported::default()
    };
    progress(Progress::Begin(runs.len()));
    let most_rows = source.most_rows()?;
    for run in runs {
        let rows = match source.begin(run) {
            Ok(rows) => rows,
            // Resumed or deleted while others were written.
            Err(SourceError::NotEnded { .. }) if request.run.is_none() => continue,
            Err(error) => return Err(error.into()),
        };
        let written = run::export(
            &layout,
            &rows,
            &tables,
            source.tables(),
            most_rows,
            progress,
        )?;
        done.rows += written.rows;
        done.bytes += written.bytes;
        done.runs_kept_finer += usize::from(written.has_kept_finer);
        match written.tables {
            0 => {
                done.runs_unchanged += 1;
                progress(Progress::Unchanged(rows.run()));
            }
            _ => {
                done.runs_written += 1;
                progress(Progress::Written(rows.run(), written.rows, written.bytes));
            }
        }
    }
    if request.run.is_none() {
        done.unended = source.unended_runs()?;
    }
    Ok(done)
}

fn access(db: &Path) -> Result<Access, ExportError> {
    Access::of(db).map_err(|error| {
        ExportError::Wrong(format!(
            "cannot tell who may read {}: {error}",
            db.display()
        ))
    })
}

/// The tables to export.
fn selected<'s>(source: &'s Source, wanted: &[String]) -> Result<Vec<&'s Table>, ExportError> {
    let all = source.tables();
    if wanted.is_empty() {
        return Ok(all.iter().collect());
    }
    let found = wanted.iter().map(|name| {
        all.iter().find(|one| one.name == *name).ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|one| one.name.as_str()).collect();
            let names = names.join(", ");
            ExportError::Wrong(match why_not_archived(name) {
                Some(why) => format!(
                    "{name} is not written as Parquet ({why}); use --format csv or jsonl, or name one of {names}"
                ),
                None if name.starts_with("v_") => format!(
                    "views such as {name} are not written as Parquet, because engines compute them from tables; use \
                     --format csv or jsonl, or name one of {names}"
                ),
                None => format!("there is no table {name:?}; Parquet files are written of {names}"),
            })
        })
    });
    let mut found = found.collect::<Result<Vec<_>, _>>()?;
    // Parents first, each once.
    found.sort_by_key(|table| all.iter().position(|one| one.name == table.name));
    found.dedup_by_key(|table| &table.name);
    Ok(found)
}

#[cfg(test)]
mod tests;

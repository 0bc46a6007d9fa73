//! Tables and views of a database as files for other programs: CSV and JSON lines.
//!
//! Everything is read in one transaction, so that all files show the same instant; a collector may write at the same
//! time. For one run, a table has the rows that refer to the run, its steps or its tasks, and those of its agents and
//! their hosts; samples are limited to the time from its start to its end. Rows are streamed.
//!
//! A file whose tables or views are not benchmesh's own is refused: reading a foreign view may never end.

mod scope;
mod text;

use benchmesh_store::maintain::{self, MaintainError};
use benchmesh_store::schema;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use scope::ExportScope;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use text::Lines;

/// Each row takes more than four bytes.
const MAX_ROWS_SQL: &str =
    "SELECT page_count * page_size / 4 FROM pragma_page_count, pragma_page_size";

/// The format of the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Csv,
    JsonLines,
}

impl Format {
    fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::JsonLines => "jsonl",
        }
    }
}

/// What to export.
#[derive(Clone, Debug)]
pub struct Request {
    pub path: PathBuf,
    /// An id, a uid or a name; `None` for all runs.
    pub run: Option<String>,
    /// Empty for all tables and views.
    pub tables: Vec<String>,
    pub format: Format,
}

/// A table or a view that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    pub table: String,
    pub rows: u64,
}

/// The reason why nothing was exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error("{0}")]
    Wrong(String),
    #[error(transparent)]
    Open(MaintainError),
    #[error("{}: {doing}", path.display())]
    Sql {
        path: PathBuf,
        doing: String,
        #[source]
        source: rusqlite::Error,
    },
    #[error("write {what}")]
    Write {
        what: String,
        #[source]
        source: io::Error,
    },
}

impl ExportError {
    /// Whether the error is in the request, not in the database or the disk.
    pub fn is_request(&self) -> bool {
        match self {
            Self::Open(error) => error.is_request(),
            error => matches!(error, Self::Wrong(_)),
        }
    }
}

/// Writes each table into a file of its name, in a new directory. The directory gets its final name when it is
/// complete.
pub fn to_directory(request: &Request, directory: &Path) -> Result<Vec<Exported>, ExportError> {
    if directory.exists() {
        return Err(ExportError::Wrong(format!(
            "{} already exists; name a new directory",
            directory.display()
        )));
    }
    let source = OpenDatabase::open(request)?;
    let mut name = directory.as_os_str().to_owned();
    name.push(".partial");
    let partial = PathBuf::from(name);
    let failed = |what: &Path| {
        let what = what.display().to_string();
        move |source| ExportError::Write { what, source }
    };
    match std::fs::create_dir(&partial) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(ExportError::Wrong(format!(
                "{} is left over from an interrupted export; remove it",
                partial.display()
            )));
        }
        made => made.map_err(failed(&partial))?,
    }
    let written = source.tables.iter().map(|table| {
        let path = partial.join(format!("{table}.{}", request.format.extension()));
        let file = File::create(&path).map_err(failed(&path))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let rows = source.write(table, request.format, &mut out)?;
        out.into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .map_err(failed(&path))?;
        Ok(Exported {
            table: table.clone(),
            rows,
        })
    });
    let written = written.collect::<Result<Vec<_>, _>>();
    let done = written.and_then(|written| {
        std::fs::rename(&partial, directory).map_err(failed(directory))?;
        Ok(written)
    });
    if done.is_err() {
        // An incomplete export is removed.
        let _ = std::fs::remove_dir_all(&partial);
    }
    done
}

/// Writes one table; returns its number of rows.
pub fn to_writer(request: &Request, out: &mut dyn Write) -> Result<u64, ExportError> {
    let source = OpenDatabase::open(request)?;
    let [table] = source.tables.as_slice() else {
        return Err(ExportError::Wrong(String::from(
            "the standard output takes only one table or view; export several with --out DIRECTORY",
        )));
    };
    source.write(table, request.format, out)
}

/// An open database, in a read transaction.
struct OpenDatabase {
    connection: Connection,
    path: PathBuf,
    tables: Vec<String>,
    scope: ExportScope,
    /// A table of a sound file cannot have more.
    most_rows: u64,
}

impl OpenDatabase {
    fn open(request: &Request) -> Result<Self, ExportError> {
        let path = request.path.clone();
        let connection = maintain::reader(&path).map_err(ExportError::Open)?;
        let failed = |source| ExportError::Sql {
            path: path.clone(),
            doing: String::from("cannot read the database"),
            source,
        };
        connection.execute_batch("BEGIN").map_err(failed)?;
        let differences = schema::differences(&connection).map_err(failed)?;
        let mut of_rows = differences
            .iter()
            .filter(|object| object.kind == "table" || object.kind == "view");
        if let Some(difference) = of_rows.next() {
            return Err(ExportError::Wrong(format!(
                "{}: {difference}; run `benchmesh db check`",
                path.display()
            )));
        }
        let known = schema::tables_and_views().map_err(failed)?;
        if let Some(unknown) = request.tables.iter().find(|one| !known.contains(one)) {
            return Err(ExportError::Wrong(format!(
                "there is no table or view {unknown:?}; the database has {}",
                known.join(", ")
            )));
        }
        let run = match &request.run {
            None => None,
            Some(wanted) => Some(
                scope::find_run(&connection, wanted)
                    .map_err(failed)?
                    .ok_or_else(|| {
                        ExportError::Wrong(format!(
                            "there is no run {wanted:?} in {}",
                            path.display()
                        ))
                    })?,
            ),
        };
        let scope = ExportScope::of(&connection, run).map_err(failed)?;
        let tables = match request.tables.is_empty() {
            true => known,
            false => request.tables.clone(),
        };
        let most_rows = connection
            .query_row(MAX_ROWS_SQL, [], |row| row.get::<_, i64>(0))
            .map_err(failed)?
            .unsigned_abs();
        Ok(Self {
            connection,
            most_rows,
            path,
            tables,
            scope,
        })
    }

    fn write(&self, table: &str, format: Format, out: &mut dyn Write) -> Result<u64, ExportError> {
        let failed = |source| ExportError::Sql {
            path: self.path.clone(),
            doing: format!("cannot read {table}"),
            source,
        };
        let unwritten = |source| ExportError::Write {
            what: format!("the rows of {table}"),
            source,
        };
        let queries = self
            .scope
            .queries(&self.connection, table)
            .map_err(failed)?;
        let mut out = Some(out);
        let mut lines: Option<Lines<'_>> = None;
        let mut rows = 0;
        for sql in &queries {
            let mut statement = self.connection.prepare(sql).map_err(failed)?;
            let columns = statement.column_names();
            let width = columns.len();
            if let Some(out) = out.take() {
                lines = Some(Lines::new(out, format, &columns).map_err(unwritten)?);
            }
            let Some(lines) = lines.as_mut() else {
                continue;
            };
            let mut found = statement.raw_query();
            while let Some(row) = found.next().map_err(failed)? {
                let values = values(row, width).map_err(failed)?;
                lines.row(&values).map_err(unwritten)?;
                rows += 1;
                if rows > self.most_rows && !scope::is_view(table) {
                    return Err(failed(damaged()));
                }
            }
        }
        match lines {
            Some(lines) => lines.finish().map_err(unwritten)?,
            None => return Err(failed(rusqlite::Error::QueryReturnedNoRows)),
        }
        Ok(rows)
    }
}

/// The pages of a damaged file may refer to each other so that reading them practically never ends.
fn damaged() -> rusqlite::Error {
    let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
    rusqlite::Error::SqliteFailure(error, None)
}

fn values<'r>(row: &'r Row<'_>, width: usize) -> rusqlite::Result<Vec<ValueRef<'r>>> {
    (0..width).map(|column| row.get_ref(column)).collect()
}

#[cfg(test)]
mod tests;

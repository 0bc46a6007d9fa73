//! One run: which of its tables have changed, and writing those.
//!
//! What belongs to the run alone is compared by a checksum of its values. Rows of seconds are counted: late data add
//! some. Fewer than there are mean that the database has merged or deleted old ones, and the files keep them. Agents,
//! hosts and what they have, whose rows change as long as they live, are written whenever something else is.

use super::file::{FileError, TableFile, Unpublished};
use super::layout::{Layout, RunMark, TableMark, sync_directory};
use super::{ExportError, Progress};
use crate::source::RunRows;
use crate::tables::Table;
use crc32fast::Hasher;
use rusqlite::types::ValueRef;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// How often progress is shown.
const ROWS_PER_PROGRESS: u64 = 100_000;

/// What was written of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    pub tables: usize,
    pub rows: u64,
    pub bytes: u64,
    /// Whether files have rows of seconds that the database has no longer.
    pub has_kept_finer: bool,
}

/// How a change of a run's rows of a table is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChangeSign {
    /// By their values.
    Values,
    /// By their number: rows that are there never change by themselves.
    MoreRows,
    /// By those of other tables.
    Others,
}

impl ChangeSign {
    fn of(table: &Table) -> Self {
        let is_of_run = ["run_id", "step_id", "task_id"]
            .iter()
            .any(|column| table.has(column));
        if table.is_of_seconds() || matches!(table.name.as_str(), "clock_offsets" | "losses") {
            Self::MoreRows
        } else if is_of_run || table.name == "runs" {
            Self::Values
        } else {
            Self::Others
        }
    }
}

/// The tables to write: those that have changed, or of which a file is missing.
struct Changes<'t> {
    tables: Vec<&'t Table>,
    has_kept_finer: bool,
}

pub fn export(
    layout: &Layout,
    rows: &RunRows<'_>,
    tables: &[&Table],
    most_rows: u64,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Written, ExportError> {
    let run = rows.run();
    let mut mark = layout.mark(run)?;
    let changes = changes(layout, rows, tables, &mark, most_rows)?;
    let mut written = Written {
        tables: changes.tables.len(),
        has_kept_finer: changes.has_kept_finer,
        ..Written::default()
    };
    if changes.tables.is_empty() {
        return Ok(written);
    }
    let mut publication = Publication::default();
    for table in changes.tables {
        let before = written.rows;
        let mut shown = |of_table| progress(Progress::Rows(run, before + of_table));
        let (file, table_mark) = stage(layout, rows, table, most_rows, &mut shown)?;
        written.rows += table_mark.rows;
        written.bytes += table_mark.bytes;
        mark.tables.insert(table.name.clone(), table_mark);
        match file {
            Some(file) => publication.files.push(file),
            None => publication.emptied.push(layout.file(&table.name, run)),
        }
    }
    publication.publish()?;
    layout.write_mark(run, &mark)?;
    Ok(written)
}

fn changes<'t>(
    layout: &Layout,
    rows: &RunRows<'_>,
    tables: &[&'t Table],
    mark: &RunMark,
    most_rows: u64,
) -> Result<Changes<'t>, ExportError> {
    let mut changed = BTreeSet::new();
    let mut fewer = BTreeSet::new();
    for table in tables {
        let name = table.name.as_str();
        let there = mark
            .tables
            .get(name)
            .filter(|there| is_there(&layout.file(name, rows.run()), there));
        let Some(there) = there else {
            changed.insert(name);
            continue;
        };
        match ChangeSign::of(table) {
            ChangeSign::Values => {
                let mut checksum = Checksum::default();
                read(rows, table, most_rows, |row| {
                    checksum.add(row);
                    Ok(())
                })?;
                if checksum.finish() != there.crc32 {
                    changed.insert(name);
                }
            }
            ChangeSign::MoreRows => {
                let count = rows.count(table)?;
                if count > there.rows {
                    changed.insert(name);
                } else if count < there.rows {
                    fewer.insert(name);
                }
            }
            ChangeSign::Others => {}
        }
    }
    // Late intervals of one client change the sums of its step's seconds, whose number stays.
    if changed.contains("op_intervals") {
        changed.insert("step_intervals");
    }
    let follows =
        |table: &Table| ChangeSign::of(table) == ChangeSign::Others && !changed.is_empty();
    let is_written = |table: &Table| {
        let name = table.name.as_str();
        !fewer.contains(name) && (changed.contains(name) || follows(table))
    };
    Ok(Changes {
        tables: tables
            .iter()
            .copied()
            .filter(|one| is_written(one))
            .collect(),
        has_kept_finer: !fewer.is_empty(),
    })
}

fn is_there(path: &Path, mark: &TableMark) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => mark.rows > 0 && found.len() == mark.bytes,
        Err(_) => mark.rows == 0,
    }
}

/// Writes a table's file under its temporary name; none without rows.
fn stage(
    layout: &Layout,
    rows: &RunRows<'_>,
    table: &Table,
    most_rows: u64,
    shown: &mut dyn FnMut(u64),
) -> Result<(Option<Unpublished>, TableMark), ExportError> {
    let run = rows.run();
    let path = layout.file(&table.name, run);
    let failed = |error| match error {
        FileError::Io(source) => ExportError::writing(&path)(source),
        FileError::Parquet(source) => ExportError::Parquet {
            path: path.clone(),
            source,
        },
        FileError::WrongType(wrong) => ExportError::WrongType {
            table: table.name.clone(),
            column: wrong.column,
            run: run.id,
            found: wrong.found,
        },
    };
    let facts = [
        ("table", table.name.as_str()),
        ("site", layout.site()),
        ("run_uid", &run.uid),
    ];
    let mut file: Option<TableFile> = None;
    let mut checksum = Checksum::default();
    let mut written = 0;
    let count = read(rows, table, most_rows, |row| {
        checksum.add(row);
        let file = match &mut file {
            Some(file) => file,
            none => none.insert(TableFile::create(&path, table, &run.uid, &facts).map_err(failed)?),
        };
        file.push(row).map_err(failed)?;
        written += 1;
        if written % ROWS_PER_PROGRESS == 0 {
            shown(written);
        }
        Ok(())
    })?;
    let file = file.map(TableFile::finish).transpose().map_err(failed)?;
    let mark = TableMark {
        rows: count,
        bytes: file.as_ref().map_or(0, Unpublished::bytes),
        crc32: checksum.finish(),
    };
    Ok((file, mark))
}

fn read(
    rows: &RunRows<'_>,
    table: &Table,
    most_rows: u64,
    mut row: impl FnMut(&[ValueRef<'_>]) -> Result<(), ExportError>,
) -> Result<u64, ExportError> {
    let mut count = 0;
    rows.read(table, |values| {
        count += 1;
        if count > most_rows {
            return Err(ExportError::Endless {
                table: table.name.clone(),
                run: rows.run().id,
            });
        }
        row(values)
    })
}

/// Complete files of a run that have temporary names, and those that go because their tables have no rows any more.
#[derive(Default)]
struct Publication {
    files: Vec<Unpublished>,
    emptied: Vec<PathBuf>,
}

impl Publication {
    fn publish(self) -> Result<(), ExportError> {
        let mut folders = BTreeSet::new();
        let mut note = |path: &Path| folders.extend(path.parent().map(Path::to_owned));
        // Children first: who begins with `runs` does not find a run without its steps.
        for file in self.files.into_iter().rev() {
            let path = file.path().to_owned();
            file.publish().map_err(ExportError::writing(&path))?;
            note(&path);
        }
        for path in self.emptied {
            match std::fs::remove_file(&path) {
                Ok(()) => note(&path),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(ExportError::writing(&path)(error)),
            }
        }
        for folder in folders {
            sync_directory(&folder).map_err(ExportError::writing(&folder))?;
        }
        Ok(())
    }
}

/// CRC-32 of all values of a table's rows with their types.
#[derive(Default)]
struct Checksum(Hasher);

impl Checksum {
    fn add(&mut self, row: &[ValueRef<'_>]) {
        for value in row {
            let (kind, bytes): (u8, &[u8]) = match value {
                ValueRef::Null => (0, &[]),
                ValueRef::Integer(number) => (1, &number.to_le_bytes()),
                ValueRef::Real(number) => (2, &number.to_le_bytes()),
                ValueRef::Text(text) => (3, text),
                ValueRef::Blob(bytes) => (4, bytes),
            };
            self.0.update(&[kind]);
            if kind > 2 {
                self.0.update(&bytes.len().to_le_bytes());
            }
            self.0.update(bytes);
        }
    }

    fn finish(self) -> u32 {
        self.0.finalize()
    }
}

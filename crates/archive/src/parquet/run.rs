//! One run: which of its tables have changed, and writing those.
//!
//! What belongs to the run alone is compared by a checksum of its values. Rows of seconds are counted: late data add
//! some. Where the database has merged or deleted old ones, the files keep them (`retention`), and with them what the
//! file of `steps` says of how they are kept. Agents, hosts and what they have, whose rows change as long as they live,
//! are written whenever something else is.

use super::file::{FileError, TableFile, Unpublished};
use super::layout::{Layout, RunMark, TableMark, sync_directory};
use super::{ExportError, Progress};
use crate::retention::{self, Counts, StepRetention, is_counted, is_of_steps};
use crate::source::{RunRows, SHARED};
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

/// The tables to write: those that have changed, or of which a file is missing.
struct Changes<'t> {
    tables: Vec<&'t Table>,
    has_kept_finer: bool,
    /// How the files keep the intervals of the run's steps when all of `tables` are written.
    retention: StepRetention,
}

pub fn export(
    layout: &Layout,
    rows: &RunRows<'_>,
    tables: &[&Table],
    all: &[Table],
    most_rows: u64,
    progress: &mut dyn FnMut(Progress<'_>),
) -> Result<Written, ExportError> {
    let run = rows.run();
    let mut mark = layout.mark(run)?;
    let reading = Reading {
        layout,
        rows,
        most_rows,
    };
    let changes = reading.changes(tables, all, &mark)?;
    mark.steps = changes.retention;
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
        let (file, table_mark) = reading.stage(table, &mark.steps, &mut shown)?;
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

/// What becomes of the tables whose rows are counted.
struct Seconds<'t> {
    changed: BTreeSet<&'t str>,
    kept: BTreeSet<&'t str>,
    /// As in [`Changes`].
    retention: StepRetention,
}

/// A run whose tables are compared with the files and written.
struct Reading<'a> {
    layout: &'a Layout,
    rows: &'a RunRows<'a>,
    most_rows: u64,
}

impl Reading<'_> {
    fn changes<'t>(
        &self,
        tables: &[&'t Table],
        all: &'t [Table],
        mark: &RunMark,
    ) -> Result<Changes<'t>, ExportError> {
        let Seconds {
            mut changed,
            kept,
            retention,
        } = self.seconds(tables, all, mark)?;
        for table in tables.iter().filter(|table| !is_counted(table)) {
            let name = table.name.as_str();
            let is_changed = match self.there(table, mark) {
                None => true,
                Some(_) if SHARED.contains(&name) => false,
                Some(there) => {
                    let mut checksum = Checksum::default();
                    self.read(table, &retention, |row| {
                        checksum.add(row);
                        Ok(())
                    })?;
                    checksum.finish() != there.crc32
                }
            };
            if is_changed {
                changed.insert(name);
            }
        }
        let has_changed = !changed.is_empty();
        let is_written = |table: &Table| {
            let name = table.name.as_str();
            changed.contains(name) || (has_changed && SHARED.contains(&name))
        };
        Ok(Changes {
            tables: tables
                .iter()
                .copied()
                .filter(|one| is_written(one))
                .collect(),
            has_kept_finer: tables.iter().any(|one| kept.contains(one.name.as_str())),
            retention,
        })
    }

    fn seconds<'t>(
        &self,
        tables: &[&'t Table],
        all: &'t [Table],
        mark: &RunMark,
    ) -> Result<Seconds<'t>, ExportError> {
        let (mut here, mut there) = (Counts::new(), Counts::new());
        let mut other_operations = BTreeSet::new();
        for table in all.iter().filter(|table| is_counted(table)) {
            if let Some(file) = self.there(table, mark) {
                there.insert(table.name.clone(), file.rows);
                here.insert(table.name.clone(), self.rows.count(table)?);
                if self.operations(table)? != file.operations {
                    other_operations.insert(table.name.as_str());
                }
            }
        }
        let present = retention::of(self.rows, all)?;
        let steps = present.keys().copied();
        let kept = retention::kept(all, &here, &there, steps, &mark.steps);
        let was_resumed = present.keys().any(|step| !mark.steps.contains_key(step));
        let has_other_rows = |name: &str| match there.get(name) {
            Some(rows) => {
                was_resumed || here.get(name) != Some(rows) || other_operations.contains(name)
            }
            None => true,
        };
        let counted = tables.iter().filter(|table| is_counted(table));
        let mut changed: BTreeSet<&str> = counted
            .map(|table| table.name.as_str())
            .filter(|name| !kept.contains(name) && has_other_rows(name))
            .collect();
        // Late intervals of one client change the sums of its step's seconds, whose number stays.
        if changed.contains("op_intervals") && !kept.contains("step_intervals") {
            let of_steps = tables.iter().filter(|table| is_of_steps(table));
            changed.extend(of_steps.map(|table| table.name.as_str()));
        }
        let stays = |table: &Table| {
            let name = table.name.as_str();
            is_of_steps(table) && there.contains_key(name) && !changed.contains(name)
        };
        let retention = match all.iter().any(stays) {
            true => mark.steps.clone(),
            false => present,
        };
        Ok(Seconds {
            changed,
            kept,
            retention,
        })
    }

    /// The operations in a table's rows. A late part of a second changes them, and not the number of rows.
    fn operations(&self, table: &Table) -> Result<i64, ExportError> {
        match is_of_steps(table) {
            true => Ok(self.rows.operations(table)?),
            false => Ok(0),
        }
    }

    /// What the file of a table has, if it is there as its mark says.
    fn there<'m>(&self, table: &Table, mark: &'m RunMark) -> Option<&'m TableMark> {
        let path = self.layout.file(&table.name, self.rows.run());
        let there = mark.tables.get(&table.name);
        there.filter(|there| is_there(&path, there))
    }

    /// Writes a table's file under its temporary name; none without rows.
    fn stage(
        &self,
        table: &Table,
        retention: &StepRetention,
        shown: &mut dyn FnMut(u64),
    ) -> Result<(Option<Unpublished>, TableMark), ExportError> {
        let (layout, run) = (self.layout, self.rows.run());
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
        let count = self.read(table, retention, |row| {
            checksum.add(row);
            let file = match &mut file {
                Some(file) => file,
                none => none.insert(
                    TableFile::create(&path, layout.access(), table, &run.uid, &facts)
                        .map_err(failed)?,
                ),
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
            operations: self.operations(table)?,
            bytes: file.as_ref().map_or(0, Unpublished::bytes),
            crc32: checksum.finish(),
        };
        Ok((file, mark))
    }

    /// Calls `row` with the rows as the files have them.
    fn read(
        &self,
        table: &Table,
        retention: &StepRetention,
        mut row: impl FnMut(&[ValueRef<'_>]) -> Result<(), ExportError>,
    ) -> Result<u64, ExportError> {
        let mut count = 0;
        self.rows.read(table, |values| {
            count += 1;
            if count > self.most_rows {
                return Err(ExportError::Endless {
                    table: table.name.clone(),
                    run: self.rows.run().id,
                });
            }
            let kept = retention::with_kept(table, values, retention);
            row(kept.as_deref().unwrap_or(values))
        })
    }
}

fn is_there(path: &Path, mark: &TableMark) -> bool {
    match std::fs::metadata(path) {
        Ok(found) => mark.rows > 0 && found.len() == mark.bytes,
        Err(_) => mark.rows == 0,
    }
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

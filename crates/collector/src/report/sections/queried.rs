//! Sections that are a query and nothing else: a statement about a run, and the columns that show its rows.
//!
//! A new table is an entry of [`SECTIONS`]. Reading it, the check of its query plan, its rows in the JSON document and its
//! table on the terminal, in Markdown and in HTML follow from the entry. A section has a file of its own where other parts
//! read the fields of its rows, or where its table shows more than its rows.

use super::agents::versions;
use crate::figures::{self, NONE};
use crate::model::RunId;
use crate::report::row::{ReportError, Statement, reading, rows};
use crate::report::table::{Align, Table};
use serde_json::{Map, Value};
use sqlx::SqliteConnection;

const GIB: f64 = 1_073_741_824.0;

/// In the order of their tables.
pub(in crate::report) const SECTIONS: &[Section] = &[Section {
    key: "targets",
    title: "Targets",
    in_summary: true,
    statement: Statement {
        what: "run_targets",
        sql: "SELECT target, system, path, count(*) AS agents, mount_type, mount_source, mount_options,
                     max(size_bytes) AS size_bytes, packages
              FROM run_targets WHERE run_id = ?
              GROUP BY target, system, path, mount_type, mount_source, mount_options, packages
              ORDER BY target, agents DESC",
    },
    columns: &[
        column("target", "target", Format::Text),
        column("system", "system", Format::Text),
        column("agents", "agents", Format::Count),
        column("path", "path", Format::Text),
        column("mount_type", "type", Format::Text),
        column("mount_source", "source", Format::Text),
        column("size_bytes", "GiB", Format::Gib),
        column("packages", "packages", Format::Versions),
        column("mount_options", "options", Format::Text),
    ],
    spare: &["options", "packages", "path"],
    note: None,
}];

/// A table whose rows are those of a statement.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Section {
    /// Where the JSON document has its rows: arrays of objects, with a field for each column of the statement.
    pub(in crate::report) key: &'static str,
    pub(in crate::report) title: &'static str,
    /// Whether a summary has the table too.
    pub(in crate::report) in_summary: bool,
    pub(in crate::report) statement: Statement,
    /// From left to right. One in which no row has a value is left out.
    pub(in crate::report) columns: &'static [SectionColumn],
    /// Titles of columns that may be left out where the table is too wide, the least important first.
    pub(in crate::report) spare: &'static [&'static str],
    /// A line beneath the table.
    pub(in crate::report) note: Option<&'static str>,
}

/// A column of the statement as the table shows it.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct SectionColumn {
    pub(in crate::report) field: &'static str,
    pub(in crate::report) title: &'static str,
    pub(in crate::report) format: Format,
}

const fn column(field: &'static str, title: &'static str, format: Format) -> SectionColumn {
    SectionColumn {
        field,
        title,
        format,
    }
}

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Format {
    Text,
    Count,
    /// Bytes, shown in GiB.
    Gib,
    /// A JSON object, package -> version.
    Versions,
}

impl Format {
    fn align(self) -> Align {
        match self {
            Self::Text | Self::Versions => Align::Left,
            Self::Count | Self::Gib => Align::Right,
        }
    }

    fn cell(self, value: &Value) -> String {
        match self {
            Self::Text if value.is_null() => String::new(),
            Self::Text => figures::parameter(value),
            Self::Count => value
                .as_i64()
                .map_or_else(|| NONE.to_owned(), figures::count),
            Self::Gib => figures::maybe_rate(value.as_f64().map(|bytes| bytes / GIB)),
            Self::Versions => versions(value.as_object()),
        }
    }
}

impl Section {
    async fn rows(
        &self,
        connection: &mut SqliteConnection,
        run: RunId,
    ) -> Result<Value, ReportError> {
        let mut rows: Vec<Map<String, Value>> = rows(connection, self.statement, run).await?;
        for column in self.columns {
            if column.format == Format::Versions {
                for value in rows.iter_mut().filter_map(|row| row.get_mut(column.field)) {
                    parse(value)
                        .map_err(|error| sqlx::Error::Decode(Box::new(error)))
                        .map_err(reading(self.statement.what))?;
                }
            }
        }
        Ok(Value::from(rows))
    }

    /// The table of its rows; `None`: there is no row.
    pub(in crate::report) fn table(&self, rows: &[Value]) -> Option<Table> {
        let mut table = Table::of(self.title, rows);
        for column in self.columns {
            let cell = |row: &Value| {
                let value = row.get(column.field).unwrap_or(&Value::Null);
                column.format.cell(value)
            };
            table = match column.format.align() {
                Align::Left => table.text(column.title, cell),
                Align::Right => table.figure(column.title, cell),
            };
            table = table.if_any();
        }
        if let Some(note) = self.note {
            table = table.note(note);
        }
        table.spare(self.spare).done()
    }
}

/// A text of JSON becomes what it says.
fn parse(value: &mut Value) -> Result<(), serde_json::Error> {
    if let Value::String(text) = value {
        *value = serde_json::from_str(text)?;
    }
    Ok(())
}

/// The rows of all sections, by their keys.
pub(in crate::report) async fn load(
    connection: &mut SqliteConnection,
    run: RunId,
) -> Result<Map<String, Value>, ReportError> {
    let mut read = Map::new();
    for section in SECTIONS {
        let rows = section.rows(connection, run).await?;
        read.insert(section.key.to_owned(), rows);
    }
    Ok(read)
}

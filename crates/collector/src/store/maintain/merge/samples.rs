//! Copies the samples that this database lacks: whole series page by page, parts of series by SQL.

use super::append::{Append, append};
use super::pages::{self, PageError};
use super::series::{self, Missing, Series, Span};
use rusqlite::{Connection, params};
use std::path::Path;

/// Table, the column that names what was sampled, and the table that it is in.
const TABLES: [(&str, &str, &str); 4] = [
    ("daemon_samples", "daemon_id", "daemons"),
    ("host_samples", "host_id", "hosts"),
    ("disk_samples", "disk_id", "disks"),
    ("net_samples", "interface_id", "interfaces"),
];

/// How samples are compared and copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Copying {
    /// Far faster, and only for files whose layout is known.
    Pages,
    Rows,
}

/// What is left to copy by pages.
#[derive(Debug, Default)]
pub(super) struct Rest {
    appends: Vec<Append>,
}

impl Rest {
    /// Copies it. This has to be the last change before the commit. Returns the rows.
    pub(super) fn copy(self, connection: &Connection, other: &Path) -> Result<usize, PageError> {
        append(connection, other, &self.appends)
    }
}

/// Copies what SQL has to copy. Returns the rows, and what is left. To be called when `map_*` has the ids of everything that
/// was sampled, and before anything else has been written.
pub(super) fn copy(
    connection: &Connection,
    path: &Path,
    other: &Path,
    copying: Copying,
) -> Result<(usize, Rest), PageError> {
    let all = find(connection).map_err(PageError::Sql)?;
    let by_pages =
        copying == Copying::Pages && pages::are_available(connection).map_err(PageError::Sql)?;
    let missing = match by_pages {
        // Read on other connections, which see this one's file as it was.
        true => series::missing(path, other, &all)?,
        false => vec![Missing::Spans(vec![series::ALWAYS]); all.len()],
    };
    let (mut rows, mut rest) = (0, Rest::default());
    for (table, key, _) in TABLES {
        let mut whole = Vec::new();
        let mut copy = || -> rusqlite::Result<()> {
            let greatest: Option<i64> = connection.query_row(
                &format!("SELECT max({key}) FROM main.{table}"),
                [],
                |row| row.get(0),
            )?;
            let mut statement = connection.prepare(&copying_sql(connection, table, key)?)?;
            let mut copy = |series: &Series, (from, until): Span| {
                statement.execute(params![series.id, series.other_id, from, until])
            };
            let of_table = all
                .iter()
                .zip(&missing)
                .filter(|(one, _)| one.table == table);
            for (series, missing) in of_table {
                match missing {
                    Missing::Whole if greatest.is_none_or(|greatest| series.id > greatest) => {
                        whole.push((series.other_id, series.id));
                    }
                    Missing::Whole => rows += copy(series, series::ALWAYS)?,
                    Missing::Spans(spans) => {
                        for span in spans {
                            rows += copy(series, *span)?;
                        }
                    }
                }
            }
            Ok(())
        };
        copy().map_err(PageError::Sql)?;
        rest.appends.push(Append {
            table,
            series: whole,
        });
    }
    Ok((rows, rest))
}

/// All series of the other database, each table's in the order of their ids here.
fn find(connection: &Connection) -> rusqlite::Result<Vec<Series>> {
    let mut all = Vec::new();
    for (table, _, of) in TABLES {
        let mut ids =
            connection.prepare(&format!("SELECT old, new FROM temp.map_{of} ORDER BY new"))?;
        let ids = ids.query_map([], |row| {
            Ok(Series {
                table,
                other_id: row.get(0)?,
                id: row.get(1)?,
            })
        })?;
        for one in ids {
            all.push(one?);
        }
    }
    Ok(all)
}

/// Copies a span of a series: its id here, its id there, from, until.
fn copying_sql(connection: &Connection, table: &str, key: &str) -> rusqlite::Result<String> {
    let columns: Vec<String> = super::columns(connection, table)?
        .into_iter()
        .filter(|column| column != key)
        .collect();
    let columns = columns.join(", ");
    Ok(format!(
        "INSERT OR IGNORE INTO main.{table} ({key}, {columns}) SELECT ?1, {columns} FROM other.{table}
         WHERE {key} = ?2 AND at_us BETWEEN ?3 AND ?4 ORDER BY at_us"
    ))
}

//! Makes a file of an older version readable as if it had been migrated, without changing it. Views of this
//! connection replace the tables that lack columns, missing tables, and our own views.
//!
//! A missing column has its default value, and a missing table is empty.

use super::open::{MIGRATIONS, newest_schema};
use super::{figure_columns, views};
use rusqlite::Connection;
use sqlx::{AssertSqlSafe, SqliteConnection};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::OnceLock;

/// By table, its columns with their defaults.
type Tables = BTreeMap<String, Vec<(String, Option<String>)>>;

const VERSION: &str = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";
const COLUMNS: &str = "SELECT m.name, c.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c WHERE m.type = 'table'";

/// Creates the missing columns, tables and views for this connection.
pub async fn complete(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    // A file of another program lacks this table.
    let Ok(version) = sqlx::query_scalar(VERSION)
        .fetch_one(&mut *connection)
        .await
    else {
        return Ok(());
    };
    let found: Vec<(String, String)> = sqlx::query_as(COLUMNS).fetch_all(&mut *connection).await?;
    if let Some(script) = script(version, &found) {
        // `query_only` also forbids views of the connection.
        let script = format!("PRAGMA query_only = OFF; {script} PRAGMA query_only = ON;");
        sqlx::raw_sql(AssertSqlSafe(script))
            .execute(connection)
            .await?;
    }
    Ok(())
}

/// Like [`complete`], for a rusqlite connection.
pub(super) fn complete_directly(connection: &Connection) -> rusqlite::Result<()> {
    let version = connection.query_row(VERSION, [], |row| row.get(0))?;
    let mut columns = connection.prepare(COLUMNS)?;
    let found = columns.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found: Vec<(String, String)> = found.collect::<rusqlite::Result<_>>()?;
    match script(version, &found) {
        Some(script) => connection.execute_batch(&script),
        None => Ok(()),
    }
}

/// The SQL that creates the missing parts; `None` if nothing is missing, or the file is of a newer version.
fn script(version: i64, found: &[(String, String)]) -> Option<String> {
    static EXPECTED: OnceLock<Option<Tables>> = OnceLock::new();
    // This does not fail: every test runs the migrations on an empty database.
    let expected = EXPECTED.get_or_init(|| expected().ok()).as_ref()?;
    if version > newest_schema() {
        return None;
    }
    let mut script = String::new();
    for (table, columns) in expected {
        let there = |column: &str| found.iter().any(|(of, name)| of == table && name == column);
        let is_table_there = found.iter().any(|(of, _)| of == table);
        let missing = columns.iter().filter(|(column, _)| !there(column));
        let missing: Vec<String> = missing
            .map(|(column, default)| {
                let default = default.as_deref().filter(|_| is_table_there);
                format!("{} AS \"{column}\"", default.unwrap_or("NULL"))
            })
            .collect();
        if missing.is_empty() {
            continue;
        }
        let missing = missing.join(", ");
        let _ = match is_table_there {
            true => writeln!(
                script,
                "CREATE TEMP VIEW \"{table}\" AS SELECT *, {missing} FROM main.\"{table}\";"
            ),
            false => writeln!(
                script,
                "CREATE TEMP VIEW \"{table}\" AS SELECT {missing} WHERE 0;"
            ),
        };
    }
    if script.is_empty() {
        return None;
    }
    script += &views::text().replace("CREATE VIEW", "CREATE TEMP VIEW");
    Some(script)
}

/// The tables as the migrations of this version create them.
fn expected() -> rusqlite::Result<Tables> {
    let connection = Connection::open_in_memory()?;
    for (_, _, migration) in MIGRATIONS {
        connection.execute_batch(migration)?;
    }
    let mut tables = Tables::new();
    let mut columns = connection.prepare(
        "SELECT m.name, c.name, c.dflt_value FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c
         WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%'",
    )?;
    let mut rows = columns.query([])?;
    while let Some(row) = rows.next()? {
        let of: &mut Vec<_> = tables.entry(row.get(0)?).or_default();
        of.push((row.get(1)?, row.get(2)?));
    }
    for (table, figure) in figure_columns::all() {
        let of = tables.entry(table.to_owned()).or_default();
        if !of.iter().any(|(column, _)| column == figure.name) {
            of.push((figure.name.to_owned(), None));
        }
    }
    Ok(tables)
}

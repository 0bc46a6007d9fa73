//! The views. Their text is `views.sql`, with a column of `v_results` for each row of the table of flags, and a
//! column of `v_daemon_usage` for each figure of daemons that is stored per step and has a word.
//!
//! `PRAGMA user_version` contains a checksum of the text that a file's views were created from. If it differs,
//! opening the file for writing creates them again, so that new or changed views and new flags need no migration. All
//! names `v_*` are reserved for these views.

use benchmesh_model::figures::{DaemonFigures, Figures};
use benchmesh_results::Flag;
use sqlx::{AssertSqlSafe, Connection, SqliteConnection};
use std::fmt::Write;

const VIEWS: &str = include_str!("../views.sql");
const FLAG_COLUMNS: &str = "/* a column for each flag */";
const FIGURE_COLUMNS: &str = "/* a column for each figure of a step's daemon */";

pub(super) fn text() -> String {
    let mut columns = String::new();
    for row in Flag::ROWS {
        let (name, column) = (row.name, row.column());
        let _ = write!(
            columns,
            ",\n       instr(s.flags, '\"{name}\"') > 0 AS {column}"
        );
    }
    let mut figures = String::new();
    for figure in DaemonFigures::ALL {
        if let Some((column, divisor)) = figure.column_of_step() {
            let _ = write!(figures, ",\n       u.{}", figure.name);
            if let Some(divisor) = divisor {
                let _ = write!(figures, " / {divisor}");
            }
            let _ = write!(figures, " AS {column}");
        }
    }
    VIEWS
        .replace(FLAG_COLUMNS, &columns)
        .replace(FIGURE_COLUMNS, &figures)
}

/// Creates all views again if the file's views have another text.
pub(super) async fn update(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let text = text();
    let checksum = crc32fast::hash(text.as_bytes()).cast_signed();
    let stored: i32 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *writer)
        .await?;
    if stored == checksum {
        return Ok(());
    }
    let mut transaction = writer.begin().await?;
    let found = "SELECT name FROM sqlite_schema WHERE type = 'view' AND name GLOB 'v_*'";
    let found: Vec<String> = sqlx::query_scalar(found)
        .fetch_all(&mut *transaction)
        .await?;
    let mut script = String::new();
    for view in found {
        let _ = writeln!(script, "DROP VIEW \"{}\";", view.replace('"', "\"\""));
    }
    let _ = write!(script, "{text}\nPRAGMA user_version = {checksum};");
    sqlx::raw_sql(AssertSqlSafe(script))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await
}

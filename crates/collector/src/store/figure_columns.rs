//! The columns of sampled figures: one for each row of the tables of figures.
//!
//! A new figure needs no migration: opening the file to write adds the columns that it lacks.

use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, Figure, Figures, HostFigures, NetFigures, Unit,
};
use sqlx::{AssertSqlSafe, SqliteConnection};

pub(super) async fn update(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    add_missing(writer, DaemonFigures::TABLE, DaemonFigures::ALL).await?;
    add_missing(writer, HostFigures::TABLE, HostFigures::ALL).await?;
    add_missing(writer, DiskFigures::TABLE, DiskFigures::ALL).await?;
    add_missing(writer, NetFigures::TABLE, NetFigures::ALL).await?;
    let in_step = DaemonFigures::ALL.iter().filter(|it| it.in_step.is_some());
    add_missing(writer, "step_daemons", in_step).await
}

async fn add_missing(
    writer: &mut SqliteConnection,
    table: &str,
    figures: impl IntoIterator<Item = &Figure>,
) -> Result<(), sqlx::Error> {
    let columns: Vec<String> = sqlx::query_scalar("SELECT name FROM pragma_table_info(?)")
        .bind(table)
        .fetch_all(&mut *writer)
        .await?;
    for figure in figures {
        if columns.iter().any(|column| column == figure.name) {
            continue;
        }
        let kind = match figure.unit {
            Unit::Hundredths => "REAL",
            Unit::Bytes | Unit::Micros | Unit::Count => "INTEGER",
        };
        let add = format!("ALTER TABLE {table} ADD COLUMN {} {kind}", figure.name);
        sqlx::query(AssertSqlSafe(add))
            .execute(&mut *writer)
            .await?;
    }
    Ok(())
}

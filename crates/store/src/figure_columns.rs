//! The columns of sampled figures: one for each row of the tables of figures.
//!
//! A new figure needs no migration: opening the file for writing adds missing columns.

use benchmesh_model::figures::{
    DaemonFigures, DiskFigures, Figure, Figures, HostFigures, NetFigures, TargetFigures, Unit,
};
use sqlx::{AssertSqlSafe, SqliteConnection};

/// Each figure with its table.
pub(super) fn all() -> impl Iterator<Item = (&'static str, &'static Figure)> {
    let in_step = DaemonFigures::ALL.iter().filter(|it| it.in_step.is_some());
    let of = |table, figures: &'static [Figure]| figures.iter().map(move |it| (table, it));
    of(DaemonFigures::TABLE, DaemonFigures::ALL)
        .chain(of(HostFigures::TABLE, HostFigures::ALL))
        .chain(of(DiskFigures::TABLE, DiskFigures::ALL))
        .chain(of(NetFigures::TABLE, NetFigures::ALL))
        .chain(of(TargetFigures::TABLE, TargetFigures::ALL))
        .chain(in_step.map(|it| ("step_daemons", it)))
}

pub(super) async fn update(writer: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let found: Vec<(String, String)> = sqlx::query_as(
        "SELECT m.name, c.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c WHERE m.type = 'table'",
    )
    .fetch_all(&mut *writer)
    .await?;
    for (table, figure) in all() {
        let is_there = |(of, column): &(String, String)| of == table && column == figure.name;
        if found.iter().any(is_there) {
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

//! The statements of ingest, run synchronously by the calling thread. Each is prepared once per transaction.
//!
//! The rows of a table are inserted by one statement, stepped once per row.

use crate::database::{Doing, StoreError};
use benchmesh_model::figures::{Figure, Figures, UNKNOWN, Unit};
use benchmesh_results::real;
use rusqlite::types::Null;
use rusqlite::{Connection, OptionalExtension, Params, Row, Statement, ToSql};
use std::sync::OnceLock;

/// Runs a statement that changes rows; returns their number.
pub(super) fn execute(
    connection: &Connection,
    doing: &'static str,
    sql: &'static str,
    values: impl Params,
) -> Result<usize, StoreError> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.execute(values))
        .doing(doing)
}

/// The first row that is found, if any.
pub(super) fn find<T>(
    connection: &Connection,
    doing: &'static str,
    sql: &'static str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Option<T>, StoreError> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(values, read).optional())
        .doing(doing)
}

/// The row of a statement that always returns one.
pub(super) fn one<T>(
    connection: &Connection,
    doing: &'static str,
    sql: &'static str,
    values: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    connection
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(values, read))
        .doing(doing)
}

/// How rows are inserted into one table.
#[derive(Debug)]
pub(crate) struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    /// Their columns come after the others.
    figures: &'static [Figure],
    /// SQL after VALUES, such as `ON CONFLICT (a) DO NOTHING`.
    tail: &'static str,
    doing: &'static str,
    /// Built on first use.
    statement: OnceLock<String>,
}

impl Table {
    pub(crate) const fn new(
        name: &'static str,
        columns: &'static [&'static str],
        tail: &'static str,
        doing: &'static str,
    ) -> Self {
        Self {
            name,
            columns,
            figures: &[],
            tail,
            doing,
            statement: OnceLock::new(),
        }
    }

    /// The table of a kind of series. An existing sample is not replaced.
    pub(crate) const fn of_samples<F: Figures>(
        columns: &'static [&'static str],
        doing: &'static str,
    ) -> Self {
        Self {
            name: F::TABLE,
            columns,
            figures: F::ALL,
            tail: "ON CONFLICT DO NOTHING",
            doing,
            statement: OnceLock::new(),
        }
    }

    fn statement(&self) -> &str {
        self.statement.get_or_init(|| {
            let figures = self.figures.iter().map(|figure| figure.name);
            let columns: Vec<&str> = self.columns.iter().copied().chain(figures).collect();
            let values = vec!["?"; columns.len()].join(",");
            let (name, columns) = (self.name, columns.join(", "));
            format!(
                "INSERT INTO {name} ({columns}) VALUES ({values}) {}",
                self.tail
            )
        })
    }

    /// Inserts `rows`, each bound by `bind`; returns the number of new ones.
    pub(crate) fn insert<T>(
        &self,
        connection: &Connection,
        rows: &[T],
        bind: impl Fn(&T, &mut Values<'_, '_>),
    ) -> Result<usize, StoreError> {
        let mut inserted = 0;
        if rows.is_empty() {
            return Ok(inserted);
        }
        let mut statement = connection
            .prepare_cached(self.statement())
            .doing(self.doing)?;
        for row in rows {
            let mut values = Values {
                statement: &mut statement,
                bound: 0,
                refused: None,
            };
            bind(row, &mut values);
            let refused = values.refused;
            inserted += match refused {
                None => statement.raw_execute(),
                Some(error) => Err(error),
            }
            .doing(self.doing)?;
        }
        Ok(inserted)
    }
}

/// The values of one row, in the order of the statement's columns. The first value that cannot be bound is stored as
/// an error, and the row is refused.
#[derive(Debug)]
pub(crate) struct Values<'r, 'c> {
    statement: &'r mut Statement<'c>,
    bound: usize,
    refused: Option<rusqlite::Error>,
}

impl Values<'_, '_> {
    pub(crate) fn add(&mut self, value: impl ToSql) {
        self.bound += 1;
        if let Err(error) = self.statement.raw_bind_parameter(self.bound, value) {
            self.refused.get_or_insert(error);
        }
    }

    pub(crate) fn add_figures<F: Figures>(&mut self, figures: &F) {
        for (figure, value) in F::ALL.iter().zip(figures.values()) {
            match (value, figure.unit) {
                (UNKNOWN, _) => self.add(Null),
                (_, Unit::Hundredths) => self.add(real(value) / 100.0),
                (_, Unit::Bytes | Unit::Micros | Unit::Count) => self.add(value),
            }
        }
    }
}

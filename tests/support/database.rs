//! The database as a user queries it: SQL through a separate reader, read-only, while the collector writes.

use rusqlite::types::{FromSql, Value};
use rusqlite::{Connection, OpenFlags};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// An independent reader of a benchmesh database.
#[derive(Debug)]
pub struct Database {
    connection: Connection,
}

/// One row, by column name.
#[derive(Debug, Clone, PartialEq)]
pub struct Row(BTreeMap<String, Value>);

impl Database {
    pub fn open(path: &Path) -> Self {
        let connection = Connection::open_with_flags(
            path,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .unwrap_or_else(|error| panic!("open {}: {error}", path.display()));
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        Self { connection }
    }

    /// All rows of a query; panics with the SQL if it fails.
    pub fn rows(&self, sql: &str) -> Vec<Row> {
        self.try_rows(sql)
            .unwrap_or_else(|error| panic!("{error} in: {sql}"))
    }

    pub fn try_rows(&self, sql: &str) -> Result<Vec<Row>, rusqlite::Error> {
        let mut statement = self.connection.prepare(sql)?;
        let names: Vec<String> = statement
            .column_names()
            .into_iter()
            .map(str::to_owned)
            .collect();
        let rows = statement.query_map([], |row| {
            let mut values = BTreeMap::new();
            for (index, name) in names.iter().enumerate() {
                values.insert(name.clone(), row.get::<_, Value>(index)?);
            }
            Ok(Row(values))
        })?;
        rows.collect()
    }

    /// The first column of the only row.
    pub fn one<T: FromSql>(&self, sql: &str) -> T {
        self.connection
            .query_row(sql, [], |row| row.get(0))
            .unwrap_or_else(|error| panic!("{error} in: {sql}"))
    }

    /// The first column of each row.
    pub fn column<T: FromSql>(&self, sql: &str) -> Vec<T> {
        let mut statement = self
            .connection
            .prepare(sql)
            .unwrap_or_else(|error| panic!("{error} in: {sql}"));
        let rows = statement.query_map([], |row| row.get(0));
        rows.and_then(Iterator::collect)
            .unwrap_or_else(|error| panic!("{error} in: {sql}"))
    }

    /// Runs SQLite's integrity check and the check of foreign keys.
    pub fn assert_sound(&self) {
        assert_eq!(self.one::<String>("PRAGMA integrity_check"), "ok");
        let dangling = self.rows("PRAGMA foreign_key_check");
        assert!(
            dangling.is_empty(),
            "rows that refer to nothing: {dangling:?}"
        );
    }
}

/// Fails unless a row of `v_results` is plausible: no errors, a rate, percentiles in order. The rate may only be
/// missing if the tasks ended before all of them had begun, which happens in a short step: on a busy machine, threads
/// without real-time priority begin some 100 ms late.
pub fn assert_believable(row: &Row) {
    assert_eq!(row.integer("errors"), 0, "{row:?}");
    let percentiles = ["p50_ms", "p99_ms", "max_ms"].map(|name| row.number(name));
    assert!(percentiles.is_sorted(), "{row:?}");
    if row.text("flags").contains("no-overlap") {
        assert!(row.is_null("ops_per_s"), "{row:?}");
        assert!(row.number("last_done_s") < 0.25, "{row:?}");
    } else {
        assert!(row.number("ops_per_s") > 0.0, "{row:?}");
    }
}

impl Row {
    pub fn text(&self, column: &str) -> String {
        match self.value(column) {
            Value::Text(text) => text.clone(),
            other => panic!("{column} is not text but {other:?} in {self:?}"),
        }
    }

    pub fn integer(&self, column: &str) -> i64 {
        match self.value(column) {
            Value::Integer(number) => *number,
            other => panic!("{column} is not an integer but {other:?} in {self:?}"),
        }
    }

    /// A number, whole or not.
    pub fn number(&self, column: &str) -> f64 {
        match self.value(column) {
            #[expect(
                clippy::cast_precision_loss,
                reason = "test figures are far below 2^52"
            )]
            Value::Integer(number) => *number as f64,
            Value::Real(number) => *number,
            other => panic!("{column} is not a number but {other:?} in {self:?}"),
        }
    }

    pub fn is_null(&self, column: &str) -> bool {
        matches!(self.value(column), Value::Null)
    }

    pub fn value(&self, column: &str) -> &Value {
        self.0
            .get(column)
            .unwrap_or_else(|| panic!("no column {column} in {self:?}"))
    }
}

//! Rows of both engines, compared as values: a boolean is 1 or 0, a double is one within 1e-9 of it, and a whole number
//! of a
//! JSON object is its text.

use benchmesh_answers::query::{self, Limits, Value};
use sqlx::{AssertSqlSafe, PgConnection};
use std::path::Path;
use std::time::Duration;

pub struct Rows {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Value>>,
}

pub async fn sqlite(path: &Path, sql: &str) -> Rows {
    let limits = Limits::own_process(Duration::from_secs(60));
    let answer = query::run(path, sql, limits, ()).await;
    let mut answer = answer.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let mut rows = Vec::new();
    while let Some(batch) = answer.rows.recv().await {
        rows.extend(batch.unwrap_or_else(|error| panic!("{sql}: {error}")));
    }
    Rows {
        columns: answer.columns,
        rows,
    }
}

/// The rows that a view has of a run, without site and uid, in its order.
pub async fn archived(
    connection: &mut PgConnection,
    view: &str,
    site: &str,
    uid: &str,
) -> Vec<Vec<Value>> {
    let sql = format!(
        "SELECT to_jsonb(v)::text FROM benchmesh.{view} AS v WHERE site = '{site}' AND run_uid = '{uid}'"
    );
    let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_all(&mut *connection)
        .await
        .unwrap_or_else(|error| panic!("{view}: {error}"));
    let columns = columns(connection, view).await;
    let of_row = |text: &String| {
        let row: serde_json::Value = serde_json::from_str(text).unwrap();
        columns.iter().map(|column| value(&row[column])).collect()
    };
    found.iter().map(of_row).collect()
}

pub async fn same_columns(connection: &mut PgConnection, view: &str, expected: &[String]) {
    assert_eq!(columns(connection, view).await, expected, "{view}");
}

async fn columns(connection: &mut PgConnection, view: &str) -> Vec<String> {
    let sql = format!(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = 'benchmesh.{view}'::regclass AND attnum > 0 ORDER BY attnum"
    );
    let found: Vec<String> = sqlx::query_scalar(AssertSqlSafe(sql))
        .fetch_all(connection)
        .await
        .unwrap();
    assert_eq!(found.get(..2).unwrap(), ["site", "run_uid"], "{view}");
    found.into_iter().skip(2).collect()
}

fn value(json: &serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(found) => Value::Integer(i64::from(*found)),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Real(number.as_f64().unwrap()),
        },
        serde_json::Value::String(text) => Value::Text(text.clone()),
        other => panic!("a column of {other}"),
    }
}

/// Rows of a view have no order, those of a question have its own.
pub fn compare(name: &str, expected: &Rows, found: &[Vec<Value>]) {
    assert_eq!(found.len(), expected.rows.len(), "rows of {name}");
    let (mut expected_rows, mut found) = (expected.rows.clone(), found.to_vec());
    if name.starts_with("v_") {
        expected_rows.sort_by_key(|row| sort_key(row));
        found.sort_by_key(|row| sort_key(row));
    }
    for (at, (expected_row, found)) in expected_rows.iter().zip(&found).enumerate() {
        for (column, (expected, found)) in
            expected.columns.iter().zip(expected_row.iter().zip(found))
        {
            assert!(
                is_same(expected, found),
                "{name}, row {at}, {column}: SQLite has {expected:?}, the archive {found:?}\n{expected_row:?}"
            );
        }
    }
}

/// A whole number may be an integer in one engine and a double in the other.
fn sort_key(row: &[Value]) -> Vec<String> {
    let texts = row.iter().map(|value| match value {
        Value::Text(text) => text.clone(),
        _ => String::new(),
    });
    let numbers = row.iter().map(|value| {
        number(value)
            .map(|it| format!("{it:.6e}"))
            .unwrap_or_default()
    });
    texts.chain(numbers).collect()
}

#[expect(clippy::cast_precision_loss, reason = "compared as doubles")]
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Integer(integer) => Some(*integer as f64),
        Value::Real(real) => Some(*real),
        _ => None,
    }
}

fn is_same(expected: &Value, found: &Value) -> bool {
    match (number(expected), number(found)) {
        (Some(expected), Some(found)) => {
            expected == found || (expected - found).abs() <= 1e-9 * expected.abs().max(found.abs())
        }
        // `->>` gives a number in SQLite.
        (Some(_), None) => match (expected, found) {
            (Value::Integer(expected), Value::Text(found)) => expected.to_string() == *found,
            _ => false,
        },
        _ => expected == found,
    }
}

/// As PostgreSQL writes an array of texts in JSON.
pub fn as_text_array(row: &[Value]) -> String {
    let texts = row.iter().map(|value| match value {
        Value::Null => serde_json::Value::Null,
        Value::Integer(integer) => integer.to_string().into(),
        Value::Text(text) => text.clone().into(),
        other => panic!("{other:?}"),
    });
    serde_json::Value::Array(texts.collect()).to_string()
}

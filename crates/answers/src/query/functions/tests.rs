#![allow(clippy::unwrap_used)]
use super::super::limits::Limits;
use super::super::{QueryError, Value, run};
use super::FUNCTIONS;
use benchmesh_workloads::histogram::Histogram;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

fn histogram(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    for value in values {
        histogram.record(*value);
    }
    histogram
}

const SLOW: [u64; 4] = [1_000, 2_000, 3_000, 70_000];
const FAST: [u64; 3] = [100, 200, 300];

/// Numbers of three groups with NULLs among them, and two histograms.
fn database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(
        "CREATE TABLE numbers (part TEXT, x REAL, n INTEGER, word TEXT);
         INSERT INTO numbers VALUES ('a', 3, 3, 'three'), ('a', 1, 1, 'one'), ('a', NULL, NULL, NULL), ('a', 2, 2, 'two'),
             ('a', 10, 10, 'ten'), ('b', 5, 5, 'five'), ('c', NULL, NULL, NULL);
         CREATE TABLE blobs (id INTEGER, histogram BLOB)",
    )
    .unwrap();
    for (id, blob) in [
        (1, Some(histogram(&SLOW).to_v2_deflate())),
        (2, Some(histogram(&FAST).to_v2_deflate())),
        (3, None),
        (4, Some(Histogram::new().to_v2_deflate())),
        (5, Some(b"no histogram".to_vec())),
    ] {
        file.execute("INSERT INTO blobs VALUES (?, ?)", (id, blob))
            .unwrap();
    }
    (directory, path)
}

async fn first(path: &Path, sql: &str, limits: Limits) -> Result<Value, QueryError> {
    let mut answer = run(path, sql, limits, ()).await?;
    let mut found = Value::Null;
    while let Some(batch) = answer.rows.recv().await {
        if let Some(value) = batch?
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next())
        {
            found = value;
        }
    }
    Ok(found)
}

fn limits() -> Limits {
    Limits::shared(Duration::from_secs(60))
}

#[tokio::test]
async fn every_function_gives_what_its_definition_says() {
    let (_directory, path) = database();
    let both = histogram(&[&SLOW[..], &FAST[..]].concat()).to_v2_deflate();
    // numpy: median and quantile([1, 2, 3, 10]), std(ddof=1)
    for (sql, expected) in [
        (
            "SELECT median(x) FROM numbers WHERE part = 'a'",
            Value::Real(2.5),
        ),
        (
            "SELECT median(n) FROM numbers WHERE part = 'b'",
            Value::Real(5.0),
        ),
        (
            "SELECT median(x) FROM numbers WHERE part = 'c'",
            Value::Null,
        ),
        (
            "SELECT median(x) FROM numbers WHERE part = 'd'",
            Value::Null,
        ),
        (
            "SELECT quantile(x, 0) FROM numbers WHERE part = 'a'",
            Value::Real(1.0),
        ),
        (
            "SELECT round(quantile(x, 0.9), 9) FROM numbers WHERE part = 'a'",
            Value::Real(7.9),
        ),
        (
            "SELECT quantile(x, 1) FROM numbers WHERE part = 'a'",
            Value::Real(10.0),
        ),
        ("SELECT quantile(x, NULL) FROM numbers", Value::Null),
        (
            "SELECT group_concat(m) FROM (SELECT median(x) AS m FROM numbers GROUP BY part)",
            Value::Text("2.5,5.0".to_owned()),
        ),
        (
            "SELECT round(stddev(n), 9) FROM numbers WHERE part = 'a'",
            Value::Real(4.082482905),
        ),
        (
            "SELECT stddev(x) FROM numbers WHERE part = 'b'",
            Value::Null,
        ),
        (
            "SELECT stddev(x) FROM numbers WHERE part = 'd'",
            Value::Null,
        ),
        // Python: statistics.geometric_mean([1, 2, 3, 10])
        (
            "SELECT round(exp(avg(ln(x))), 9) FROM numbers WHERE part = 'a'",
            Value::Real(2.783157684),
        ),
        ("SELECT ln(0)", Value::Null),
        ("SELECT exp(NULL)", Value::Null),
        (
            "SELECT hist_merge(histogram) FROM blobs WHERE id < 5",
            Value::Blob(both),
        ),
        (
            "SELECT hist_merge(histogram) FROM blobs WHERE id = 3",
            Value::Null,
        ),
        (
            "SELECT hist_merge(histogram) FROM blobs WHERE 0",
            Value::Null,
        ),
        (
            "SELECT hist_count(hist_merge(histogram)) FROM blobs WHERE id < 5",
            Value::Integer(7),
        ),
        ("SELECT hist_count(NULL)", Value::Null),
        (
            "SELECT hist_count(histogram) FROM blobs WHERE id = 4",
            Value::Integer(0),
        ),
        (
            "SELECT hist_quantile(histogram, 0.5) FROM blobs WHERE id = 2",
            Value::Integer(200),
        ),
        (
            "SELECT hist_quantile(hist_merge(histogram), 1) BETWEEN 70000 AND 70560 FROM blobs WHERE id < 3",
            Value::Integer(1),
        ),
        (
            "SELECT hist_quantile(histogram, 0.5) FROM blobs WHERE id = 4",
            Value::Null,
        ),
        ("SELECT hist_quantile(NULL, 0.5)", Value::Null),
        (
            "SELECT hist_quantile(histogram, NULL) FROM blobs WHERE id = 1",
            Value::Null,
        ),
    ] {
        let found = first(&path, sql, limits()).await;
        assert_eq!(
            found.map_err(|error| error.to_string()),
            Ok(expected),
            "{sql}"
        );
    }
}

#[tokio::test]
async fn wrong_arguments_are_named() {
    let (_directory, path) = database();
    let a_share = "takes a share q from 0 to 1, such as 0.99, and got";
    let a_histogram = "takes a histogram, such as service_histogram of op_intervals,";
    for (sql, expected) in [
        (
            "SELECT median(word) FROM numbers",
            "median() takes numbers, and got the text 'three'".to_owned(),
        ),
        (
            "SELECT stddev(histogram) FROM blobs WHERE id = 5",
            "stddev() takes numbers, and got a blob of 12 bytes".to_owned(),
        ),
        (
            "SELECT quantile(x, 99) FROM numbers",
            format!("quantile() {a_share} 99"),
        ),
        (
            "SELECT quantile(x, '0.5') FROM numbers",
            format!("quantile() {a_share} the text '0.5'"),
        ),
        (
            "SELECT quantile(x, x / 10) FROM numbers WHERE part = 'a'",
            "quantile() takes the same q in all rows of a group".to_owned(),
        ),
        (
            "SELECT hist_quantile(histogram, -0.1) FROM blobs",
            format!("hist_quantile() {a_share} -0.1"),
        ),
        (
            "SELECT hist_merge(histogram) FROM blobs",
            format!(
                "hist_merge() {a_histogram} and this blob is none: not a compressed V2 histogram: it begins with 0x6e6f2068"
            ),
        ),
        (
            "SELECT hist_count(x'1c849314')",
            format!("hist_count() {a_histogram} and this blob is none: the histogram ends before its length"),
        ),
        (
            "SELECT hist_quantile('abc', 0.5)",
            format!("hist_quantile() {a_histogram} and got the text 'abc'"),
        ),
        (
            "SELECT hist_quantile(x'00')",
            "wrong number of arguments to function hist_quantile()\n  SELECT hist_quantile(x'00')\n         ^".to_owned(),
        ),
    ] {
        let found = first(&path, sql, limits()).await;
        let found = found.map_err(|error| error.to_string());
        assert_eq!(found, Err(expected), "{sql}");
    }
}

#[test]
fn every_function_is_in_the_reference() {
    let reference = include_str!("../../../../../docs/database.md");
    let rows: Vec<String> = FUNCTIONS
        .iter()
        .map(|one| format!("| `{}` | {} |", one.signature, one.meaning))
        .collect();
    let (_, section) = reference.split_once("## Functions of queries").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let listed: Vec<&str> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    assert_eq!(listed, rows);
}

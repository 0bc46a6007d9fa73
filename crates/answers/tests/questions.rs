//! Every documented question on a database with known answers.
//!
//! `questions/data.sql` contains a client, a server and six steps with round figures; `questions/answers.txt`
//! contains the expected answers, computed from those figures: 2 s of CPU over 1000 operations are 2000 us each, and
//! so on.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use benchmesh_answers::query::{self, Limits, QueryError, Value, questions};
use benchmesh_store::Store;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

const DATA: &str = include_str!("questions/data.sql");
const ANSWERS: &str = include_str!("questions/answers.txt");

/// The expected rows of each question, by its name.
fn expected() -> BTreeMap<&'static str, Vec<&'static str>> {
    // Python: statistics.geometric_mean([100, 120]) = 109.54, and of [2, 4] = 2.828.
    ANSWERS
        .split("# ")
        .skip(1)
        .map(|answer| {
            let mut lines = answer.lines();
            (lines.next().unwrap(), lines.collect())
        })
        .collect()
}

async fn database(path: &Path) {
    Store::open(path).await.unwrap().close().await;
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(DATA).unwrap();
}

async fn ask(path: &Path, sql: &str) -> Result<Vec<String>, QueryError> {
    let limits = Limits::own_process(Duration::from_secs(60));
    let mut answer = query::run(path, sql, limits, ()).await?;
    let mut rows = Vec::new();
    while let Some(batch) = answer.rows.recv().await {
        for row in batch? {
            let cells: Vec<String> = row.iter().map(cell).collect();
            rows.push(cells.join(" | "));
        }
    }
    answer.end().await;
    Ok(rows)
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::Integer(integer) => integer.to_string(),
        Value::Real(real) => real.to_string(),
        Value::Text(text) => text.clone(),
        Value::Blob(_) => "blob".to_owned(),
    }
}

#[tokio::test]
async fn every_question_is_answered_as_the_figures_say() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    database(&path).await;
    let expected = expected();
    let names: Vec<&str> = questions::all().iter().map(|one| one.name).collect();
    assert_eq!(names.len(), expected.len(), "each question has its answer");
    for question in questions::all() {
        let rows = ask(&path, &question.about(2)).await.unwrap();
        assert_eq!(rows, expected[question.name], "{}", question.name);
        // As in any SQLite tool: the parameter is not set.
        let rows = ask(&path, &question.sql.replace(":run", "NULL"))
            .await
            .unwrap();
        assert_eq!(rows, expected[question.name], "{}", question.name);
    }
}

#[tokio::test]
async fn a_question_is_about_the_run_that_was_meant() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    database(&path).await;
    for (wanted, id) in [
        (None, "2"),
        (Some("1"), "1"),
        (Some("nightly"), "2"),
        (Some("u1"), "1"),
        (Some("7"), "-"),
        (Some("weekly"), "-"),
        (Some("' OR 1=1 --"), "-"),
    ] {
        let found = ask(&path, &questions::which_run(wanted)).await.unwrap();
        assert_eq!(found, [id], "{wanted:?}");
    }
    let results = questions::find("results").unwrap();
    let rows = ask(&path, &results.about(1)).await.unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    for question in questions::all() {
        let rows = ask(&path, &question.about(7)).await.unwrap();
        assert!(rows.is_empty(), "{}: {rows:?}", question.name);
    }
}

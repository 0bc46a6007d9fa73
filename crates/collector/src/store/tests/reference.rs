//! docs/database.md against the schema: every table, view, column, word and example query.

use super::Mesh;
use crate::model::{RunState, Severity, StepState, TaskState};
use crate::results::{Flag, Headline};
use benchmesh_workloads::op::Op;
use benchmesh_workloads::workload::registry;
use std::collections::BTreeMap;

const REFERENCE: &str = include_str!("../../../../../docs/database.md");

/// Tables and views of the reference: a heading of the third level with the name in code, then a table whose first
/// cells are the columns.
fn documented() -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in REFERENCE.lines() {
        if let Some(heading) = line.strip_prefix("### `") {
            let name = heading.split('`').next().unwrap().to_owned();
            found.insert(name.clone(), Vec::new());
            current = Some(name);
        } else if line.starts_with('#') {
            current = None;
        } else if let Some(row) = line.strip_prefix("| `")
            && let Some(name) = &current
        {
            let column = row.split('`').next().unwrap().to_owned();
            found.get_mut(name).unwrap().push(column);
        }
    }
    found
}

#[tokio::test]
async fn every_table_view_and_column_is_in_the_reference_and_no_other() {
    let mesh = Mesh::new().await;
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT m.name, c.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
         WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%' AND m.name <> '_sqlx_migrations'
         ORDER BY m.name, c.cid",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let mut real: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (table, column) in rows {
        real.entry(table).or_default().push(column);
    }
    let documented = documented();
    let names = |map: &BTreeMap<String, Vec<String>>| map.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&documented), names(&real));
    for (name, columns) in real {
        assert_eq!(documented[&name], columns, "columns of {name}");
    }
}

#[test]
fn every_word_is_in_the_reference() {
    let mut words: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in REFERENCE.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let ["", column, listed, ..] = cells.as_slice()
            && column.starts_with('`')
            && column.contains('.')
        {
            let listed = listed.split('`').skip(1).step_by(2).collect();
            words.insert(column.trim_matches('`'), listed);
        }
    }
    let expected: [(&str, Vec<&str>); 8] = [
        (
            "steps.workload",
            registry().iter().map(|workload| workload.name()).collect(),
        ),
        (
            "runs.state",
            RunState::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "steps.state",
            StepState::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "tasks.state",
            TaskState::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "events.severity",
            Severity::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "steps.flags",
            Flag::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "op_intervals.op",
            Op::ALL.iter().map(|op| op.as_str()).collect(),
        ),
        (
            "step_results.headline",
            Headline::ALL.iter().map(|word| word.as_str()).collect(),
        ),
    ];
    for (column, expected) in expected {
        assert_eq!(words.get(column), Some(&expected), "words of {column}");
    }
}

#[tokio::test]
async fn every_example_query_runs() {
    let mesh = Mesh::new().await;
    let mut examples = 0;
    for block in REFERENCE.split("```sql\n").skip(1) {
        let sql = block.split("```").next().unwrap().to_owned();
        sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
            .fetch_all(mesh.store.reader())
            .await
            .unwrap_or_else(|error| panic!("{error}\n{sql}"));
        examples += 1;
    }
    assert!(examples >= 5, "only {examples} examples");
}

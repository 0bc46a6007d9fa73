//! Compares docs/database.md with the schema: every table, view, column, word and example query.

use super::Mesh;
use benchmesh_model::events::EventKind;
use benchmesh_model::mesh::{
    CacheLayer, CachePolicy, FindingVerdict, LossKind, RunState, Severity, StepState, TaskState,
};
use benchmesh_results::{FindingKind, Flag, Headline};
use benchmesh_workloads::op::Op;
use benchmesh_workloads::registry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const REFERENCE: &str = include_str!("../../../../docs/database.md");
/// Tables and views of the reference: a third-level heading with the name in code, then a table whose first cells are
/// the columns.
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
         WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite_%'
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
    let expected = words_of_columns();
    for (column, expected) in expected {
        assert_eq!(words.get(column), Some(&expected), "words of {column}");
    }
}

/// Source files of the crates, without their tests.
fn sources() -> Vec<(String, String)> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut folders: Vec<_> = ["agent", "answers", "collector", "scheduler", "store"]
        .map(|name| crates.join(name).join("src"))
        .into();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.display().to_string();
            if name.ends_with("tests") || name.ends_with("tests.rs") || name.contains("simulation")
            {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if name.ends_with(".rs") || name.ends_with(".sql") {
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                found.push((name, code.to_owned()));
            }
        }
    }
    found
}

/// A kind that is read by SQL, but that nobody records, would never be found. Only what was received has a kind as text.
#[test]
fn kinds_of_events_are_those_of_the_table() {
    let mut read = 0;
    for (file, code) in sources() {
        for condition in ["e.kind = '", "e.kind IN ('"] {
            for (_, rest) in code
                .match_indices(condition)
                .map(|(at, _)| code.split_at(at))
            {
                let (end, count) = match condition.contains("IN") {
                    true => (')', usize::MAX),
                    false => ('\n', 1),
                };
                let list = rest.split(end).next().unwrap();
                for kind in list.split('\'').skip(1).step_by(2).take(count) {
                    assert!(EventKind::parse(kind).is_some(), "{file} reads `{kind}`");
                    read += 1;
                }
            }
        }
        let converts = file.ends_with("agent/src/wire/batch.rs")
            || file.ends_with("store/src/ingest/batch/wire.rs");
        assert!(converts || !code.contains("WireKind::received("), "{file}");
    }
    assert!(read > 20, "{read}");
}

/// A missing text is NULL, never empty.
#[tokio::test]
async fn every_text_that_may_be_missing_is_checked() {
    let mesh = Mesh::new().await;
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT m.name, c.name, m.sql FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
         WHERE m.type = 'table' AND c.type = 'TEXT' AND NOT c.\"notnull\" AND m.name NOT LIKE '\\_sqlx%' ESCAPE '\\'",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    assert!(columns.len() > 20, "{columns:?}");
    for (table, column, sql) in columns {
        let checks = [
            format!("CHECK ({column} <> '')"),
            format!("CHECK (json_type({column})"),
            format!("CHECK ({column} IS NULL OR json_valid({column}))"),
        ];
        assert!(
            checks.iter().any(|check| sql.contains(check)),
            "{table}.{column}"
        );
    }
}

/// Names and ids are never empty. These texts may be.
#[tokio::test]
async fn every_text_that_must_be_there_is_checked() {
    const MAY_BE_EMPTY: [(&str, &str); 10] = [
        ("events.message", "as its agent wrote it"),
        ("hosts.kernel", "an agent may not tell"),
        ("hosts.name", "an agent may not tell"),
        ("hosts.pid_namespace", "an agent may not tell"),
        ("interfaces.net_namespace", "an agent may not tell"),
        ("run_agents.host", "as hosts"),
        ("run_agents.kernel", "as hosts"),
        ("run_tags.value", "a tag may be its key alone"),
        ("runs.plan", "a user's text"),
        ("task_errors.first", "as its agent wrote it"),
    ];
    let mesh = Mesh::new().await;
    let columns: Vec<(String, String, String)> = sqlx::query_as(
        "SELECT m.name, c.name, m.sql FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c
         WHERE m.type = 'table' AND c.type = 'TEXT' AND c.\"notnull\" AND m.name NOT LIKE '\\_sqlx%' ESCAPE '\\'
         ORDER BY m.name || '.' || c.name",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let unchecked = columns.into_iter().filter_map(|(table, column, sql)| {
        let checks = [
            format!("CHECK ({column} <> '')"),
            format!("CHECK ({column} IN ("),
            format!("CHECK (json_type({column})"),
        ];
        let is_checked = checks.iter().any(|check| sql.contains(check));
        (!is_checked).then(|| format!("{table}.{column}"))
    });
    let unchecked: Vec<String> = unchecked.collect();
    assert_eq!(unchecked, MAY_BE_EMPTY.map(|(column, _)| column));
}

#[tokio::test]
async fn every_flag_has_its_column() {
    let mesh = Mesh::new().await;
    let columns: Vec<String> = sqlx::query_scalar(
        "SELECT name FROM pragma_table_info('v_results') WHERE name LIKE 'flag\\_%' ESCAPE '\\'",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let expected: BTreeSet<String> = Flag::ROWS.iter().map(|row| row.column()).collect();
    assert_eq!(columns.into_iter().collect::<BTreeSet<_>>(), expected);
}

fn words_of_columns() -> Vec<(&'static str, Vec<&'static str>)> {
    vec![
        (
            "steps.workload",
            registry::all()
                .iter()
                .map(|workload| workload.name())
                .collect(),
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
            "findings.kind",
            FindingKind::ROWS.iter().map(|row| row.name).collect(),
        ),
        (
            "findings.verdict",
            FindingVerdict::ALL
                .iter()
                .map(|word| word.as_str())
                .collect(),
        ),
        (
            "findings.severity",
            Severity::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "steps.flags",
            Flag::ROWS.iter().map(|row| row.name).collect(),
        ),
        (
            "op_intervals.op",
            Op::ALL.iter().map(|op| op.as_str()).collect(),
        ),
        (
            "step_results.headline",
            Headline::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "steps.cache",
            CachePolicy::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "cache_drops.what",
            CacheLayer::ALL.iter().map(|word| word.as_str()).collect(),
        ),
        (
            "losses.what",
            LossKind::ALL.iter().map(|word| word.as_str()).collect(),
        ),
    ]
}

/// The words of `CHECK (column IN ('a', 'b'))` in the table's definition.
fn checked_words(definition: &str, column: &str) -> Option<Vec<String>> {
    let (_, after) = definition.split_once(&format!("CHECK ({column} IN ("))?;
    let (list, _) = after.split_once(')')?;
    Some(
        list.split('\'')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect(),
    )
}

#[tokio::test]
async fn every_column_of_closed_words_has_its_check() {
    /// A new workload or operation must not need a migration; flags are an array.
    const OPEN: [&str; 4] = [
        "steps.workload",
        "op_intervals.op",
        "steps.flags",
        "findings.kind",
    ];
    let mesh = Mesh::new().await;
    for (name, words) in words_of_columns() {
        let (table, column) = name.split_once('.').unwrap();
        let definition: String = sqlx::query_scalar("SELECT sql FROM sqlite_master WHERE name = ?")
            .bind(table)
            .fetch_one(mesh.store.reader())
            .await
            .unwrap();
        let expected = (!OPEN.contains(&name)).then_some(words);
        let checked = checked_words(&definition, column);
        let checked = checked
            .as_ref()
            .map(|words| words.iter().map(String::as_str).collect());
        assert_eq!(checked, expected, "{name}");
    }
}

#[tokio::test]
async fn every_foreign_key_has_an_index() {
    let mesh = Mesh::new().await;
    let keys: Vec<(String, String)> = sqlx::query_as(
        "SELECT m.name, k.\"from\" FROM sqlite_master AS m JOIN pragma_foreign_key_list(m.name) AS k
         WHERE m.type = 'table' AND NOT EXISTS (
             SELECT 1 FROM pragma_index_list(m.name) AS i JOIN pragma_index_info(i.name) AS c
             WHERE c.seqno = 0 AND c.name = k.\"from\")",
    )
    .fetch_all(mesh.store.reader())
    .await
    .unwrap();
    let missing: Vec<String> = keys
        .into_iter()
        .map(|(table, column)| format!("{table}.{column}"))
        .collect();
    assert!(missing.is_empty(), "no index begins with {missing:?}");
}

#[tokio::test]
async fn no_column_has_an_empty_text_for_null() {
    let mesh = Mesh::new().await;
    let file = rusqlite::Connection::open(mesh.path()).unwrap();
    for (table, column) in [
        ("steps", "target"),
        ("steps", "system"),
        ("tasks", "group_name"),
        ("step_results", "group_name"),
        ("step_intervals", "group_name"),
        ("daemons", "instance"),
        ("runs", "reason"),
    ] {
        let definition: String = file
            .query_row(
                "SELECT sql FROM sqlite_master WHERE name = ?",
                [table],
                |row| row.get(0),
            )
            .unwrap();
        let check = format!("CHECK ({column} <> '')");
        assert!(definition.contains(&check), "{table}.{column}");
    }
}

/// The documented questions run where their functions are (`answers/tests/questions.rs`).
#[tokio::test]
async fn every_example_query_runs() {
    let mesh = Mesh::new().await;
    let mut examples = 0;
    for block in REFERENCE.split("```sql\n").skip(1) {
        let sql = block.split("```").next().unwrap().replace(":run", "NULL");
        sqlx::query(sqlx::AssertSqlSafe(sql.clone()))
            .fetch_all(mesh.store.reader())
            .await
            .unwrap_or_else(|error| panic!("{error}\n{sql}"));
        examples += 1;
    }
    assert!(examples >= 3, "only {examples} examples");
}

#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use super::*;
use std::collections::BTreeMap;

/// A database in WAL mode with a table of three rows and a view on it.
fn database(directory: &Path) -> PathBuf {
    let path = directory.join("mesh.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT, share REAL, bytes BLOB) STRICT;
             INSERT INTO things VALUES (1, 'one', 0.5, x'00ff'), (2, NULL, NULL, NULL), (3, 'drei', 3.0, x'');
             CREATE INDEX things_by_name ON things (name);
             CREATE VIEW v_things AS SELECT id, name FROM things;",
        )
        .unwrap();
    path
}

#[test]
fn a_statement_ends_with_its_semicolon() {
    for (text, expected) in [
        ("SELECT 1;", true),
        ("SELECT 1; ", true),
        ("SELECT 1; -- one", true),
        ("SELECT 1; /* one */", true),
        ("-- one;\nSELECT 1;", true),
        ("SELECT 'it''s;';", true),
        ("SELECT 1;\0", true),
        ("", false),
        ("SELECT 1", false),
        ("SELECT 1 -- one;", false),
        ("SELECT 1 /* one;", false),
        ("SELECT 'one;", false),
        ("SELECT \"one;", false),
        ("SELECT [one;", false),
        ("SELECT 1; SELECT 2", false),
    ] {
        assert_eq!(is_whole_statement(text), expected, "{text:?}");
    }
}

async fn all(
    path: &Path,
    sql: &str,
    limit: Duration,
) -> Result<(Vec<String>, Vec<ResultRow>), QueryError> {
    let mut answer = run(path, sql, Limits::shared(limit), ()).await?;
    let mut rows = Vec::new();
    while let Some(batch) = answer.rows.recv().await {
        rows.extend(batch?);
    }
    Ok((answer.columns, rows))
}

const LONG: Duration = Duration::from_secs(60);

/// Every file beneath, with its bytes, to check that a query leaves them unchanged.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(&path).unwrap()))
        .collect()
}

#[tokio::test]
async fn values_come_as_they_are_stored() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let (columns, rows) = all(
        &path,
        "SELECT *, id + 1 AS next FROM things ORDER BY id",
        LONG,
    )
    .await
    .unwrap();
    assert_eq!(columns, ["id", "name", "share", "bytes", "next"]);
    assert_eq!(
        rows[0],
        [
            Value::Integer(1),
            Value::Text("one".into()),
            Value::Real(0.5),
            Value::Blob(vec![0, 255]),
            Value::Integer(2)
        ]
    );
    assert_eq!(
        rows[1],
        [
            Value::Integer(2),
            Value::Null,
            Value::Null,
            Value::Null,
            Value::Integer(3)
        ]
    );
    assert_eq!(rows[2][3], Value::Blob(vec![]));
    // The type is that of each value, not of the first row: one column with four types.
    let (_, rows) = all(
        &path,
        "SELECT 1 UNION ALL SELECT 'a' UNION ALL SELECT 0.5 UNION ALL SELECT NULL",
        LONG,
    )
    .await
    .unwrap();
    assert_eq!(
        rows.concat(),
        [
            Value::Integer(1),
            Value::Text("a".into()),
            Value::Real(0.5),
            Value::Null
        ]
    );
    let (_, rows) = all(&path, "SELECT CAST(x'66ff' AS TEXT)", LONG)
        .await
        .unwrap();
    assert_eq!(rows[0][0], Value::Text("f\u{fffd}".into()));
}

#[tokio::test]
async fn an_empty_answer_has_its_columns() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let (columns, rows) = all(&path, "SELECT name, id FROM v_things WHERE 0", LONG)
        .await
        .unwrap();
    assert_eq!(columns, ["name", "id"]);
    assert!(rows.is_empty());
}

#[tokio::test]
async fn what_reads_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let sound = [
        "SELECT count(*) FROM v_things",
        "  -- a comment\n SELECT 1; -- and after\n /* more */ ",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5) SELECT sum(i) FROM n",
        "VALUES (1), (2)",
        "EXPLAIN QUERY PLAN SELECT * FROM things WHERE id = 1",
        "PRAGMA table_info(things)",
        "PRAGMA user_version",
        "PRAGMA integrity_check",
        "SELECT name FROM pragma_table_info('things')",
        "SELECT sql FROM sqlite_schema",
        "SELECT ';', \"id\" FROM things -- ; DROP TABLE things",
        "SELECT value FROM json_each('[1,2]')",
        "SELECT id, sum(id) OVER (ORDER BY id) FROM things",
    ];
    for sql in sound {
        let answer = all(&path, sql, LONG).await;
        assert!(answer.is_ok_and(|(_, rows)| !rows.is_empty()), "{sql}");
    }
}

#[tokio::test]
async fn what_does_anything_else_is_refused_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let other = directory.path().join("other.db");
    std::fs::copy(&path, &other).unwrap();
    let made = directory.path().join("made.db");
    let before = contents(directory.path());
    let quoted = |path: &Path| format!("'{}'", path.display());
    let refused = [
        "DELETE FROM things".to_owned(),
        "INSERT INTO things(id) VALUES (9)".to_owned(),
        "INSERT INTO things(id) VALUES (9) RETURNING id".to_owned(),
        "UPDATE things SET name = 'x'".to_owned(),
        "REPLACE INTO things(id) VALUES (1)".to_owned(),
        "WITH x AS (SELECT 1) DELETE FROM things".to_owned(),
        "CREATE TABLE t (a)".to_owned(),
        "CREATE TEMP TABLE t (a)".to_owned(),
        "CREATE TABLE t AS SELECT * FROM things".to_owned(),
        "CREATE VIEW v AS SELECT 1".to_owned(),
        "CREATE TEMP VIEW v AS SELECT 1".to_owned(),
        "CREATE INDEX i ON things(name)".to_owned(),
        "CREATE TEMP TRIGGER g AFTER INSERT ON things BEGIN SELECT 1; END".to_owned(),
        "CREATE VIRTUAL TABLE f USING fts5(a)".to_owned(),
        "DROP TABLE things".to_owned(),
        "DROP VIEW v_things".to_owned(),
        "ALTER TABLE things ADD COLUMN c".to_owned(),
        "REINDEX".to_owned(),
        "ANALYZE".to_owned(),
        "VACUUM".to_owned(),
        format!("VACUUM INTO {}", quoted(&made)),
        format!("ATTACH {} AS o", quoted(&other)),
        format!("ATTACH {} AS o", quoted(&made)),
        "ATTACH 'file:x?mode=rwc' AS o".to_owned(),
        "ATTACH ':memory:' AS o".to_owned(),
        "DETACH main".to_owned(),
        "BEGIN".to_owned(),
        "BEGIN IMMEDIATE".to_owned(),
        "COMMIT".to_owned(),
        "SAVEPOINT s".to_owned(),
        "SELECT load_extension('evil.so')".to_owned(),
        "SELECT Load_Extension('evil.so')".to_owned(),
        "PRAGMA query_only = OFF".to_owned(),
        "PRAGMA query_only(0)".to_owned(),
        "PRAGMA main.query_only = 0".to_owned(),
        "PRAGMA journal_mode = DELETE".to_owned(),
        "PRAGMA user_version = 7".to_owned(),
        "PRAGMA application_id = 7".to_owned(),
        "PRAGMA writable_schema = 1".to_owned(),
        "PRAGMA wal_checkpoint".to_owned(),
        "PRAGMA wal_checkpoint(TRUNCATE)".to_owned(),
        "PRAGMA hard_heap_limit = 1".to_owned(),
        "PRAGMA soft_heap_limit = 1".to_owned(),
        "PRAGMA temp_store_directory = '/'".to_owned(),
        "PRAGMA data_store_directory = '/'".to_owned(),
        "PRAGMA optimize".to_owned(),
        "PRAGMA incremental_vacuum".to_owned(),
        "PRAGMA locking_mode = EXCLUSIVE".to_owned(),
        "PRAGMA busy_timeout = 0".to_owned(),
        "PRAGMA trusted_schema = 1".to_owned(),
        "PRAGMA shrink_memory".to_owned(),
        "EXPLAIN PRAGMA hard_heap_limit = 1".to_owned(),
        "SELECT 1; DELETE FROM things".to_owned(),
        format!("SELECT 1; ATTACH {} AS o", quoted(&other)),
    ];
    for sql in &refused {
        let error = match all(&path, sql, LONG).await {
            Err(error) => error,
            Ok(answer) => panic!("{sql} was answered: {answer:?}"),
        };
        assert!(matches!(error, QueryError::NotReading), "{sql}: {error:?}");
        assert_eq!(contents(directory.path()), before, "{sql}");
    }
}

#[tokio::test]
async fn mistakes_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let mut shown = String::new();
    for sql in [
        "",
        " ; -- nothing\n",
        "SELECT 1; SELECT 2",
        "SELECT id\n  FRM things",
        "SELECT nam FROM things",
        "SELECT nam FROM things AS t",
        "SELECT t.Nane FROM things AS t JOIN v_things AS v ON v.id = t.id",
        "SELECT price FROM things",
        "SELECT * FROM runs",
        "SELECT * FROM thing",
        "SELECT quantil(share, 0.5) FROM things",
        "SELECT zeroblob(1000000000)",
    ] {
        let error = all(&path, sql, LONG).await.unwrap_err();
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(error) = cause {
            message = format!("{message}: {error}");
            cause = error.source();
        }
        shown.push_str(&format!("{sql:?}\n{message}\n\n"));
    }
    insta::assert_snapshot!(shown);
}

#[tokio::test]
async fn an_endless_query_is_stopped_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let endless = [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
    ];
    for sql in endless {
        let limit = Duration::from_millis(200);
        let began = Instant::now();
        let error = all(&path, sql, limit).await.unwrap_err();
        assert!(matches!(error, QueryError::TimeLimit { .. }), "{error:?}");
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_nobody_takes_ends_in_time_and_lets_its_snapshot_go() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let limit = Duration::from_millis(300);
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let mut answer = run(&path, sql, Limits::shared(limit), ()).await.unwrap();
    // Its lock is released, and its snapshot too, while the answer still exists.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; INSERT INTO things(id) VALUES (4); COMMIT;")
        .unwrap();
    let mut batches = 0;
    let last = loop {
        match answer.rows.recv().await.unwrap() {
            Ok(_) => batches += 1,
            Err(error) => break error,
        }
    };
    assert!(batches <= BUFFERED_BATCHES, "{batches} batches");
    assert!(matches!(last, QueryError::TimeLimit { .. }), "{last:?}");
}

#[tokio::test]
async fn a_figure_is_known_by_its_names_in_other_tools() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("mesh.db");
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch(
        "CREATE TABLE r (ops INTEGER, ops_per_s REAL, mib_per_s REAL, mean_ms REAL, p99_ms REAL, max_ms REAL)",
    )
    .unwrap();
    for (name, expected) in [
        ("iops", "ops_per_s"),
        ("BW", "mib_per_s"),
        ("clat", "mean_ms"),
        ("p99", "p99_ms"),
        ("op", "ops"),
    ] {
        let sql = format!("SELECT {name} FROM r");
        let error = run(&path, &sql, Limits::shared(LONG), ())
            .await
            .unwrap_err();
        let QueryError::Sql {
            help: Some(help), ..
        } = error
        else {
            panic!("{name}: {error}");
        };
        let meant = format!("did you mean {expected}?");
        assert!(help.starts_with(&meant), "{name}: {help}");
    }
}

#[tokio::test]
async fn a_directory_is_named_as_one() {
    let directory = tempfile::tempdir().unwrap();
    let error = run(directory.path(), "SELECT 1", Limits::shared(LONG), ())
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("is a directory; give"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_answer_ends_the_query() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let mut answer = run(&path, endless, Limits::shared(LONG), ()).await.unwrap();
    assert!(answer.rows.recv().await.is_some());
    let QueryAnswer { rows, .. } = answer;
    drop(rows);
    // The query held the file's read lock; once it is released, an exclusive writer can open the file.
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection
        .execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; INSERT INTO things(id) VALUES (4); COMMIT;")
        .unwrap();
}

#[tokio::test]
async fn a_live_database_answers_while_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    let writer = rusqlite::Connection::open(&path).unwrap();
    for id in 10..20_i64 {
        writer.execute_batch("BEGIN IMMEDIATE").unwrap();
        writer
            .execute("INSERT INTO things(id) VALUES (?1)", [id])
            .unwrap();
        // In the middle of a write transaction: committed rows are visible, and readers do not wait.
        let (_, rows) = all(&path, "SELECT max(id) FROM things", LONG)
            .await
            .unwrap();
        assert_eq!(
            rows[0][0],
            Value::Integer(if id == 10 { 3 } else { id - 1 })
        );
        writer.execute_batch("COMMIT").unwrap();
    }
}

#[tokio::test]
async fn a_file_that_is_not_there_or_no_database_is_an_error_and_nothing_is_made() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.db");
    let error = all(&missing, "SELECT 1", LONG).await.unwrap_err();
    assert!(matches!(error, QueryError::NoFile { .. }), "{error:?}");
    let text = directory.path().join("text.db");
    std::fs::write(
        &text,
        "this is no database, but it is long enough to be looked at by SQLite".repeat(20),
    )
    .unwrap();
    let error = all(&text, "SELECT 1", LONG).await.unwrap_err();
    assert!(matches!(error, QueryError::Unreadable { .. }), "{error:?}");
    let error = all(directory.path(), "SELECT 1", LONG).await.unwrap_err();
    assert!(matches!(error, QueryError::IsDirectory { .. }), "{error:?}");
    let names: Vec<_> = contents(directory.path()).into_keys().collect();
    assert_eq!(names, [text]);
}

#[tokio::test]
async fn a_sealed_database_is_one_file_and_can_be_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = database(directory.path());
    seal(&path).await.unwrap();
    let connection = rusqlite::Connection::open(&path).unwrap();
    let mode: String = connection
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "delete");
    connection
        .execute_batch("PRAGMA journal_mode = WAL; DELETE FROM things")
        .unwrap();
    drop(connection);
    assert_eq!(contents(directory.path()).len(), 1);
}

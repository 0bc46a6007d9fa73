//! Questions without an answer, and queries that would change something.

use super::{LIMIT, collector, directory, refused};
use crate::support::command::benchmesh;
use crate::support::database::Database;
use crate::support::mesh::{Agent, Mesh};
use crate::support::permit::permit;
use crate::support::process::Process;
use crate::support::wait::until_true;

#[test]
fn runs_that_are_not_there() {
    let mesh = Mesh::start();
    for arguments in [
        ["watch", "4711"].as_slice(),
        &["stop", "nightly"],
        &["report", "4711"],
        &["report", "last"],
    ] {
        let mut command = mesh.benchmesh();
        command.args(arguments).current_dir("/");
        let output = refused(command);
        assert!(
            output.err.contains("run"),
            "{arguments:?}: {}",
            output.all()
        );
    }
    let mut command = mesh.benchmesh();
    command
        .args(["report", "4711", "--format", "json"])
        .current_dir("/");
    let output = refused(command);
    let document: serde_json::Value = serde_json::from_str(&output.out).expect("one JSON document");
    assert!(document.to_string().contains("4711"), "{document}");
}

/// An empty name comes from an unset variable. It does not mean the newest run, although one exists.
#[test]
fn a_run_without_a_name_is_not_the_newest() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    let db = mesh.db_path().to_str().unwrap().to_owned();
    for arguments in [
        ["report", ""].as_slice(),
        &["report", " "],
        &["report", "", "--db", &db],
        &["watch", ""],
        &["stop", ""],
        &["compare", "", "1"],
        &["tag", "", "a=b"],
        &["db", "delete", "", "--db", &db],
    ] {
        let mut command = mesh.benchmesh();
        if arguments.contains(&"--db") {
            command = benchmesh();
        }
        command.args(arguments).current_dir("/");
        let output = refused(command);
        assert_eq!(output.code, 2, "{arguments:?}: {}", output.all());
        assert!(
            output.err.contains("a run is an id, a uid, a name"),
            "{arguments:?}: {}",
            output.all()
        );
    }
}

#[test]
fn queries_only_read() {
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("a"));
    mesh.run("[[phase]]\nworkload = \"null\"\nops = 1000\n");
    let elsewhere = mesh.directory().join("elsewhere.db");
    let file = elsewhere.display();
    let before = fingerprint(&mesh.db());
    for sql in [
        "DELETE FROM runs".to_owned(),
        "UPDATE runs SET name = 'x'".to_owned(),
        "INSERT INTO events (at_us, severity, kind, message) VALUES (1, 'info', 'x', 'x')"
            .to_owned(),
        "DROP TABLE events".to_owned(),
        "DROP VIEW v_results".to_owned(),
        "CREATE TABLE x (y)".to_owned(),
        "CREATE TEMP TABLE x AS SELECT 1".to_owned(),
        "ALTER TABLE runs RENAME TO walks".to_owned(),
        "WITH x AS (SELECT 1) DELETE FROM runs".to_owned(),
        "SELECT 1; DELETE FROM runs".to_owned(),
        "PRAGMA journal_mode = DELETE".to_owned(),
        "PRAGMA writable_schema = ON".to_owned(),
        "PRAGMA user_version = 7".to_owned(),
        format!("ATTACH '{file}' AS other"),
        format!("VACUUM INTO '{file}'"),
        "VACUUM".to_owned(),
        "REINDEX".to_owned(),
        "BEGIN IMMEDIATE".to_owned(),
        "SELECT load_extension('x')".to_owned(),
        "SELECT writefile('x', 'y')".to_owned(),
    ] {
        for source in [
            vec!["--collector".to_owned(), mesh.address().to_string()],
            vec!["--db".to_owned(), mesh.db_path().display().to_string()],
        ] {
            let mut command = benchmesh();
            command
                .args(["query", &sql])
                .args(&source)
                .current_dir(mesh.directory());
            let output = refused(command);
            assert!(!output.err.is_empty(), "{sql}: {}", output.all());
        }
    }
    assert!(!elsewhere.exists(), "a query wrote a file");
    let db = mesh.db();
    db.assert_sound();
    assert_eq!(fingerprint(&db), before);
}

/// The schema, and the rows of the tables that a query could have changed.
fn fingerprint(db: &Database) -> String {
    let schema: Vec<String> =
        db.column("SELECT coalesce(sql, name) FROM sqlite_schema ORDER BY name");
    let runs = db.rows("SELECT * FROM runs");
    // Agents see the storage daemons of other tests start and end.
    let events = db.rows("SELECT * FROM events WHERE source = 'collector'");
    let results = db.rows("SELECT * FROM v_results");
    format!("{schema:?} {runs:?} {events:?} {results:?}")
}

#[test]
fn a_query_that_takes_for_ever_is_given_up() {
    let _permit = permit();
    let directory = directory();
    let db = directory.path().join("x.db");
    let log = directory.path().join("log");
    let mut collector = Process::start("collector", collector(&db), &log);
    until_true("the database is made", LIMIT, || db.exists());
    until_true("it has its views", LIMIT, || {
        rusqlite::Connection::open(&db)
            .and_then(|db| {
                db.query_row("SELECT count(*) FROM v_runs", [], |row| {
                    row.get::<_, i64>(0)
                })
            })
            .is_ok()
    });
    let mut command = benchmesh();
    let endless =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n";
    command
        .args(["query", endless, "--time-limit", "1s", "--db"])
        .arg(&db);
    let output = refused(command);
    assert!(output.err.contains("after 1 s"), "{}", output.all());
    assert!(collector.is_running());
}

//! Database files that a collector cannot use: each is named in an error, and left unchanged.

use super::{LIMIT, collector, directory, refused};
use crate::needs;
use crate::support::command::{benchmesh, must};
use crate::support::database::Database;
use crate::support::loop_device::Mounted;
use crate::support::mesh::Mesh;
use crate::support::process::Process;
use crate::support::wait::until_true;
use std::path::Path;

#[test]
fn a_file_that_is_no_database() {
    let directory = directory();
    let db = directory.path().join("x.db");
    let text = "this is a shopping list, not a database\n".repeat(400);
    std::fs::write(&db, &text).unwrap();
    let output = refused(collector(&db));
    assert!(
        output.err.contains("x.db") && output.err.contains("not a"),
        "{}",
        output.all()
    );
    assert_eq!(
        std::fs::read_to_string(&db).unwrap(),
        text,
        "it is left as it was"
    );
    let mut query = benchmesh();
    query.args(["query", "SELECT 1", "--db"]).arg(&db);
    let output = refused(query);
    assert!(output.err.contains("x.db"), "{}", output.all());
}

#[test]
fn a_database_of_something_else() {
    let directory = directory();
    let db = directory.path().join("other.db");
    let other = rusqlite::Connection::open(&db).unwrap();
    other
        .execute_batch("CREATE TABLE shopping (item TEXT); INSERT INTO shopping VALUES ('milk')")
        .unwrap();
    drop(other);
    let output = refused(collector(&db));
    assert!(output.err.contains("other.db"), "{}", output.all());
    let left: Vec<String> =
        Database::open(&db).column("SELECT name FROM sqlite_schema ORDER BY name");
    assert_eq!(left, ["shopping"]);
}

#[test]
fn a_database_of_a_newer_benchmesh() {
    let mesh = Mesh::start();
    let db = mesh.directory().join("newer.db");
    let made = mesh.directory().join("made.log");
    let mut collector_once = Process::start("collector", collector(&db), &made);
    until_true("the database is made", LIMIT, || {
        rusqlite::Connection::open(&db)
            .and_then(|db| {
                db.query_row("SELECT count(*) FROM runs", [], |row| row.get::<_, i64>(0))
            })
            .is_ok()
    });
    collector_once.interrupt(LIMIT);
    let connection = rusqlite::Connection::open(&db).unwrap();
    connection
        .execute_batch("PRAGMA user_version = 7; UPDATE meta SET schema = 99999;")
        .unwrap();
    drop(connection);
    let output = refused(collector(&db));
    assert!(
        output.err.contains("newer.db") && output.err.contains("newer"),
        "{}",
        output.all()
    );
}

#[test]
fn a_database_that_another_collector_has() {
    let mesh = Mesh::start();
    let output = refused(collector(mesh.db_path()));
    assert!(output.err.contains("benchmesh.db"), "{}", output.all());
    assert!(output.err.contains("collector"), "{}", output.all());
    mesh.db().assert_sound();
}

#[test]
fn a_database_on_a_read_only_disk() {
    needs!("root", "tmpfs");
    let fs = Mounted::tmpfs(16 << 20);
    let path = fs.path();
    must("mount", &["-o", "remount,ro", path.to_str().unwrap()]);
    let output = refused(collector(&path.join("x.db")));
    assert!(output.err.contains("x.db"), "{}", output.all());
    assert!(
        output.err.to_lowercase().contains("read-only"),
        "{}",
        output.all()
    );
}

#[test]
fn a_database_on_a_full_disk() {
    needs!("root", "tmpfs");
    let fs = Mounted::tmpfs(1 << 20);
    fill(&fs.path().join("ballast"));
    let output = refused(collector(&fs.path().join("x.db")));
    assert!(output.err.contains("x.db"), "{}", output.all());
    assert!(
        output.err.contains("full") || output.err.contains("space"),
        "{}",
        output.all()
    );
}

fn fill(path: &Path) {
    use std::io::Write;
    let mut file = std::fs::File::create(path).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

//! `benchmesh quickstart` with problems: another instance, an interruption, a missing directory.

use crate::support::command::CommandOutput;
use crate::support::database::Database;
use crate::support::process::Process;
use crate::support::quickstart::{LIMIT, Place};
use crate::support::wait::until_true;
use std::time::Duration;

#[test]
fn two_quickstarts_at_the_same_time_work() {
    let place = Place::new();
    let logs = ["one", "two"].map(|name| place.temporary.path().join(name));
    let mut both = logs
        .each_ref()
        .map(|log| Process::start("quickstart", place.quickstart(), log));
    for one in &mut both {
        let ended = one.exit_within(LIMIT).expect("it ends");
        assert!(ended.success(), "{ended}: {}", one.log());
    }
    for log in &logs {
        std::fs::remove_file(log).unwrap();
    }
    place.assert_only_databases(2);
    for name in place.files() {
        let db = Database::open(&place.work.path().join(name));
        assert_eq!(db.column::<String>("SELECT state FROM runs"), ["done"]);
    }
}

#[test]
fn an_interrupted_quickstart_cleans_up_and_keeps_the_data() {
    let place = Place::new();
    let log = place.temporary.path().join("output");
    let mut quickstart = Process::start("quickstart", place.quickstart(), &log);
    let database = place.work.path().join("benchmesh-quickstart.db");
    until_true("a step runs", LIMIT, || {
        let sql = "SELECT count(*) FROM steps WHERE state = 'running'";
        database.exists()
            && rusqlite::Connection::open(&database)
                .and_then(|db| db.query_row(sql, [], |row| row.get::<_, i64>(0)))
                .is_ok_and(|running| running > 0)
    });
    let ended = quickstart.interrupt(Duration::from_secs(60));
    assert!(!ended.success(), "an interrupted run is no success");
    std::fs::remove_file(&log).unwrap();
    place.assert_only_databases(1);
    let db = Database::open(&database);
    db.assert_sound();
    assert_eq!(db.column::<String>("SELECT state FROM runs"), ["stopped"]);
}

#[test]
fn quickstart_refuses_a_directory_that_is_not_there() {
    let place = Place::new();
    let mut command = place.quickstart();
    command.args(["--db", "no/such/directory/x.db"]);
    let output = CommandOutput::of(&command.output().unwrap());
    assert_ne!(output.code, 0);
    assert!(output.err.contains("no/such/directory"), "{}", output.all());
    place.assert_only_databases(0);
}

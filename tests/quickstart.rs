//! `benchmesh quickstart` for a new user: an empty directory, no configuration, a plausible result; and with problems:
//! another instance, an interruption, a missing directory. `.ci/run` runs it alone and allows no event but `info`.

use crate::support::command::CommandOutput;
use crate::support::database::{Database, assert_believable};
use crate::support::process::Process;
use crate::support::quickstart::{LIMIT, Place};
use crate::support::wait::until_true;
use std::path::Path;
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
        let output = one.log();
        assert!(ended.success(), "{ended}: {output}");
        assert!(output.contains("benchmesh-quickstart"), "{output}");
        let queries = output.matches("benchmesh query").count();
        assert!(queries >= 3, "{queries} queries to try in:\n{output}");
    }
    for log in &logs {
        std::fs::remove_file(log).unwrap();
    }
    place.assert_only_databases(2);
    for name in place.files() {
        check_database(&place.work.path().join(name));
    }
}

fn check_database(path: &Path) {
    let db = Database::open(path);
    db.assert_sound();
    let runs = db.rows("SELECT state, partial FROM runs");
    assert_eq!(runs.len(), 1);
    assert_eq!(
        (runs[0].text("state"), runs[0].integer("partial")),
        ("done".to_owned(), 0)
    );
    let workloads: Vec<String> =
        db.column("SELECT DISTINCT workload FROM v_results ORDER BY workload");
    assert_eq!(workloads, ["copy", "files", "io", "network", "null"]);
    for row in db.rows("SELECT * FROM v_results") {
        assert_believable(&row);
    }
    let own = db.rows("SELECT * FROM v_daemon_usage WHERE name LIKE 'benchmesh%' AND cpu_s > 0");
    assert!(!own.is_empty(), "its own processes are sampled");
    let links = db.rows("SELECT * FROM v_links");
    assert_eq!(
        links.len(),
        6,
        "each ordered pair of three agents: {links:?}"
    );
    for link in &links {
        assert_ne!(link.text("from_agent"), link.text("to_agent"));
        assert!(link.number("mib_per_s") > 0.0, "{link:?}");
        assert!(link.number("rtt_p50_us") > 0.0, "{link:?}");
    }
    let seconds: i64 = db.one("SELECT count(*) FROM v_timeline");
    assert!(seconds >= 10, "{seconds} rows of v_timeline");
    let cost = db.rows("SELECT * FROM v_cost");
    assert!(cost.is_empty(), "its own processes serve nothing: {cost:?}");
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

//! `benchmesh quickstart` for a new user: an empty directory, no configuration, a plausible result.

use crate::support::database::{Database, assert_believable};
use crate::support::permit::permit;
use crate::support::process::{Process, is_complaint};
use crate::support::quickstart::{LIMIT, Place};
use std::path::Path;

#[test]
fn quickstart_leaves_a_database_that_answers() {
    let _permit = permit();
    let place = Place::new();
    let log = place.temporary.path().join("output");
    let mut quickstart = Process::start("quickstart", place.quickstart(), &log);
    let ended = quickstart.exit_within(LIMIT).expect("it ends");
    let output = quickstart.log();
    std::fs::remove_file(&log).unwrap();
    assert!(ended.success(), "{ended}: {output}");
    place.assert_only_databases(1);
    let complaints: Vec<&str> = output.lines().filter(|line| is_complaint(line)).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(output.contains("benchmesh-quickstart.db"), "{output}");
    let queries = output.matches("benchmesh query").count();
    assert!(queries >= 3, "{queries} queries to try in:\n{output}");
    check_database(&place.work.path().join("benchmesh-quickstart.db"));
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
    let events = db.rows("SELECT * FROM events WHERE severity <> 'info'");
    assert!(events.is_empty(), "{events:?}");
    let late: i64 = db.one("SELECT count(*) FROM tasks WHERE state <> 'done' OR skew_us IS NULL");
    assert_eq!(late, 0);
}

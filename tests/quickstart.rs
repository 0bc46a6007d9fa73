//! `benchmesh quickstart` as a newcomer meets it: an empty directory, no configuration, a result to believe.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap,
    reason = "a panic is how a test fails"
)]

mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;
use support::command::{Said, benchmesh};
use support::database::{Database, assert_believable};
use support::mesh::alone;
use support::process::{Process, is_complaint};
use support::wait::until_true;
use tempfile::TempDir;

/// A plan of about 20 s, on a machine that does other work beside it.
const LIMIT: Duration = Duration::from_secs(120);

/// A directory to work in, and one for temporary files, so that what stays behind is seen.
struct Place {
    work: TempDir,
    temporary: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = || tempfile::Builder::new().prefix("bm-qs-").tempdir().unwrap();
        Self {
            work: directory(),
            temporary: directory(),
        }
    }

    fn quickstart(&self) -> Command {
        let mut command = benchmesh();
        command
            .arg("quickstart")
            .current_dir(self.work.path())
            .env("TMPDIR", self.temporary.path());
        command
    }

    fn files(&self) -> Vec<String> {
        names(self.work.path())
    }

    /// Fails when anything but databases is left, or a process that was started here still runs.
    fn assert_only_databases(&self, count: usize) {
        let files = self.files();
        let databases = files
            .iter()
            .filter(|name| name.starts_with("benchmesh-quickstart") && name.ends_with(".db"));
        assert_eq!(databases.count(), count, "{files:?}");
        assert_eq!(files.len(), count, "{files:?}");
        assert_eq!(names(self.temporary.path()), Vec::<String>::new());
        let temporary = self.temporary.path().to_string_lossy().into_owned();
        until_true("its processes are gone", Duration::from_secs(10), || {
            processes_that_mention(&temporary).is_empty()
        });
    }
}

#[test]
fn quickstart_leaves_a_database_that_answers() {
    let _alone = alone();
    let place = Place::new();
    let log = place.temporary.path().join("said");
    let mut quickstart = Process::start("quickstart", place.quickstart(), &log);
    let ended = quickstart.exit_within(LIMIT).expect("it ends");
    let said = quickstart.log();
    std::fs::remove_file(&log).unwrap();
    assert!(ended.success(), "{ended}: {said}");
    place.assert_only_databases(1);
    let complaints: Vec<&str> = said.lines().filter(|line| is_complaint(line)).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    assert!(said.contains("benchmesh-quickstart.db"), "{said}");
    let queries = said.matches("benchmesh query").count();
    assert!(queries >= 3, "{queries} queries to try in:\n{said}");
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
    assert!(!cost.is_empty());
    let events = db.rows("SELECT * FROM events WHERE severity <> 'info'");
    assert!(events.is_empty(), "{events:?}");
    let late: i64 = db.one("SELECT count(*) FROM tasks WHERE state <> 'done' OR skew_us IS NULL");
    assert_eq!(late, 0);
}

#[test]
fn two_quickstarts_at_the_same_time_work() {
    let _alone = alone();
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
    let _alone = alone();
    let place = Place::new();
    let log = place.temporary.path().join("said");
    let mut quickstart = Process::start("quickstart", place.quickstart(), &log);
    let database = place.work.path().join("benchmesh-quickstart.db");
    until_true("a step runs", LIMIT, || {
        let sql = "SELECT count(*) FROM steps WHERE state = 'running'";
        database.exists()
            && rusqlite::Connection::open(&database)
                .and_then(|db| db.query_row(sql, [], |row| row.get::<_, i64>(0)))
                .is_ok_and(|running| running > 0)
    });
    let ended = quickstart.interrupt(Duration::from_secs(30));
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
    let said = Said::of(&command.output().unwrap());
    assert_ne!(said.code, 0);
    assert!(said.err.contains("no/such/directory"), "{}", said.all());
    place.assert_only_databases(0);
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// Command lines of running processes that have `text` in them or in their environment's working directory.
fn processes_that_mention(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        if let Ok(cmdline) = std::fs::read(entry.path().join("cmdline")) {
            let cmdline = String::from_utf8_lossy(&cmdline).replace('\0', " ");
            if cmdline.contains(text) {
                found.push(cmdline);
            }
        }
    }
    found
}

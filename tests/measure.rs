//! `benchmesh measure` from outside: two directories, an earlier measurement, and problems in the middle.

use crate::support::command::{CommandOutput, benchmesh};
use crate::support::database::Database;
use crate::support::process::Process;
use crate::support::wait::until_true;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// Time limit of a measurement of a few seconds, on a machine that does other work.
const LIMIT: Duration = Duration::from_secs(120);

/// Two directories to measure, and places for everything else that a measurement writes.
struct Place {
    targets: [PathBuf; 2],
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("bm-me-").tempdir().unwrap();
        let targets = ["old", "new"].map(|name| directory.path().join(name));
        for made in targets.iter().chain(&[directory.path().join("tmp")]) {
            std::fs::create_dir(made).unwrap();
        }
        std::fs::write(targets[0].join("mine"), "kept").unwrap();
        Self { targets, directory }
    }

    fn measure(&self, options: &[&str]) -> Command {
        let mut command = benchmesh();
        command
            .arg("measure")
            .args(&self.targets)
            .args(["--loads", "rand-4k", "--size", "8m"])
            .args(options)
            .env("TMPDIR", self.directory.path().join("tmp"))
            .env("XDG_STATE_HOME", self.directory.path().join("state"));
        command
    }

    fn database(&self) -> PathBuf {
        self.directory.path().join("state/benchmesh/measure.db")
    }

    /// Waits until a step of the newest run is running.
    fn until_running(&self) {
        let database = self.database();
        until_true("a step runs", LIMIT, || {
            let sql = "SELECT count(*) FROM steps WHERE state = 'running'";
            database.exists()
                && rusqlite::Connection::open(&database)
                    .and_then(|db| db.query_row(sql, [], |row| row.get::<_, i64>(0)))
                    .is_ok_and(|running| running > 0)
        });
    }

    fn assert_clean(&self) {
        assert_eq!(names(&self.targets[0]), ["mine"]);
        assert_eq!(names(&self.directory.path().join("tmp")), [""; 0]);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names.collect()
}

fn states(db: &Database) -> Vec<String> {
    db.column("SELECT state FROM runs ORDER BY id")
}

#[test]
fn a_second_measurement_is_compared_with_the_first() {
    let place = Place::new();
    let plan = CommandOutput::of(&place.measure(&["--print-plan"]).output().unwrap());
    assert_eq!(plan.code, 0, "{}", plan.all());
    let file = place.directory.path().join("plan.toml");
    std::fs::write(&file, plan.out).unwrap();
    let checked = benchmesh().args(["plan", "check"]).arg(&file).output();
    let checked = CommandOutput::of(&checked.unwrap());
    assert_eq!(checked.code, 0, "{}", checked.all());
    assert!(!place.database().exists(), "a plan needs no database");

    let says_changes = [(); 2].map(|()| {
        let output = place.measure(&["--time", "3s"]).output().unwrap();
        let output = CommandOutput::of(&output);
        assert_eq!(output.code, 0, "{}", output.all());
        output.out.lines().any(|line| line.starts_with("Changes: "))
    });
    assert_eq!(says_changes, [false, true]);
    place.assert_clean();
    let db = Database::open(&place.database());
    db.assert_sound();
    assert_eq!(states(&db), ["done", "done"]);
    assert_eq!(
        db.column::<String>("SELECT DISTINCT path FROM run_targets ORDER BY path DESC"),
        place
            .targets
            .each_ref()
            .map(|path| path.display().to_string())
    );
    // Each target has the same steps in each loop, and both runs have the same sizes.
    let loads = "SELECT count(DISTINCT target || mode || params) FROM steps WHERE state = 'done'";
    assert_eq!(db.one::<i64>(loads), 4);
}

#[test]
fn an_interrupted_measurement_shows_what_there_is() {
    let place = Place::new();
    let log = place.directory.path().join("log");
    let mut first = Process::start("measure", place.measure(&[]), &log);
    place.until_running();
    let second = CommandOutput::of(&place.measure(&[]).output().unwrap());
    assert_eq!(second.code, 2, "{}", second.all());
    let ended = first.interrupt(LIMIT);
    assert_eq!(ended.code(), Some(3), "{}", first.log());
    place.assert_clean();
    let db = Database::open(&place.database());
    db.assert_sound();
    assert_eq!(states(&db), ["stopped"]);
}

#[test]
fn a_directory_that_vanishes_ends_the_measurement() {
    let place = Place::new();
    let log = place.directory.path().join("log");
    let mut measure = Process::start("measure", place.measure(&[]), &log);
    place.until_running();
    std::fs::remove_dir_all(&place.targets[1]).unwrap();
    let ended = measure.exit_within(LIMIT).expect("it ends");
    assert_eq!(ended.code(), Some(3), "{}", measure.log());
    let db = Database::open(&place.database());
    assert_eq!(states(&db), ["stopped"]);
}

/// A queued run of somebody else is neither stopped nor begun.
#[test]
fn a_database_with_other_runs_in_its_queue_is_refused() {
    let place = Place::new();
    let kept = place.directory.path().join("kept.db");
    let measure = || {
        let options = ["--time", "3s", "--keep-db", kept.to_str().unwrap()];
        CommandOutput::of(&place.measure(&options).output().unwrap())
    };
    let first = measure();
    assert_eq!(first.code, 0, "{}", first.all());
    let db = rusqlite::Connection::open(&kept).unwrap();
    db.execute("UPDATE runs SET state = 'queued', name = 'nightly'", [])
        .unwrap();
    drop(db);
    let refused = measure();
    assert_eq!(refused.code, 2, "{}", refused.all());
    assert_eq!(states(&Database::open(&kept)), ["queued"]);
    place.assert_clean();
}

/// Everything that it left is removed, and its run is not continued.
#[test]
fn a_measurement_cleans_up_after_a_killed_one() {
    let place = Place::new();
    let log = place.directory.path().join("log");
    let mut killed = Process::start("measure", place.measure(&[]), &log);
    place.until_running();
    killed.kill();
    let database = place.database();
    // Its processes end by themselves.
    until_true("the database is free", LIMIT, || {
        !database.with_extension("db.lock").exists()
    });
    let output = place.measure(&["--time", "3s"]).output().unwrap();
    let output = CommandOutput::of(&output);
    assert_eq!(output.code, 0, "{}", output.all());
    place.assert_clean();
    assert_eq!(states(&Database::open(&database)), ["stopped", "done"]);
}

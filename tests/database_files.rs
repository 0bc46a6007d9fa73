//! `import` over the wire, and `db` with wrong input and killed in the middle: a database stays whole in every case,
//! and an answer in JSON is one document.

use crate::support::command::{CommandOutput, benchmesh};
use crate::support::database::Database;
use crate::support::mesh::Mesh;
use benchmesh_synthetic::{Shape, generate};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const DD: &str = "1000+0 records in\n1000+0 records out\n1048576000 bytes (1.0 GB, 1000 MiB) copied, 2.5 s, 419 MB/s\n";

fn directory() -> TempDir {
    tempfile::Builder::new()
        .prefix("bm-files-")
        .tempdir()
        .unwrap()
}

fn output_of(command: &mut Command) -> CommandOutput {
    let output = CommandOutput::of(&command.output().unwrap());
    assert!(!output.err.contains("panicked"), "{}", output.all());
    output
}

/// `benchmesh db` with arguments and the database.
fn db(arguments: &[&str], path: &Path) -> Command {
    let mut command = benchmesh();
    command.arg("db").args(arguments).arg("--db").arg(path);
    command
}

fn document(output: &CommandOutput) -> serde_json::Value {
    serde_json::from_str(&output.out).unwrap_or_else(|error| panic!("{error}: {}", output.all()))
}

#[test]
fn imports_over_the_wire_are_whole_or_refused() {
    let mesh = Mesh::start();
    let file = |name: &str, text: &str| {
        let path = mesh.directory().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let log = file("yesterday.log", DD);
    let import = |arguments: &[&str]| {
        let all = [&["import", "--format", "json"], arguments].concat();
        mesh.command(&all)
    };
    let stored = import(&[&log, "--target", "cephfs", "--mode", "read"]);
    assert_eq!(stored.code, 0, "{}", stored.all());
    assert_eq!(document(&stored)["runs"], serde_json::json!([1]));
    let found = mesh.db().one::<String>(
        "SELECT run || ' ' || target || ' ' || op || ' ' || ops || ' ' || CAST(ops_per_s AS INTEGER) FROM v_results",
    );
    assert_eq!(found, "yesterday cephfs read 1000 400");
    let cut = file("cut.log", &DD[..40]);
    let other = file("today.log", &DD.replace("2.5 s", "2.6 s"));
    for (arguments, what) in [
        (vec![log.as_str()], "already in the database, as run 1"),
        (vec![&other, &cut], "cut.log: line 2: dd's line"),
        (
            vec![&other, "--tool", "fio"],
            "today.log: line 1: there is no JSON",
        ),
        (vec!["/nowhere/fio.json"], "/nowhere/fio.json"),
    ] {
        let refused = import(&arguments);
        assert_eq!(refused.code, 2, "{}", refused.all());
        let error = document(&refused)["error"].clone();
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(what), "{message}");
        assert_eq!(mesh.db().one::<i64>("SELECT count(*) FROM runs"), 1);
    }
    let twice = import(&[&other, &other]);
    assert_eq!(twice.code, 2, "{}", twice.all());
    assert_eq!(mesh.db().one::<i64>("SELECT count(*) FROM runs"), 1);
    // With several logs, the error names the stored ones.
    let known = import(&[&other, &log]);
    assert_eq!(known.code, 2, "{}", known.all());
    let error = document(&known)["error"].clone();
    let message = error["message"].as_str().unwrap();
    assert!(
        message.contains("the files before it are, as run 2"),
        "{message}"
    );
    let report = mesh.command(&["report", "1", "--format", "json"]);
    assert_eq!(report.code, 0, "{}", report.all());
    document(&report);
    mesh.assert_no_complaints();
}

#[test]
fn files_that_db_cannot_use_are_refused_and_left_alone() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let good = at("good.db");
    generate(&good, &Shape::small()).unwrap();
    let other = at("other.db");
    rusqlite::Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE milk (litres REAL)")
        .unwrap();
    let text = at("text.db");
    std::fs::write(&text, "a shopping list\n".repeat(100)).unwrap();
    let missing = at("missing.db");
    let out = at("out").display().to_string();
    let as_text = |path: &PathBuf| path.display().to_string();
    let unchanged = |path: &Path, command: &mut Command, what: &str| {
        let before = std::fs::read(path).ok();
        let refused = output_of(command);
        assert!(matches!(refused.code, 1 | 2), "{}", refused.all());
        assert!(refused.err.contains(what), "{what}: {}", refused.all());
        assert!(std::fs::read(path).ok() == before, "{}", refused.all());
        assert!(!Path::new(&out).exists());
    };
    for (path, what) in [
        (&other, "is not a database of benchmesh"),
        (&text, "is not a database"),
        (&missing, "there is no database"),
    ] {
        for arguments in [
            &["check"][..],
            &["backup", &out],
            &["export", "--out", &out],
            &["export", "--table", "runs"],
        ] {
            unchanged(path, &mut db(arguments, path), what);
        }
        for arguments in [&["delete", "1"][..], &["merge", &as_text(&good)]] {
            unchanged(path, &mut db(arguments, path), &as_text(path));
        }
        unchanged(
            path,
            &mut db(&["merge", &as_text(path)], &good),
            &as_text(path),
        );
    }
}

#[test]
fn a_collector_that_is_up_keeps_its_database() {
    let mesh = Mesh::start();
    let log = mesh.directory().join("dd.log");
    std::fs::write(&log, DD).unwrap();
    assert_eq!(mesh.command(&["import", log.to_str().unwrap()]).code, 0);
    let directory = directory();
    let other = directory.path().join("other.db");
    generate(&other, &Shape::small()).unwrap();
    for arguments in [&["delete", "1"][..], &["merge", other.to_str().unwrap()]] {
        let refused = output_of(&mut db(arguments, mesh.db_path()));
        assert_eq!(refused.code, 2, "{}", refused.all());
        assert!(refused.err.contains("stop it first"), "{}", refused.all());
    }
    let copy = directory.path().join("copy.db");
    let out = directory.path().join("out");
    for arguments in [
        &["check"][..],
        &["backup", copy.to_str().unwrap()],
        &[
            "export",
            "--out",
            out.to_str().unwrap(),
            "--format",
            "jsonl",
        ],
    ] {
        let done = output_of(&mut db(arguments, mesh.db_path()));
        assert_eq!(done.code, 0, "{}", done.all());
    }
    let refused = output_of(&mut db(
        &["export", "--table", "runs", "--format", "parquet"],
        mesh.db_path(),
    ));
    assert_eq!(refused.code, 2, "{}", refused.all());
    assert!(
        refused.err.contains("add --out DIRECTORY"),
        "{}",
        refused.all()
    );
    let parquet = directory.path().join("parquet");
    let arguments = ["export", "--format", "parquet", "--site", "lab1"];
    for (written, unchanged) in [(1, 0), (0, 1)] {
        let mut command = db(&arguments, mesh.db_path());
        let done = output_of(command.arg("--out").arg(&parquet));
        assert_eq!(done.code, 0, "{}", done.all());
        let runs = if written == 1 { "1 run" } else { "0 runs" };
        let (start, end) = (
            format!("site lab1: {runs} written ("),
            format!("), {unchanged} unchanged\n"),
        );
        assert!(
            done.err.contains(&start) && done.err.ends_with(&end),
            "{}",
            done.all()
        );
    }
    assert_eq!(
        Database::open(&copy).one::<i64>("SELECT count(*) FROM runs"),
        1
    );
    mesh.assert_no_complaints();
}

/// Two databases of some 30 MiB without common runs or hosts.
fn two_databases(directory: &Path) -> (PathBuf, PathBuf) {
    let (a, b) = (directory.join("a.db"), directory.join("b.db"));
    let shape = Shape {
        runs: 10,
        ..Shape::small()
    };
    generate(&a, &shape).unwrap();
    std::fs::copy(&a, &b).unwrap();
    rusqlite::Connection::open(&b)
        .unwrap()
        .execute_batch(
            "UPDATE runs SET uid = 'b-' || uid; UPDATE agents SET uid = 'b-' || uid;
             UPDATE hosts SET boot_id = 'b-' || boot_id; PRAGMA wal_checkpoint(TRUNCATE);",
        )
        .unwrap();
    (a, b)
}

/// Row counts of each table, for a database that is either unchanged or completely changed.
fn rows(path: &Path) -> Vec<i64> {
    let tables = [
        "runs",
        "steps",
        "tasks",
        "op_intervals",
        "step_intervals",
        "hosts",
        "daemons",
        "daemon_samples",
        "net_samples",
    ];
    let tables =
        tables.map(|table| Database::open(path).one(&format!("SELECT count(*) FROM {table}")));
    tables.to_vec()
}

/// Runs a command and kills it after a while, unless it ends before; returns whether it succeeded.
fn killed(command: &mut Command, signal: i32, after: Duration) -> bool {
    // A shell that starts the tests in the background makes them ignore SIGINT.
    let restore = || {
        // SAFETY: signal() is safe to call between fork and exec.
        unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: `restore` does not allocate and takes no lock.
    unsafe { command.pre_exec(restore) };
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    if let Some(status) = crate::support::wait::try_until(after, || child.try_wait().unwrap()) {
        return status.success();
    }
    // SAFETY: the child has not been waited for, so its id is still valid.
    unsafe { libc::kill(i32::try_from(child.id()).unwrap(), signal) };
    child.wait().unwrap().success()
}

/// Kills `command` later and later until it succeeds. Each time the database is sound and keeps its rows.
fn kill_until_done(path: &Path, mut command: impl FnMut() -> Command) {
    let before = rows(path);
    let mut after = Duration::from_millis(1);
    let mut kills = 0;
    loop {
        let signal = [libc::SIGKILL, libc::SIGINT][kills % 2];
        if killed(&mut command(), signal, after) {
            break;
        }
        kills += 1;
        // A read-only reader finds it whole, too.
        let asked = output_of(
            benchmesh()
                .args([
                    "query",
                    "SELECT count(*) AS n FROM runs",
                    "--format",
                    "csv",
                    "--db",
                ])
                .arg(path),
        );
        assert_eq!(asked.code, 0, "killed after {after:?}: {}", asked.all());
        let checked = output_of(&mut db(&["check"], path));
        assert_eq!(checked.code, 0, "killed after {after:?}: {}", checked.all());
        let now = rows(path);
        if now != before {
            // Killed between its commit and its end.
            assert!(!killed(
                &mut command(),
                libc::SIGKILL,
                Duration::from_secs(60)
            ));
            break;
        }
        after = after * 3 / 2;
    }
    assert!(kills >= 3, "killed {kills} times only");
}

/// Takes about 15 s.
#[test]
fn a_merge_or_deletion_that_is_killed_changes_nothing() {
    let directory = directory();
    let (a, b) = two_databases(directory.path());
    let (of_a, of_b) = (rows(&a), rows(&b));
    kill_until_done(&a, || db(&["merge", b.to_str().unwrap()], &a));
    let both: Vec<i64> = of_a.iter().zip(&of_b).map(|(a, b)| a + b).collect();
    assert_eq!(rows(&a), both);
    assert_eq!(rows(&b), of_b, "the other file is as it was");
    kill_until_done(&a, || db(&["delete", "11"], &a));
    let checked = output_of(&mut db(&["check"], &a));
    assert_eq!(checked.code, 0, "{}", checked.all());
    assert_eq!(rows(&a)[0], both[0] - 1);
}

/// Every file below a directory with its contents, without the lock.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        // A kill may come before the directory is there.
        for entry in std::fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("_lock") {
                let name = path.strip_prefix(directory).unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[test]
fn a_parquet_export_that_is_killed_is_completed() {
    let directory = directory();
    let (a, _) = two_databases(directory.path());
    let export = |out: &str| {
        let out = directory.path().join(out).display().to_string();
        let arguments = [
            "export", "--format", "parquet", "--site", "lab1", "--out", &out,
        ];
        db(&arguments, &a)
    };
    let mut after = Duration::from_millis(2);
    let mut kills = 0;
    while !killed(&mut export("killed"), libc::SIGKILL, after) {
        kills += 1;
        after = after * 5 / 4;
        for (name, content) in contents(&directory.path().join("killed")) {
            let is_parquet = name.extension().is_some_and(|one| one == "parquet");
            assert!(
                !is_parquet || content.ends_with(b"PAR1"),
                "{} is half a file",
                name.display()
            );
        }
    }
    assert!(kills >= 3, "killed {kills} times only");
    let whole = output_of(&mut export("whole"));
    assert_eq!(whole.code, 0, "{}", whole.all());
    let [killed, whole] = ["killed", "whole"].map(|one| contents(&directory.path().join(one)));
    assert!(killed.keys().eq(whole.keys()), "{:?}", killed.keys());
    assert!(killed == whole, "after {kills} kills");
    let again = output_of(&mut export("killed"));
    assert!(
        again
            .err
            .contains("0 runs written (0 rows, 0 B), 11 unchanged"),
        "{}",
        again.all()
    );
}

#[test]
fn a_merge_of_the_same_run_or_of_a_newer_schema_is_refused() {
    let directory = directory();
    let (a, b) = two_databases(directory.path());
    let merge = || output_of(&mut db(&["merge", b.to_str().unwrap()], &a));
    let done = merge();
    assert_eq!(done.code, 0, "{}", done.all());
    let merged = rows(&a);
    let again = merge();
    assert_eq!(again.code, 2, "{}", again.all());
    assert!(
        again.err.contains("already has these runs of")
            && again.err.contains(": 1 (nightly), 2 (nightly)"),
        "{}",
        again.all()
    );
    rusqlite::Connection::open(&b)
        .unwrap()
        .execute_batch("PRAGMA user_version = 7; UPDATE meta SET schema = 999;")
        .unwrap();
    let newer = merge();
    assert!(matches!(newer.code, 1 | 2), "{}", newer.all());
    assert!(
        newer.err.contains("b.db") && newer.err.contains("has schema 999"),
        "{}",
        newer.all()
    );
    assert_eq!(rows(&a), merged, "a refused merge changes nothing");
}

/// The log of a `rados bench` of this many seconds.
fn rados_log(seconds: u32) -> String {
    use std::fmt::Write;
    let mut log = String::from(
        "hints = 1\nMaintaining 16 concurrent writes of 4194304 bytes to objects of size 4194304 for up to 3 seconds or 0 objects\n  \
         sec Cur ops   started  finished  avg MB/s  cur MB/s last lat(s)  avg lat(s)\n",
    );
    for second in 1..=seconds {
        let finished = second * 10;
        writeln!(
            log,
            "{second:5}      16 {:9} {finished:9}        40        40     0.91204    0.711046",
            finished + 16
        )
        .unwrap();
    }
    let all = seconds * 10;
    write!(
        log,
        "Total time run:         {seconds}.2\nTotal writes made:      {all}\nWrite size:             4194304\n\
         Bandwidth (MB/sec):     40\nAverage IOPS:           10\nAverage Latency(s):     0.7\nMax latency(s):         1.9\nMin latency(s):         0.2\n"
    )
    .unwrap();
    log
}

/// Takes about 10 s.
#[test]
fn an_import_that_is_killed_stores_nothing() {
    const SECONDS: u32 = 20_000;
    let directory = directory();
    let path = directory.path().join("a.db");
    generate(&path, &Shape::small()).unwrap();
    let before = rows(&path);
    let log = directory.path().join("rados.log");
    std::fs::write(&log, rados_log(SECONDS)).unwrap();
    kill_until_done(&path, || {
        let mut command = benchmesh();
        command.arg("import").arg(&log).arg("--db").arg(&path);
        command
    });
    let after = rows(&path);
    assert_eq!((after[0], after[1]), (before[0] + 1, before[1] + 1));
    assert_eq!(
        after[4],
        before[4] + i64::from(SECONDS),
        "each second is there"
    );
    let checked = output_of(&mut db(&["check"], &path));
    assert_eq!(checked.code, 0, "{}", checked.all());
}

//! Retention with real processes: a collector that is killed while it merges rows, and a disk that fills up meanwhile.

use crate::needs;
use crate::support::command::{CommandOutput, benchmesh, must};
use crate::support::database::Database;
use crate::support::loop_device::Mounted;
use crate::support::mesh::Mesh;
use crate::support::process::Process;
use crate::support::wait;
use benchmesh_synthetic::{Shape, generate};
use std::path::Path;
use std::time::Duration;

const SHAPE: Shape = Shape {
    hosts: 4,
    daemons_per_host: 6,
    clients: 2,
    targets: 2,
    runs: 2,
    repeats: 1,
    step_seconds: 65,
    gap_seconds: 2,
    soak_seconds: 1200,
};

/// Sums that merging must not change.
const SUMS: &str = "SELECT format('%d %d %d %d %d',
    (SELECT sum(ops) FROM op_intervals), (SELECT sum(bytes) FROM op_intervals), (SELECT sum(service_count) FROM op_intervals),
    (SELECT sum(ops) FROM step_intervals), (SELECT sum(ops) FROM step_results))";
const PRUNE: [&str; 6] = ["db", "prune", "--older", "1h", "--to", "10s"];

fn is_merging(db: &Database) -> bool {
    db.one::<i64>("SELECT count(*) FROM steps WHERE merging = 1") > 0
}

fn assert_all_is_merged(path: &Path, sums: &str) {
    let db = Database::open(path);
    assert_eq!(db.one::<String>(SUMS), sums);
    let finer = "SELECT count(*) FROM steps WHERE resolution_s = 1 OR merging = 1";
    assert_eq!(db.one::<i64>(finer), 0);
    let rows: i64 = db.one("SELECT count(*) FROM step_intervals AS i JOIN steps AS s ON s.id = i.step_id WHERE s.ordinal = 1");
    assert!(rows > 0, "nothing is left");
    db.assert_sound();
}

#[test]
fn a_collector_that_is_killed_while_rows_are_merged_goes_on_and_loses_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("benchmesh.db");
    generate(&path, &SHAPE).unwrap();
    let sums: String = Database::open(&path).one(SUMS);
    let mut mesh = Mesh::on_database_in(directory.path(), &[]);
    let mut killed_within = 0;
    // A fast disk may complete a step before the kill.
    for round in 0..16 {
        if round >= 4 && killed_within > 0 {
            break;
        }
        let mut command = mesh.benchmesh();
        command.args(PRUNE);
        let mut pruning = Process::start("prune", command, &directory.path().join("prune.log"));
        // Each time a little later within a step.
        let rows = || mesh.db().one::<i64>("SELECT count(*) FROM op_intervals");
        let before = rows();
        wait::until_true("rows are being merged", Duration::from_secs(30), || {
            !pruning.is_running() || is_merging(&mesh.db()) && rows() + 300 * round <= before
        });
        mesh.kill_collector();
        killed_within += i32::from(is_merging(&Database::open(&path)));
        assert_eq!(
            Database::open(&path).one::<String>(SUMS),
            sums,
            "round {round}"
        );
        let _ = pruning.exit_within(Duration::from_secs(30));
        mesh.restart_collector();
    }
    assert!(killed_within > 0, "it was never killed within a step");
    let done = mesh.command(&PRUNE);
    assert_eq!(done.code, 0, "{}", done.all());
    assert_all_is_merged(&path, &sums);
}

#[test]
fn a_disk_that_is_full_while_rows_are_merged_loses_nothing() {
    needs!("root", "tmpfs");
    let directory = tempfile::tempdir().unwrap();
    let made = directory.path().join("benchmesh.db");
    generate(&made, &SHAPE).unwrap();
    let sums: String = Database::open(&made).one(SUMS);
    let bytes = std::fs::metadata(&made).unwrap().len();
    // Space for a megabyte of the write-ahead log, which needs more.
    let disk = Mounted::tmpfs(bytes + (1 << 20));
    let path = disk.path().join("benchmesh.db");
    std::fs::copy(&made, &path).unwrap();
    let mut command = benchmesh();
    command.args(PRUNE).arg("--db").arg(&path);
    let mut pruning = Process::start("prune", command, &directory.path().join("prune.log"));
    let free = || {
        let disk = rustix::fs::statvfs(&path).unwrap();
        disk.f_bavail * disk.f_frsize
    };
    wait::until_true("the disk is full", Duration::from_secs(60), || {
        free() < 128 << 10 || !pruning.is_running()
    });
    assert_eq!(
        Database::open(&path).one::<String>(SUMS),
        sums,
        "{}",
        pruning.log()
    );
    // It continues when there is space: by itself if it waits for space, otherwise at the next request.
    let size = format!("remount,size={}", bytes + (64 << 20));
    must("mount", &["-o", &size, disk.path().to_str().unwrap()]);
    let ended = pruning.exit_within(Duration::from_secs(300));
    if !ended.is_some_and(|ended| ended.success()) {
        let mut command = benchmesh();
        command.args(PRUNE).arg("--db").arg(&path);
        let done = CommandOutput::of(&command.output().unwrap());
        assert_eq!(done.code, 0, "{}", done.all());
    }
    assert_all_is_merged(&path, &sums);
}

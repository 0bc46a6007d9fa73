//! A database that is restored from an older copy during a run: the missing data are one loss, and the mesh is ready at
//! once.

use super::{FILES, LIMIT, Stored, mesh_on, paced_plan, until_stored};
use crate::needs;
use crate::support::database::Database;
use crate::support::fuse_fs::FuseFs;
use crate::support::mesh::Mesh;
use crate::support::wait::until_true;
use benchmesh_testing::{measured, timing};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Limit from the start of the collector until both agents have attached again; refused batches once took minutes.
const READY: Duration = Duration::from_secs(20);

/// A copy of the database, made before later acks of each agent's spool.
fn copied(mesh: &Mesh) -> PathBuf {
    let copy = mesh.directory().join("copy.db");
    let vacuum = format!("VACUUM INTO '{}'", copy.display());
    rusqlite::Connection::open(mesh.db_path())
        .unwrap()
        .execute(&vacuum, [])
        .unwrap();
    // Checked for each agent: one may have sent more than the other.
    let copied = Stored::of(&mesh.db()).spools;
    until_true("more is acked than the copy has", LIMIT, || {
        // A query makes the collector store its buffered rows.
        let asked = mesh.command(&["query", "SELECT 1"]);
        assert_eq!(asked.code, 0, "{}", asked.all());
        let mut spools = Stored::of(&mesh.db()).spools.into_iter();
        spools.all(|(spool, last)| copied.get(&spool).is_some_and(|then| last > then + 1))
    });
    copy
}

/// Replaces the database of a stopped collector with the copy. Returns the path of the lost one.
fn put_back(mesh: &Mesh, copy: &Path) -> PathBuf {
    let lost = mesh.directory().join("lost.db");
    let beside = |path: &Path, suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    for suffix in ["", "-wal"] {
        std::fs::rename(beside(mesh.db_path(), suffix), beside(&lost, suffix)).unwrap();
    }
    let _ = std::fs::remove_file(beside(mesh.db_path(), "-shm"));
    std::fs::rename(copy, mesh.db_path()).unwrap();
    lost
}

#[test]
fn a_restored_database_costs_one_loss_and_the_next_run_starts_at_once() {
    needs!("fuse");
    measured(|| {
        let fs = FuseFs::mount();
        let mut mesh = mesh_on(&fs);
        let acked = "SELECT count(*) FROM spools WHERE last_sequence > 1";
        until_true("both agents have sent something", LIMIT, || {
            mesh.db().one::<i64>(acked) == 2
        });
        let copy = copied(&mesh);

        let mut run = mesh.begin(&paced_plan(&fs, ""));
        mesh.until_step_is("delete", "running", LIMIT);
        until_stored(&mesh, 4);
        let lost_run: i64 = mesh.db().one("SELECT id FROM runs");
        mesh.kill_collector();
        run.kill();
        put_back(&mesh, &copy);
        mesh.restart_collector();
        let restarted = Instant::now();
        mesh.until_attached(&["a", "b"]);
        let losses = "SELECT count(*) FROM events WHERE kind = 'database-restored' AND detail ->> 'run_uid' IS NULL";
        until_true("both agents tell their loss", LIMIT, || {
            mesh.db().one::<i64>(losses) == 2
        });
        timing!(restarted.elapsed() < READY, "{:?}", restarted.elapsed());
        // Remove the delay of the calls: this test does not wait for thousands of them.
        fs.release();
        until_true("the lost run's directory is removed", LIMIT, || {
            fs.names().is_empty()
        });
        let again = mesh.run(&paced_plan(&fs, ""));
        assert!(again > lost_run, "the id of a lost run is given again");
        let db = mesh.db();
        let of_no_run =
            "SELECT count(*) FROM events WHERE kind = 'database-restored' AND run_id IS NULL
             AND detail ->> 'run_uid' IS NOT NULL";
        assert_eq!(
            db.one::<i64>(of_no_run),
            2,
            "the database has never had the lost run"
        );
        assert_eq!(db.column::<String>("SELECT state FROM runs"), ["done"]);
        assert_eq!(db.one::<i64>(losses), 2);
        let gaps: i64 = db.one("SELECT count(*) FROM events WHERE kind = 'spool-gap'");
        assert_eq!(gaps, 0);
        db.assert_sound();
        assert_eq!(db.one::<i64>("SELECT ops FROM step_results"), 2 * FILES);
        Ok(())
    });
}

/// The copy is from the middle of a step that still runs when it is restored: the step is repeated, no agent is
/// reported as lost or restarted, and each agent reports the part of the run that the copy lacks.
#[test]
fn a_step_that_a_restored_database_has_is_repeated_and_its_loss_is_counted() {
    needs!("fuse");
    let fs = FuseFs::mount();
    let mut mesh = mesh_on(&fs);
    let plan = paced_plan(&fs, "on-loss = { at-least = 2 }");
    let mut run = mesh.begin(&plan);
    mesh.until_step_is("delete", "running", LIMIT);
    until_stored(&mesh, 2);
    let copy = copied(&mesh);
    assert_eq!(
        mesh.db().column::<String>("SELECT state FROM steps"),
        ["running"]
    );
    mesh.kill_collector();
    run.kill();
    let operations = |db: &Database, agent: &str| -> i64 {
        db.one(&format!(
            "SELECT coalesce(sum(o.ops), 0) FROM op_intervals o JOIN tasks t ON t.id = o.task_id
             JOIN agents a ON a.id = t.agent_id WHERE a.name = '{agent}'"
        ))
    };
    let in_copy = ["a", "b"].map(|agent| operations(&Database::open(&copy), agent));
    let lost = put_back(&mesh, &copy);
    let in_lost = ["a", "b"].map(|agent| operations(&Database::open(&lost), agent));
    mesh.restart_collector();
    mesh.until_run_is(&["done", "failed", "stopped"], LIMIT * 2);
    let db = mesh.db();
    let events = db.column::<String>("SELECT kind || ': ' || message FROM events ORDER BY id");
    assert_eq!(
        db.column::<String>("SELECT state FROM runs"),
        ["done"],
        "{events:?}"
    );
    let losses = "SELECT count(*) FROM events
                  WHERE kind = 'agent-lost' OR message LIKE '%restarted and lost its task%'";
    assert_eq!(db.one::<i64>(losses), 0, "{events:?}");
    assert_eq!(db.one::<i64>("SELECT max(attempt) FROM steps"), 2);
    assert_eq!(
        db.one::<i64>(
            "SELECT r.ops FROM step_results r JOIN steps s ON s.id = r.step_id WHERE s.attempt = 2"
        ),
        2 * FILES
    );
    let told = db.rows(
        "SELECT a.name, e.run_id, e.detail ->> 'vanished_operations' AS gone, e.detail ->> 'operations' AS undelivered,
             e.detail ->> 'is_exact' AS is_exact
         FROM events e JOIN agents a ON a.id = e.agent_id
         WHERE e.kind = 'database-restored' AND e.detail ->> 'run_uid' = (SELECT uid FROM runs) ORDER BY a.name",
    );
    assert_eq!(told.len(), 2, "{events:?}");
    for ((told, in_lost), in_copy) in told.iter().zip(in_lost).zip(in_copy) {
        assert_eq!(told.integer("run_id"), db.one::<i64>("SELECT id FROM runs"));
        assert_eq!(told.integer("is_exact"), 1);
        // The last ack may not have reached the agent.
        let (gone, undelivered) = (told.integer("gone"), told.integer("undelivered"));
        let vanished = in_lost - in_copy;
        assert!(
            0 < gone && gone <= vanished && vanished <= gone + undelivered,
            "{gone} and {undelivered}, of {vanished}"
        );
    }
    db.assert_sound();
}

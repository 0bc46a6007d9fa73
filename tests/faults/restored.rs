//! A database that is put back from an older copy while a run goes on: what it does not know is one loss, and the mesh is
//! ready at once.

use super::{FILES, LIMIT, Stored, mesh_on, paced_plan, until_stored};
use crate::needs;
use crate::support::fuse_fs::FuseFs;
use crate::support::wait::until_true;
use benchmesh_testing::{measured, timing};
use std::time::{Duration, Instant};

/// From the start of the collector until both agents have attached again; refused batches took minutes.
const READY: Duration = Duration::from_secs(20);

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
        let copy = mesh.directory().join("copy.db");
        let vacuum = format!("VACUUM INTO '{}'", copy.display());
        rusqlite::Connection::open(mesh.db_path())
            .unwrap()
            .execute(&vacuum, [])
            .unwrap();
        // Of each agent: one may have sent more than the other.
        let copied = Stored::of(&mesh.db()).spools;
        until_true("more is acked than the copy has", LIMIT, || {
            let mut spools = Stored::of(&mesh.db()).spools.into_iter();
            spools.all(|(spool, last)| copied.get(&spool).is_some_and(|then| last > then + 1))
        });

        let mut run = mesh.begin(&paced_plan(&fs, ""));
        mesh.until_step_is("delete", "running", LIMIT);
        until_stored(&mesh, 4);
        mesh.kill_collector();
        run.kill();
        let db = mesh.db_path().to_owned();
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", db.display()));
        }
        std::fs::rename(&copy, &db).unwrap();
        mesh.restart_collector();
        let restarted = Instant::now();
        mesh.until_attached(&["a", "b"]);
        let losses = "SELECT count(*) FROM events WHERE kind = 'database-restored'";
        until_true("both agents tell their loss", LIMIT, || {
            mesh.db().one::<i64>(losses) == 2
        });
        timing!(restarted.elapsed() < READY, "{:?}", restarted.elapsed());
        // The calls take no time any more: thousands of them are not what this test waits for.
        fs.release();
        until_true("the lost run's directory is removed", LIMIT, || {
            fs.names().is_empty()
        });
        // Task ids are used again; nothing of the lost run stands in their way.
        mesh.run(&paced_plan(&fs, ""));
        let db = mesh.db();
        assert_eq!(db.column::<String>("SELECT state FROM runs"), ["done"]);
        assert_eq!(db.one::<i64>(losses), 2);
        let gaps: i64 = db.one("SELECT count(*) FROM events WHERE kind = 'spool-gap'");
        assert_eq!(gaps, 0);
        db.assert_sound();
        assert_eq!(db.one::<i64>("SELECT ops FROM step_results"), 2 * FILES);
        Ok(())
    });
}

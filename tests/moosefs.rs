//! A real MooseFS with three copies on three nodes: load from two clients, and its cost for master and chunkservers.

use crate::needs;
use crate::support::database::Database;
use crate::support::lab::{Lab, check_versions};
use std::path::PathBuf;

/// Takes about 25 s.
#[test]
fn two_clients_on_a_real_moosefs() {
    needs!("root", "moosefs", "netns", "fuse");
    let lab = Lab::up("moosefs");
    let mount = PathBuf::from(lab.fact("mount"));
    let mut mesh = lab.mesh();
    lab.add_clients(&mut mesh, |agent| agent.allow(&mount));
    lab.add_nodes(&mut mesh, |_, agent| agent);
    let run = mesh.run(&format!(
        r#"
        name = "moosefs"
        [targets.mfs]
        system = "moosefs"
        path = "{}"
        [clients]
        select = "role=client"
        [[phase]]
        name = "small"
        workload = "files"
        files = 300
        size = "16k"
        numjobs = 2
        modes = ["create", "stat", "read", "delete"]
        [[phase]]
        name = "records"
        workload = "io"
        size = "16m"
        bs = "64k"
        runtime = "4s"
        modes = ["write", "read"]
        "#,
        mount.display()
    ));
    let db = mesh.db();
    db.assert_sound();
    let results = db.rows(&format!(
        "SELECT mode, system, clients, errors, ops_per_s FROM v_results WHERE run_id = {run}"
    ));
    assert_eq!(results.len(), 6, "{results:?}");
    for row in &results {
        assert_eq!(row.text("system"), "moosefs");
        assert_eq!(
            (row.integer("clients"), row.integer("errors")),
            (2, 0),
            "{row:?}"
        );
        assert!(row.number("ops_per_s") > 0.0, "{row:?}");
    }
    let files: i64 = db.one(&format!(
        "SELECT r.ops FROM step_results r JOIN steps s ON s.id = r.step_id WHERE s.run_id = {run} AND s.mode = 'create'"
    ));
    assert_eq!(files, 600);
    check_daemons(&db, run);
    let daemons = ["mfsmaster", "mfschunkserver", "mfsmount"];
    check_versions(&mesh, &daemons, "moosefs-master");
    let left: Vec<_> = std::fs::read_dir(&mount).unwrap().collect();
    assert!(left.is_empty(), "left on the mount: {left:?}");
    mesh.assert_no_complaints();
}

/// The master with its process that writes the changelog, three chunkservers and the clients' mount: each is found
/// once, and its usage is charged.
fn check_daemons(db: &Database, run: i64) {
    for (name, count, working) in [
        ("mfsmaster", 2, 1),
        ("mfschunkserver", 3, 3),
        ("mfsmount", 1, 1),
    ] {
        let found: i64 = db.one(&format!(
            "SELECT count(*) FROM daemons WHERE name = '{name}'"
        ));
        assert_eq!(found, count, "{name}");
        let charged: i64 = db.one(&format!(
            "SELECT count(DISTINCT u.daemon_id) FROM v_daemon_usage u JOIN steps s ON s.id = u.step_id
             WHERE s.run_id = {run} AND s.mode = 'write' AND u.name = '{name}' AND u.cpu_s > 0"
        ));
        assert!(
            charged >= working,
            "{charged} {name} with CPU in a step of writes"
        );
    }
}

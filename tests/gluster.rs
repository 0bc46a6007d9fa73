//! A real GlusterFS with three copies on three nodes: load from two clients, and its cost for each brick.

use crate::needs;
use crate::support::database::Database;
use crate::support::lab::{Lab, check_versions};
use std::path::PathBuf;

#[test]
fn two_clients_on_a_real_glusterfs() {
    needs!("root", "gluster", "netns", "fuse");
    let lab = Lab::up("gluster");
    let mount = PathBuf::from(lab.fact("mount"));
    let mut mesh = lab.mesh();
    lab.add_clients(&mut mesh, |agent| agent.allow(&mount));
    let socket = lab.path().join("node1/run/d.sock");
    let facts = format!("gluster --glusterd-sock={}", socket.display());
    lab.add_nodes(&mut mesh, |node, agent| match node {
        1 => agent.argument("--facts").argument(&facts),
        _ => agent,
    });
    let run = mesh.run(&format!(
        r#"
        name = "gluster"
        [targets.vol]
        system = "glusterfs"
        path = "{}"
        [clients]
        select = "role=client"
        [[phase]]
        name = "small"
        workload = "files"
        files = 300
        size = "16k"
        numjobs = 2
        settle = "3s"
        modes = ["create", "stat", "read", "delete"]
        [[phase]]
        name = "records"
        workload = "io"
        size = "32m"
        bs = "64k"
        runtime = "6s"
        settle = "3s"
        modes = ["write", "read"]
        "#,
        mount.display()
    ));
    let known =
        format!("SELECT count(*) FROM facts WHERE run_id = {run} AND name = 'bricks_online'");
    mesh.until_stored("the cluster's state is known", &known);
    let db = mesh.db();
    db.assert_sound();
    check_results(&db, run);
    for (name, value) in [
        ("bricks", 3),
        ("bricks_online", 3),
        ("volume.bench.replica", 3),
    ] {
        let found: i64 = db.one(&format!(
            "SELECT value FROM facts WHERE run_id = {run} AND system = 'gluster' AND name = '{name}' ORDER BY at_us LIMIT 1"
        ));
        assert_eq!(found, value, "{name}");
    }
    let daemons = ["glusterfsd", "glusterd", "glusterfs"];
    check_versions(&mesh, &daemons, "glusterfs-server");
    for node in 1..=3 {
        check_brick(&db, run, lab.fact(&format!("brick{node}")));
    }
    assert!(
        std::fs::read_dir(&mount).unwrap().next().is_none(),
        "left on the mount"
    );
    mesh.assert_no_complaints();
}

fn check_results(db: &Database, run: i64) {
    let results = db.rows(&format!(
        "SELECT phase, mode, op, system, clients, errors, ops_per_s, p99_ms FROM v_results WHERE run_id = {run}"
    ));
    assert_eq!(results.len(), 6, "{results:?}");
    for row in &results {
        assert_eq!(row.text("system"), "glusterfs");
        assert_eq!(
            (row.integer("clients"), row.integer("errors")),
            (2, 0),
            "{row:?}"
        );
        assert!(
            row.number("ops_per_s") > 0.0 && row.number("p99_ms") > 0.0,
            "{row:?}"
        );
    }
    let files: i64 = db.one(&format!(
        "SELECT r.ops FROM step_results r JOIN steps s ON s.id = r.step_id WHERE s.run_id = {run} AND s.mode = 'create'"
    ));
    assert_eq!(files, 600);
    let cost = db.rows(&format!(
        "SELECT c.* FROM v_cost c JOIN steps s ON s.id = c.step_id WHERE s.run_id = {run} AND c.name = 'glusterfsd'"
    ));
    assert_eq!(
        cost.len(),
        6,
        "what an operation costs the bricks, per step: {cost:?}"
    );
}

/// The brick's glusterfsd is found once, named by its brick, and used more CPU in each writing step than at rest.
fn check_brick(db: &Database, run: i64, brick: &str) {
    let daemons = db.rows(&format!(
        "SELECT id FROM daemons WHERE name = 'glusterfsd' AND instance = '{brick}'"
    ));
    assert_eq!(daemons.len(), 1, "glusterfsd of {brick}: {daemons:?}");
    let daemon = daemons[0].integer("id");
    for mode in ["create", "write"] {
        let during: f64 = db.one(&format!(
            "SELECT u.cpu_percent FROM v_daemon_usage u JOIN steps s ON s.id = u.step_id
             WHERE s.run_id = {run} AND s.mode = '{mode}' AND u.name = 'glusterfsd' AND u.instance = '{brick}'"
        ));
        // Idle: the seconds of `settle` before the step's start.
        let before: f64 = db.one(&format!(
            "SELECT 100.0 * (max(d.cpu_user_us + d.cpu_system_us) - min(d.cpu_user_us + d.cpu_system_us))
                    / (max(d.at_us) - min(d.at_us))
             FROM daemon_samples d, steps s
             WHERE s.run_id = {run} AND s.mode = '{mode}' AND d.daemon_id = {daemon}
               AND d.at_us BETWEEN s.start_us - 2500000 AND s.start_us - 100000"
        ));
        assert!(
            during > before + 1.0,
            "{brick} in {mode}: {before} % of a CPU before, {during} % during"
        );
    }
}

//! Three agents on one host: each daemon, disk and interface appears once in every view. Tolerance: none.

use crate::support::database::Database;
use crate::support::mesh::{Agent, Mesh};
use crate::support::process::Process;
use std::process::Command;

#[test]
fn three_agents_on_one_host_count_everything_once() {
    let directory = tempfile::Builder::new()
        .prefix("bm-once-")
        .tempdir()
        .unwrap();
    let brick = directory.path().join("glusterfsd");
    std::os::unix::fs::symlink("/bin/bash", &brick).unwrap();
    let mut command = Command::new(&brick);
    command
        .args([
            "-c",
            "exec 3<> <(:); while :; do read -t 0.01 -u 3; done",
            "glusterfsd",
        ])
        .args(["--brick-name", "/bricks/one"]);
    let daemon = Process::start("brick", command, &directory.path().join("log"));
    let mut mesh = Mesh::start();
    for name in ["a", "b", "c"] {
        mesh.add(Agent::named(name));
    }
    mesh.run(
        r#"
        [[phase]]
        workload = "null"
        runtime = "4s"
        "#,
    );
    let db = mesh.db();
    assert_eq!(db.one::<i64>("SELECT count(*) FROM agents"), 3);
    assert_eq!(db.one::<i64>("SELECT count(*) FROM hosts"), 1);
    let pid = daemon.pid();
    let daemons = db.rows(&format!(
        "SELECT name, instance FROM daemons WHERE pid = {pid}"
    ));
    assert_eq!(daemons.len(), 1, "{daemons:?}");
    assert_eq!(daemons[0].text("name"), "glusterfsd");
    for (what, sql) in [
        (
            "daemon",
            "SELECT host_id, pid, start_ticks FROM daemons GROUP BY 1, 2, 3 HAVING count(*) > 1",
        ),
        (
            "usage",
            "SELECT step_id, host, name, instance FROM v_daemon_usage WHERE name = 'glusterfsd' \
             GROUP BY 1, 2, 3, 4 HAVING count(*) > 1",
        ),
        (
            "cost",
            "SELECT step_id, target, name FROM v_cost GROUP BY 1, 2, 3 HAVING count(*) > 1",
        ),
        (
            "disk",
            "SELECT name FROM disks GROUP BY name HAVING count(*) > 1",
        ),
        (
            "interface",
            "SELECT name FROM interfaces GROUP BY name HAVING count(*) > 1",
        ),
        (
            "agent",
            "SELECT agent FROM v_agents GROUP BY agent HAVING count(*) > 1",
        ),
        (
            "run",
            "SELECT run_id FROM v_runs GROUP BY run_id HAVING count(*) > 1",
        ),
        (
            "result",
            "SELECT step_id, op FROM v_results GROUP BY 1, 2 HAVING count(*) > 1",
        ),
    ] {
        let twice = db.rows(sql);
        assert!(twice.is_empty(), "{what} counted twice: {twice:?}");
    }
    assert_one_sampler(&db, "daemon_samples", "daemon_id");
    assert_one_sampler(&db, "host_samples", "host_id");
    assert_one_sampler(&db, "disk_samples", "disk_id");
    assert_one_sampler(&db, "net_samples", "interface_id");
    mesh.assert_no_complaints();
}

/// The samples of one sampler: one per second, marks at the step's start and end, and about 40 additional ones in the
/// first 4 s of the step. Two samplers would give twice as many.
fn assert_one_sampler(db: &Database, table: &str, key: &str) {
    let crowded = db.rows(&format!(
        "SELECT {key}, count(*) AS samples, (max(at_us) - min(at_us)) / 1e6 AS seconds FROM {table}
         GROUP BY {key} HAVING samples > seconds + 6 + 45"
    ));
    assert!(crowded.is_empty(), "{table}: {crowded:?}");
    let empty: i64 = db.one(&format!("SELECT count(*) FROM {table}"));
    assert!(empty > 0, "{table} is empty");
}

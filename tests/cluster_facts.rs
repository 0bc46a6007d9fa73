//! Cluster facts from an agent's own commands: one that reports a state, one that hangs, one that floods.

use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Creates an executable script; returns its absolute path.
fn script(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

/// Takes about 10 s: the hanging command is killed after 2 s, while the load runs.
#[test]
fn a_clusters_state_is_stored_and_a_command_that_hangs_costs_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path();
    let state = place.join("state");
    std::fs::write(&state, "health=ok\nosds=3\nosds_up=3\npool.p.size=2\n").unwrap();
    let tells = script(place, "tells", &format!("cat {}", state.display()));
    let floods = script(place, "floods", "exec yes x=1");
    let hangs = script(place, "hangs", "sleep 600.25 & sleep 600.25");
    let mut mesh = Mesh::start();
    let mut agent = Agent::named("a")
        .allow(place)
        .argument("--facts-period=1s")
        .argument("--facts-timeout=2s");
    for facts in [
        format!("toy={tells}"),
        format!("flood={floods}"),
        format!("hang={hangs}"),
    ] {
        agent = agent.argument("--facts").argument(&facts);
    }
    mesh.add(agent);
    let mut run = mesh.begin("[[phase]]\nworkload = \"null\"\nrate_iops = 100\nruntime = \"7s\"\n");
    let limit = Duration::from_secs(60);
    let known = "SELECT count(*) FROM facts WHERE system = 'toy' AND name = 'osds_up'";
    mesh.until_stored("the state is known", known);
    std::fs::write(&state, "health=ok\nosds=3\nosds_up=3\npool.p.size=3\n").unwrap();
    let marked = mesh.command(&["mark", "the pool got a third copy"]);
    assert_eq!(marked.code, 0, "{}", marked.all());
    let third =
        "SELECT count(*) FROM facts WHERE system = 'toy' AND name = 'pool.p.size' AND value = 3";
    mesh.until_stored("the state at the mark is known", third);
    assert_eq!(mesh.db().one::<String>("SELECT state FROM runs"), "running");
    std::fs::write(&state, "health=bad\nosds=3\nosds_up=2\npool.p.size=2\n").unwrap();
    assert!(
        run.exit_within(limit)
            .is_some_and(|status| status.success()),
        "{}",
        run.log()
    );
    let degraded = "SELECT count(*) FROM v_marks WHERE source = 'cluster-degraded'";
    mesh.until_stored("the end of the run is read", degraded);
    let db = mesh.db();
    let row = db.rows(
        // The first fact has a row for each reading.
        "SELECT name, group_concat(value, ' ' ORDER BY at_us) FILTER (WHERE value IS NOT former) AS vals,
                count(run_id) AS runs, count(*) AS n
         FROM (SELECT *, lag(value) OVER (PARTITION BY name ORDER BY at_us, id) AS former
               FROM facts WHERE system = 'toy') GROUP BY name ORDER BY name",
    );
    let shown: Vec<String> = (row.iter())
        .map(|row| format!("{} {}", row.text("name"), row.text("vals")))
        .collect();
    assert_eq!(
        shown,
        [
            "health ok bad",
            "osds 3",
            "osds_up 3 2",
            "pool.p.size 2 3 2"
        ]
    );
    for row in &row {
        assert_eq!(row.integer("runs"), row.integer("n"), "{row:?}");
    }
    let failures = "SELECT count(*) FROM events WHERE kind = 'facts-failed' AND message LIKE ";
    for part in [
        "'%flood%more than 1048576 bytes%'",
        "'%hang%killed after its timeout of 2 s%'",
    ] {
        assert_eq!(db.one::<i64>(&format!("{failures}{part}")), 1, "{part}");
    }
    let ops: i64 = db.one("SELECT sum(ops) FROM step_results");
    assert!(ops >= 650, "the load ran beside them: {ops}");
    // The reading after the step may have started another one.
    until_true("what hangs is killed", limit, || {
        let left = Command::new("pgrep").args(["-f", "^sleep 600.25"]).output();
        left.unwrap().stdout.is_empty()
    });
    let report = mesh.command(&["report", "last", "all"]);
    for part in [
        "Cluster",
        "ok, 3 of 3 OSDs up, pool p size 2",
        "bad, 2 of 3 OSDs up",
        "cluster-degraded",
    ] {
        assert!(report.out.contains(part), "{part}: {}", report.all());
    }
}

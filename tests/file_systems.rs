//! `files` and `io` on real file systems: ext4, xfs, btrfs on loop devices, and tmpfs.
//!
//! Each run must have the planned counts, no errors, and leave the target unchanged.

use crate::needs;
use crate::support::database::assert_believable;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn ext4() {
    needs!("root", "loop", "ext4");
    check("ext4", &Mounted::on_loop("ext4", 512 << 20));
}

#[test]
fn xfs() {
    needs!("root", "loop", "xfs");
    check("xfs", &Mounted::on_loop("xfs", 512 << 20));
}

#[test]
fn btrfs() {
    needs!("root", "loop", "btrfs");
    check("btrfs", &Mounted::on_loop("btrfs", 512 << 20));
}

#[test]
fn tmpfs() {
    needs!("root", "tmpfs");
    check("tmpfs", &Mounted::tmpfs(256 << 20));
}

fn check(kind: &str, fs: &Mounted) {
    let mut mesh = Mesh::start();
    for name in ["a", "b"] {
        mesh.add(Agent::named(name).allow(&fs.path()));
    }
    let direct = kind != "tmpfs";
    let run = mesh.run(&format!(
        r#"
        name = "{kind}"
        [targets.t]
        system = "{kind}"
        path = "{}"
        [[phase]]
        name = "small"
        workload = "files"
        files = 300
        size = "6k"
        numjobs = 2
        dirs = 50
        modes = ["create", "list", "mix", "stat", "read", "rename", "delete"]
        [[phase]]
        name = "records"
        workload = "io"
        size = "16m"
        bs = "64k"
        direct = {direct}
        modes = ["write", "rewrite", "read", "reread", "randwrite", "randread"]
        "#,
        fs.path().display()
    ));
    let db = mesh.db();
    let results = db.rows(&format!(
        "SELECT * FROM v_results WHERE run_id = {run} ORDER BY ordinal"
    ));
    let (mixed, results): (Vec<_>, Vec<_>) = results
        .into_iter()
        .partition(|row| row.text("mode") == "mix");
    assert_eq!(results.len(), 12, "{results:?}");
    let ops: Vec<String> = mixed.iter().map(|row| row.text("op")).collect();
    assert_eq!(ops, ["read", "write"]);
    assert_eq!(mixed.iter().map(|row| row.integer("ops")).sum::<i64>(), 600);
    for row in &mixed {
        assert_eq!(row.integer("bytes"), row.integer("ops") * 6144, "{row:?}");
        assert_believable(row);
    }
    for row in &results {
        let (ops, bytes) = match (row.text("workload").as_str(), row.text("mode").as_str()) {
            // Two agents, each with 300 files in directories of at most 50 for each of two workers.
            ("files", "create" | "read") => (600, 600 * 6144),
            ("files", "list") => (12, 0),
            ("files", _) => (600, 0),
            ("io", _) => (2 * 256, 2 << 24),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (row.integer("ops"), row.integer("bytes")),
            (ops, bytes),
            "{row:?}"
        );
        assert_eq!(row.text("system"), kind);
        assert_believable(row);
    }
    assert_eq!(fs.names(), Vec::<String>::new(), "left on the target");
    mesh.assert_no_complaints();
}

/// Another process fills a target that two agents share, beside their load. Takes 12 s, because a target is sampled
/// every 10 s.
#[test]
fn a_target_that_is_filled_is_found_once() {
    needs!("root", "tmpfs");
    let fs = Mounted::tmpfs(64 << 20);
    let target = fs.path();
    let mut mesh = Mesh::start();
    for name in ["a", "b"] {
        mesh.add(Agent::named(name).allow(&target).argument("--free-space=0"));
    }
    let mut run = mesh.begin(&format!(
        "[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\nworkload = \"io\"\nmodes = [\"randwrite\"]\n\
         size = \"1m\"\nruntime = \"12s\"\nrate_iops = 10\n",
        target.display()
    ));
    mesh.until_step_is("randwrite", "running", LIMIT);
    let facts = rustix::fs::statvfs(&target).unwrap();
    let free = facts.f_bavail * facts.f_frsize;
    let other = target.join("of somebody else");
    let filling = std::fs::File::create(&other).unwrap();
    let fallocate = rustix::fs::FallocateFlags::empty();
    rustix::fs::fallocate(&filling, fallocate, 0, free - (512 << 10)).unwrap();
    let ended = run.exit_within(LIMIT);
    assert!(ended.unwrap().success(), "{}", run.log());
    mesh.until_stored(
        "the finding",
        "SELECT count(*) FROM findings WHERE figure = 'free_percent'",
    );
    let db = mesh.db();
    let samples =
        "SELECT min(n) FROM (SELECT count(*) AS n FROM targets AS t JOIN target_samples AS x
                   ON x.target_id = t.id GROUP BY t.agent_id)";
    assert!(db.one::<i64>(samples) >= 2);
    let seen = "SELECT count(*) || ' ' || count(DISTINCT nonce) FROM targets";
    assert_eq!(db.one::<String>(seen), "2 1");
    let found = "SELECT severity || ' ' || sentence FROM findings WHERE figure LIKE 'free_%'";
    // Late data delete the findings; they are computed again within seconds.
    let found = until("the finding", LIMIT, || {
        let found: Vec<String> = db.column(found);
        (!found.is_empty()).then_some(found)
    });
    let [found] = &found[..] else {
        panic!("{found:#?}");
    };
    assert!(
        found.starts_with("error target t (") && found.contains(" ran out of space: "),
        "{found}"
    );
    std::fs::remove_file(other).unwrap();
    assert!(fs.names().is_empty(), "{:?}", fs.names());
}

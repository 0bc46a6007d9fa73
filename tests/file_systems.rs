//! `files` and `io` on real file systems: ext4, xfs, btrfs on loop devices, and tmpfs.
//!
//! Each run must have the planned counts, no errors, and leave the target unchanged.

use crate::needs;
use crate::support::database::assert_believable;
use crate::support::loop_device::Mounted;
use crate::support::mesh::{Agent, Mesh};

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
        modes = ["create", "list", "stat", "read", "rename", "delete"]
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
    assert_eq!(results.len(), 12, "{results:?}");
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

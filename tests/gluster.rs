//! A real GlusterFS, three copies over three nodes: load from two clients, and its cost for each brick.

use crate::needs;
use crate::support::command::{must, succeeds};
use crate::support::database::Database;
use crate::support::mesh::{Agent, Mesh};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The cluster that tests/lab/gluster.sh makes; it is taken down with the value.
struct Cluster {
    facts: BTreeMap<String, String>,
    directory: TempDir,
}

impl Cluster {
    fn up() -> Self {
        // Short, because Unix sockets lie deep below it.
        let directory = tempfile::Builder::new()
            .prefix("bmg")
            .tempdir_in("/tmp")
            .unwrap();
        let mut cluster = Self {
            facts: BTreeMap::new(),
            directory,
        };
        lab("up", &cluster.lab());
        let facts = std::fs::read_to_string(cluster.lab().join("lab.env")).unwrap();
        for (key, value) in facts.lines().filter_map(|line| line.split_once('=')) {
            cluster.facts.insert(key.to_owned(), value.to_owned());
        }
        cluster
    }

    fn lab(&self) -> PathBuf {
        self.directory.path().join("g")
    }

    fn fact(&self, key: &str) -> &str {
        &self.facts[key]
    }
}

fn lab(verb: &str, directory: &Path) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/gluster.sh");
    must("bash", &[script, verb, directory.to_str().unwrap()]);
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/gluster.sh");
        succeeds("bash", &[script, "down", self.lab().to_str().unwrap()]);
    }
}

#[test]
fn two_clients_on_a_real_glusterfs() {
    needs!("root", "gluster", "netns", "fuse");
    let cluster = Cluster::up();
    let mount = PathBuf::from(cluster.fact("mount"));
    // The collector listens on the bridge: storage nodes reach it from their namespaces.
    let mut mesh = Mesh::listening_on(&format!("{}:0", cluster.fact("host")));
    for client in ["client1", "client2"] {
        mesh.add(Agent::named(client).label("role=client").allow(&mount));
    }
    for node in 1..=3 {
        let namespace = cluster.fact(&format!("namespace{node}"));
        let agent = Agent::named(&format!("node{node}"));
        let mut agent = agent.label("role=storage").inside(namespace);
        if node == 1 {
            let socket = cluster.lab().join("node1/run/d.sock");
            let facts = format!("gluster --glusterd-sock={}", socket.display());
            agent = agent.argument("--facts").argument(&facts);
        }
        mesh.add(agent);
    }
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
    for node in 1..=3 {
        check_brick(&db, run, cluster.fact(&format!("brick{node}")));
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
        // At rest: the seconds of `settle` before the step's start.
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

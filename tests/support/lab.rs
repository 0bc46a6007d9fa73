//! Clusters of real daemons made by the scripts in tests/lab, with each node in a network namespace.

use super::command::{must, succeeds};
use super::mesh::{Agent, Mesh};
use std::collections::BTreeMap;
use std::path::PathBuf;
use tempfile::TempDir;

/// A running cluster; it is taken down on drop.
#[derive(Debug)]
pub struct Lab {
    script: PathBuf,
    facts: BTreeMap<String, String>,
    directory: TempDir,
}

impl Lab {
    /// Starts the cluster of the script `tests/lab/NAME.sh`.
    pub fn up(name: &str) -> Self {
        let labs = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab");
        // Short, because Unix sockets are created deep below it.
        let directory = tempfile::Builder::new().prefix("bm").tempdir_in("/tmp");
        let mut lab = Self {
            script: format!("{labs}/{name}.sh").into(),
            facts: BTreeMap::new(),
            directory: directory.unwrap(),
        };
        let script = lab.script.to_str().unwrap();
        must("bash", &[script, "up", lab.path().to_str().unwrap()]);
        let facts = std::fs::read_to_string(lab.path().join("lab.env")).unwrap();
        for (key, value) in facts.lines().filter_map(|line| line.split_once('=')) {
            lab.facts.insert(key.to_owned(), value.to_owned());
        }
        lab
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("l")
    }

    /// A value from its lab.env.
    pub fn fact(&self, key: &str) -> &str {
        &self.facts[key]
    }

    /// A collector on the lab's bridge, which the nodes reach from their namespaces.
    pub fn mesh(&self) -> Mesh {
        Mesh::listening_on(&format!("{}:0", self.fact("host")))
    }

    /// Adds two clients, completed by `change`.
    pub fn add_clients(&self, mesh: &mut Mesh, change: impl Fn(Agent) -> Agent) {
        for client in ["client1", "client2"] {
            mesh.add(change(Agent::named(client).label("role=client")));
        }
    }

    /// Adds an agent on each of the three nodes, completed by `change`.
    pub fn add_nodes(&self, mesh: &mut Mesh, change: impl Fn(usize, Agent) -> Agent) {
        for node in 1..=3 {
            let namespace = self.fact(&format!("namespace{node}"));
            let agent = Agent::named(&format!("node{node}"));
            mesh.add(change(node, agent.label("role=storage").inside(namespace)));
        }
    }
}

/// Each running daemon of these names has the version of the installed package, as dpkg knows it.
pub fn check_versions(mesh: &Mesh, daemons: &[&str], package: &str) {
    let installed = must("dpkg-query", &["-W", "-f", "${Version}", package]);
    for name in daemons {
        let running =
            format!("FROM daemons WHERE name = '{name}' AND ended_us IS NULL AND is_parent = 0");
        mesh.until_stored(
            "the versions are known",
            &format!("SELECT NOT EXISTS (SELECT 1 {running} AND version IS NULL)"),
        );
        let found = mesh
            .db()
            .rows(&format!("SELECT version, is_replaced {running}"));
        assert!(!found.is_empty(), "no {name}");
        for daemon in &found {
            let version = daemon.text("version");
            assert!(
                !version.is_empty() && installed.starts_with(&version),
                "{name}: {daemon:?} against {installed}"
            );
            assert_eq!(daemon.integer("is_replaced"), 0, "{name}");
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let script = self.script.to_str().unwrap();
        succeeds("bash", &[script, "down", self.path().to_str().unwrap()]);
    }
}

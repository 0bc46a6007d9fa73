//! An agent's hello, checked field by field before it is used.

use super::command::DaemonRule;
use benchmesh_model::targets::Locator;
use benchmesh_model::text::is_hidden;
use benchmesh_plan::AgentPolicy;
use std::{
    cmp::Ordering,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

const MAX_NAME_BYTES: usize = 128;
const MAX_UID_BYTES: usize = 128;
const MAX_TEXT_BYTES: usize = 4096;
const MAX_LABELS: usize = 128;
const MAX_PATHS: usize = 1024;
const MAX_WORKLOADS: usize = 256;
/// Limit of spools. Agents drain old spools; hundreds of restarts without a collector leave hundreds of them.
const MAX_SPOOLS: usize = 4096;
const MAX_HELD_TASKS: usize = 65_536;
/// Limit of all texts together. The limits above allow several MiB, which no agent needs and the collector would keep.
const MAX_BYTES: usize = 256 << 10;
/// Number of paths kept for a detached agent, for lists.
const MAX_PATHS_AWAY: usize = 64;
const MAX_DAEMON_RULES: usize = 256;
const MAX_NETWORKS: usize = 256;

/// An agent's announcement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    pub wire_version: u32,
    pub version: String,
    pub uid: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub boot_id: String,
    pub pid_namespace: String,
    pub host_name: String,
    pub kernel: String,
    pub cpus: u32,
    pub memory_bytes: i64,
    pub net_namespace: String,
    pub allowed: Vec<PathBuf>,
    pub readable: Vec<PathBuf>,
    pub workloads: BTreeMap<String, u32>,
    /// `None` if the agent did not send it.
    pub policy: Option<AgentPolicy>,
    pub spool_ids: Vec<String>,
    /// Empty means the address that the collector sees.
    pub advertised: String,
    pub held_tasks: Vec<i64>,
    /// 0 if not reported.
    pub pid: i32,
    pub daemon_rules: Vec<DaemonRule>,
    pub sample_always: bool,
    /// The device and the inode of its state directory; empty if unknown.
    pub state_directory: String,
    /// When it locked that directory, by its host's CLOCK_MONOTONIC.
    pub started_ns: i64,
    /// Its spools that belong to a mesh.
    pub acked: Vec<AckedSpool>,
    /// The largest run id in a command to it, and the mesh of that run.
    pub newest_run: Option<(String, i64)>,
    /// Batches that it sends ahead of their acknowledgement; 0: unknown.
    pub window_batches: u32,
}

/// The acknowledged position of a spool at a mesh's collector, according to the agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AckedSpool {
    pub spool_id: String,
    pub mesh_uid: String,
    pub last_sequence: u64,
}

/// An invalid field.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("hello.{field} {problem}")]
pub struct BadField {
    pub field: &'static str,
    pub problem: String,
}

/// Whether it names a target without a path: `pool:bench`.
pub(super) fn is_locator(text: &Path) -> bool {
    let text = text.to_str();
    text.is_some_and(|text| !Locator::parse(text).key.is_path)
}

fn bad<T>(field: &'static str, problem: impl Into<String>) -> Result<T, BadField> {
    Err(BadField {
        field,
        problem: problem.into(),
    })
}

fn text(field: &'static str, value: &str, max: usize) -> Result<(), BadField> {
    if value.is_empty() {
        return bad(field, "is empty");
    }
    optional(field, value, max)
}

fn optional(field: &'static str, value: &str, max: usize) -> Result<(), BadField> {
    if value.len() > max {
        return bad(
            field,
            format!("has {} bytes; at most {max} are allowed", value.len()),
        );
    }
    if value.chars().any(is_hidden) {
        return bad(field, "contains a control character");
    }
    Ok(())
}

fn at_most(field: &'static str, count: usize, max: usize) -> Result<(), BadField> {
    if count > max {
        return bad(
            field,
            format!("has {count} entries; at most {max} are allowed"),
        );
    }
    Ok(())
}

/// The relation of a hello to another one with the same uid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Both are from the same process.
    Same,
    /// It is from a later process with the same state directory; the directory's lock proves that the other has ended.
    Later,
    /// The other one is from a later process.
    Earlier,
    /// The state directory of one was copied from the other.
    OfACopy,
    /// The host was booted in between, or is another one.
    Unknown,
}

impl Hello {
    /// The relation of this hello to another one.
    pub fn against(&self, other: &Hello) -> Start {
        // Every start of an agent has its own spool.
        if self.spool_ids.last() == other.spool_ids.last() {
            return Start::Same;
        }
        match self.started_ns.cmp(&other.started_ns) {
            _ if self.boot_id != other.boot_id => Start::Unknown,
            _ if self.state_directory.is_empty()
                || self.state_directory != other.state_directory =>
            {
                Start::OfACopy
            }
            Ordering::Less => Start::Earlier,
            // A process begins a new spool when it meets another database, or when the disk has damaged its current
            // one.
            Ordering::Equal => Start::Same,
            Ordering::Greater => Start::Later,
        }
    }

    /// Whether this mesh had acknowledged more of some spool than it has `stored`: its database was restored from an
    /// older copy. The agent drops all that it holds when it receives the stored positions.
    pub fn is_ahead_of(&self, mesh_uid: &str, stored: &[(String, u64)]) -> bool {
        let mut acked = self.acked.iter().filter(|spool| spool.mesh_uid == mesh_uid);
        acked.any(|spool| {
            let mut stored = stored.iter();
            let known = stored.find(|(spool_id, _)| *spool_id == spool.spool_id);
            known.map_or(0, |(_, last)| *last) < spool.last_sequence
        })
    }

    /// The largest run id of this mesh in a command to the agent.
    pub fn newest_run_of(&self, mesh_uid: &str) -> Option<i64> {
        let newest = self.newest_run.as_ref();
        newest
            .filter(|(mesh, _)| mesh == mesh_uid)
            .map(|(_, run)| *run)
    }

    /// Performs every check that needs only the message.
    pub fn check(&self) -> Result<(), BadField> {
        text("agent_uid", &self.uid, MAX_UID_BYTES)?;
        text("name", &self.name, MAX_NAME_BYTES)?;
        text("version", &self.version, MAX_NAME_BYTES)?;
        text("host.boot_id", &self.boot_id, MAX_NAME_BYTES)?;
        optional("host.pid_namespace", &self.pid_namespace, MAX_NAME_BYTES)?;
        optional("host.name", &self.host_name, MAX_TEXT_BYTES)?;
        optional("host.kernel", &self.kernel, MAX_TEXT_BYTES)?;
        if self.memory_bytes < 0 {
            return bad("host.memory_bytes", "is negative");
        }
        optional("net_namespace", &self.net_namespace, MAX_NAME_BYTES)?;
        optional("advertised_address", &self.advertised, MAX_TEXT_BYTES)?;
        at_most("labels", self.labels.len(), MAX_LABELS)?;
        for (key, value) in &self.labels {
            text("labels", key, MAX_TEXT_BYTES)?;
            optional("labels", value, MAX_TEXT_BYTES)?;
        }
        for (field, paths, may_be_locators) in [
            ("allowed_paths", &self.allowed, true),
            ("readable_paths", &self.readable, false),
        ] {
            at_most(field, paths.len(), MAX_PATHS)?;
            for path in paths {
                let fits = path.is_absolute() || may_be_locators && is_locator(path);
                if !fits || path.as_os_str().len() > MAX_TEXT_BYTES {
                    return bad(
                        field,
                        "has an entry that is neither an absolute path nor a target of a known kind, of at most 4096 bytes",
                    );
                }
            }
        }
        at_most("workloads", self.workloads.len(), MAX_WORKLOADS)?;
        for name in self.workloads.keys() {
            text("workloads.name", name, MAX_NAME_BYTES)?;
        }
        if self.spool_ids.is_empty() {
            return bad(
                "spool_ids",
                "is empty: an agent has at least the spool that it writes",
            );
        }
        at_most("spool_ids", self.spool_ids.len(), MAX_SPOOLS)?;
        for spool in &self.spool_ids {
            text("spool_ids", spool, MAX_UID_BYTES)?;
        }
        at_most("acked", self.acked.len(), MAX_SPOOLS)?;
        for spool in &self.acked {
            text("acked.spool_id", &spool.spool_id, MAX_UID_BYTES)?;
            text("acked.mesh_uid", &spool.mesh_uid, MAX_UID_BYTES)?;
        }
        if let Some((mesh, run)) = &self.newest_run {
            text("newest_run.mesh_uid", mesh, MAX_UID_BYTES)?;
            if *run < 0 {
                return bad("newest_run.run_id", "is negative");
            }
        }
        optional("state_directory", &self.state_directory, MAX_NAME_BYTES)?;
        if self.pid < 0 {
            return bad("pid", "is negative");
        }
        at_most("daemon_rules", self.daemon_rules.len(), MAX_DAEMON_RULES)?;
        for rule in &self.daemon_rules {
            text("daemon_rules.name", &rule.name, MAX_NAME_BYTES)?;
            for condition in [
                &rule.comm,
                &rule.cmdline,
                &rule.cgroup,
                &rule.unit,
                &rule.instance_option,
            ] {
                optional("daemon_rules", condition, MAX_TEXT_BYTES)?;
            }
        }
        if let Some(policy) = &self.policy {
            at_most("policy.devices", policy.devices.len(), MAX_PATHS)?;
            at_most("policy.workloads", policy.workloads.len(), MAX_WORKLOADS)?;
            at_most("policy.networks", policy.networks.len(), MAX_NETWORKS)?;
            for name in policy.workloads.iter().chain(&policy.networks) {
                optional("policy", name, MAX_NAME_BYTES)?;
            }
            for device in &policy.devices {
                optional("policy.devices", device, MAX_TEXT_BYTES)?;
            }
        }
        at_most("held_tasks", self.held_tasks.len(), MAX_HELD_TASKS)?;
        let bytes = self.text_bytes();
        if bytes > MAX_BYTES {
            return bad(
                "labels, paths and spool_ids",
                format!("have {bytes} bytes together; at most {MAX_BYTES} are allowed"),
            );
        }
        Ok(())
    }

    fn text_bytes(&self) -> usize {
        let labels = self
            .labels
            .iter()
            .map(|(key, value)| key.len() + value.len());
        let paths = self.allowed.iter().chain(&self.readable);
        let rules = self.daemon_rules.iter().map(|rule| {
            [
                &rule.name,
                &rule.comm,
                &rule.cmdline,
                &rule.cgroup,
                &rule.unit,
                &rule.instance_option,
            ]
            .map(String::len)
            .iter()
            .sum::<usize>()
        });
        let policy = self.policy.iter().flat_map(|policy| {
            let names = policy.workloads.iter().chain(&policy.networks);
            names.chain(&policy.devices).map(String::len)
        });
        labels.sum::<usize>()
            + policy.sum::<usize>()
            + rules.sum::<usize>()
            + paths.map(|path| path.as_os_str().len()).sum::<usize>()
            + self.workloads.keys().map(String::len).sum::<usize>()
            + self.spool_ids.iter().map(String::len).sum::<usize>()
            + self
                .acked
                .iter()
                .map(|spool| spool.spool_id.len() + spool.mesh_uid.len())
                .sum::<usize>()
    }

    /// The part that is kept while the agent is detached: the columns of lists, and its identity.
    pub(super) fn for_absence(&self) -> Self {
        let allowed = self.allowed.iter().take(MAX_PATHS_AWAY).cloned();
        Self {
            allowed: allowed.collect(),
            readable: Vec::new(),
            workloads: BTreeMap::new(),
            spool_ids: Vec::new(),
            held_tasks: Vec::new(),
            daemon_rules: Vec::new(),
            acked: Vec::new(),
            newest_run: None,
            ..self.clone()
        }
    }

    /// Agents with equal keys share a kernel and its processes.
    pub fn host_key(&self) -> String {
        format!("{}/{}", self.boot_id, self.pid_namespace)
    }

    /// Agents with equal keys see the same interfaces.
    pub fn net_key(&self) -> String {
        format!("{}/{}", self.boot_id, self.net_namespace)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn hello() -> Hello {
        Hello {
            uid: String::from("u"),
            name: String::from("a"),
            version: String::from("0.1.0"),
            boot_id: String::from("b"),
            spool_ids: vec![String::from("s")],
            ..Hello::default()
        }
    }

    #[test]
    fn the_bad_field_is_named() {
        assert_eq!(hello().check(), Ok(()));
        let check = |change: &dyn Fn(&mut Hello), field: &str| {
            let mut hello = hello();
            change(&mut hello);
            assert_eq!(hello.check().unwrap_err().field, field);
        };
        check(&|h| h.name.clear(), "name");
        check(&|h| h.name = "x".repeat(1000), "name");
        check(&|h| h.name = String::from("a\nb"), "name");
        check(&|h| h.uid.clear(), "agent_uid");
        check(&|h| h.boot_id.clear(), "host.boot_id");
        check(&|h| h.memory_bytes = -1, "host.memory_bytes");
        check(&|h| h.allowed.push(PathBuf::from("mnt")), "allowed_paths");
        check(&|h| h.spool_ids.clear(), "spool_ids");
        check(
            &|h| h.spool_ids = vec![String::from("s"); 5000],
            "spool_ids",
        );
        check(&|h| h.held_tasks = vec![1; 70_000], "held_tasks");
        check(&|h| h.pid = -1, "pid");
        check(&|h| h.acked = vec![AckedSpool::default()], "acked.spool_id");
        check(
            &|h| h.newest_run = Some((String::from("m"), -1)),
            "newest_run.run_id",
        );
        check(
            &|h| h.daemon_rules = vec![DaemonRule::default()],
            "daemon_rules.name",
        );
        check(
            &|h| h.allowed = vec![PathBuf::from(format!("/{}", "x".repeat(4000))); 100],
            "labels, paths and spool_ids",
        );
        check(
            &|h| {
                h.labels
                    .insert(String::new(), String::new())
                    .map_or((), drop)
            },
            "labels",
        );
    }

    #[test]
    fn an_agent_that_was_acked_more_than_is_stored_is_ahead() {
        let acked = |mesh: &str, last_sequence| AckedSpool {
            spool_id: String::from("s"),
            mesh_uid: String::from(mesh),
            last_sequence,
        };
        let check = |acked, stored: &[(&str, u64)], expected| {
            let hello = Hello {
                acked: vec![acked],
                ..hello()
            };
            let stored: Vec<_> = stored
                .iter()
                .map(|(spool, last)| ((*spool).to_owned(), *last))
                .collect();
            assert_eq!(hello.is_ahead_of("m", &stored), expected, "{stored:?}");
        };
        check(acked("m", 5), &[("s", 5)], false);
        // An ack was lost on its way.
        check(acked("m", 5), &[("s", 6)], false);
        check(acked("m", 5), &[("s", 4)], true);
        check(acked("m", 5), &[("other", 9)], true);
        check(acked("m", 0), &[], false);
        check(acked("another mesh", 5), &[], false);
    }

    #[test]
    fn the_later_start_of_one_state_directory_is_the_one_that_is_alive() {
        let start = |boot: &str, directory: &str, spool: &str, started_ns| Hello {
            boot_id: String::from(boot),
            state_directory: String::from(directory),
            spool_ids: vec![String::from(spool)],
            started_ns,
            ..Hello::default()
        };
        let first = start("b", "1:2", "s1", 100);
        for (hello, expected) in [
            (start("b", "1:2", "s1", 100), Start::Same),
            // A process that has begun a new spool.
            (start("b", "1:2", "s2", 100), Start::Same),
            (start("b", "1:2", "s2", 101), Start::Later),
            (start("b", "1:2", "s0", 99), Start::Earlier),
            (start("b", "1:3", "s2", 101), Start::OfACopy),
            (start("b", "", "s2", 0), Start::OfACopy),
            (start("b2", "1:2", "s2", 5), Start::Unknown),
        ] {
            assert_eq!(hello.against(&first), expected, "{hello:?}");
        }
        let untold = start("b", "", "s1", 0);
        assert_eq!(
            start("b", "", "s2", 0).against(&untold),
            Start::OfACopy,
            "agents of before"
        );
    }
}

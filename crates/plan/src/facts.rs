//! What agents report about themselves, about paths on their hosts, and about their policies.

use benchmesh_model::limits::Limits;
use benchmesh_workloads::params::Cidr;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

/// The facts about an attached agent that expansion needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Canonical paths that the agent may work under.
    pub allowed: Vec<PathBuf>,
    /// Workload name -> revision.
    pub workloads: BTreeMap<String, u32>,
    /// Agents with equal values share a kernel.
    pub host: String,
    /// Memory of its host; 0 if unknown.
    #[serde(default)]
    pub memory_bytes: u64,
    /// The agent's survey of the targets' paths; a path that is missing here is judged by `allowed`.
    pub surveyed: BTreeMap<String, PathFacts>,
    /// The same for paths that workloads read.
    pub sources: BTreeMap<String, PathFacts>,
    /// Free space for the sources of copies; `None` if the agent was not asked or has no scratch.
    pub scratch_free_bytes: Option<u64>,
    /// The agent was started without a scratch.
    #[serde(default)]
    pub has_no_scratch: bool,
    /// Capacity of its network interfaces; 0 if unknown.
    #[serde(default)]
    pub link_bytes_per_s: u64,
    /// Why the agent did not survey the paths; empty if it did, or was not asked.
    pub survey_failed: String,
    /// `None` if the agent does not report it.
    #[serde(default)]
    pub policy: Option<AgentPolicy>,
    /// A new agent: it has taken part in no run of this mesh while others have, and new agents were not requested. Only
    /// a plan that selects it uses it.
    #[serde(default)]
    pub is_new: bool,
}

impl AgentFacts {
    /// Whether its policy lists workloads but not this one.
    pub(super) fn forbids_workload(&self, name: &str) -> bool {
        let allowed = self
            .policy
            .as_ref()
            .map(|policy| policy.workloads.as_slice());
        allowed.is_some_and(|names| {
            !names.is_empty() && !names.iter().any(|allowed_name| allowed_name == name)
        })
    }
}

/// An agent's report on a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFacts {
    pub allowed: bool,
    /// Empty if the path is usable.
    pub problem: String,
    pub free_bytes: u64,
    /// `None` if the file system has no such limit.
    pub free_files: Option<u64>,
    /// The file system's type, as in /proc/self/mountinfo.
    pub file_system: String,
    /// Identifies the mounted file system within the host.
    pub device: String,
    /// The mounted source and its options.
    #[serde(default)]
    pub mount_source: String,
    #[serde(default)]
    pub mount_options: String,
    /// Size; 0 if unknown.
    #[serde(default)]
    pub size_bytes: u64,
    /// Bytes available to ordinary users; 0 if unknown.
    #[serde(default)]
    pub usable_bytes: u64,
    /// Space that the agent's policy keeps free there (`free-space`, `free-inodes`). 0 if none, or not reported.
    #[serde(default)]
    pub floor_bytes: u64,
    #[serde(default)]
    pub floor_files: u64,
    /// The devices beneath the mount, from top to bottom: `loop`, `fuse.rbd-fuse`, `iscsi`, `disk`.
    #[serde(default)]
    pub beneath: Vec<String>,
}

/// The load that an agent accepts, as it reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentPolicy {
    pub devices: Vec<String>,
    /// Empty for all.
    pub workloads: Vec<String>,
    /// With the agent's defaults; a share is of each target.
    #[serde(flatten)]
    pub limits: Limits,
    /// In CIDR notation; empty if links are not allowed.
    pub networks: Vec<String>,
    pub drop_caches: bool,
}

impl AgentPolicy {
    /// Whether a link to that address is allowed.
    pub fn allows_peer(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks
            .iter()
            .filter_map(|network| network.parse::<Cidr>().ok())
            .any(|network| network.contains(address))
    }
}

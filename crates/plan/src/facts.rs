//! What agents say of themselves, of paths on their hosts, and of their policies.

use benchmesh_workloads::params::Cidr;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::IpAddr, path::PathBuf};

/// What expansion has to know of an attached agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentFacts {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// Canonical paths that it works under.
    pub allowed: Vec<PathBuf>,
    /// Workload name -> revision.
    pub workloads: BTreeMap<String, u32>,
    /// Agents with equal values share a kernel.
    pub host: String,
    /// Of its host. 0: not known.
    #[serde(default)]
    pub memory_bytes: u64,
    /// What the agent itself said of the targets' paths; a path that is missing here is judged by `allowed`.
    pub surveyed: BTreeMap<String, PathFacts>,
    /// The same of paths that workloads read.
    pub sources: BTreeMap<String, PathFacts>,
    /// Room for the sources of copies; `None`: not asked, or there is none.
    pub scratch_free_bytes: Option<u64>,
    /// It was started without a scratch.
    #[serde(default)]
    pub has_no_scratch: bool,
    /// What its interfaces can carry; 0: not known.
    #[serde(default)]
    pub link_bytes_per_s: u64,
    /// Why it did not say anything of the paths; empty: it did, or was not asked.
    pub survey_failed: String,
    /// `None`: it does not tell it.
    #[serde(default)]
    pub policy: Option<AgentPolicy>,
    /// Why it takes no load at this hour; empty: it does.
    #[serde(default)]
    pub closed: String,
    /// It has been in no run of this mesh, others have, and nobody asked for new ones: only a plan that selects it
    /// takes it.
    #[serde(default)]
    pub is_new: bool,
}

impl AgentFacts {
    /// Whether its policy names other workloads than this.
    pub(super) fn forbids_workload(&self, name: &str) -> bool {
        let allowed = self
            .policy
            .as_ref()
            .map(|policy| policy.workloads.as_slice());
        allowed.is_some_and(|names| !names.is_empty() && !names.iter().any(|it| it == name))
    }
}

/// What an agent said of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFacts {
    pub allowed: bool,
    /// Empty: usable.
    pub problem: String,
    pub free_bytes: u64,
    /// `None`: the file system has no such limit.
    pub free_files: Option<u64>,
    /// Its type, as in /proc/self/mountinfo.
    pub file_system: String,
    /// Identifies the mounted file system within the host.
    pub device: String,
    /// What is mounted there, and how.
    #[serde(default)]
    pub mount_source: String,
    #[serde(default)]
    pub mount_options: String,
    /// 0: not known.
    #[serde(default)]
    pub size_bytes: u64,
    /// Of them, what ordinary users can have. 0: not known.
    #[serde(default)]
    pub usable_bytes: u64,
    /// What the agent's policy keeps free there, by its `free-space` and `free-inodes`. 0: nothing, or not told.
    #[serde(default)]
    pub floor_bytes: u64,
    #[serde(default)]
    pub floor_files: u64,
    /// The devices beneath the mount, from top to bottom: `loop`, `fuse.rbd-fuse`, `iscsi`, `disk`.
    #[serde(default)]
    pub beneath: Vec<String>,
}

/// What an agent takes of load, as it says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentPolicy {
    pub devices: Vec<String>,
    /// Empty: all.
    pub workloads: Vec<String>,
    pub memory_bytes: u64,
    pub threads: u32,
    /// 0: all.
    pub cpus: u32,
    /// 0: as fast as it goes.
    pub rate_bytes_per_s: u64,
    /// As the agent writes it.
    pub free_space: String,
    /// As the agent writes it.
    pub free_inodes: String,
    /// As CIDR; empty: no links.
    pub networks: Vec<String>,
    pub drop_caches: bool,
    /// In its local time.
    pub hours: String,
}

impl AgentPolicy {
    /// Whether a link may go to that address.
    pub fn allows_peer(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks
            .iter()
            .filter_map(|network| network.parse::<Cidr>().ok())
            .any(|network| network.contains(address))
    }

    /// Whether load is always taken.
    pub fn is_always_open(&self) -> bool {
        matches!(self.hours.as_str(), "" | "always")
    }
}

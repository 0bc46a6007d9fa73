//! What an agent's network can carry, where a step's target lies behind it: what its reads are held against.
//!
//! A target lies behind the network when its file system is one of the network's, as the agent found it mounted, or when
//! the agent's label `link-mbits` says so, which also says how fast the link is.

use super::team::Team;
use crate::{model::AgentId, plan::PlannedStep};

/// The label that says how fast the way to the storage is.
const LABEL: &str = "link-mbits";
const BYTES_PER_MBIT: u64 = 125_000;

/// File systems whose data come over the network.
const NETWORKED: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "ceph",
    "glusterfs",
    "lustre",
    "beegfs",
    "gpfs",
    "orangefs",
    "pvfs2",
    "afs",
    "9p",
    "moosefs",
    "lizardfs",
    "saunafs",
    "weka",
    "wekafs",
    "quobyte",
    "juicefs",
    "curvefs",
];

/// Bytes per second that the way from the step's target to the agent can carry; `None`: not to be judged.
pub(super) fn link_bytes_per_s(team: &Team, agent: AgentId, step: &PlannedStep) -> Option<i64> {
    if step.path.is_empty() {
        return None;
    }
    let facts = team.facts_of(agent)?;
    let labelled = facts
        .labels
        .get(LABEL)
        .and_then(|mbits| mbits.parse::<u64>().ok())
        .filter(|mbits| *mbits > 0);
    let bytes = match labelled {
        Some(mbits) => mbits.saturating_mul(BYTES_PER_MBIT),
        None if is_networked(team.file_system(agent, &step.path)) => facts.link_bytes_per_s,
        None => return None,
    };
    i64::try_from(bytes).ok().filter(|bytes| *bytes > 0)
}

/// Whether a file system of this type lies behind the network: by its name, or by what its FUSE client is called.
fn is_networked(file_system: &str) -> bool {
    let name = file_system.strip_prefix("fuse.").unwrap_or(file_system);
    NETWORKED.contains(&name) || (name != file_system && name.starts_with("ceph"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_behind_the_network_is_known_by_its_type() {
        for (file_system, networked) in [
            ("nfs4", true),
            ("fuse.glusterfs", true),
            ("fuse.ceph-fuse", true),
            ("ceph", true),
            ("ext4", false),
            ("fuse.sshfs-of-mine", false),
            ("fuse", false),
            ("", false),
        ] {
            assert_eq!(is_networked(file_system), networked, "{file_system}");
        }
    }
}

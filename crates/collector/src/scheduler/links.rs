//! What an agent's network can carry, where a step's target lies behind it: what its reads are held against.
//!
//! A target lies behind the network when its file system is one of the network's, as the agent found it mounted, or when
//! the agent's label `link-mbits` says so, which also says how fast the link is. Without the label it is the most that a
//! `network` phase of this database ever sent to the agent from other hosts without being held back, and never more than
//! its interfaces' speed.

use super::drive::Drive;
use crate::{model::AgentId, plan::PlannedStep, store::StoreError};
use std::{
    collections::BTreeMap,
    sync::{MutexGuard, PoisonError},
};

/// The label that says how fast the way to the storage is.
const LABEL: &str = "link-mbits";
const BYTES_PER_MBIT: u64 = 125_000;
/// A link may carry a tenth more than what was measured of it: a measurement is what got through that day.
const ABOVE_MEASURED: i64 = 10;

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

impl Drive {
    /// Bytes per second that the way from the step's target to the agent can carry; `None`: not to be judged.
    pub(super) async fn link_bytes_per_s(
        &self,
        agent: AgentId,
        step: &PlannedStep,
    ) -> Result<Option<i64>, StoreError> {
        let Some(facts) = self.team.facts_of(agent).filter(|_| !step.path.is_empty()) else {
            return Ok(None);
        };
        let labelled = facts.labels.get(LABEL).and_then(|mbits| mbits.parse().ok());
        if let Some(mbits) = labelled.filter(|mbits: &u64| *mbits > 0) {
            return Ok(i64::try_from(mbits.saturating_mul(BYTES_PER_MBIT)).ok());
        }
        if !is_networked(self.team.file_system(agent, &step.path)) {
            return Ok(None);
        }
        let measured = self.most_received_per_s(agent).await?;
        let interfaces = i64::try_from(facts.link_bytes_per_s).unwrap_or(i64::MAX);
        Ok(carries(measured, interfaces))
    }

    /// Asked of the database once per agent, until links are measured anew.
    async fn most_received_per_s(&self, agent: AgentId) -> Result<Option<i64>, StoreError> {
        let known = self.carried().get(&agent).copied();
        if let Some(measured) = known {
            return Ok(measured);
        }
        let measured = self.store.most_received_per_s(agent).await?;
        self.carried().insert(agent, measured);
        Ok(measured)
    }

    /// What the step measures of links counts from the next one on.
    pub(super) fn links_are_measured(&self) {
        self.carried().clear();
    }

    fn carried(&self) -> MutexGuard<'_, BTreeMap<AgentId, Option<i64>>> {
        self.carried.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What an unlabelled link carries at most, by what was measured of it, and by its interfaces (0: they do not say).
fn carries(measured: Option<i64>, interfaces: i64) -> Option<i64> {
    let measured = measured.map(|most| most.saturating_add(most / ABOVE_MEASURED));
    let interfaces = Some(interfaces).filter(|speed| *speed > 0);
    measured.into_iter().chain(interfaces).min()
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
    fn a_measured_link_counts_before_what_its_interfaces_say() {
        let check = |measured, interfaces, expected| {
            assert_eq!(carries(measured, interfaces), expected);
        };
        check(None, 0, None);
        check(None, 125_000_000, Some(125_000_000));
        check(Some(100_000_000), 0, Some(110_000_000));
        // A virtual interface says 10 Gbit/s of a link that carries a tenth of it.
        check(Some(100_000_000), 1_250_000_000, Some(110_000_000));
        check(Some(120_000_000), 125_000_000, Some(125_000_000));
    }

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

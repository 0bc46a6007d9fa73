//! The targets that a run sampled, each once: several agents may see the same file system.

use crate::findings::mesh::Mesh;
use crate::findings::{FindingsError, reading};
use crate::rows::{Row, all_rows};
use benchmesh_model::mesh::RunId;
use rusqlite::Connection;
use std::collections::BTreeSet;

const TARGETS: &str = "
    SELECT t.id, t.path, t.nonce, t.device, t.agent_id, a.host_id, a.host,
           (SELECT min(r.target) FROM run_targets AS r
            WHERE r.run_id = ?1 AND r.agent_id = t.agent_id AND r.path = t.path),
           count(*), max(x.size_bytes)
    FROM targets AS t JOIN run_agents AS a ON a.run_id = t.run_id AND a.agent_id = t.agent_id
         JOIN target_samples AS x ON x.target_id = t.id AND x.at_us BETWEEN ?2 AND ?3
    WHERE t.run_id = ?1 GROUP BY t.id ORDER BY t.id";

/// A target as one agent sees it.
#[derive(Clone, Debug)]
struct AgentTarget {
    id: i64,
    path: String,
    nonce: String,
    device: Option<String>,
    agent_id: i64,
    host_id: i64,
    host: String,
    /// The name in the plan.
    name: Option<String>,
    samples: i64,
    size_bytes: i64,
}

impl<'r> TryFrom<&'r Row<'r>> for AgentTarget {
    type Error = rusqlite::Error;

    /// Reads a row of [`TARGETS`].
    fn try_from(row: &'r Row<'r>) -> Result<Self, Self::Error> {
        Ok(Self {
            id: row.get(0)?,
            path: row.get(1)?,
            nonce: row.get(2)?,
            device: row.get(3)?,
            agent_id: row.get(4)?,
            host_id: row.get(5)?,
            host: row.get(6)?,
            name: row.get(7)?,
            samples: row.get(8)?,
            size_bytes: row.get(9)?,
        })
    }
}

impl AgentTarget {
    /// Whether both share the same free space. Directories with quotas of their own are on one file system, but
    /// differ in size.
    fn shares(&self, other: &Self) -> bool {
        let is_one_file_system = self.device.is_some()
            && (self.host_id, &self.device, self.size_bytes)
                == (other.host_id, &other.device, other.size_bytes);
        self.nonce == other.nonce || is_one_file_system
    }
}

/// A target that several agents may share. The description is that of the agent with the most samples.
#[derive(Debug)]
pub(super) struct SampledTarget {
    /// Ids of all its agents' targets, because each agent samples only while it has a task there.
    ids: Vec<i64>,
    pub agent_id: i64,
    /// `None` if several hosts share it.
    pub host_id: Option<i64>,
    /// `cephfs`, `local on node1`
    pub name: String,
    /// `target cephfs (/mnt/cephfs)`
    pub label: String,
    pub size_bytes: i64,
}

impl SampledTarget {
    fn of(group: &[AgentTarget]) -> Option<Self> {
        let most = group
            .iter()
            .max_by_key(|one| (one.samples, std::cmp::Reverse(one.id)))?;
        let hosts: BTreeSet<i64> = group.iter().map(|one| one.host_id).collect();
        let names: BTreeSet<&str> = group
            .iter()
            .map(|one| one.name.as_deref().unwrap_or(&one.path))
            .collect();
        let names = names.into_iter().collect::<Vec<_>>().join(" and ");
        let (host_id, on) = match hosts.len() {
            1 => (Some(most.host_id), format!(" on {}", most.host)),
            _ => (None, String::new()),
        };
        Some(Self {
            ids: group.iter().map(|one| one.id).collect(),
            agent_id: most.agent_id,
            host_id,
            name: format!("{names}{on}"),
            label: format!("target {names} ({}){on}", most.path),
            size_bytes: most.size_bytes,
        })
    }

    pub fn ids_json(&self) -> String {
        serde_json::Value::from(self.ids.as_slice()).to_string()
    }

    /// The SQL condition for its samples.
    pub fn condition(&self) -> String {
        let ids: Vec<String> = self.ids.iter().map(i64::to_string).collect();
        format!("target_id IN ({})", ids.join(", "))
    }
}

/// The sampled targets of a run, each once.
pub(super) fn load(
    connection: &Connection,
    run: RunId,
    mesh: &Mesh,
) -> Result<Vec<SampledTarget>, FindingsError> {
    let rows: Vec<AgentTarget> = all_rows(
        connection,
        TARGETS,
        &[run.0.into(), mesh.from_us.into(), mesh.until_us.into()],
    )
    .map_err(reading("targets"))?;
    let groups = shared(rows);
    Ok(groups
        .iter()
        .filter_map(|one| SampledTarget::of(one))
        .collect())
}

/// Groups the targets that are the same one.
fn shared(all: Vec<AgentTarget>) -> Vec<Vec<AgentTarget>> {
    let mut groups: Vec<Vec<AgentTarget>> = Vec::new();
    for new in all {
        let is_same = |group: &Vec<AgentTarget>| group.iter().any(|one| one.shares(&new));
        let (same, mut others): (Vec<_>, Vec<_>) = groups.into_iter().partition(is_same);
        others.push(same.into_iter().flatten().chain([new]).collect());
        groups = others;
    }
    groups.sort_by_key(|group| group.iter().map(|one| one.id).min());
    groups
}

#[cfg(test)]
mod tests {
    #![allow(clippy::indexing_slicing)]

    use super::*;

    fn of_agent(
        id: i64,
        host_id: i64,
        nonce: &str,
        device: Option<&str>,
        size_bytes: i64,
    ) -> AgentTarget {
        AgentTarget {
            id,
            path: format!("/mnt/{id}"),
            nonce: nonce.to_owned(),
            device: device.map(str::to_owned),
            agent_id: id,
            host_id,
            host: format!("node{host_id}"),
            name: Some("t".to_owned()),
            samples: id,
            size_bytes,
        }
    }

    #[test]
    fn one_target_of_many_agents_is_one() {
        let all = [
            // Shared by two hosts, and by another target of the first one.
            of_agent(1, 1, "a", Some("0:50"), 100),
            of_agent(2, 2, "a", Some("0:61"), 100),
            of_agent(3, 1, "b", Some("0:50"), 100),
            // A directory with its own quota; the same device number on another host; pools.
            of_agent(4, 1, "c", Some("0:50"), 10),
            of_agent(5, 2, "d", Some("0:50"), 100),
            of_agent(6, 1, "e", None, 100),
            of_agent(7, 1, "f", None, 100),
        ];
        let groups = shared(all.into());
        let ids: Vec<Vec<i64>> = groups
            .iter()
            .map(|group| group.iter().map(|one| one.id).collect())
            .collect();
        assert_eq!(ids, [vec![1, 2, 3], vec![4], vec![5], vec![6], vec![7]]);
        let of_all = SampledTarget::of(&groups[0]).expect("a target");
        assert_eq!((of_all.ids, of_all.host_id), (vec![1, 2, 3], None));
        assert_eq!(of_all.label, "target t (/mnt/3)");
        let own = SampledTarget::of(&groups[1]).expect("a target");
        assert_eq!((own.host_id, own.name.as_str()), (Some(1), "t on node1"));
    }
}

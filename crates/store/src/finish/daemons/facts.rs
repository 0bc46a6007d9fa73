//! The facts about a step's target, hosts and agents that the usage of daemons depends on: which daemons serve the
//! target, and how many CPUs each host has. They are as of the run's start; later attachments change nothing.

use super::Measured;
use crate::database::{Doing, StoreError};
use benchmesh_model::mesh::StepId;
use benchmesh_model::systems::{OWN, Place};
use sqlx::sqlite::SqlitePool;
use std::collections::{BTreeSet, HashMap};

/// The label of agents that lists what their host's daemons serve: targets or systems, separated by commas.
const LABEL: &str = "serves";

/// The facts that decide which daemons serve the step's target.
#[derive(Debug)]
pub(super) struct Facts {
    target: Option<String>,
    system: String,
    mount: Option<String>,
    beneath: Vec<String>,
    /// Per host: CPU time available per microsecond, which is its number of CPUs.
    pub(super) cpus: HashMap<i64, i64>,
    /// Per host: the targets and systems that its agents' labels list. Empty if no agent has such a label.
    labelled: HashMap<i64, BTreeSet<String>>,
}

impl Facts {
    pub(super) async fn of(
        reader: &SqlitePool,
        step: StepId,
        measured: Measured,
    ) -> Result<Self, StoreError> {
        const DOING: &str = "read which daemons serve a target";
        let (target, system, mount, beneath): (Option<String>, Option<String>, Option<String>, Option<String>) =
            sqlx::query_as(
                "SELECT s.target, s.system, max(m.mount_type), max(m.beneath) FROM steps AS s
                 LEFT JOIN run_targets AS m ON m.run_id = s.run_id AND m.target = s.target WHERE s.id = ?",
            )
            .bind(step.0)
            .fetch_one(reader)
            .await
            .doing(DOING)?;
        // Labels as of the run's start, of agents that had attached before the step's end, so that late samples do
        // not change which daemons served the target. After a reboot, an agent is on another host.
        let labels: Vec<(i64, String)> = sqlx::query_as(
            "SELECT h.id, coalesce(e.labels, a.labels) ->> ?1
             FROM steps AS s CROSS JOIN agents AS a
             LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.agent_id = a.id
             JOIN hosts AS h ON h.id IN (a.host_id, e.host_id)
             WHERE s.id = ?2 AND coalesce(e.labels, a.labels) ->> ?1 IS NOT NULL AND a.first_seen_us <= ?3",
        )
        .bind(LABEL)
        .bind(step.0)
        .bind(measured.until_us)
        .fetch_all(reader)
        .await
        .doing(DOING)?;
        let cpus: Vec<(i64, i64)> = sqlx::query_as(
            "SELECT h.id, coalesce(max(e.cpus), h.cpus) AS cpus
             FROM steps AS s CROSS JOIN hosts AS h
             LEFT JOIN run_agents AS e ON e.run_id = s.run_id AND e.host_id = h.id
             WHERE s.id = ? GROUP BY h.id HAVING coalesce(max(e.cpus), h.cpus) > 0",
        )
        .bind(step.0)
        .fetch_all(reader)
        .await
        .doing(DOING)?;
        let mut labelled: HashMap<i64, BTreeSet<String>> = HashMap::new();
        for (host, names) in labels {
            let names = names.split(',').map(|name| name.trim().to_owned());
            labelled.entry(host).or_default().extend(names);
        }
        Ok(Self {
            target,
            system: system.unwrap_or_default(),
            mount,
            beneath: beneath
                .and_then(|layers| serde_json::from_str(&layers).ok())
                .unwrap_or_default(),
            cpus: cpus.into_iter().collect(),
            labelled,
        })
    }

    pub(super) fn serves(&self, host: i64, daemon: &str) -> Option<bool> {
        let Some(target) = &self.target else {
            return Some(false);
        };
        let place = Place {
            system: &self.system,
            mount: self.mount.as_deref(),
            beneath: &self.beneath,
        };
        let by_name = place.is_served_by(daemon);
        let says =
            |names: &BTreeSet<String>| names.contains(target) || names.contains(&self.system);
        match self.labelled.get(&host) {
            // This host's labels name the target. If the table of systems has the system, it decides which of the
            // host's daemons serve the target.
            Some(names) if says(names) => {
                Some(daemon != OWN && !(place.is_known() && by_name == Some(false)))
            }
            Some(_) => Some(false),
            // Labels of other hosts name the target, and this host has no label.
            None if self.labelled.values().any(says) => Some(false),
            None => by_name,
        }
    }
}

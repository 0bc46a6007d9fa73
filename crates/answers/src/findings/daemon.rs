//! A monitored process, as findings name it.

use benchmesh_model::systems::OWN;

/// `d.id, d.name, d.instance, d.pid, d.host_id, h.name`.
pub(super) type DaemonColumns = (i64, String, Option<String>, i64, i64, String);

#[derive(Clone, Debug)]
pub(super) struct NamedDaemon {
    pub id: i64,
    pub name: String,
    pub instance: Option<String>,
    pub host_id: i64,
    pub host: String,
    /// `ceph-osd osd.3 on node2`.
    pub label: String,
}

impl From<DaemonColumns> for NamedDaemon {
    fn from((id, name, instance, pid, host_id, host): DaemonColumns) -> Self {
        let label = match &instance {
            Some(instance) => format!("{name} {instance} on {host}"),
            None => format!("{name} (pid {pid}) on {host}"),
        };
        Self {
            id,
            name,
            instance,
            host_id,
            host,
            label,
        }
    }
}

/// Whether daemons of this name do the same work. Agents do not: some carry load, others only sample.
pub(super) fn has_equals(name: &str) -> bool {
    name != OWN
}

//! A monitored process, as findings name it, and how statements select it.

use crate::rows::Row;
use benchmesh_model::systems::OWN;
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};

/// A statement for [`load`]. It selects the daemons in `$tables` (`daemons AS d` is one of them) on the hosts of run
/// `?1`, which it joins as `h`. The last columns are `$figures`; `$rest` continues the condition.
macro_rules! select_daemons {
    ($figures:literal, $tables:literal, $rest:literal) => {
        concat!(
            "SELECT d.id, d.name, d.instance, d.pid, d.host_id, h.name, ", $figures, " FROM ", $tables,
            " JOIN (SELECT host_id, min(host) AS name FROM run_agents WHERE run_id = ?1 GROUP BY host_id) AS h
                   ON h.host_id = d.host_id
             WHERE d.is_parent = 0 AND ", $rest
        )
    };
}
pub(super) use select_daemons;

/// The number of the first column of the figures of [`select_daemons!`].
pub(super) const FIRST_FIGURE: usize = 6;

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

impl NamedDaemon {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let (name, host): (String, String) = (row.get(1)?, row.get(5)?);
        let (instance, pid): (Option<String>, i64) = (row.get(2)?, row.get(3)?);
        let label = match &instance {
            Some(instance) => format!("{name} {instance} on {host}"),
            None => format!("{name} (pid {pid}) on {host}"),
        };
        Ok(Self {
            id: row.get(0)?,
            name,
            instance,
            host_id: row.get(4)?,
            host,
            label,
        })
    }
}

/// The daemons that a statement of [`select_daemons!`] selects; `figures` reads the columns from [`FIRST_FIGURE`] on.
pub(super) fn load<T>(
    connection: &Connection,
    sql: &str,
    parameters: &[Value],
    figures: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<(NamedDaemon, T)>> {
    let mut prepared = connection.prepare_cached(sql)?;
    let rows = prepared.query_map(params_from_iter(parameters), |row| {
        Ok((NamedDaemon::read(row)?, figures(row)?))
    })?;
    rows.collect()
}

/// Whether daemons of this name do the same work. Agents do not: some carry load, others only sample.
pub(super) fn has_equals(name: &str) -> bool {
    name != OWN
}

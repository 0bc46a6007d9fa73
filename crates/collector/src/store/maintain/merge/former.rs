//! Hosts and agents of which the two files say different things: each file's word stays true up to when it last saw them.

use rusqlite::Connection;

/// Of a host, up to its last sample; of an agent, until it was last seen or its last run ended.
const KEEP: [&str; 4] = [
    "INSERT OR IGNORE INTO main.former_hosts (host_id, until_us, name, kernel, cpus, memory_bytes)
     SELECT n.id, (SELECT max(x.at_us) FROM other.host_samples AS x WHERE x.host_id = o.id) + 1, o.name, o.kernel, o.cpus,
            o.memory_bytes
     FROM other.hosts AS o JOIN temp.map_hosts AS m ON m.old = o.id JOIN main.hosts AS n ON n.id = m.new
     WHERE (n.name, n.kernel, n.cpus, n.memory_bytes) <> (o.name, o.kernel, o.cpus, o.memory_bytes)
       AND EXISTS (SELECT 1 FROM other.host_samples AS x WHERE x.host_id = o.id)",
    "INSERT OR IGNORE INTO main.former_hosts (host_id, until_us, name, kernel, cpus, memory_bytes)
     SELECT n.id, (SELECT max(x.at_us) FROM main.host_samples AS x WHERE x.host_id = n.id) + 1, n.name, n.kernel, n.cpus,
            n.memory_bytes
     FROM other.hosts AS o JOIN temp.map_hosts AS m ON m.old = o.id JOIN main.hosts AS n ON n.id = m.new
     WHERE (n.name, n.kernel, n.cpus, n.memory_bytes) <> (o.name, o.kernel, o.cpus, o.memory_bytes)
       AND EXISTS (SELECT 1 FROM main.host_samples AS x WHERE x.host_id = n.id)",
    "INSERT OR IGNORE INTO main.former_agents (agent_id, until_us, host_id, name, labels, version)
     SELECT n.id, max(o.last_seen_us, coalesce((SELECT max(r.ended_us) FROM other.run_agents AS e JOIN other.runs AS r
                ON r.id = e.run_id WHERE e.agent_id = o.id), 0)) + 1, h.new, o.name, o.labels, o.version
     FROM other.agents AS o JOIN temp.map_agents AS m ON m.old = o.id JOIN main.agents AS n ON n.id = m.new
          JOIN temp.map_hosts AS h ON h.old = o.host_id
     WHERE (n.host_id, n.name, n.labels, n.version) <> (h.new, o.name, o.labels, o.version)",
    "INSERT OR IGNORE INTO main.former_agents (agent_id, until_us, host_id, name, labels, version)
     SELECT n.id, max(n.last_seen_us, coalesce((SELECT max(r.ended_us) FROM main.run_agents AS e JOIN main.runs AS r
                ON r.id = e.run_id WHERE e.agent_id = n.id), 0)) + 1, n.host_id, n.name, n.labels, n.version
     FROM other.agents AS o JOIN temp.map_agents AS m ON m.old = o.id JOIN main.agents AS n ON n.id = m.new
          JOIN temp.map_hosts AS h ON h.old = o.host_id
     WHERE (n.host_id, n.name, n.labels, n.version) <> (h.new, o.name, o.labels, o.version)",
];

/// Adds them to this file's former hosts and agents. The number of rows.
pub(super) fn keep(connection: &Connection) -> rusqlite::Result<usize> {
    let mut rows = 0;
    for sql in KEEP {
        rows += connection.execute(sql, [])?;
    }
    Ok(rows)
}

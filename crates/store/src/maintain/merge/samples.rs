//! Copies the samples that this database lacks, one series after the other: those of one daemon, disk, interface,
//! target or host, in the order of their instants, which is the order of the table.

use rusqlite::{Connection, params};

/// Table, the column with the id of the sampled object, and the table of those objects.
const TABLES: [(&str, &str, &str); 5] = [
    ("daemon_samples", "daemon_id", "daemons"),
    ("host_samples", "host_id", "hosts"),
    ("disk_samples", "disk_id", "disks"),
    ("net_samples", "interface_id", "interfaces"),
    ("target_samples", "target_id", "targets"),
];

/// Call it when `map_*` contains the ids of all sampled objects. Returns the number of rows. `progress` gets the
/// number of finished series, and their total.
pub(super) fn copy(
    connection: &Connection,
    progress: &mut dyn FnMut(u64, u64),
) -> rusqlite::Result<usize> {
    let mut series = Vec::new();
    for (table, _, of) in TABLES {
        let mut ids =
            connection.prepare(&format!("SELECT new, old FROM temp.map_{of} ORDER BY new"))?;
        let ids = ids.query_map([], |row| Ok((table, row.get(0)?, row.get(1)?)))?;
        series.extend(ids.collect::<rusqlite::Result<Vec<(&str, i64, i64)>>>()?);
    }
    let total = u64::try_from(series.len()).unwrap_or(u64::MAX);
    let (mut rows, mut done) = (0, 0);
    for (table, key, _) in TABLES {
        let mut copying = connection.prepare(&copying_sql(connection, table, key)?)?;
        for (_, id, other_id) in series.iter().filter(|(of, ..)| *of == table) {
            rows += copying.execute(params![id, other_id])?;
            done += 1;
            progress(done, total);
        }
    }
    Ok(rows)
}

/// SQL that copies a series, given its id in this and in the other file. If both have a sample of an instant, this
/// database's sample stays.
fn copying_sql(connection: &Connection, table: &str, key: &str) -> rusqlite::Result<String> {
    let columns: Vec<String> = super::columns(connection, table)?
        .into_iter()
        .filter(|column| column != key)
        .collect();
    let columns = columns.join(", ");
    Ok(format!(
        "INSERT OR IGNORE INTO main.{table} ({key}, {columns}) SELECT ?1, {columns} FROM other.{table}
         WHERE {key} = ?2 ORDER BY at_us"
    ))
}

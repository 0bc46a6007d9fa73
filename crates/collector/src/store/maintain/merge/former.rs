//! Hosts and agents that the two files describe differently: what each file says of its own runs stays as it was.
//!
//! An agent may go from one collector to the other and back, so neither file's description holds before or after all of the
//! other's. Each run in which a host or an agent was there adds a row, up to the run's end, with what its file says then; what
//! changed within a run has rows already. Rows that say what the next one says are removed at the end.

use super::{Mapped, References, columns, value};
use rusqlite::Connection;

/// A table of which former rows are kept.
struct Described {
    table: &'static str,
    /// The column of `former_TABLE` that names the row.
    key: &'static str,
    references: References,
    /// Whether the row of `t` was there in the run `r`.
    there: &'static str,
}

const DESCRIBED: [Described; 2] = [
    Described {
        table: "hosts",
        key: "host_id",
        references: &[],
        there: "EXISTS (SELECT 1 FROM {file}.host_samples AS x WHERE x.host_id = t.id
                        AND x.at_us BETWEEN r.started_us AND r.until_us)
                OR EXISTS (SELECT 1 FROM {file}.run_agents AS x WHERE x.host_id = t.id AND x.run_id = r.id)",
    },
    Described {
        table: "agents",
        key: "agent_id",
        references: &[("host_id", Mapped("hosts"))],
        there: "EXISTS (SELECT 1 FROM {file}.clock_offsets AS x WHERE x.agent_id = t.id
                        AND x.at_us BETWEEN r.started_us AND r.until_us)
                OR EXISTS (SELECT 1 FROM {file}.run_agents AS x WHERE x.agent_id = t.id AND x.run_id = r.id)",
    },
];

/// One of the two files, by its name in SQL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum File {
    Main,
    Other,
}

impl File {
    fn name(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Other => "other",
        }
    }

    /// The column of `temp.map_TABLE` with this file's ids.
    fn ids(self) -> &'static str {
        match self {
            Self::Main => "new",
            Self::Other => "old",
        }
    }
}

/// Adds what each file says at the end of each of its runs to this file's former hosts and agents. Before anything of the
/// other's runs is there. The number of rows.
pub(super) fn keep(connection: &Connection) -> rusqlite::Result<usize> {
    let mut rows = 0;
    for described in &DESCRIBED {
        let columns = descriptions(connection, described)?;
        find_differing(connection, described, &columns)?;
        for file in [File::Main, File::Other] {
            rows += connection.execute(&rows_of_runs(described, &columns, file), [])?;
        }
    }
    Ok(rows)
}

/// Removes former rows that say what the next one says, or the row of today. The number of rows.
pub(super) fn drop_repeats(connection: &Connection) -> rusqlite::Result<usize> {
    let mut rows = 0;
    for described in &DESCRIBED {
        let Described { table, key, .. } = described;
        let columns = descriptions(connection, described)?;
        let same = columns.iter().map(|column| {
            format!(
                "f.{column} = coalesce((SELECT x.{column} FROM main.former_{table} AS x WHERE x.{key} = f.{key}
                     AND x.until_us > f.until_us ORDER BY x.until_us LIMIT 1), t.{column})"
            )
        });
        let same: Vec<String> = same.collect();
        rows += connection.execute(
            &format!(
                "DELETE FROM main.former_{table} WHERE ({key}, until_us) IN (
                     SELECT f.{key}, f.until_us FROM temp.differing_{table} AS d
                     JOIN main.{table} AS t ON t.id = d.new
                     JOIN main.former_{table} AS f ON f.{key} = t.id WHERE {})",
                same.join(" AND ")
            ),
            [],
        )?;
    }
    Ok(rows)
}

/// The columns of `former_TABLE` beside its key.
fn descriptions(connection: &Connection, described: &Described) -> rusqlite::Result<Vec<String>> {
    let mut columns = columns(connection, &format!("former_{}", described.table))?;
    columns.retain(|column| column != described.key && column != "until_us");
    Ok(columns)
}

/// Makes `temp.differing_TABLE`: the rows of `temp.map_TABLE` of which the files do not say the same at all times.
fn find_differing(
    connection: &Connection,
    described: &Described,
    columns: &[String],
) -> rusqlite::Result<()> {
    let Described { table, key, .. } = described;
    let differ: Vec<String> = columns
        .iter()
        .map(|column| format!("n.{column} <> {}", value(column, described.references, "o")))
        .collect();
    connection.execute_batch(&format!(
        "CREATE TEMP TABLE differing_{table} (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
         INSERT INTO temp.differing_{table} SELECT m.old, m.new FROM temp.map_{table} AS m
         JOIN other.{table} AS o ON o.id = m.old JOIN main.{table} AS n ON n.id = m.new
         WHERE {}
            OR EXISTS (SELECT 1 FROM main.former_{table} AS x WHERE x.{key} = n.id)
            OR EXISTS (SELECT 1 FROM other.former_{table} AS x WHERE x.{key} = o.id);",
        differ.join(" OR ")
    ))
}

/// A run that has not ended lasts as long as its file knows of any agent.
fn rows_of_runs(described: &Described, columns: &[String], file: File) -> String {
    let Described { table, key, .. } = described;
    let (name, ids) = (file.name(), file.ids());
    let references = match file {
        File::Main => &[],
        File::Other => described.references,
    };
    let then: Vec<String> = columns
        .iter()
        .map(|column| format!("coalesce(f.{column}, t.{column}) AS {column}"))
        .collect();
    let values: Vec<String> = columns
        .iter()
        .map(|column| value(column, references, "o"))
        .collect();
    format!(
        "INSERT OR IGNORE INTO main.former_{table} ({key}, until_us, {})
         SELECT o.id, o.until_us, {} FROM (
             SELECT d.new AS id, r.until_us, {} FROM temp.differing_{table} AS d
             JOIN {name}.{table} AS t ON t.id = d.{ids}
             JOIN (SELECT id, started_us, coalesce(ended_us, (SELECT max(last_seen_us) FROM {name}.agents)) + 1 AS until_us
                   FROM {name}.runs WHERE started_us IS NOT NULL) AS r
             LEFT JOIN {name}.former_{table} AS f ON f.{key} = t.id AND f.until_us =
                 (SELECT min(x.until_us) FROM {name}.former_{table} AS x WHERE x.{key} = t.id AND x.until_us >= r.until_us)
             WHERE {}) AS o",
        columns.join(", "),
        values.join(", "),
        then.join(", "),
        described.there.replace("{file}", name),
    )
}

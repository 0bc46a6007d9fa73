//! Copies the runs of another database into this one.
//!
//! Ids of the other file that may collide are shifted. Rows that both files may have (hosts, agents, daemons, disks,
//! interfaces, targets) are matched by their natural keys. Samples, nearly all of the rows, are copied by `samples`.
//! Everything is one SQLite transaction.

mod samples;

use super::{BUSY_TIMEOUT, MaintainError, failed, writer};
use async_recursion::async_recursion as boxed;
use rusqlite::{Connection, ErrorCode, params};
use std::path::Path;

/// The size of a merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Merged {
    pub runs: i64,
    pub rows: usize,
}

/// How the value of a referencing column is converted to an id of this database.
#[derive(Clone, Copy)]
enum Reference {
    /// Ids of the other file are shifted behind those of this one.
    Shifted(&'static str),
    /// Rows that may be in both files: `map_TABLE` maps the ids.
    Mapped(&'static str),
}

/// Columns that refer to another row.
type References = &'static [(&'static str, Reference)];

use Reference::{Mapped, Shifted};

/// Tables with rows that both files may have, their natural keys, and the references in these rows. Parents first.
const SHARED: &[(&str, &[&str], References)] = &[
    ("hosts", &["boot_id", "pid_namespace"], &[]),
    ("agents", &["uid"], &[("host_id", Mapped("hosts"))]),
    (
        "daemons",
        &["host_id", "pid", "start_ticks"],
        &[("host_id", Mapped("hosts"))],
    ),
    (
        "disks",
        &["host_id", "name"],
        &[("host_id", Mapped("hosts"))],
    ),
    (
        "interfaces",
        &["host_id", "net_namespace", "name"],
        &[("host_id", Mapped("hosts"))],
    ),
    (
        "targets",
        &["agent_id", "nonce", "path"],
        &[("run_id", Shifted("runs")), ("agent_id", Mapped("agents"))],
    ),
];

/// Combines the instants of an agent or daemon that both files have: first and last seen of either file, birth and
/// end from the file that has them.
const SEEN: [&str; 2] = [
    "UPDATE main.agents AS n SET first_seen_us = min(n.first_seen_us, o.first_seen_us),
         last_seen_us = max(n.last_seen_us, o.last_seen_us)
     FROM temp.map_agents AS m JOIN other.agents AS o ON o.id = m.old
     WHERE n.id = m.new AND (o.first_seen_us < n.first_seen_us OR o.last_seen_us > n.last_seen_us)",
    "UPDATE main.daemons AS n SET first_seen_us = min(n.first_seen_us, o.first_seen_us),
         last_seen_us = max(n.last_seen_us, o.last_seen_us), born_us = coalesce(n.born_us, o.born_us),
         ended_us = coalesce(n.ended_us, o.ended_us)
     FROM temp.map_daemons AS m JOIN other.daemons AS o ON o.id = m.old
     WHERE n.id = m.new AND (o.first_seen_us < n.first_seen_us OR o.last_seen_us > n.last_seen_us
         OR (n.born_us IS NULL AND o.born_us IS NOT NULL) OR (n.ended_us IS NULL AND o.ended_us IS NOT NULL))",
];

const STEP: (&str, Reference) = ("step_id", Shifted("steps"));
const TASK: (&str, Reference) = ("task_id", Shifted("tasks"));
const RUN: (&str, Reference) = ("run_id", Shifted("runs"));
const AGENT: (&str, Reference) = ("agent_id", Mapped("agents"));

const HOST: (&str, Reference) = ("host_id", Mapped("hosts"));
const DAEMON: (&str, Reference) = ("daemon_id", Mapped("daemons"));

const FINDINGS: References = &[RUN, STEP, AGENT, HOST, DAEMON];

/// The other tables, except samples and findings. Parents first.
const OWN: &[(&str, References)] = &[
    ("runs", &[]),
    ("run_tags", &[RUN]),
    ("run_notes", &[RUN]),
    ("marks", &[RUN]),
    ("baselines", &[RUN]),
    ("run_agents", &[RUN, AGENT, HOST]),
    ("run_targets", &[RUN, AGENT]),
    ("samplers", &[AGENT, HOST]),
    ("steps", &[RUN]),
    ("step_groups", &[STEP]),
    ("step_intervals", &[STEP]),
    ("step_results", &[STEP]),
    ("step_daemons", &[STEP, DAEMON]),
    ("step_traffic", &[STEP, HOST]),
    ("step_objectives", &[STEP]),
    ("step_states", &[STEP]),
    ("cache_drops", &[STEP, AGENT]),
    ("tasks", &[STEP, AGENT, ("peer_agent_id", Mapped("agents"))]),
    ("task_errors", &[TASK]),
    ("task_results", &[TASK]),
    ("op_intervals", &[TASK]),
    ("events", &[RUN, STEP, AGENT]),
    ("facts", &[RUN, STEP, AGENT]),
    ("losses", &[AGENT]),
    ("spools", &[AGENT]),
    ("clock_offsets", &[AGENT]),
];

/// Of [`OWN`], rows of all times without a natural key. Two files of one mesh, such as runs fetched from an archive,
/// have the same ones; each is stored once.
const ONCE: [&str; 2] = ["samplers", "losses"];

/// Copies all runs of another database into this one, with agents, hosts and samples. Rows that both have are stored
/// once. `progress` gets the number of finished series of samples, and their total. Refused are a run that both have,
/// a run that has not ended, and another schema.
#[boxed(?Send)]
#[inline(never)]
pub async fn merge(
    path: &Path,
    other: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Merged, MaintainError> {
    merge_with(path, other, FindingsCopied::OfMergedRows, progress).await
}

/// Like [`merge`], with all findings as they are, but without their SQL. For a file that no collector will open, in
/// which nobody computes them again.
pub async fn merge_with_findings(
    path: &Path,
    other: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Merged, MaintainError> {
    merge_with(path, other, FindingsCopied::All, progress).await
}

/// Which findings are copied; a collector that opens the file computes those of other runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FindingsCopied {
    /// Of runs some of whose rows were merged or deleted.
    OfMergedRows,
    All,
}

async fn merge_with(
    path: &Path,
    other: &Path,
    findings: FindingsCopied,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Merged, MaintainError> {
    let doing = "cannot merge the other database";
    if !other.is_file() {
        return Err(MaintainError::Wrong(format!(
            "there is no database {}",
            other.display()
        )));
    }
    if path.canonicalize().ok() == other.canonicalize().ok() {
        return Err(MaintainError::Wrong(format!(
            "{} and {} are the same file",
            path.display(),
            other.display()
        )));
    }
    let (beside, lock) = writer(path).await?;
    // Locks the other file too; another schema is refused.
    let (other_beside, other_lock) = writer(other).await?;
    drop((beside, other_beside));
    let mut connection = connect(path, other)?;
    refuse(&connection, path, other)?;
    // Almost all pages are new, and a rollback journal contains none of those, so each is written once, in place.
    // While a reader has the file open it stays in WAL mode, which writes everything twice.
    journal(&connection, "TRUNCATE").map_err(failed(path, doing))?;
    let (merged, strays) =
        copy_all(&mut connection, findings, progress).map_err(failed(path, doing))?;
    if strays > 0 {
        return Err(MaintainError::Wrong(format!(
            "{} is damaged: {strays} of its rows refer to missing rows; run `benchmesh db check {}`",
            other.display(),
            other.display()
        )));
    }
    // Without a reader, the file is in WAL mode again before another process opens it.
    journal(&connection, "WAL").map_err(failed(path, doing))?;
    // The last connection checkpoints the WAL on close.
    drop(connection);
    drop((lock, other_lock));
    Ok(merged)
}

/// Copies everything in one transaction, which is rolled back if rows refer to missing ones; the second result is
/// their number.
fn copy_all(
    connection: &mut Connection,
    findings: FindingsCopied,
    progress: &mut dyn FnMut(u64, u64),
) -> rusqlite::Result<(Merged, i64)> {
    let transaction = connection.transaction()?;
    make_shifts(&transaction)?;
    let mut rows = merge_shared(&transaction)?;
    rows += samples::copy(&transaction, progress)?;
    rows += merge_own(&transaction)?;
    rows += merge_findings(&transaction, findings)?;
    transaction.execute(
        // Samples of the other file may have a finer resolution; thinning again does not change those of this file.
        "UPDATE main.meta AS n SET samples_10s_until_us = min(n.samples_10s_until_us, o.samples_10s_until_us),
             samples_60s_until_us = min(n.samples_60s_until_us, o.samples_60s_until_us),
             samples_deleted_until_us = min(n.samples_deleted_until_us, o.samples_deleted_until_us)
         FROM other.meta AS o",
        [],
    )?;
    transaction.execute(
        // The sums of their slices are not copied, so these steps are marked as merged, and their figures stay
        // unchanged.
        "UPDATE main.steps SET resolution_s = iif(merged_60s_until_us IS NULL, 10, 60), merging = 1,
             stale_batches = 0, stale_samples = 0
         WHERE resolution_s = 1 AND merged_10s_until_us IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM main.step_sums AS m WHERE m.step_id = steps.id)",
        [],
    )?;
    let runs = transaction.query_row("SELECT count(*) FROM other.runs", [], |row| row.get(0))?;
    let mut strays = 0;
    for table in OWN.iter().map(|(table, _)| *table).chain(["targets"]) {
        // Each row was looked up through its parent, as the samples were.
        if table == "op_intervals" {
            continue;
        }
        let count = "SELECT count(*) FROM pragma_foreign_key_check(?)";
        let found: i64 = transaction.query_row(count, params![table], |row| row.get(0))?;
        strays += found;
    }
    if strays == 0 {
        transaction.commit()?;
    }
    Ok((Merged { runs, rows }, strays))
}

/// A connection with the other database attached.
fn connect(path: &Path, other: &Path) -> Result<Connection, MaintainError> {
    let name = other
        .to_str()
        .ok_or_else(|| MaintainError::Wrong(String::from("the other path is not UTF-8")))?;
    let open = || {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.execute("ATTACH ? AS other", params![name])?;
        // Foreign keys are checked at the end, which costs less than per row.
        connection.execute_batch(
            "PRAGMA foreign_keys = OFF; PRAGMA cache_size = -262144; PRAGMA temp_store = MEMORY;",
        )?;
        Ok(connection)
    };
    open().map_err(failed(path, "cannot merge the other database"))
}

/// Changes the journal mode; SQLite keeps the mode while another process has the file open.
fn journal(connection: &Connection, mode: &str) -> rusqlite::Result<()> {
    let set = connection.query_row(&format!("PRAGMA main.journal_mode = {mode}"), [], |row| {
        row.get::<_, String>(0)
    });
    match set {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(()),
        set => set.map(drop),
    }
}

fn refuse(connection: &Connection, path: &Path, other: &Path) -> Result<(), MaintainError> {
    let doing = "cannot read the other database";
    let list = |sql: &str| -> Result<Vec<String>, MaintainError> {
        let mut found = connection.prepare(sql).map_err(failed(other, doing))?;
        let found = found
            .query_map([], |row| row.get::<_, String>(0))
            .and_then(Iterator::collect);
        found.map_err(failed(other, doing))
    };
    let both = list(
        "SELECT format('%d (%s)', o.id, o.name) FROM other.runs AS o JOIN main.runs AS r ON r.uid = o.uid ORDER BY o.id",
    )?;
    if !both.is_empty() {
        return Err(MaintainError::Wrong(format!(
            "{} already has these runs of {}: {}",
            path.display(),
            other.display(),
            both.join(", ")
        )));
    }
    let going = list(
        "SELECT format('%d (%s)', id, name) FROM other.runs WHERE state IN ('queued', 'running') ORDER BY id",
    )?;
    if !going.is_empty() {
        return Err(MaintainError::Wrong(format!(
            "runs of {} have not ended: {}",
            other.display(),
            going.join(", ")
        )));
    }
    Ok(())
}

/// Inserts hosts, agents, and the sampled daemons, disks, interfaces and targets, and creates the tables `map_*` from
/// the other file's ids to those here. Returns the number of rows.
fn merge_shared(connection: &Connection) -> rusqlite::Result<usize> {
    let mut rows = 0;
    for (table, key, references) in SHARED {
        let columns = columns(connection, table)?;
        let values = values(&columns, references, "o", Ids::Fresh);
        let names = names(&columns, Ids::Fresh);
        rows += connection.execute(
            &format!("INSERT OR IGNORE INTO main.{table} ({names}) SELECT {values} FROM other.{table} AS o ORDER BY o.id"),
            [],
        )?;
        let same: Vec<String> = key
            .iter()
            .map(|column| format!("n.{column} = {}", value(column, references, "o")))
            .collect();
        connection.execute_batch(&format!(
            "CREATE TEMP TABLE map_{table} (old INTEGER PRIMARY KEY, new INTEGER NOT NULL);
             INSERT INTO temp.map_{table} SELECT o.id, n.id FROM other.{table} AS o JOIN main.{table} AS n ON {};",
            same.join(" AND ")
        ))?;
    }
    for sql in SEEN {
        connection.execute(sql, [])?;
    }
    Ok(rows)
}

/// Creates the table `shifts` with the offsets of the other file's ids.
fn make_shifts(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(
        "CREATE TEMP TABLE shifts (name TEXT PRIMARY KEY, shift INTEGER NOT NULL);",
    )?;
    for table in ["runs", "steps", "tasks"] {
        connection.execute(
            // The largest id ever assigned, including deleted rows.
            "INSERT INTO temp.shifts SELECT ?1, coalesce(max(seq), 0) FROM main.sqlite_sequence WHERE name = ?1",
            params![table],
        )?;
    }
    Ok(())
}

/// Inserts the runs and everything that belongs to them. Returns the number of rows.
fn merge_own(connection: &Connection) -> rusqlite::Result<usize> {
    let mut rows = 0;
    for (table, references) in OWN {
        let columns = columns(connection, table)?;
        let ids = match *table {
            "runs" | "steps" | "tasks" => Ids::Shifted,
            _ => Ids::Fresh,
        };
        let mut values = values(&columns, references, "o", ids);
        if ids == Ids::Shifted {
            values = values.replacen("o.id", &format!("o.id + {}", shift(table)), 1);
        }
        let names = names(&columns, ids);
        let mut new = String::from("true");
        if ONCE.contains(table) {
            let same: Vec<String> = copied_columns(&columns, ids)
                .map(|column| format!("n.{column} IS {}", value(column, references, "o")))
                .collect();
            new = format!(
                "NOT EXISTS (SELECT 1 FROM main.{table} AS n WHERE {})",
                same.join(" AND ")
            );
        }
        rows += connection.execute(
            &format!(
                "INSERT OR IGNORE INTO main.{table} ({names}) SELECT {values} FROM other.{table} AS o WHERE {new}"
            ),
            [],
        )?;
    }
    Ok(rows)
}

/// Findings are computed again from rows with their original resolution. Findings of runs with merged or deleted rows
/// are copied without their SQL, which contains ids of the other file.
fn merge_findings(connection: &Connection, findings: FindingsCopied) -> rusqlite::Result<usize> {
    let all = findings == FindingsCopied::All;
    let mut columns = columns(connection, "findings")?;
    columns.retain(|column| column != "sql");
    let names = names(&columns, Ids::Fresh);
    let values = values(&columns, FINDINGS, "o", Ids::Fresh);
    connection.execute(
        &format!(
            "INSERT INTO main.findings ({names}) SELECT {values} FROM other.findings AS o
             WHERE {all} OR EXISTS (SELECT 1 FROM other.steps AS s WHERE s.run_id = o.run_id
                           AND (s.resolution_s <> 1 OR s.merged_10s_until_us IS NOT NULL))
             ORDER BY o.id"
        ),
        [],
    )
}

/// How a table's own `id` is chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// SQLite assigns new ones.
    Fresh,
    Shifted,
}

fn columns(connection: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?, 'main')")?;
    let columns = columns.query_map(params![table], |row| row.get(0))?;
    columns.collect()
}

fn copied_columns(columns: &[String], ids: Ids) -> impl Iterator<Item = &String> {
    columns
        .iter()
        .filter(move |column| ids == Ids::Shifted || column.as_str() != "id")
}

fn names(columns: &[String], ids: Ids) -> String {
    let names: Vec<&str> = copied_columns(columns, ids).map(String::as_str).collect();
    names.join(", ")
}

fn values(columns: &[String], references: &[(&str, Reference)], from: &str, ids: Ids) -> String {
    let values: Vec<String> = copied_columns(columns, ids)
        .map(|column| value(column, references, from))
        .collect();
    values.join(", ")
}

fn value(column: &str, references: &[(&str, Reference)], from: &str) -> String {
    let reference = references.iter().find(|(name, _)| *name == column);
    match reference {
        None => format!("{from}.{column}"),
        Some((_, Shifted(table))) => format!("{from}.{column} + {}", shift(table)),
        Some((_, Mapped(table))) => {
            format!("(SELECT new FROM temp.map_{table} WHERE old = {from}.{column})")
        }
    }
}

fn shift(table: &str) -> String {
    format!("(SELECT shift FROM temp.shifts WHERE name = '{table}')")
}

//! What a statement probably meant by a name that does not exist: the nearest columns of its tables, the nearest table,
//! the nearest function. The names come from the database itself.

use benchmesh_model::text::{did_you_mean, likeness};
use rusqlite::Connection;

/// Names that are less like the wanted one are not shown.
const MIN_LIKENESS: f64 = 0.75;
/// Others are shown beside the best only if they are about as good.
const MAX_LIKENESS_GAP: f64 = 0.06;
const MAX_SHOWN: usize = 3;

/// Names of figures in other tools, and our columns of that figure: the one that looks most alike may be another figure
/// (`ops` is a count).
const OTHER_TOOLS: [(&[&str], &[&str]); 8] = [
    (&["iops", "ops_s", "ops_sec", "rate"], &["ops_per_s"]),
    (
        &["bw", "bandwidth", "throughput", "mib_s", "mb_s"],
        &["mib_per_s", "bytes_per_s"],
    ),
    (
        &["lat", "clat", "latency", "mean", "avg"],
        &["mean_ms", "mean_ns"],
    ),
    (&["stddev"], &["stddev_ms", "stddev_ns"]),
    (&["p50", "median"], &["p50_ms", "p50_ns"]),
    (&["p99"], &["p99_ms", "p99_ns"]),
    (&["p999", "p99_9"], &["p999_ms", "p999_ns"]),
    (&["max"], &["max_ms", "max_ns"]),
];

/// A help for SQLite's error message about `sql`; `None` for those that need none. Reads under the guard of the query.
pub(super) fn help(connection: &Connection, sql: &str, message: &str) -> Option<String> {
    if let Some(name) = message.strip_prefix("no such column: ") {
        // SQLite adds a hint after a dash.
        let name = name.split(" - ").next().unwrap_or(name);
        return Some(columns(connection, sql, name));
    }
    if let Some(name) = message.strip_prefix("no such table: ") {
        return Some(tables(connection, name));
    }
    let name = message.strip_prefix("no such function: ")?;
    let functions = names(
        connection,
        "SELECT DISTINCT name FROM pragma_function_list",
        "",
    );
    suggest(nearest(name, &functions))
}

fn columns(connection: &Connection, sql: &str, name: &str) -> String {
    let (alias, name) = match name.rsplit_once('.') {
        Some((alias, name)) => (Some(alias), name),
        None => (None, name),
    };
    let words = words(sql);
    let mut tables = all_tables(connection);
    tables.retain(|table| words.iter().any(|word| word.eq_ignore_ascii_case(table)));
    if let Some(alias) = alias
        && tables.iter().any(|table| is_called(&words, table, alias))
    {
        tables.retain(|table| is_called(&words, table, alias));
    }
    let mut found: Vec<(f64, String)> = Vec::new();
    for table in &tables {
        let columns = names(connection, COLUMNS, table);
        let alike = match of_other_tools(name, &columns) {
            Some(column) => vec![(1.0, column)],
            None => nearest(name, &columns),
        };
        found.extend(
            alike
                .into_iter()
                .map(|(likeness, column)| match tables.len() {
                    1 => (likeness, column),
                    _ => (likeness, format!("{column} of {table}")),
                }),
        );
    }
    let listed = tables.first().map_or("v_results", String::as_str);
    let list = format!(
        "\"SELECT name FROM pragma_table_info('{listed}')\" lists the columns of {listed}; docs/database.md has all"
    );
    [suggest(best(found)), Some(list)]
        .into_iter()
        .flatten()
        .collect::<Vec<String>>()
        .join("\n  help: ")
}

/// The column that has the figure that other tools call `name`.
fn of_other_tools(name: &str, columns: &[String]) -> Option<String> {
    let name = name.to_ascii_lowercase();
    let (_, ours) = OTHER_TOOLS
        .iter()
        .find(|(theirs, _)| theirs.contains(&name.as_str()))?;
    let mut found = columns
        .iter()
        .filter(|column| ours.contains(&column.as_str()));
    found.next().cloned()
}

fn tables(connection: &Connection, name: &str) -> String {
    let name = name.rsplit('.').next().unwrap_or(name);
    let list = "\"SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')\" lists all tables and views";
    let found = suggest(nearest(name, &all_tables(connection)));
    found.map_or_else(
        || list.to_owned(),
        |found| format!("{found}\n  help: {list}"),
    )
}

const COLUMNS: &str = "SELECT name FROM pragma_table_info(?1)";

fn all_tables(connection: &Connection) -> Vec<String> {
    let all = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
               ORDER BY type DESC, name";
    names(connection, all, "")
}

/// The first column of the rows; none if the database cannot be read.
fn names(connection: &Connection, sql: &str, about: &str) -> Vec<String> {
    let read = || {
        let mut statement = connection.prepare(sql)?;
        let values: &[&dyn rusqlite::ToSql] = match statement.parameter_count() {
            0 => &[],
            _ => &[&about],
        };
        let rows = statement.query_map(values, |row| row.get(0))?;
        rows.collect::<rusqlite::Result<Vec<String>>>()
    };
    read().unwrap_or_default()
}

/// Words of a statement that may be names of tables.
fn words(sql: &str) -> Vec<&str> {
    sql.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .collect()
}

/// Whether a statement calls the table `alias`: `table`, `table alias` or `table AS alias`.
fn is_called(words: &[&str], table: &str, alias: &str) -> bool {
    let is =
        |word: Option<&&str>, name: &str| word.is_some_and(|word| word.eq_ignore_ascii_case(name));
    let mut places = words
        .iter()
        .enumerate()
        .filter(|(_, word)| is(Some(word), table));
    table.eq_ignore_ascii_case(alias)
        || places.any(|(at, _)| {
            let next = match is(words.get(at + 1), "as") {
                true => at + 2,
                false => at + 1,
            };
            is(words.get(next), alias)
        })
}

/// The names that are like `name`, with how much.
fn nearest(name: &str, candidates: &[String]) -> Vec<(f64, String)> {
    let alike = candidates
        .iter()
        .map(|candidate| (likeness(name, candidate), candidate.clone()));
    best(alike.collect())
}

/// The best and those that are about as good, best first.
fn best(mut found: Vec<(f64, String)>) -> Vec<(f64, String)> {
    found.sort_by(|(a, one), (b, other)| b.total_cmp(a).then_with(|| one.cmp(other)));
    let most = found.first().map_or(0.0, |(likeness, _)| *likeness);
    found.retain(|(likeness, _)| *likeness >= MIN_LIKENESS.max(most - MAX_LIKENESS_GAP));
    found.truncate(MAX_SHOWN);
    found
}

fn suggest(found: Vec<(f64, String)>) -> Option<String> {
    let names: Vec<String> = found.into_iter().map(|(_, name)| name).collect();
    match names.as_slice() {
        [] => None,
        [rest @ .., last] if !rest.is_empty() => {
            Some(did_you_mean(&format!("{} or {last}", rest.join(", "))))
        }
        [only, ..] => Some(did_you_mean(only)),
    }
}

//! Sections that consist of a query only: a statement about a run, and the columns that show its rows.
//!
//! A new table is an entry of [`SECTIONS`]. Its reading, the check of its query plan, its rows in the JSON document
//! and its table on the terminal, in Markdown and in HTML all follow from the entry. A section has its own file if
//! other parts read the fields of its rows, or if its table shows more than its rows.

use super::agents::versions;
use crate::report::row::{ReportError, Statement, reading, rows};
use crate::report::table::{Align, Table};
use benchmesh_model::mesh::RunId;
use benchmesh_workloads::figures::{self, NONE};
use rusqlite::Connection;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

const GIB: f64 = 1_073_741_824.0;

/// In the order of their tables.
pub(in crate::report) const SECTIONS: &[Section] = &[
    Section {
        key: "targets",
        title: "Targets",
        in_summary: false,
        statement: Statement {
            what: "run_targets",
            sql: "SELECT target, system, path, count(*) AS agents, mount_type, mount_source, mount_options,
                         max(size_bytes) AS size_bytes, packages
                  FROM run_targets WHERE run_id = ?
                  GROUP BY target, system, path, mount_type, mount_source, mount_options, packages
                  ORDER BY target, agents DESC",
        },
        columns: &[
            column("target", "target", Format::Text),
            column("system", "system", Format::Text),
            column("agents", "agents", Format::Count),
            column("path", "path", Format::Text),
            column("mount_type", "type", Format::Text),
            column("mount_source", "source", Format::Text),
            column("size_bytes", "GiB", Format::Gib),
            column("packages", "packages", Format::Versions),
            column("mount_options", "options", Format::Text),
        ],
        spare: &["options", "packages", "path"],
        note: None,
    },
    Section {
        key: "daemon_versions",
        title: "Versions of daemons",
        in_summary: false,
        statement: Statement {
            what: "daemons",
            sql: "WITH serving AS (
                      SELECT DISTINCT u.daemon_id FROM steps AS s CROSS JOIN step_daemons AS u ON u.step_id = s.id
                      WHERE s.run_id = ? AND u.serves_target IS NOT 0)
                  SELECT d.name, d.version, count(*) AS daemons, count(DISTINCT d.host_id) AS hosts,
                         nullif(sum(d.is_replaced), 0) AS replaced
                  FROM serving CROSS JOIN daemons AS d ON d.id = serving.daemon_id
                  WHERE d.version IS NOT NULL OR d.is_replaced = 1 GROUP BY d.name, d.version ORDER BY 1, 2",
        },
        columns: &[
            column("name", "daemon", Format::Text),
            column("version", "version", Format::Text),
            column("daemons", "daemons", Format::Count),
            column("hosts", "hosts", Format::Count),
            column("replaced", "replaced", Format::Count),
        ],
        spare: &["hosts"],
        note: Some(
            "The versions of the packages that the daemons' files belong to. Replaced: the files were removed or replaced \
             after the daemons' start, and they use the old ones until they restart.",
        ),
    },
    Section {
        key: "objectives",
        title: "Objectives",
        in_summary: false,
        statement: Statement {
            what: "step_objectives",
            sql: "WITH o AS (
                      SELECT o.holds, sum(o.seconds) AS seconds, sum(o.bad_seconds) AS bad_seconds,
                             (1 - max(o.share)) * sum(o.seconds) AS budget_s
                      FROM steps AS s CROSS JOIN step_objectives AS o ON o.step_id = s.id
                      WHERE s.run_id = ? AND s.attempt = (SELECT max(n.attempt) FROM steps AS n
                                                          WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
                      GROUP BY o.holds)
                  SELECT holds, iif(bad_seconds > budget_s + 1e-6, 'broken', 'kept') AS verdict, seconds, bad_seconds,
                         budget_s, budget_s - bad_seconds AS left_s
                  FROM o ORDER BY verdict, holds",
        },
        columns: &[
            column("holds", "objective", Format::Text),
            column("verdict", "verdict", Format::Text),
            column("seconds", "seconds", Format::Count),
            column("bad_seconds", "bad", Format::Count),
            column("budget_s", "may be bad", Format::Rate),
            column("left_s", "left", Format::Rate),
        ],
        spare: &["may be bad"],
        note: Some("While a run goes on: the seconds so far, and how many of them may be bad."),
    },
    Section {
        key: "steadiness",
        title: "Steady state",
        in_summary: true,
        statement: Statement {
            what: "events",
            sql: "SELECT s.ordinal, s.phase, s.target, s.mode,
                         iif(e.kind = 'steady', 'steady', 'not steady') AS verdict,
                         iif(e.kind = 'steady', e.detail ->> 'after_s', NULL) AS after_s,
                         e.detail ->> 'window_s' AS window_s, e.detail ->> 'words' AS words
                  FROM events AS e JOIN steps AS s ON s.id = e.step_id
                  WHERE e.run_id = ? AND e.kind IN ('steady', 'not-steady')
                        AND s.attempt = (SELECT max(n.attempt) FROM steps AS n
                                         WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
                  ORDER BY s.ordinal, e.id",
        },
        columns: &[
            column("ordinal", "step", Format::Count),
            column("phase", "phase", Format::Text),
            column("target", "target", Format::Text),
            column("mode", "mode", Format::Text),
            column("verdict", "verdict", Format::Text),
            column("after_s", "after s", Format::Count),
            column("window_s", "window s", Format::Count),
            column("words", "of all clients, over the window", Format::Text),
        ],
        spare: &["window s", "mode", "target"],
        note: Some("For a step that is not steady, the window is the last one that was judged."),
    },
    Section {
        key: "searches",
        title: "Highest rate",
        in_summary: true,
        statement: Statement {
            what: "events",
            sql: "SELECT s.phase, s.target, s.mode, s.loop, s.repeat, e.detail ->> 'while' AS bound,
                         iif(e.kind = 'search-found', 'found', 'not found') AS verdict,
                         e.detail ->> 'highest_per_s' AS highest_per_s, e.detail ->> 'latency_ms' AS latency_ms,
                         e.detail ->> 'ordinal' AS ordinal, e.detail ->> 'beyond_per_s' AS beyond_per_s,
                         e.detail ->> 'beyond_latency_ms' AS beyond_latency_ms,
                         json_array_length(e.detail, '$.probes') AS probes, e.detail ->> 'words' AS words
                  FROM events AS e JOIN steps AS s ON s.id = e.step_id
                  WHERE e.run_id = ? AND e.kind IN ('search-found', 'search-not-found')
                        AND s.attempt = (SELECT max(n.attempt) FROM steps AS n
                                         WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
                  ORDER BY s.ordinal, e.id",
        },
        columns: &[
            column("phase", "phase", Format::Text),
            column("target", "target", Format::Text),
            column("mode", "mode", Format::Text),
            column("loop", "loop", Format::Count),
            column("repeat", "repeat", Format::Count),
            column("bound", "while", Format::Text),
            column("verdict", "verdict", Format::Text),
            column("highest_per_s", "highest rate/s", Format::Rate),
            column("latency_ms", "there ms", Format::Millis),
            column("ordinal", "step", Format::Count),
            column("beyond_per_s", "beyond/s", Format::Rate),
            column("beyond_latency_ms", "beyond ms", Format::Millis),
            column("probes", "probes", Format::Count),
            column("words", "in words", Format::Text),
        ],
        spare: &["in words", "loop", "repeat", "step", "mode"],
        note: Some(
            "The knee lies between the highest rate that passed and the lowest that did not (rates of all clients \
             together). If no load with a rate failed, its upper end is the load without a rate.",
        ),
    },
    Section {
        key: "search_probes",
        title: "Highest rate: the probes",
        in_summary: true,
        statement: Statement {
            what: "events",
            sql: "SELECT s.phase, s.target, s.mode, s.repeat, p.value ->> 'ordinal' AS ordinal,
                         p.value ->> 'rate_per_s' AS rate_per_s, p.value ->> 'ops_per_s' AS ops_per_s,
                         p.value ->> 'latency_ms' AS latency_ms, p.value ->> 'errors' AS errors,
                         p.value ->> 'verdict' AS verdict, e.detail ->> 'figure' AS figure
                  FROM events AS e JOIN steps AS s ON s.id = e.step_id JOIN json_each(e.detail, '$.probes') AS p
                  WHERE e.run_id = ? AND e.kind IN ('search-found', 'search-not-found')
                        AND s.attempt = (SELECT max(n.attempt) FROM steps AS n
                                         WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
                  ORDER BY s.ordinal, e.id, p.key",
        },
        columns: &[
            column("phase", "phase", Format::Text),
            column("target", "target", Format::Text),
            column("mode", "mode", Format::Text),
            column("repeat", "repeat", Format::Count),
            column("ordinal", "step", Format::Count),
            column("rate_per_s", "rate/s", Format::Rate),
            column("ops_per_s", "ops/s", Format::Rate),
            column("figure", "figure", Format::Text),
            column("latency_ms", "ms", Format::Millis),
            column("errors", "errors", Format::Count),
            column("verdict", "verdict", Format::Text),
        ],
        spare: &["repeat", "errors", "mode", "phase"],
        note: Some("The first probe of a search has no rate. A load with a rate is judged by its response time."),
    },
    Section {
        key: "failed_operations",
        title: "Failed operations",
        in_summary: true,
        statement: Statement {
            what: "task_errors",
            sql: "SELECT s.phase, s.target, coalesce(g.mode, s.mode) AS mode, e.op, e.errno, sum(e.errors) AS errors,
                         count(DISTINCT s.id) AS steps, count(DISTINCT t.agent_id) AS agents, min(e.first) AS first
                  FROM steps AS s CROSS JOIN tasks AS t ON t.step_id = s.id CROSS JOIN task_errors AS e ON e.task_id = t.id
                       LEFT JOIN step_groups AS g ON g.step_id = s.id AND g.name = t.group_name
                  WHERE s.run_id = ? AND s.attempt = (SELECT max(n.attempt) FROM steps AS n
                                                      WHERE n.run_id = s.run_id AND n.ordinal = s.ordinal)
                  GROUP BY s.phase, s.target, coalesce(g.mode, s.mode), e.op, e.errno
                  ORDER BY errors DESC, s.phase, s.target, mode, e.op, e.errno",
        },
        columns: &[
            column("phase", "phase", Format::Text),
            column("target", "target", Format::Text),
            column("mode", "mode", Format::Text),
            column("op", "op", Format::Text),
            column("errno", "errno", Format::Count),
            column("errors", "errors", Format::Count),
            column("steps", "steps", Format::Count),
            column("agents", "agents", Format::Count),
            column("first", "first", Format::Text),
        ],
        spare: &["agents", "steps", "errno"],
        note: Some(
            "Errors with errno 74 (`verify`) count wrong sectors of 4 KiB. Errors of each client: benchmesh query \
             --example errors.",
        ),
    },
];

/// A table of the rows of a statement.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct Section {
    /// The key of its rows in the JSON document: arrays of objects, with a field for each column of the statement.
    pub(in crate::report) key: &'static str,
    pub(in crate::report) title: &'static str,
    /// Whether a summary also has the table.
    pub(in crate::report) in_summary: bool,
    pub(in crate::report) statement: Statement,
    /// From left to right. A column without any value is left out.
    pub(in crate::report) columns: &'static [SectionColumn],
    /// Titles of columns that may be dropped if the table is too wide, the least important first.
    pub(in crate::report) spare: &'static [&'static str],
    /// A line beneath the table.
    pub(in crate::report) note: Option<&'static str>,
}

/// A column of the statement and its format in the table.
#[derive(Clone, Copy, Debug)]
pub(in crate::report) struct SectionColumn {
    pub(in crate::report) field: &'static str,
    pub(in crate::report) title: &'static str,
    pub(in crate::report) format: Format,
}

const fn column(field: &'static str, title: &'static str, format: Format) -> SectionColumn {
    SectionColumn {
        field,
        title,
        format,
    }
}

/// The format of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::report) enum Format {
    Text,
    Count,
    Rate,
    Millis,
    /// Bytes, shown in GiB.
    Gib,
    /// A JSON object of versions by package.
    Versions,
}

impl Format {
    fn align(self) -> Align {
        match self {
            Self::Text | Self::Versions => Align::Left,
            Self::Count | Self::Rate | Self::Millis | Self::Gib => Align::Right,
        }
    }

    fn cell(self, value: &Value) -> String {
        match self {
            Self::Text if value.is_null() => String::new(),
            Self::Text => figures::parameter(value),
            Self::Count => value
                .as_i64()
                .map_or_else(|| NONE.to_owned(), figures::count),
            Self::Rate => figures::maybe_rate(value.as_f64()),
            Self::Millis => figures::maybe_millis(value.as_f64()),
            Self::Gib => figures::maybe_rate(value.as_f64().map(|bytes| bytes / GIB)),
            Self::Versions => versions(value.as_object()),
        }
    }
}

impl Section {
    fn rows(&self, connection: &Connection, run: RunId) -> Result<Value, ReportError> {
        let mut rows: Vec<Map<String, Value>> = rows(connection, self.statement, run)?;
        for column in self.columns {
            if column.format == Format::Versions {
                for value in rows.iter_mut().filter_map(|row| row.get_mut(column.field)) {
                    parse(value).map_err(reading(self.statement.what))?;
                }
            }
        }
        Ok(Value::from(rows))
    }

    /// The table of its rows; `None` if there are none.
    pub(in crate::report) fn table(&self, rows: &[Value]) -> Option<Table> {
        let mut table = Table::of(self.title, rows);
        for column in self.columns {
            let cell = |row: &Value| {
                let value = row.get(column.field).unwrap_or(&Value::Null);
                column.format.cell(value)
            };
            table = match column.format.align() {
                Align::Left => table.text(column.title, cell),
                Align::Right => table.figure(column.title, cell),
            };
            table = table.if_any();
        }
        if let Some(note) = self.note {
            table = table.note(note);
        }
        table.spare(self.spare).done()
    }
}

/// Parses a JSON text in place.
fn parse(value: &mut Value) -> Result<(), serde_json::Error> {
    if let Value::String(text) = value {
        *value = serde_json::from_str(text)?;
    }
    Ok(())
}

/// The rows of all sections, by their keys.
pub(in crate::report) fn load(
    connection: &Connection,
    run: RunId,
) -> Result<Map<String, Value>, ReportError> {
    let mut read = Map::new();
    for section in SECTIONS {
        let rows = section.rows(connection, run)?;
        read.insert(section.key.to_owned(), rows);
    }
    Ok(read)
}

/// The ordinals of the steps that are probes of a search.
pub(in crate::report) fn probes(read: &Map<String, Value>) -> BTreeSet<i64> {
    let rows = read.get("search_probes").and_then(Value::as_array);
    let rows = rows.into_iter().flatten();
    rows.filter_map(|row| row.get("ordinal")?.as_i64())
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use crate::report::{Detail, load_file, markdown, tables};
    use benchmesh_store::Store;

    #[tokio::test]
    async fn failed_operations_are_summed_over_clients_and_steps() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mesh.db");
        Store::open(&path).await.unwrap().close().await;
        rusqlite::Connection::open(&path)
            .unwrap()
            .execute_batch(
                "INSERT INTO hosts (id, boot_id, pid_namespace, name, kernel, cpus, memory_bytes)
                     VALUES (1, 'b', 'p', 'lab', '6.18', 2, 1000);
                 INSERT INTO agents (id, uid, name, host_id, labels, version, first_seen_us, last_seen_us)
                     VALUES (1, 'a1', 'c1', 1, '{}', '0.1.0', 1, 2), (2, 'a2', 'c2', 1, '{}', '0.1.0', 1, 2);
                 INSERT INTO runs (id, uid, name, plan, state, partial, created_us, version)
                     VALUES (1, 'u1', 'nightly', '', 'done', 0, 10, '0.1.0');
                 INSERT INTO steps (id, run_id, ordinal, repeat, attempt, phase, cell, target, system, workload, mode,
                                    params, clients, cache, state, partial, flags)
                     VALUES (1, 1, 1, 1, 1, 'records', 'c', 'disk', 'ext4', 'io', 'write', '{}', 2, 'asis', 'failed', 0, '[]'),
                            (2, 1, 1, 1, 2, 'records', 'c', 'disk', 'ext4', 'io', 'write', '{}', 2, 'asis', 'done', 0, '[]'),
                            (3, 1, 2, 2, 1, 'records', 'c', 'disk', 'ext4', 'io', 'write', '{}', 2, 'asis', 'done', 0, '[]');
                 INSERT INTO tasks (id, step_id, task_index, agent_id, state)
                     VALUES (1, 1, 0, 1, 'failed'), (2, 2, 0, 1, 'done'), (3, 2, 1, 2, 'done'), (4, 3, 0, 1, 'done');
                 INSERT INTO task_errors (task_id, op, errno, errors, first)
                     VALUES (1, 'write', 5, 900, 'of an attempt before'), (2, 'write', 28, 4, 'write /mnt/a'),
                            (3, 'write', 28, 1200, 'write /mnt/b'), (4, 'write', 28, 1, 'write /mnt/c'),
                            (4, 'fsync', 5, 2, 'fsync /mnt/c');",
            )
            .unwrap();
        let report = load_file(&path, "last").await.unwrap();
        let rows = [
            "records | disk | write | write | 28 | 1,205 | 2 | 2 | write /mnt/a",
            "records | disk | write | fsync | 5 | 2 | 1 | 1 | fsync /mnt/c",
        ];
        let all = tables(&report, Detail::Summary);
        let table = all.iter().find(|table| table.title == "Failed operations");
        let shown: Vec<String> = table
            .unwrap()
            .rows
            .iter()
            .map(|row| row.join(" | "))
            .collect();
        assert_eq!(shown, rows);
        let text = markdown(&report, Detail::Summary);
        assert!(rows.iter().all(|row| text.contains(row)), "{text}");
        let document = serde_json::to_value(&report).unwrap();
        let first = document.pointer("/failed_operations/0/first").unwrap();
        assert_eq!(first, "write /mnt/a");
    }
}

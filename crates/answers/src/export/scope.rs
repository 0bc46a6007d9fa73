//! Selects the rows of a table that belong to an export.

use benchmesh_store::run_rows;
use rusqlite::{Connection, OptionalExtension, params};

/// The run with this id, uid or name (the newest of that name).
pub(super) fn find_run(connection: &Connection, wanted: &str) -> rusqlite::Result<Option<i64>> {
    connection
        .query_row(
            "SELECT id FROM runs WHERE CAST(id AS TEXT) = ?1 OR uid = ?1 OR name = ?1
             ORDER BY CAST(id AS TEXT) = ?1 DESC, uid = ?1 DESC, id DESC LIMIT 1",
            params![wanted],
            |row| row.get(0),
        )
        .optional()
}

pub(super) enum ExportScope {
    /// The ids of all runs, because a view is cheap for one run and expensive for all at once.
    All(Vec<i64>),
    Run {
        id: i64,
        /// Instants of the run; `until_us` is far in the future if it has not ended.
        from_us: i64,
        until_us: i64,
    },
}

impl ExportScope {
    pub(super) fn of(connection: &Connection, run: Option<i64>) -> rusqlite::Result<Self> {
        let Some(id) = run else {
            let mut ids = connection.prepare("SELECT id FROM runs ORDER BY id")?;
            let ids = ids.query_map([], |row| row.get(0))?;
            return Ok(Self::All(ids.collect::<rusqlite::Result<_>>()?));
        };
        connection.query_row(
            "SELECT coalesce(started_us, created_us), coalesce(ended_us, 9223372036854775807) FROM runs WHERE id = ?",
            params![id],
            |row| {
                Ok(Self::Run {
                    id,
                    from_us: row.get(0)?,
                    until_us: row.get(1)?,
                })
            },
        )
    }

    /// The queries for the rows of a table: a single one, or one per run. Ids are literal numbers, because SQLite
    /// pushes a condition below a view's GROUP BY only for a comparison with a constant.
    pub(super) fn queries(
        &self,
        connection: &Connection,
        table: &str,
    ) -> rusqlite::Result<Vec<String>> {
        let mut columns = connection.prepare("SELECT name FROM pragma_table_info(?)")?;
        let columns = columns.query_map(params![table], |row| row.get::<_, String>(0))?;
        let columns = columns.collect::<rusqlite::Result<Vec<_>>>()?;
        let from = format!("\"{}\"", table.replace('"', "\"\""));
        let has = |name: &str| columns.iter().any(|column| column == name);
        Ok(match self {
            Self::All(runs) if is_view(table) && has("run_id") && !runs.is_empty() => runs
                .iter()
                .map(|run| format!("SELECT * FROM {from} WHERE run_id = {run}"))
                .collect(),
            Self::All(_) => vec![format!("SELECT * FROM {from}")],
            Self::Run {
                id,
                from_us,
                until_us,
            } => {
                let mut condition = run_rows::condition(table, *id, &has);
                if run_rows::is_limited_to_its_time(table) {
                    condition = format!("{condition} AND at_us BETWEEN {from_us} AND {until_us}");
                }
                vec![format!("SELECT * FROM {from} WHERE {condition}")]
            }
        })
    }
}

pub(super) fn is_view(table: &str) -> bool {
    table.starts_with("v_")
}

//! The tables that are archived, with their columns and keys, read from the schema of the database itself.

use rusqlite::{Connection, params};

/// What belongs to a collector or to work under way and not to a run that has ended, and why the archive lacks it.
const NOT_ARCHIVED: [(&str, &str); 8] = [
    ("meta", "the file's own"),
    (
        "archived_runs",
        "what a collector has copied into its archive",
    ),
    ("baselines", "names that a collector gave to its runs"),
    ("kept_data", "data on targets, of many runs"),
    ("kept_data_agents", "the same"),
    ("run_directories", "empty when a run has ended"),
    ("spools", "batches that a collector has accepted"),
    ("step_sums", "kept while a step runs"),
];

/// Why a table of the schema is not archived; `None` if it is, or is no table.
pub fn why_not_archived(table: &str) -> Option<&'static str> {
    let mut not = NOT_ARCHIVED.iter();
    not.find(|(name, _)| *name == table).map(|(_, why)| *why)
}

/// The type of a column, as STRICT tables declare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    Integer,
    Real,
    Text,
    Blob,
    /// A number or a text: `facts.value`.
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: String,
    pub kind: ColumnType,
    pub is_nullable: bool,
}

/// A table that is archived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    /// In the order of the schema.
    pub columns: Vec<Column>,
    /// The columns of its primary key, in the order of the key.
    pub key: Vec<String>,
}

impl Table {
    pub fn has(&self, column: &str) -> bool {
        self.columns.iter().any(|one| one.name == column)
    }

    /// Whether an archive partitions it by month.
    pub fn is_partitioned(&self) -> bool {
        self.is_of_seconds() || self.name == "events"
    }

    /// Whether its rows are those of seconds: nearly all bytes of an archive.
    pub fn is_of_seconds(&self) -> bool {
        self.has("at_us") && (self.name.ends_with("_samples") || self.name.ends_with("_intervals"))
    }
}

impl Table {
    /// The columns that its rows are read in the order of: the key, and of intervals first what they are of and their
    /// times, which an index has. Sorting them by their ids would take a temporary file of all their histograms.
    pub fn order(&self) -> Vec<&str> {
        let key = self.key.iter().map(String::as_str);
        let mut owners = ["task_id", "step_id"].into_iter();
        match owners.find(|column| self.is_of_seconds() && self.has(column)) {
            Some(owner) => [owner, "at_us"].into_iter().chain(key).collect(),
            None => key.collect(),
        }
    }
}

/// All archived tables of an open database, in the order of the schema, in which parents come first.
pub fn all(database: &Connection) -> rusqlite::Result<Vec<Table>> {
    let mut names = database.prepare(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY rowid",
    )?;
    let names = names.query_map([], |row| row.get::<_, String>(0))?;
    let names = names.collect::<rusqlite::Result<Vec<_>>>()?;
    names
        .into_iter()
        .filter(|name| NOT_ARCHIVED.iter().all(|(not, _)| not != name))
        .map(|name| table(database, name))
        .collect()
}

/// All archived tables of this version's schema.
pub fn known() -> rusqlite::Result<Vec<Table>> {
    all(&benchmesh_store::schema::empty()?)
}

/// A column of an archived table that names a row of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    pub table: String,
    pub column: String,
    pub parent: String,
}

/// The references between archived tables.
pub fn references(database: &Connection, tables: &[Table]) -> rusqlite::Result<Vec<Reference>> {
    let mut all = Vec::new();
    for table in tables {
        let mut found =
            database.prepare("SELECT \"from\", \"table\" FROM pragma_foreign_key_list(?)")?;
        let found = found.query_map(params![table.name], |row| {
            Ok(Reference {
                table: table.name.clone(),
                column: row.get(0)?,
                parent: row.get(1)?,
            })
        })?;
        all.extend(found.collect::<rusqlite::Result<Vec<_>>>()?);
    }
    Ok(all)
}

fn table(database: &Connection, name: String) -> rusqlite::Result<Table> {
    let mut found =
        database.prepare("SELECT name, type, \"notnull\", pk FROM pragma_table_info(?)")?;
    let found = found.query_map(params![name], |row| {
        let kind = match row.get_ref(1)?.as_str()? {
            "INTEGER" => ColumnType::Integer,
            "REAL" => ColumnType::Real,
            "TEXT" => ColumnType::Text,
            "BLOB" => ColumnType::Blob,
            _ => ColumnType::Any,
        };
        let at: i64 = row.get(3)?;
        let column = Column {
            name: row.get(0)?,
            kind,
            is_nullable: !row.get::<_, bool>(2)? && at == 0,
        };
        Ok((at, column))
    })?;
    let found = found.collect::<rusqlite::Result<Vec<_>>>()?;
    let mut key: Vec<(i64, String)> = found
        .iter()
        .filter(|(at, _)| *at > 0)
        .map(|(at, column)| (*at, column.name.clone()))
        .collect();
    key.sort();
    Ok(Table {
        name,
        columns: found.into_iter().map(|(_, column)| column).collect(),
        key: key.into_iter().map(|(_, name)| name).collect(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use benchmesh_synthetic::{Shape, generate};

    #[test]
    fn every_table_of_the_schema_is_archived_or_named_as_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("small.db");
        generate(&path, &Shape::small()).unwrap();
        let database = Connection::open(&path).unwrap();
        let tables = all(&database).unwrap();
        let known = benchmesh_store::schema::tables_and_views().unwrap();
        for name in known.iter().filter(|name| !name.starts_with("v_")) {
            let is_archived = tables.iter().any(|one| one.name == *name);
            let is_named = NOT_ARCHIVED.iter().any(|(not, _)| not == name);
            assert!(is_archived != is_named, "{name}");
        }
        let results = tables
            .iter()
            .find(|one| one.name == "step_results")
            .unwrap();
        assert_eq!(results.key, ["id"]);
        let kind = |column: &str| {
            let found = results.columns.iter().find(|one| one.name == column);
            found.map(|one| (one.kind, one.is_nullable)).unwrap()
        };
        assert_eq!(kind("id"), (ColumnType::Integer, false));
        assert_eq!(kind("ops_per_s"), (ColumnType::Real, true));
        assert_eq!(kind("histogram"), (ColumnType::Blob, true));
        let usage = tables
            .iter()
            .find(|one| one.name == "step_daemons")
            .unwrap();
        assert_eq!(usage.key, ["step_id", "daemon_id"]);
    }
}

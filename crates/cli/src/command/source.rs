//! The data source of `report` and `query`: a database file or a collector.

use crate::args::QuerySource;
use crate::args::values::{DEFAULT_COLLECTOR, address};
use crate::failure::wrong_usage;
use crate::terminal::database_option;
use benchmesh_model::mesh::RUNS_LISTS_THEM;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Default database of a collector.
const DEFAULT_DB: &str = "benchmesh.db";

/// The source to query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Database(PathBuf),
    Collector(String),
}

impl QuerySource {
    /// A flag overrides the environment, the environment overrides the default file.
    pub fn asked(self) -> anyhow::Result<Asked> {
        choose(
            self,
            std::env::var_os("BENCHMESH_DB")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from),
            std::env::var("BENCHMESH_COLLECTOR")
                .ok()
                .filter(|address| !address.is_empty()),
            Path::new(DEFAULT_DB).exists(),
        )
    }
}

/// A refusal that concerns a database file, as wrong usage.
pub fn refused_in(path: &Path, refusal: impl Display) -> anyhow::Error {
    let list = format!("`benchmesh runs{}` lists them", database_option(path));
    let refusal = refusal.to_string().replace(RUNS_LISTS_THEM, &list);
    wrong_usage(format!("{}: {refusal}", path.display()))
}

fn choose(
    source: QuerySource,
    db: Option<PathBuf>,
    collector: Option<String>,
    default_db_exists: bool,
) -> anyhow::Result<Asked> {
    if let Some(path) = source.db {
        return Ok(Asked::Database(path));
    }
    if let Some(collector) = source.collector {
        return Ok(Asked::Collector(collector));
    }
    if let Some(path) = db {
        return Ok(Asked::Database(path));
    }
    if let Some(collector) = collector {
        return address(&collector)
            .map(Asked::Collector)
            .map_err(|problem| {
                wrong_usage(format!("BENCHMESH_COLLECTOR={collector:?}: {problem}"))
            });
    }
    Ok(if default_db_exists {
        Asked::Database(PathBuf::from(DEFAULT_DB))
    } else {
        Asked::Collector(DEFAULT_COLLECTOR.to_owned())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_default() {
        let source = |db: Option<&str>, collector: Option<&str>| QuerySource {
            db: db.map(PathBuf::from),
            collector: collector.map(str::to_owned),
        };
        let file = |path: &str| Asked::Database(PathBuf::from(path));
        let at = |address: &str| Asked::Collector(address.to_owned());
        let db = || Some(PathBuf::from("env.db"));
        let collector = || Some("env:1".to_owned());
        for (source, db, collector, there, expected) in [
            (
                source(Some("a.db"), None),
                db(),
                collector(),
                true,
                file("a.db"),
            ),
            (
                source(None, Some("a:1")),
                db(),
                collector(),
                true,
                at("a:1"),
            ),
            (source(None, None), db(), collector(), true, file("env.db")),
            (source(None, None), None, collector(), true, at("env:1")),
            (source(None, None), None, None, true, file("benchmesh.db")),
            (source(None, None), None, None, false, at(DEFAULT_COLLECTOR)),
        ] {
            assert_eq!(choose(source, db, collector, there).unwrap(), expected);
        }
        assert!(choose(source(None, None), None, Some("nonsense".into()), false).is_err());
    }
}

//! The files of a measurement on this machine that outlive it: the database of earlier ones, and the identities of the
//! mesh that wrote it.

use super::super::agent;
use super::experiment::RUN_PREFIX;
use crate::failure::{self, wrong_usage};
use crate::output;
use anyhow::Context;
use benchmesh_answers::query::{self, Limits, Value};
use benchmesh_store::maintain;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsString;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How many runs the user's own database keeps.
const RUNS_KEPT: u32 = 50;

/// Time limit for a list of runs.
const QUERY_LIMIT: Duration = Duration::from_secs(60);

/// Where a measurement keeps its files.
#[derive(Debug)]
pub struct Home {
    pub database: PathBuf,
    /// The collector's certificates.
    pub tls: PathBuf,
    /// A directory for the agents' state. With the same state, an agent removes what a killed one has left.
    pub agents: PathBuf,
    /// Whether old runs are removed.
    is_own: bool,
}

impl Home {
    /// The user's own database, or a named one, whose mesh ends with the measurement, in `temporary`.
    pub fn find(named: Option<&Path>, temporary: &Path) -> anyhow::Result<Self> {
        let home = match named {
            Some(path) => Self {
                database: path.to_owned(),
                tls: temporary.join("tls"),
                agents: temporary.join("agents"),
                is_own: false,
            },
            None => Self::own()?,
        };
        let parent = home.database.parent();
        if let Some(parent) =
            parent.filter(|parent| !parent.as_os_str().is_empty() && !parent.is_dir())
        {
            return Err(wrong_usage(format!(
                "the directory {} does not exist: make it, or name another file with --keep-db FILE",
                parent.display()
            )));
        }
        if let Some(holder) = home.holder() {
            return Err(wrong_usage(format!(
                "another measurement{holder} uses the database {}: wait for its end, or keep the results of this one \
                 elsewhere with --keep-db FILE",
                home.database.display()
            )));
        }
        Ok(home)
    }

    fn own() -> anyhow::Result<Self> {
        let database = agent::user_state_path("measure.db").ok_or_else(|| {
            wrong_usage(
                "neither XDG_STATE_HOME nor HOME is set: name a database with --keep-db FILE",
            )
        })?;
        if let Some(directory) = database.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .with_context(|| {
                    format!(
                        "make {} for the results; name another place with --keep-db FILE",
                        directory.display()
                    )
                })?;
        }
        let beside = |suffix: &str| {
            let mut name = OsString::from(&database);
            name.push(suffix);
            PathBuf::from(name)
        };
        Ok(Self {
            tls: beside(".tls"),
            agents: beside(".agents"),
            database,
            is_own: true,
        })
    }

    /// ` (process 12)` if a collector has the database open.
    fn holder(&self) -> Option<String> {
        let mut name = OsString::from(&self.database);
        name.push(".lock");
        let file = File::open(&name).ok()?;
        // Released again at once: the collector takes it.
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            return None;
        }
        let process = std::fs::read_to_string(&name).unwrap_or_default();
        Some(match process.trim() {
            "" => String::new(),
            process => format!(" (process {process})"),
        })
    }

    /// Refuses a database in which runs that are no measurements have not ended: its collector would continue them.
    pub async fn refuse_other_runs(&self) -> anyhow::Result<()> {
        let sql = format!(
            "SELECT id FROM runs WHERE state IN ('queued', 'running') AND name NOT GLOB '{RUN_PREFIX}*' ORDER BY id"
        );
        // If it cannot be read, the collector says why.
        let others = self.runs(&sql).await.unwrap_or_default();
        if others.is_empty() {
            return Ok(());
        }
        let shown: Vec<String> = others.iter().map(i64::to_string).collect();
        Err(wrong_usage(format!(
            "the database {} has runs that have not ended and are no measurements ({}): end them with `benchmesh stop \
             RUN` on their collector, or keep the results of this measurement elsewhere with --keep-db FILE",
            self.database.display(),
            shown.join(", ")
        )))
    }

    /// Removes the oldest runs of the user's own database. No process may have it open.
    pub async fn prune(&self) {
        if !self.is_own {
            return;
        }
        if let Err(error) = self.delete_old_runs().await {
            output::print_notice(&format!(
                "warning: old runs were not removed: {}",
                failure::chain(&error)
            ));
        }
    }

    async fn delete_old_runs(&self) -> anyhow::Result<()> {
        let sql = format!("SELECT id FROM runs ORDER BY id DESC LIMIT -1 OFFSET {RUNS_KEPT}");
        for run in self.runs(&sql).await? {
            maintain::delete(&self.database, &run.to_string()).await?;
        }
        Ok(())
    }

    /// The ids of runs that a query selects.
    async fn runs(&self, sql: &str) -> anyhow::Result<Vec<i64>> {
        let mut answer =
            query::run(&self.database, sql, Limits::own_process(QUERY_LIMIT), ()).await?;
        let mut runs = Vec::new();
        while let Some(batch) = answer.rows.recv().await {
            for row in batch? {
                if let Some(Value::Integer(run)) = row.first() {
                    runs.push(*run);
                }
            }
        }
        Ok(runs)
    }
}
